package offsets

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/members"
	"github.com/flusso/flusso-kafka/topics"
)

// Deletion is what goes with a retired lane.
type Deletion struct {
	Lane    topics.Lane
	TopicID [16]byte // zero when the topic is gone already and only the group is left
	Before  Commit
	Retired Retirement

	Retained Totals          // all that the log holds
	GivenUp  Totals          // what of it was not acked
	Acked    flusso.Position // positions above it and up to Newest are given up
	Newest   flusso.Position
}

// StillWrittenError says that the ingest engine still publishes to a lane:
// deleting it would stop the engine for all lanes.
type StillWrittenError struct {
	Lane    topics.Lane
	Epoch   uint64   // writer epoch of the lane's newest item, which is the pipeline's newest
	Members []string // of the ingest group
}

func (e *StillWrittenError) Error() string {
	return fmt.Sprintf("lane of sink %q is still written to: its newest item is of writer epoch %d, the newest of the pipeline, and group %s has members (%s): "+
		"build the stream without the sink and restart the ingest engine first; it counts once that engine has published something",
		e.Lane.Sink, e.Epoch, e.Lane.Pipeline.IngestGroup(), strings.Join(e.Members, ", "))
}

// PlanDelete says what goes with a retired lane; lanes are all of the pipeline.
// Of a lane whose topic is gone already the group is left to delete.
//
// Errors: a [*NotRetiredError], a [*StillWrittenError]; an [*flusso.UnknownSinkError]
// when there is neither topic nor group; what the brokers answered.
func (s *Store) PlanDelete(ctx context.Context, lane topics.Lane, lanes []topics.Lane) (Deletion, error) {
	d := Deletion{Lane: lane}
	st, err := s.stand(ctx, lane)
	if kafkaerr.Classify(err) == kafkaerr.Missing {
		return d, s.groupLeft(ctx, lane, lanes)
	}
	if err != nil {
		return d, err
	}
	d.TopicID, d.Before, d.Retired = st.ends.TopicID, st.commit, st.retirement()
	if d.Retired.IsZero() {
		return d, &NotRetiredError{Lane: lane}
	}
	tails, err := s.Tails(ctx, unique(append([]topics.Lane{lane}, lanes...)))
	if err != nil {
		return d, err
	}
	if err := s.unwritten(ctx, lane, tails); err != nil {
		return d, err
	}
	tail := tails[lane]
	if tail.Err != nil {
		return d, tail.Err
	}
	if !tail.Found {
		return d, nil
	}
	from, err := s.totalsAt(ctx, lane, tail.Start)
	if err != nil {
		return d, err
	}
	acked := from
	if c := st.acked(); c.Offset > tail.Start {
		if acked, err = s.totalsAt(ctx, lane, min(c.Offset, tail.At+1)); err != nil {
			return d, err
		}
	}
	all, ok := minus(tail.Header.Totals, from)
	unacked, also := minus(tail.Header.Totals, acked)
	if !ok || !also {
		return d, fmt.Errorf("count items of topic %s: running totals go back: two writers, or a foreign one", lane.Topic())
	}
	d.Retained, d.GivenUp = all, unacked
	d.Newest = tail.Header.Newest
	if m := st.acked().Meta; m.Incarnation == tail.Header.Incarnation {
		d.Acked = m.Through
	}
	return d, nil
}

// groupLeft returns nil when a lane without a topic has a group left.
func (s *Store) groupLeft(ctx context.Context, lane topics.Lane, lanes []topics.Lane) error {
	known := make([]string, 0, len(lanes))
	for _, l := range lanes {
		if l != lane {
			known = append(known, l.Sink)
		}
	}
	listed, err := kadm.NewClient(s.cl).ListGroups(ctx)
	if err != nil {
		return kafkaerr.Wrap("look for group "+lane.Group(), err)
	}
	if _, ok := listed[lane.Group()]; ok {
		return nil
	}
	return &flusso.UnknownSinkError{Sink: lane.Sink, Known: known}
}

// unwritten returns nil when no engine that runs publishes to the lane.
func (s *Store) unwritten(ctx context.Context, lane topics.Lane, tails map[topics.Lane]Tail) error {
	newest := uint64(0)
	for l, t := range tails {
		if t.Err != nil {
			return fmt.Errorf("look whether the lane of sink %q is still written to: lane of sink %q: %w", lane.Sink, l.Sink, t.Err)
		}
		newest = max(newest, t.Header.Epoch)
	}
	if t := tails[lane]; !t.Found || t.Header.Epoch < newest {
		return nil
	}
	group := lane.Pipeline.IngestGroup()
	described, err := kadm.NewClient(s.cl).DescribeGroups(ctx, group)
	if err == nil && !errors.Is(described[group].Err, kerr.GroupIDNotFound) {
		err = described[group].Err
	}
	if err != nil {
		return kafkaerr.Wrap("look for members of group "+group, err, kafkaerr.OnGroup("Describe", group))
	}
	in := members.Of(described[group])
	if len(in) == 0 {
		return nil
	}
	e := &StillWrittenError{Lane: lane, Epoch: newest}
	for _, m := range in {
		e.Members = append(e.Members, m.String())
	}
	return e
}

// StillRetired looks again right before a deletion: a [*MovedError] when the lane
// was restored meanwhile, a [*GroupActiveError] when somebody attached.
func (s *Store) StillRetired(ctx context.Context, d Deletion) error {
	if err := s.Memberless(ctx, d.Lane); err != nil || d.TopicID == [16]byte{} {
		return err
	}
	now, err := s.committed(ctx, d.Lane)
	if err != nil || same(now, d.Before) {
		return err
	}
	return &MovedError{Lane: d.Lane, Planned: d.Before, Now: now}
}
