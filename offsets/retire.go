package offsets

import (
	"context"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// NotRetiredError says that a lane is not retired, where an action needs it to
// be.
type NotRetiredError struct{ Lane topics.Lane }

func (e *NotRetiredError) Error() string {
	return fmt.Sprintf("lane of sink %q is not retired: group %s has no retirement on record; `flusso-kafka-admin lane retire %s --why TEXT --yes` takes it out of the watermark",
		e.Lane.Sink, e.Lane.Group(), e.Lane.Sink)
}

// PlanRetire plans that the watermark does not wait for a lane any more: its
// group keeps the offset that was acked for certain, and says with it who
// retired it, when and why. Where nothing was acked that is the log start. What
// another tool moved forward is not taken over.
//
// Errors: [Retirement.Check]'s; a [*flusso.RetiredError] when it is retired
// already; what the brokers answered.
func (s *Store) PlanRetire(ctx context.Context, lane topics.Lane, r Retirement) (Move, error) {
	if err := r.Check(); err != nil {
		return Move{}, err
	}
	st, err := s.stand(ctx, lane)
	if err != nil {
		return Move{}, err
	}
	if old := st.retirement(); !old.IsZero() {
		return Move{}, retiredError(lane, old)
	}
	// Nothing acked: whoever restores it begins as a sink that never attached.
	m := st.move(st.ends.Start, Metadata{})
	switch c := st.acked(); {
	case c == nil:
	case st.commit.State == Present && !st.commit.Own() && st.commit.Offset >= st.ends.Start && st.commit.Offset < c.Offset:
		// Rewound by another tool: what it asked for again still comes again.
		if m, err = s.moveTo(ctx, st, st.commit.Offset); err != nil {
			return Move{}, err
		}
	default:
		m = st.move(c.Offset, *c.Meta)
	}
	m.Meta.Retired = r
	return st.attach(m), nil
}

// PlanRestore plans that the watermark waits for a retired lane again, from the
// offset at which it was retired on: the same one is committed without the
// retirement. Where its group expired the ingest group's copy says which.
//
// Where items are gone that it never acked, its sink will still be told of the
// gap: see [Move.Attach].
//
// Errors: a [*NotRetiredError]; what the brokers answered.
func (s *Store) PlanRestore(ctx context.Context, lane topics.Lane) (Move, error) {
	st, err := s.stand(ctx, lane)
	if err != nil {
		return Move{}, err
	}
	if st.retirement().IsZero() {
		return Move{}, &NotRetiredError{Lane: lane}
	}
	c := st.acked()
	meta := *c.Meta
	meta.Retired = Retirement{}
	return st.move(c.Offset, meta), nil
}

// Missed tells what a lane has not been given while the source's feed went on
// without it: the positions above from and up to confirmed, which the source has
// forgotten and the lane does not hold. confirmed is the watermark of the other
// lanes in an incarnation, tail was read after it. It is pure.
func Missed(tail Tail, confirmed flusso.Position, incarnation string) (from flusso.Position, missed bool) {
	if tail.Found && tail.Header.Incarnation == incarnation {
		from = min(tail.Header.Newest, tail.Header.Through) // more may have been announced, and never came
	}
	return from, from < confirmed
}
