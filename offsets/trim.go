package offsets

import (
	"context"
	"errors"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// Trim is what may be deleted at the start of a lane: everything below the
// record that carries the header of an acked item. That record is kept, since
// the floor is translated with it.
type Trim struct {
	Lane    topics.Lane
	TopicID [16]byte
	Before  Commit        // what the group had
	Start   flusso.Offset // log start before
	UpTo    flusso.Offset // log start afterwards; not below Start
	Floor   flusso.Offset // how far the lane is acked for certain
	Items   uint64        // items that are gone then
	Bytes   uint64        // of their keys and values, uncompressed
}

// BeyondFloorError says that a trim would delete what was not acked. Nothing
// was deleted.
type BeyondFloorError struct {
	Lane  topics.Lane
	Floor flusso.Offset // how far the lane is acked for certain, NoOffset for nothing
	UpTo  flusso.Offset
	State flusso.FloorState // what the group's commit is worth
}

func (e *BeyondFloorError) Error() string {
	if e.Floor < 0 {
		return fmt.Sprintf("trim topic %s: nothing says for certain what sink %q has acked (%s): nothing can be trimmed: see `flusso-kafka-admin watermark`",
			e.Lane.Topic(), e.Lane.Sink, e.State)
	}
	return fmt.Sprintf("trim topic %s up to offset %s: sink %q has acked up to offset %s and no further: trim up to there, or let the sink catch up first",
		e.Lane.Topic(), e.UpTo, e.Lane.Sink, e.Floor)
}

// PlanTrim says what may be deleted of a lane up to an offset, or up to what was
// acked with [flusso.NoOffset]. Only an offset that our own metadata was written
// for, in the topic of today, says what was acked. It changes nothing.
//
// Errors: a [*BeyondFloorError]; what the brokers answered.
func (s *Store) PlanTrim(ctx context.Context, lane topics.Lane, to flusso.Offset) (Trim, error) {
	for tries := 1; ; tries++ {
		t, err := s.planTrim(ctx, lane, to)
		if !errors.Is(err, ErrUnknown) || tries == trimPlans {
			return t, err
		}
		// The log start moved on since: somebody else trims, the engine as a rule.
	}
}

// trimPlans is how often a trim is planned where others trim meanwhile.
const trimPlans = 5

func (s *Store) planTrim(ctx context.Context, lane topics.Lane, to flusso.Offset) (Trim, error) {
	st, err := s.stand(ctx, lane)
	if err != nil {
		return Trim{}, err
	}
	t := Trim{Lane: lane, TopicID: st.ends.TopicID, Before: st.commit, Start: st.ends.Start, UpTo: st.ends.Start, Floor: flusso.NoOffset}
	if st.commit.Own() && st.commit.Meta.TopicID == st.ends.TopicID {
		t.Floor = st.commit.Offset
	}
	if t.Floor < 0 || to > t.Floor {
		state := Judge(st.commit, st.mirror, st.ends.TopicID, "").State
		return t, &BeyondFloorError{Lane: lane, Floor: t.Floor, UpTo: to, State: state}
	}
	if to < 0 {
		to = t.Floor
	}
	kept, err := s.Below(ctx, lane, to)
	if errors.Is(err, ErrUnknown) {
		return t, nil // all that could go is gone
	}
	if err != nil {
		return t, err
	}
	t.UpTo = max(t.Start, kept.At)
	if t.UpTo == t.Start {
		return t, nil
	}
	from, err := s.totalsAt(ctx, lane, t.Start)
	if err != nil {
		return t, err
	}
	before, err := s.totalsAt(ctx, lane, kept.At)
	if err != nil {
		return t, err
	}
	gone, ok := minus(before, from)
	if !ok {
		return t, fmt.Errorf("count items of topic %s below offset %s: running totals go back: two writers, or a foreign one", lane.Topic(), kept.At)
	}
	t.Items, t.Bytes = gone.Batches, gone.Bytes
	return t, nil
}

// StillAcked looks again right before a trim: a [*MovedError] when the group does
// not vouch any more for what would be deleted.
func (s *Store) StillAcked(ctx context.Context, t Trim) error {
	now, err := s.committed(ctx, t.Lane)
	if err != nil {
		return err
	}
	if now.Own() && now.Meta.TopicID == t.TopicID && now.Offset > t.UpTo {
		return nil
	}
	return &MovedError{Lane: t.Lane, Planned: t.Before, Now: now}
}
