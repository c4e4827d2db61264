package feeds

import (
	"context"
	"fmt"
	"slices"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// RecentBatches is how many batch ids a session knows: the newest of its
// stream. After a resume they are read back from the WAL, of which it looks at
// about [RecentBytes]. A batch that is repeated later than that is no longer
// recognised: its MatchSequence keeps it from being appended twice.
const (
	RecentBatches = 4096
	RecentBytes   = 64 << 20
)

// IDError says that a batch has the id of another one of its stream.
type IDError struct {
	Feed    string
	ID      string
	At      Range // of the batch that has the id
	Records int   // of the one that was refused
}

func (e *IDError) Error() string {
	return fmt.Sprintf("feed %s: batch id %s names the %d records %d to %d of stream %d, this batch has %d: give each batch an id of its own",
		e.Feed, e.ID, e.At.Records, e.At.First, e.At.Last, e.At.Stream, e.Records)
}

// recent are the batches that a session recognises by their ids. It belongs to
// the holder of the turn.
type recent struct {
	known    map[string]*Future
	order    []string // a ring of their ids
	next     int      // where in it the next one goes
	recalled bool     // what sessions before appended was read back
}

func (r *recent) add(id string, f *Future) {
	if r.known == nil {
		r.known = make(map[string]*Future)
	}
	switch {
	case len(r.order) < RecentBatches:
		r.order = append(r.order, id)
	default:
		if r.known[r.order[r.next]].id == r.next {
			delete(r.known, r.order[r.next])
		}
		r.order[r.next] = id
	}
	f.id = r.next
	r.known[id] = f
	r.next = (r.next + 1) % RecentBatches
}

// repeated returns the outcome of the batch that has b's id, nil where there is
// none. It comes before every other check: whoever repeats a batch since its
// answer was lost has the token and the match of then.
func (s *Session) repeated(ctx context.Context, b Batch) (*Future, error) {
	if b.ID == "" {
		return nil, nil //nolint:nilnil // none is an answer
	}
	f, ok := s.recent.known[b.ID]
	if !ok && !s.recent.recalled && s.alive() {
		if err := s.recall(ctx); err != nil {
			return nil, fmt.Errorf("read the recent batch ids of stream %d of feed %s: %w", s.stream, s.feed, err)
		}
		f, ok = s.recent.known[b.ID]
	}
	if !ok {
		return nil, nil //nolint:nilnil // none is an answer
	}
	if f.batch.Records != uint64(len(b.Records)) {
		return nil, &IDError{Feed: s.feed.String(), ID: b.ID, At: f.batch, Records: len(b.Records)}
	}
	return &Future{done: f.done, of: f}, nil
}

// firstRecall is how many offsets are read back at first.
const firstRecall = 64

// recall reads the ids back that sessions before this one appended: windows
// backwards, each forwards, as many offsets at a time as the bytes that are
// left allow for by what the records had so far.
func (s *Session) recall(ctx context.Context) error {
	ends := s.ends[s.feed.WALTopic()]
	from := max(flusso.Offset(s.flusher().state.From), ends.Start)
	var found []wire.Append // the newest first
	seen, offsets := 0, flusso.Offset(0)
	window := flusso.Offset(firstRecall)
	for to := ends.Stable; to > from && len(found) < RecentBatches && window > 0; {
		low := max(from, to-window)
		some, bytes, err := s.appendsWithin(ctx, low, to)
		if err != nil {
			return err
		}
		slices.Reverse(some)
		found = append(found, some...)
		seen, offsets = seen+bytes, offsets+(to-low)
		window = min(16*window, flusso.Offset(RecentBytes-seen)*offsets/flusso.Offset(max(seen, 1)))
		to = low
	}
	s.recent = recent{recalled: true}
	for _, a := range slices.Backward(found) {
		at := Range{Stream: a.Stream, First: a.First, Last: a.Last, Records: a.Records()}
		f := newFuture(at)
		f.resolve(at, nil)
		s.recent.add(a.BatchID, f)
	}
	return nil
}

// appendsWithin returns the batches with an id that end within [from, to), and
// the bytes that were read.
func (s *Session) appendsWithin(ctx context.Context, from, to flusso.Offset) (found []wire.Append, bytes int, err error) {
	r, err := partition.NewReader(s.client.cfg.Client, s.feed.WALTopic(), from)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	for r.Next() < to {
		rec, err := r.Read(ctx)
		if err != nil {
			return nil, 0, err
		}
		if flusso.Offset(rec.Offset) >= to {
			break
		}
		bytes += len(rec.Key) + len(rec.Value)
		a, ok, err := wire.AppendOf(rec)
		if err != nil {
			return nil, 0, err
		}
		if ok && a.Stream == s.stream && a.BatchID != "" {
			found = append(found, a)
		}
	}
	return found, bytes, nil
}
