package requests

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// ActiveError says that the ingest group has members, and who they are.
type ActiveError = group.ActiveError

// Acked says which requests are done.
type Acked struct {
	Offset flusso.Offset   // everything below it; NoOffset when nothing is committed
	Above  []flusso.Offset // and these above it, ascending
}

// Cancellation is an operator's decision that nobody shall serve some requests
// any more.
type Cancellation struct {
	Requests      []Waiting // those, in their order
	Left          []Waiting // those that wait on
	More          bool      // and others behind the first MaxListed, which were not looked at
	Before, After Acked     // of the ingest group
	// Gone are requests that are not in the log any more, though they were never
	// acked, and are given up with the rest; nil for none.
	Gone *flusso.GapError

	pipeline topics.Pipeline
	before   progress
	topicID  [16]byte
}

// ChangedError says that the ingest group's offset is not what a plan was made
// for: an engine or another operator moved it since. Nothing was committed.
type ChangedError struct {
	Group   string
	Was, Is Acked
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("group %s has acked %s by now and not %s, for which this was planned: nothing was committed: look again with `flusso-kafka-admin request list`",
		e.Group, e.Is, e.Was)
}

// String returns the acked offsets as a person writes them: "below 7, and 9, 11".
func (a Acked) String() string {
	s := "nothing"
	if a.Offset >= 0 {
		s = "below " + a.Offset.String()
	}
	for i, o := range a.Above {
		if i == 0 {
			s += ", and"
		} else {
			s += ","
		}
		s += " " + o.String()
	}
	return s
}

// PlanCancel says what cancelling the requests that pick chooses would commit.
// Records that cannot be decoded are among those: cancelled, they no longer stop
// an engine that is too old for them. It changes nothing, and takes the requests
// that [List] does.
//
// Errors: a [*flusso.LimitError] when so many scattered ones do not fit into the
// metadata of a commit; what the brokers answered.
func PlanCancel(ctx context.Context, cl *kgo.Client, p topics.Pipeline, pick func(Waiting) bool) (Cancellation, error) {
	op := "cancel requests of pipeline " + p.String()
	s, err := look(ctx, cl, p)
	if err != nil {
		return Cancellation{}, fmt.Errorf("%s: %w", op, err)
	}
	c := Cancellation{Before: s.acks(), Gone: s.gone, More: s.more, pipeline: p, before: s.progress, topicID: s.id}
	done := make(map[flusso.Offset]bool)
	if s.gone == nil { // else the old acks are of other records
		for o := range s.acked {
			done[o] = true
		}
	}
	for _, w := range s.waiting {
		if pick(w) {
			c.Requests = append(c.Requests, w)
			done[w.Offset] = true
		} else {
			c.Left = append(c.Left, w)
		}
	}
	c.After.Offset = s.next
	if len(c.Left) > 0 {
		c.After.Offset = c.Left[0].Offset
	}
	for o := range done {
		if o > c.After.Offset {
			c.After.Above = append(c.After.Above, o)
		}
	}
	slices.Sort(c.After.Above)
	kept, err := wire.ParseRequestMetadata(c.metadata())
	if err != nil {
		return c, fmt.Errorf("%s: %w", op, err)
	}
	if fits := len(kept.Acked); fits < len(c.After.Above) {
		return c, &flusso.LimitError{
			What: op, Limit: "acked requests with waiting ones between them", Value: int64(len(c.After.Above)), Max: int64(fits),
			Setting: "nothing (it is fixed), cancel the oldest ones first",
		}
	}
	return c, nil
}

func (p progress) acks() Acked {
	a := Acked{Offset: p.offset}
	for o := range p.acked {
		a.Above = append(a.Above, o)
	}
	slices.Sort(a.Above)
	return a
}

// Group is the ingest group, which counts them as acked.
func (c Cancellation) Group() string { return c.pipeline.IngestGroup() }

func (c Cancellation) metadata() string {
	return wire.FormatRequestMetadata(wire.RequestMetadata{Offset: c.After.Offset, TopicID: c.topicID, Acked: c.After.Above})
}

// Memberless returns nil when the ingest group has no member, so that [Cancel]
// would commit now, and otherwise a [*ActiveError] that names them.
func Memberless(ctx context.Context, cl *kgo.Client, p topics.Pipeline) error {
	return group.Memberless(ctx, cl, p.IngestGroup())
}

// Cancel commits what [PlanCancel] returned. It joins the ingest group to do so
// (brokers let that wait for group.initial.rebalance.delay.ms, 3 s by default),
// and only an empty one: a running engine knows what it has acked better, and
// would serve on. An engine or operator that joins meanwhile wins.
//
// Errors: a [*ActiveError] names the members; a [*ChangedError]; what the
// brokers answered. After one nothing is cancelled, unless it says that the
// outcome is unknown.
func Cancel(ctx context.Context, cfg Config, plan Cancellation) error {
	op := "cancel requests of pipeline " + plan.pipeline.String()
	name := plan.pipeline.IngestGroup()
	held, err := group.Hold(ctx, group.Config{
		Group: name, Topic: plan.pipeline.RequestsTopic(), TopicID: plan.topicID,
		Opts: cfg.Client, Lookup: cfg.Lookup, Logger: cfg.Logger,
	})
	overtaken := func(cause error) error {
		return fmt.Errorf("%s: an ingest engine or another operator joined group %s meanwhile: nothing was committed: "+
			"look again with `flusso-kafka-admin request list`: %w", op, name, cause)
	}
	switch {
	case kafkaerr.Classify(err) == kafkaerr.Superseded:
		return overtaken(errors.Unwrap(err))
	case err != nil:
		return fmt.Errorf("%s: %w", op, err)
	}
	defer held.Close(context.WithoutCancel(ctx))
	is := progress{offset: flusso.NoOffset, leaderEpoch: -1}
	if at := held.Committed(); at.Found {
		is = progressOf(at.Offset, at.LeaderEpoch, at.Metadata)
	}
	if was := plan.before; is.found != was.found || is.offset != was.offset || is.metadata != was.metadata {
		return &ChangedError{Group: name, Was: plan.Before, Is: is.acks()}
	}
	err = held.Commit(ctx, group.Commit{Offset: plan.After.Offset, LeaderEpoch: -1, Metadata: plan.metadata()})
	var (
		unknown *group.UnknownCommitError
		refused *group.RefusedError
	)
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: whether offset %s of group %s was committed is unknown: look with `flusso-kafka-admin request list`: %w",
			op, plan.After.Offset, name, unknown.Cause)
	case errors.As(err, &refused) && kafkaerr.Classify(err) == kafkaerr.Superseded:
		return overtaken(refused.Cause)
	case err != nil:
		return kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Read", name), kafkaerr.OnTopic("Read", plan.pipeline.RequestsTopic()))
	}
	return nil
}
