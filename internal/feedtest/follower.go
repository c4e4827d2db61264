package feedtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
)

// Follower reads along, and checks that each record comes once and in order.
type Follower struct {
	end   context.CancelFunc
	ended chan struct{}

	mu    sync.Mutex
	seen  map[Place]string  // what was not discarded since
	last  map[uint64]uint64 // last sequence of each stream
	times int               // it began anew
	err   error
}

// Follow begins to read along, until the end of the test. What ends the reading
// is an error, but where again accepts it: then it begins anew, at the
// beginning.
func Follow(t testing.TB, c *feeds.Client, feed string, again func(error) bool) *Follower {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &Follower{end: cancel, ended: make(chan struct{}), seen: make(map[Place]string), last: make(map[uint64]uint64)}
	t.Cleanup(f.End)
	go func() {
		defer close(f.ended)
		for f.read(ctx, c, feed, again) {
			pause := time.NewTimer(5 * time.Millisecond)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return
			}
		}
	}()
	return f
}

// read reads once, and reports whether to begin anew.
func (f *Follower) read(ctx context.Context, c *feeds.Client, feed string, again func(error) bool) bool {
	for item, err := range c.Read(ctx, feed, feeds.ReadOptions{Follow: true}) {
		f.mu.Lock()
		if err == nil {
			err = f.takeLocked(item)
		}
		anew := err != nil && ctx.Err() == nil && !errors.Is(err, errMisled) && again != nil && again(err)
		switch {
		case anew:
			f.seen, f.last = make(map[Place]string), make(map[uint64]uint64)
			f.times++
		case err != nil && ctx.Err() == nil:
			f.err = err
		}
		f.mu.Unlock()
		if err != nil {
			return anew
		}
	}
	return false
}

var errMisled = errors.New("the follower was misled")

func (f *Follower) takeLocked(item feeds.Item) error {
	if item.Discarded {
		maps.DeleteFunc(f.seen, func(p Place, _ string) bool { return p.Stream == item.Stream })
		return nil
	}
	if item.Sequence != f.last[item.Stream]+1 {
		return fmt.Errorf("%w: stream %d: sequence %d follows %d", errMisled, item.Stream, item.Sequence, f.last[item.Stream])
	}
	f.last[item.Stream] = item.Sequence
	f.seen[Place{item.Stream, item.Sequence}] = string(item.Payload)
	return nil
}

// End ends the reading.
func (f *Follower) End() {
	f.end()
	<-f.ended
}

// Times returns how often it began anew.
func (f *Follower) Times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.times
}

// failure returns what ended the reading.
func (f *Follower) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Saw waits until the follower has seen what is there, and nothing else.
func (f *Follower) Saw(t testing.TB, there map[Place]string) {
	t.Helper()
	passed, stop := deadline(ending)
	defer stop()
	for {
		f.mu.Lock()
		same, n, err := maps.Equal(f.seen, there), len(f.seen), f.err
		f.mu.Unlock()
		if same {
			return
		}
		if err != nil {
			t.Errorf("the follower ended with %d of %d records: %v", n, len(there), err)
			return
		}
		select {
		case <-passed:
			t.Errorf("the follower saw %d records of %d within %s; it was here:\n%s", n, len(there), ending, goroutines())
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
