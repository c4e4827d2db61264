// Package lease is the writer of a pipeline as an operator sees it: its four
// transactional ids, the transactions that are open on the lanes and hold up
// their readers, how one that hangs is ended, and how whoever writes is fenced.
// No engine needs to run.
//
// The two functions to know are [Describe], which changes nothing, and [Fence].
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/markers"
	"github.com/flusso/flusso-kafka/topics"
)

// Settle is how long a transaction may stay open on a lane after its
// coordinator has called it over, until it is ended by hand.
const Settle = markers.Settle

// longest is for how long a transaction whose coordinator is not to be found
// may be open and still not be taken for one that hangs: brokers allow no more
// by default (transaction.max.timeout.ms).
const longest = 15 * time.Minute

// None is the state of a transactional id that was never used, or was
// forgotten by its coordinator after a week.
const None = "none"

// State is the writer's state at one moment. What could not be asked is in the
// Err of the ids and in Unknown; the rest is answered all the same.
type State struct {
	IDs  []ID          // one for each transactional id of the pipeline, in their order
	Open []Transaction // open on the lanes, by sink and offset
	// Unknown are the lanes of which open transactions are not known, by sink.
	Unknown []LaneError
	// OwnersErr says why the transactional ids of foreign producers that have
	// something open are not known.
	OwnersErr error
}

// ID is one transactional id, as its coordinator knows it.
type ID struct {
	Name          string
	State         string    // Kafka's: Empty, Ongoing, PrepareCommit, CompleteAbort, …; [None]; empty with Err
	ProducerID    int64     // -1 for none
	ProducerEpoch int16     // -1 for none
	Coordinator   int32     // broker id, -1 for none
	StartedAt     time.Time // of the transaction under way; zero for none
	Timeout       time.Duration
	Topics        []string // in the transaction under way, sorted
	Err           error
}

// Over reports whether the coordinator has no transaction under way, not even
// one whose markers are still to be written.
func (id ID) Over() bool { return id.Err == nil && over(id.State) }

func over(state string) bool { return state == None || markers.Over(state) }

// Transaction is one that is open on a lane: readers wait at its offset.
type Transaction struct {
	Lane             topics.Lane
	Offset           flusso.Offset // its first
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	// ID is the transactional id that has the producer id, empty when none is
	// known to have it; Ours says that it is one of the pipeline's.
	ID   string
	Ours bool
	// Blocked is how long it has held up readers, at least: since its
	// transaction began, where the coordinator knows of it, else since the
	// producer's newest record in the lane.
	Blocked time.Duration
	// Hanging says that it will not end by itself: its coordinator knows of no
	// such transaction.
	Hanging bool
}

// LaneError says why the transactions open on a lane are not known.
type LaneError struct {
	Lane topics.Lane
	Err  error
}

// Err returns why a part of the state is not known, each reason once; nil when
// all of it is.
func (s State) Err() error {
	var all []error
	seen := make(map[string]bool)
	add := func(err error) {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			all = append(all, err)
		}
	}
	for _, id := range s.IDs {
		add(id.Err)
	}
	for _, u := range s.Unknown {
		add(u.Err)
	}
	add(s.OwnersErr)
	return errors.Join(all...)
}

// Producers returns the producer ids of the pipeline's transactional ids that
// are known.
func (s State) Producers() []int64 {
	var all []int64
	for _, id := range s.IDs {
		if id.ProducerID >= 0 {
			all = append(all, id.ProducerID)
		}
	}
	return all
}

// Describe returns the state of a pipeline's writer and what is open on lanes.
//
// For any number of lanes it costs one FindCoordinator and one Metadata, one
// DescribeProducers for each broker that leads a lane, and one
// DescribeTransactions for each that coordinates an id. Where a transaction
// seems to hang it looks at the producers once more; where one is of a producer
// that is not the pipeline's it asks for the brokers, and each of them once for
// its transactional id.
func Describe(ctx context.Context, cl *kgo.Client, p topics.Pipeline, lanes []topics.Lane) State {
	return describe(ctx, cl, p, lanes, time.Now)
}

func describe(ctx context.Context, cl *kgo.Client, p topics.Pipeline, lanes []topics.Lane, now func() time.Time) State {
	var s State
	open, unknown := producers(ctx, cl, lanes)
	s.Unknown = unknown
	s.IDs = transactions(ctx, cl, writerIDs(p))

	foreign := make(map[int64]ID)
	known := byProducer(s.IDs)
	var strangers []int64
	for _, o := range open {
		if _, ours := known[o.ProducerID]; !ours && !slices.Contains(strangers, o.ProducerID) {
			strangers = append(strangers, o.ProducerID)
		}
	}
	if len(strangers) > 0 {
		foreign, s.OwnersErr = listedOwners(ctx, cl, strangers)
	}
	var suspects []topics.Lane
	for _, o := range open {
		t := o.transaction()
		id, ours := known[t.ProducerID]
		stranger, found := foreign[t.ProducerID]
		if !ours {
			id = stranger
		}
		t.ID, t.Ours = id.Name, ours
		since := o.Last
		if started := id.StartedAt; !started.IsZero() && id.ProducerEpoch == t.ProducerEpoch && started.Before(since) {
			since = started
		}
		if !since.IsZero() {
			t.Blocked = max(0, now().Sub(since))
		}
		// No transactional id at all can also mean that we may not see it.
		t.Hanging = ours && id.Over() || found && over(stranger.State) || !ours && !found && s.OwnersErr == nil && t.Blocked > longest
		if t.Hanging {
			suspects = append(suspects, t.Lane)
		}
		s.Open = append(s.Open, t)
	}
	if len(suspects) > 0 {
		s.confirm(ctx, cl, suspects)
	}
	slices.SortFunc(s.Open, func(a, b Transaction) int {
		return cmp.Or(strings.Compare(a.Lane.Sink, b.Lane.Sink), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.ProducerID, b.ProducerID))
	})
	return s
}

// confirm looks at the suspects' producers again. What was open before the
// coordinator called it over and still is has no end coming; what isn't had
// ended between the two looks, as those of a busy writer do.
func (s *State) confirm(ctx context.Context, cl *kgo.Client, suspects []topics.Lane) {
	type key struct {
		lane            topics.Lane
		producer, start int64
		epoch           int16
	}
	still := make(map[key]bool)
	again, unknown := producers(ctx, cl, suspects)
	for _, o := range again {
		t := o.transaction()
		still[key{t.Lane, t.ProducerID, int64(t.Offset), t.ProducerEpoch}] = true
	}
	unsure := func(l topics.Lane) bool {
		return slices.ContainsFunc(unknown, func(u LaneError) bool { return u.Lane == l })
	}
	s.Unknown = append(s.Unknown, unknown...)
	s.Open = slices.DeleteFunc(s.Open, func(t Transaction) bool {
		return t.Hanging && !unsure(t.Lane) && !still[key{t.Lane, t.ProducerID, int64(t.Offset), t.ProducerEpoch}]
	})
	for i, t := range s.Open {
		s.Open[i].Hanging = t.Hanging && !unsure(t.Lane)
	}
}

func writerIDs(p topics.Pipeline) []string {
	ids := make([]string, topics.WriterIDs)
	for i := range ids {
		ids[i] = p.WriterID(i)
	}
	return ids
}

func byProducer(ids []ID) map[int64]ID {
	all := make(map[int64]ID, len(ids))
	for _, id := range ids {
		if id.Err == nil && id.ProducerID >= 0 {
			all[id.ProducerID] = id
		}
	}
	return all
}

// String says who has what open where, in one line.
func (t Transaction) String() string {
	who := fmt.Sprintf("producer %d (epoch %d)", t.ProducerID, t.ProducerEpoch)
	if t.ID != "" {
		who += " of transactional id " + t.ID
	}
	return fmt.Sprintf("topic %s: %s has held a transaction open since offset %s", t.Lane.Topic(), who, t.Offset)
}
