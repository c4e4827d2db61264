package offsets

import (
	"context"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// PlanAccept plans that the lane goes on at an offset although items below it
// were never acked: at the end of the newest whole item below it, or at the log
// start where nothing is below it. With [flusso.NoOffset] the place is that of
// the group's commit, moved up to the log start where it lies below.
//
// Errors: a [*flusso.InvalidError] for an offset beyond the lane, a
// [*flusso.RetiredError] for a retired lane, what the brokers answered.
func (s *Store) PlanAccept(ctx context.Context, lane topics.Lane, to flusso.Offset) (Move, error) {
	st, err := s.stand(ctx, lane)
	if err != nil {
		return Move{}, err
	}
	if r := st.retirement(); !r.IsZero() {
		return Move{}, retiredError(lane, r)
	}
	if to < 0 {
		to = max(st.commit.Offset, st.ends.Start)
	}
	if err := st.within(to); err != nil {
		return Move{}, err
	}
	return s.moveTo(ctx, st, to)
}

// within refuses an offset that the log does not have.
func (st standing) within(off flusso.Offset) error {
	if off >= st.ends.Start && off <= st.ends.Stable {
		return nil
	}
	return &flusso.InvalidError{
		What:   fmt.Sprintf("offset %s for the lane of sink %q", off, st.lane.Sink),
		Reason: fmt.Sprintf("topic %s goes from %s to %s", st.lane.Topic(), st.ends.Start, st.ends.Stable),
	}
}
