package offsets

import (
	"context"
	"errors"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Skip is the first item of a lane that its sink has not acked, and the move
// behind it.
type Skip struct {
	From flusso.Offset // where the item begins, at the earliest: markers may come first
	Item Found
	Move Move
}

// NothingWaitsError says that a lane has no item that is not acked.
type NothingWaitsError struct {
	Lane topics.Lane
	At   flusso.Offset // where the lane goes on
}

func (e *NothingWaitsError) Error() string {
	return fmt.Sprintf("lane of sink %q (topic %s): no item waits at offset %s: every item that is committed was acked",
		e.Lane.Sink, e.Lane.Topic(), e.At)
}

// PlanSkip finds the first item that the lane's sink has not acked, and plans
// that the lane goes on right behind it.
//
// Records that are no item, as another producer may have written them, lie
// before the item and go with it: nothing can stop between.
//
// Errors: what a consumer that attaches would be told ([*flusso.GapError],
// [*flusso.UnverifiedError], [*flusso.RetiredError]); [*NothingWaitsError]; what
// the brokers answered.
func (s *Store) PlanSkip(ctx context.Context, lane topics.Lane) (Skip, error) {
	st, err := s.stand(ctx, lane)
	if err != nil {
		return Skip{}, err
	}
	d := Start(lane, st.commit, st.mirror, st.ends)
	if d.Err != nil {
		return Skip{}, d.Err
	}
	from := d.Offset
	if d.Sequence == 0 { // set by hand: maybe within an item
		below, err := s.Below(ctx, lane, d.Offset)
		switch {
		case err == nil:
			from = below.Next()
		case errors.Is(err, ErrUnknown):
			from = st.ends.Start
		default:
			return Skip{}, err
		}
	}
	item, err := s.From(ctx, lane, from)
	if _, damaged := errors.AsType[*wire.FormatError](err); damaged {
		item, err = s.behindDamage(ctx, lane, from, err)
	}
	if err == nil && d.Sequence == 0 && from == st.ends.Start && item.cut(from) {
		// The log was trimmed into an item: a consumer passes what is left of it.
		from = item.Next()
		item, err = s.From(ctx, lane, from)
	}
	if errors.Is(err, ErrUnknown) {
		return Skip{}, &NothingWaitsError{Lane: lane, At: from}
	}
	if err != nil {
		return Skip{}, err
	}
	if d.Sequence != 0 && item.Header.Sequence != d.Sequence {
		return Skip{}, &flusso.GapError{
			Sink: lane.Sink, Topic: lane.Topic(), Group: lane.Group(),
			From: from, To: item.At, Acked: d.Through, Next: item.Header.Position,
			Cause: fmt.Sprintf("sequence %d follows %d", item.Header.Sequence, d.Sequence-1),
		}
	}
	m := st.move(item.Next(), upTo(item.Header))
	m.Between, err = s.between(ctx, st, m)
	return Skip{From: from, Item: item, Move: m}, err
}

// behindDamage returns the first item behind records that are none, or the
// error about them where nothing is behind.
func (s *Store) behindDamage(ctx context.Context, lane topics.Lane, from flusso.Offset, damage error) (Found, error) {
	for item, err := range s.Items(ctx, lane, Reading{From: from}) {
		if err != nil {
			return Found{}, err
		}
		if item.Damage == nil && !item.EndOnly {
			return item.Found, nil
		}
	}
	return Found{}, damage
}
