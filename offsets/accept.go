package offsets

import (
	"context"
	"errors"
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
		if to, err = s.acceptedAt(ctx, st); err != nil {
			return Move{}, err
		}
	}
	if err := st.within(to); err != nil {
		return Move{}, err
	}
	return s.moveTo(ctx, st, to)
}

// acceptedAt is where a lane goes on when nobody says where.
func (s *Store) acceptedAt(ctx context.Context, st standing) (flusso.Offset, error) {
	c := st.commit
	switch {
	case !c.Own() || c.Meta.TopicID == st.ends.TopicID && c.Offset <= st.ends.Stable:
		return min(max(c.Offset, st.ends.Start), st.ends.Stable), nil
	case c.Meta.TopicID != st.ends.TopicID || c.Meta.Through == flusso.NoPosition:
		return st.ends.Start, nil
	}
	// Truncated, and maybe written on since: what lies at or below what was acked
	// is the same again, for the source replays it.
	tr, err := s.TranslatePosition(ctx, st.lane, c.Meta.Through)
	if errors.Is(err, ErrUnknown) || err == nil && tr.Incarnation != c.Meta.Incarnation {
		return st.ends.Start, nil
	}
	return tr.Offset, err
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
