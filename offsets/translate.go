package offsets

import (
	"context"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// Below returns the newest item whose last record is below off, which is
// what an offset off that was committed stands for; never one above it. It is
// an [ErrUnknown] when off is at or below the log start, or when no item ends
// between the two. Records that are not committed do not count.
func (s *Store) Below(ctx context.Context, lane topics.Lane, off flusso.Offset) (Found, error) {
	return s.one(ctx, below(lane, off, 1))
}

// From returns the first item whose last record is at or above off. It is an
// [ErrUnknown] when off is below the log start, or nothing is there yet.
func (s *Store) From(ctx context.Context, lane topics.Lane, off flusso.Offset) (Found, error) {
	return s.one(ctx, above(lane, off))
}

func (s *Store) one(ctx context.Context, q *search) (Found, error) {
	if err := s.run(ctx, identityAge, q); err != nil {
		return Found{}, err
	}
	if q.err != nil {
		return Found{}, q.err
	}
	return *q.found, nil
}

// How says where an answer came from.
type How string

// The sources of a position.
const (
	ByMetadata How = "metadata" // of the commit with that offset
	ByIndex    How = "index"    // from memory
	ByRead     How = "read"     // from the lane
)

// PositionAt returns what committing off for the lane would confirm: the
// through of the newest item below it, in that item's incarnation. Commits
// that the store saw before answer by their metadata. Errors are those of
// [Store.Below].
func (s *Store) PositionAt(ctx context.Context, lane topics.Lane, off flusso.Offset) (flusso.Position, How, error) {
	ids, err := s.identify(ctx, []topics.Lane{lane}, identityAge)
	if err != nil {
		return flusso.NoPosition, "", err
	}
	if id := ids[lane]; id.err != nil {
		return flusso.NoPosition, "", id.err
	}
	s.mu.Lock()
	c, ok := s.commits[lane]
	s.mu.Unlock()
	if ok && c.Offset == off && c.Meta.TopicID == ids[lane].id {
		return c.Meta.Through, ByMetadata, nil
	}
	q := below(lane, off, 1)
	f, err := s.one(ctx, q)
	if err != nil {
		return flusso.NoPosition, "", err
	}
	if q.fetches == 0 {
		return f.Header.Through, ByIndex, nil
	}
	return f.Header.Through, ByRead, nil
}

// OffsetOf returns the offset to commit so that exactly the items with
// through ≤ pos are acked, counting positions in the incarnation of the
// lane's newest item; items of older incarnations come before all of those.
// It reads one header for each step of a binary search over the log, fewer
// where the index helps.
//
// It is an [ErrUnknown] when the lane holds no item, or when pos lies before
// the first item that is retained.
func (s *Store) OffsetOf(ctx context.Context, lane topics.Lane, pos flusso.Position) (flusso.Offset, error) {
	unknown := func(start flusso.Offset, reason string) error {
		return &UnknownError{Lane: lane, What: fmt.Sprintf("offset of position %s", pos), Start: start, Reason: reason}
	}
	tails, err := s.Tails(ctx, []topics.Lane{lane})
	if err != nil {
		return flusso.NoOffset, err
	}
	tail := tails[lane]
	if !tail.Found {
		return flusso.NoOffset, unknown(tail.Start, nothingHere)
	}
	beyond := func(h *Header) bool { return h.Incarnation == tail.Header.Incarnation && h.Through > pos }
	if !beyond(&tail.Header) {
		return tail.At + 1, nil
	}
	// before is the newest item known to be at or before pos, after the
	// oldest known to be beyond; the items between end in [low, high).
	before, after := s.Index(lane).around(beyond)
	low, high := tail.Start, tail.At
	if before != nil {
		low = max(low, before.Next())
	}
	if after != nil {
		high = min(high, after.At)
	} else {
		after = &Found{At: tail.At, Header: tail.Header}
	}
	for low < high {
		mid := low + (high-low)/2
		f, err := s.From(ctx, lane, mid)
		if err != nil {
			return flusso.NoOffset, fmt.Errorf("offset of position %s: %w", pos, err)
		}
		switch {
		case !beyond(&f.Header):
			before, low = &f, f.Next()
		case f.At < high:
			after, high = &f, mid
		default:
			high = mid // no item ends in [mid, high)
		}
	}
	switch {
	case before != nil:
		return before.Next(), nil
	case after.Header.Sequence == 1:
		return tail.Start, nil // nothing was ever before it
	}
	return flusso.NoOffset, unknown(tail.Start, fmt.Sprintf("the first item that is retained, sequence %d, is through %s already",
		after.Header.Sequence, after.Header.Through))
}
