package offsets

import (
	"context"
	"errors"
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// Target is where a lane is rewound to. Use one of the functions that make one.
type Target struct {
	what string // "position 40"
	find func(context.Context, *Store, standing) (flusso.Offset, error)
	// through says that a through is meant: what was not acked behind it and
	// adds nothing to it, as a snapshot does, is not gone forward over.
	through bool
}

// String says where it is, as in "position 40".
func (t Target) String() string { return t.what }

// ToEarliest is the first whole item that is retained.
func ToEarliest() Target {
	return Target{what: "the earliest item that is retained", find: func(_ context.Context, _ *Store, st standing) (flusso.Offset, error) {
		return st.ends.Start, nil
	}}
}

// ToOffset is the first item that does not end below an offset.
func ToOffset(off flusso.Offset) Target {
	what := fmt.Sprintf("offset %s", off)
	return Target{what: what, find: func(_ context.Context, _ *Store, st standing) (flusso.Offset, error) {
		if off >= 0 && off < st.ends.Start {
			return off, &UnknownError{Lane: st.lane, What: what, Start: st.ends.Start, Reason: belowStart}
		}
		return off, st.within(off)
	}}
}

// ToPosition is the first item above a position: the lane is acked through that
// position afterwards.
func ToPosition(pos flusso.Position) Target {
	return Target{what: fmt.Sprintf("position %s", pos), through: true, find: func(ctx context.Context, s *Store, st standing) (flusso.Offset, error) {
		return s.OffsetOf(ctx, st.lane, pos)
	}}
}

// ToTime is the first item that was handed to the writer at a time or later.
func ToTime(at time.Time) Target {
	return Target{what: at.UTC().Format(time.RFC3339), find: func(ctx context.Context, s *Store, st standing) (flusso.Offset, error) {
		tr, err := s.TranslateTime(ctx, st.lane, at)
		return tr.Offset, err
	}}
}

// GoneError says that the place a lane should be rewound to is not retained.
type GoneError struct {
	Lane     topics.Lane
	What     string          // what was asked for
	Earliest flusso.Offset   // log start
	First    flusso.Position // position of the first live batch there, NoPosition when none is found
	BuiltAt  time.Time       // when the first item there was handed to the writer; zero when there is none
}

func (e *GoneError) Error() string {
	first := "no item is there"
	if !e.BuiltAt.IsZero() {
		first = fmt.Sprintf("the first item there is at position %s, of %s", e.First, e.BuiltAt.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("lane of sink %q: %s is not retained any more: the log of topic %s begins at offset %s, %s: rewind with --to-earliest, "+
		"and seed the sink again with `flusso-kafka-admin request send %s INDEX... --yes` for what came before",
		e.Lane.Sink, e.What, e.Lane.Topic(), e.Earliest, first, e.Lane.Sink)
}

// ForwardError says that a rewind would move a lane forward, over items that it
// never acked. Nothing was committed.
type ForwardError struct {
	To   string
	Move Move
}

func (e *ForwardError) Error() string {
	m := e.Move
	at := m.AckedOffset.String()
	if m.AckedOffset < 0 {
		at = "nothing acked for certain"
	}
	return fmt.Sprintf("lane of sink %q: %s is ahead of what was acked (%s, through %s): going to offset %s would give up %d items, with the positions above %s and up to %s: "+
		"give them up with `flusso-kafka-admin lane accept %s --to %s --yes`, or exactly the next one with `flusso-kafka-admin lane skip %s --save FILE --yes`",
		m.Lane.Sink, e.To, at, m.Acked, m.Offset, m.GivenUp(), m.Acked, m.Meta.Through, m.Lane.Sink, m.Offset, m.Lane.Sink)
}

// PlanRewind plans that a lane goes back to a target, so that what was acked
// behind it comes again. It never goes forward over items that were not acked.
//
// Errors: a [*GoneError] for what is not retained any more, a [*ForwardError], a
// [*flusso.InvalidError] for an offset beyond the lane, a [*flusso.RetiredError],
// a [*RecreatedError], what the brokers answered.
func (s *Store) PlanRewind(ctx context.Context, lane topics.Lane, to Target) (Move, error) {
	st, err := s.stand(ctx, lane)
	if err != nil {
		return Move{}, err
	}
	if r := st.retirement(); !r.IsZero() {
		return Move{}, retiredError(lane, r)
	}
	if st.commit.Own() && st.commit.Meta.TopicID != st.ends.TopicID {
		return Move{}, Start(lane, st.commit, st.mirror, st.ends).Err
	}
	off, err := to.find(ctx, s, st)
	if errors.Is(err, ErrUnknown) {
		return Move{}, s.gone(ctx, st, to.what, err)
	}
	if err != nil {
		return Move{}, err
	}
	m, err := s.moveTo(ctx, st, off)
	if err != nil {
		return Move{}, err
	}
	if c := st.acked(); c != nil && to.through && m.GivenUp() > 0 && m.Meta.Through == m.Acked && m.Meta.Incarnation == c.Meta.Incarnation {
		m = st.move(c.Offset, *c.Meta) // it is through there already
	}
	if m.GivenUp() > 0 {
		return Move{}, &ForwardError{To: to.what, Move: m}
	}
	return m, nil
}

// gone says what is there in place of what is not.
func (s *Store) gone(ctx context.Context, st standing, what string, err error) error {
	e := &GoneError{Lane: st.lane, What: what, Earliest: st.ends.Start}
	first, ferr := s.From(ctx, st.lane, st.ends.Start)
	switch {
	case errors.Is(ferr, ErrUnknown):
	case ferr != nil:
		return err
	default:
		e.First, e.BuiltAt = first.Header.Newest, first.Header.BuiltAt
	}
	return e
}
