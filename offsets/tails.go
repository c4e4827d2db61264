package offsets

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/topics"
)

// Tail is the newest committed item of a lane, with the ends of its log.
type Tail struct {
	Ends
	Found  bool          // false: the lane holds no committed item
	At     flusso.Offset // offset of the record that carries the header, NoOffset when not found
	Header Header
}

// Tails returns the newest committed item of each lane: the ends, then as a
// rule one read for all lanes of a leader together. Between the tail and
// [Ends].High there may be items of a transaction that is still open.
func (s *Store) Tails(ctx context.Context, lanes []topics.Lane) (map[topics.Lane]Tail, error) {
	return s.tails(ctx, unique(lanes), 0)
}

// TailsAt is [Store.Tails] of lanes whose ends were just read.
func (s *Store) TailsAt(ctx context.Context, ends map[topics.Lane]Ends) (map[topics.Lane]Tail, error) {
	return s.tailsAt(ctx, slices.Collect(maps.Keys(ends)), ends)
}

func (s *Store) tails(ctx context.Context, lanes []topics.Lane, age time.Duration) (map[topics.Lane]Tail, error) {
	ends, _ := s.ends(ctx, lanes, age) // each lane has its error
	return s.tailsAt(ctx, lanes, ends)
}

func (s *Store) tailsAt(ctx context.Context, lanes []topics.Lane, ends map[topics.Lane]Ends) (map[topics.Lane]Tail, error) {
	out := make(map[topics.Lane]Tail, len(lanes))
	var qs []*search
	for _, l := range lanes {
		e := ends[l]
		out[l] = Tail{Ends: e, At: flusso.NoOffset}
		if e.Err == nil && e.Stable > e.Start {
			// A commit's marker is last, the newest item right before it.
			qs = append(qs, below(l, e.Stable, 2))
		}
	}
	_ = s.run(ctx, identityAge, qs...) // each search has its error
	for _, q := range qs {
		t := out[q.lane]
		switch {
		case q.restarted:
			t.Err = kafkaerr.Wrap("read headers of topic "+q.lane.Topic(), kerr.InconsistentTopicID)
		case q.found != nil:
			t.Found, t.At, t.Header = true, q.found.At, q.found.Header
		case !errors.Is(q.err, ErrUnknown):
			t.Err = q.err
		}
		out[q.lane] = t
	}
	return out, everyErr(lanes, out, func(t Tail) error { return t.Err })
}
