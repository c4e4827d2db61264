package offsets

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Header ends every lane item and answers every question about the prefix
// before it.
type Header = wire.Header

// Metadata goes with every offset that flusso-kafka commits for a lane.
type Metadata = wire.Metadata

// Retirement says who took a lane out of the watermark, when and why.
type Retirement = wire.Retirement

// What a retirement may say, in bytes of UTF-8.
const (
	MaxRetiredBy  = wire.MaxRetiredBy
	MaxRetiredWhy = wire.MaxRetiredWhy
)

// Totals are running counts of a lane.
type Totals = wire.Totals

// Store asks the brokers about lanes. It holds no goroutines and needs no
// closing; all methods may be called concurrently and honour their context.
//
// It remembers three things: which broker coordinates a group, which broker
// leads a topic and under which topic ID, and headers (see [Index]). Topic IDs
// are refreshed when they are older than a minute, when a broker's answer says
// that they are stale or that there is no offset under them, when a commit
// carries another one (before it is called recreated), and always by
// [Store.Ends], [Store.Tails] and [Store.Lag].
type Store struct {
	cl *kgo.Client

	mu           sync.Mutex
	identities   map[topics.Lane]identity
	coordinators map[string]int32 // node by group
	indexes      map[topics.Lane]*Index
	commits      map[topics.Lane]Commit // last one seen with our metadata
}

// New returns a store on a client that the caller owns and closes after the
// last call. The client needs no consumer or producer settings.
func New(cl *kgo.Client) *Store {
	return &Store{
		cl:           cl,
		identities:   make(map[topics.Lane]identity),
		coordinators: make(map[string]int32),
		indexes:      make(map[topics.Lane]*Index),
		commits:      make(map[topics.Lane]Commit),
	}
}

// Index returns the index of a lane, which the store fills by its reads.
// Whoever sees headers go by may add them to save reads.
func (s *Store) Index(lane topics.Lane) *Index {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index(lane)
}

// index is Index for who holds mu.
func (s *Store) index(lane topics.Lane) *Index {
	x := s.indexes[lane]
	if x == nil {
		x = NewIndex()
		s.indexes[lane] = x
	}
	return x
}

// attempts bounds how often a question is asked again after an answer that
// says "not here" or "not now", or a broken connection: for about two seconds,
// each time after a new look at who answers it. Requests to a broker by number
// go without kgo's own retries, which stay with that broker for much longer,
// whoever leads by then.
const attempts = 8

// backoff waits before attempt n, n ≥ 1: 20 ms, doubling, at most a second.
func backoff(ctx context.Context, n int) error {
	timer := time.NewTimer(min(10*time.Millisecond<<n, time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// again calls ask until it succeeds, fails for good, or was tried often enough.
func again(ctx context.Context, ask func() error) error {
	for n := 1; ; n++ {
		err := ask()
		if err == nil || n >= attempts || !stale(err) || backoff(ctx, n) != nil {
			return err
		}
	}
}

// each gives every lane the same value, for a failure that concerns all.
func each[V any](lanes []topics.Lane, v V) map[topics.Lane]V {
	out := make(map[topics.Lane]V, len(lanes))
	for _, l := range lanes {
		out[l] = v
	}
	return out
}

// everyErr returns the call's error: that of the first lane when each failed,
// else nil.
func everyErr[V any](lanes []topics.Lane, got map[topics.Lane]V, err func(V) error) error {
	var first error
	for _, l := range lanes {
		e := err(got[l])
		if e == nil {
			return nil
		}
		if first == nil {
			first = e
		}
	}
	return first
}

// unique returns lanes without repetitions, in their order.
func unique(lanes []topics.Lane) []topics.Lane {
	seen := make(map[topics.Lane]struct{}, len(lanes))
	out := make([]topics.Lane, 0, len(lanes))
	for _, l := range lanes {
		if _, dup := seen[l]; !dup {
			seen[l] = struct{}{}
			out = append(out, l)
		}
	}
	return out
}
