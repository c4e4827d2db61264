package offsets

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

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

// Translation is what an offset of a lane and a position have to do with each
// other, and how that is known.
type Translation struct {
	// Offset is the offset to commit, Position what committing it confirms: the
	// through of the newest item below it, in that item's incarnation.
	Offset      flusso.Offset
	Position    flusso.Position
	Incarnation string // empty where no item is below Offset
	// Item is the newest item below Offset; nil when it was not looked at,
	// because metadata answered, and when there never was one.
	Item  *Found
	How   How
	Reads int // fetches from the lane that it took
}

func (tr *Translation) at(f *Found) {
	tr.Item, tr.Position, tr.Incarnation = f, f.Header.Through, f.Header.Incarnation
}

// TranslateOffset says what committing off for the lane would confirm. Commits
// that the store saw before answer by their metadata. Errors are those of
// [Store.Below].
func (s *Store) TranslateOffset(ctx context.Context, lane topics.Lane, off flusso.Offset) (Translation, error) {
	tr := Translation{Offset: off, How: ByMetadata}
	ids, err := s.identify(ctx, []topics.Lane{lane}, identityAge)
	if err != nil {
		return tr, err
	}
	if id := ids[lane]; id.err != nil {
		return tr, id.err
	}
	s.mu.Lock()
	c, ok := s.commits[lane]
	s.mu.Unlock()
	if ok && c.Offset == off && c.Meta.TopicID == ids[lane].id {
		tr.Position, tr.Incarnation = c.Meta.Through, c.Meta.Incarnation
		return tr, nil
	}
	q := below(lane, off, 1)
	f, err := s.one(ctx, q)
	tr.read(q.fetches)
	if err != nil {
		return tr, err
	}
	tr.at(&f)
	return tr, nil
}

// read counts reads, and says what the answer rests on.
func (tr *Translation) read(fetches int) {
	tr.Reads += fetches
	tr.How = ByIndex
	if tr.Reads > 0 {
		tr.How = ByRead
	}
}

// TranslatePosition says which offset to commit so that exactly the items with
// through ≤ pos are acked, counting positions in the incarnation of the lane's
// newest item; items of older incarnations come before all of those. It reads
// one record batch for each step of a binary search over the log, fewer where
// many items are in a batch or the index helps.
//
// It is an [ErrUnknown] when the lane holds no item, or when pos lies before
// the first item that is retained.
func (s *Store) TranslatePosition(ctx context.Context, lane topics.Lane, pos flusso.Position) (Translation, error) {
	return s.bisect(ctx, lane, fmt.Sprintf("offset of position %s", pos), func(tail, h *Header) bool {
		return h.Incarnation == tail.Incarnation && h.Through > pos
	})
}

// TranslateTime says which offset to commit so that exactly the items that were
// handed to the writer before t are acked, as [Store.TranslatePosition] does.
// The times are those of the writers' clocks: where one of them was set back,
// the answer is one of the places where the lane passes t.
func (s *Store) TranslateTime(ctx context.Context, lane topics.Lane, t time.Time) (Translation, error) {
	return s.bisect(ctx, lane, "offset of "+t.UTC().Format(time.RFC3339), func(_, h *Header) bool { return !h.BuiltAt.Before(t) })
}

// TranslateTail says which offset to commit so that exactly the last n items
// of the lane are left, as [Store.TranslatePosition] does.
func (s *Store) TranslateTail(ctx context.Context, lane topics.Lane, n uint64) (Translation, error) {
	return s.bisect(ctx, lane, fmt.Sprintf("offset of the last %d items", n), func(tail, h *Header) bool { return h.Sequence+n > tail.Sequence })
}

// PositionAt is [Store.TranslateOffset] for those who want the position alone.
func (s *Store) PositionAt(ctx context.Context, lane topics.Lane, off flusso.Offset) (flusso.Position, How, error) {
	tr, err := s.TranslateOffset(ctx, lane, off)
	if err != nil {
		return flusso.NoPosition, "", err
	}
	return tr.Position, tr.How, nil
}

// OffsetOf is [Store.TranslatePosition] for those who want the offset alone.
func (s *Store) OffsetOf(ctx context.Context, lane topics.Lane, pos flusso.Position) (flusso.Offset, error) {
	tr, err := s.TranslatePosition(ctx, lane, pos)
	if err != nil {
		return flusso.NoOffset, err
	}
	return tr.Offset, nil
}

// bisect finds the offset after the newest item that is not beyond, given the
// lane's newest item. Of two items the later one must not be the only one of
// the two that is not.
func (s *Store) bisect(ctx context.Context, lane topics.Lane, what string, beyondOf func(tail, h *Header) bool) (Translation, error) {
	tr := Translation{Offset: flusso.NoOffset}
	all, err := s.Ends(ctx, []topics.Lane{lane})
	if err != nil {
		return tr, err
	}
	ends := all[lane]
	unknown := func(reason string) error {
		return &UnknownError{Lane: lane, What: what, Start: ends.Start, Reason: reason}
	}
	if ends.Stable <= ends.Start {
		return tr, unknown(nothingHere)
	}
	q := below(lane, ends.Stable, 2) // a commit's marker is last, the newest item right before it
	tail, err := s.one(ctx, q)
	tr.read(q.fetches)
	switch {
	case errors.Is(err, ErrUnknown):
		return tr, unknown(nothingHere)
	case err != nil:
		return tr, fmt.Errorf("%s: %w", what, err)
	}
	beyond := func(h *Header) bool { return beyondOf(&tail.Header, h) }
	if !beyond(&tail.Header) {
		tr.Offset = tail.Next()
		tr.at(&tail)
		return tr, nil
	}
	// before is the newest item known not to be beyond, after the oldest
	// known to be; the items between end in [low, high).
	before, after := s.Index(lane).around(beyond)
	low, high := ends.Start, tail.At
	if before != nil {
		low = max(low, before.Next())
	}
	if after != nil {
		high = min(high, after.At)
	} else {
		after = &tail
	}
	for low < high {
		mid := low + (high-low)/2
		q := above(lane, mid)
		q.all = true
		f, err := s.one(ctx, q)
		tr.read(q.fetches)
		if err != nil {
			return tr, fmt.Errorf("%s: %w", what, err)
		}
		// A read brings a whole record batch, and each item in it is a step.
		items := q.items
		if len(items) == 0 {
			items = []Found{f}
		}
		for len(items) > 1 && items[len(items)-1].At > tail.At {
			items = items[:len(items)-1] // later than the look at the tail
		}
		k := sort.Search(len(items), func(i int) bool { return beyond(&items[i].Header) })
		if k > 0 && items[k-1].Next() > low {
			before, low = &items[k-1], items[k-1].Next()
		}
		if k < len(items) && items[k].At < high {
			after = &items[k]
		}
		switch {
		case k == 0:
			high = min(mid, items[0].At) // no item ends between mid and f
		case k < len(items):
			high = low // the two follow each other
		}
	}
	switch {
	case before != nil:
		tr.Offset = before.Next()
		tr.at(before)
		return tr, nil
	case after.Header.Sequence == 1:
		tr.Offset = ends.Start // nothing was ever before it
		return tr, nil
	}
	return tr, unknown(fmt.Sprintf("the first item that is retained, sequence %d, is through %s already",
		after.Header.Sequence, after.Header.Through))
}
