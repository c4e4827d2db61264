package outages_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// engine is an ingest engine over a change feed that is a counter: position n
// is the n-th change. It publishes without waiting, and starts over behind the
// watermark when its session ends.
type engine struct {
	stream flusso.Stream
	sinks  []string
	stop   context.CancelFunc
	all    sync.WaitGroup

	mu       sync.Mutex
	last     flusso.Position // newest change that was read
	end      flusso.Position // no change behind it, once it is set
	acked    map[flusso.Position]bool
	sessions int
	dropped  int
	causes   map[string]int
}

func startEngine(t *testing.T, s flusso.Stream) *engine {
	t.Helper()
	e := &engine{stream: s, sinks: s.Sinks(), acked: make(map[flusso.Position]bool), causes: make(map[string]int)}
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	e.all.Go(func() { e.run(ctx) })
	t.Cleanup(func() {
		e.stop()
		e.all.Wait()
	})
	return e
}

func (e *engine) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.session(ctx)
		if ctx.Err() != nil {
			return
		}
		e.mu.Lock()
		e.causes[kind(err)]++
		e.mu.Unlock()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// kind names the sentinel of an error, for counting.
func kind(err error) string {
	for name, target := range map[string]error{
		"fenced": flusso.ErrFenced, "lost": flusso.ErrLost, "rejected": flusso.ErrRejected, "unknown outcome": flusso.ErrUnknownOutcome,
	} {
		if errors.Is(err, target) {
			return name
		}
	}
	return "no session"
}

func (e *engine) session(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	p, err := e.stream.Commits(opening)
	if err != nil {
		return err
	}
	mark, err := e.stream.Watermark(opening)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.sessions++
	e.mu.Unlock()

	type pending struct {
		at     flusso.Position
		future *flusso.Future
	}
	submitted, settled := make(chan pending, 200), make(chan error, 1)
	go func() {
		var first error
		for f := range submitted {
			receipt, err := f.future.Wait(context.WithoutCancel(ctx)) // it resolves whatever happens
			if err != nil {
				first = errors.Join(first, err)
				continue
			}
			e.mu.Lock()
			e.acked[f.at] = true
			e.dropped += receipt.Dropped
			e.mu.Unlock()
		}
		settled <- first
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	at := mark.Position
	for err == nil {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
			continue
		case <-tick.C:
		}
		e.mu.Lock()
		more := e.end == 0 || at < e.end
		if more {
			at++
			e.last = max(e.last, at)
		}
		e.mu.Unlock()
		if !more {
			// All is submitted; what is not durable yet may still fail.
			select {
			case f := <-wait(submitted, settled):
				return f
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		c := flusso.Commit{}
		for _, sink := range e.sinks {
			c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: change(at)})
		}
		var f *flusso.Future
		if f, err = p.Submit(ctx, c); err == nil {
			submitted <- pending{at, f}
		}
	}
	close(submitted)
	return errors.Join(err, <-settled)
}

func wait[T any](submitted chan T, settled chan error) chan error {
	close(submitted)
	return settled
}

func change(at flusso.Position) *flusso.Batch {
	b := &flusso.Batch{Position: at, Changes: 1 + uint64(at)%3}
	for i := range b.Changes {
		b.Envelopes = append(b.Envelopes, flusso.Envelope{
			Index: "orders", ID: fmt.Sprint((uint64(at) + i) % 50), Op: flusso.Upsert, Position: at, Document: fmt.Appendf(nil, `{"at":%d}`, at),
		})
	}
	return b
}

// sinkEngine applies a lane and notes what comes. It attaches again only when
// its consumer says that it has ended.
type sinkEngine struct {
	stream flusso.Stream
	name   string
	stop   context.CancelFunc
	all    sync.WaitGroup

	mu        sync.Mutex
	newest    flusso.Position
	delivered int
	again     int // deliveries of what had come before
	attached  int
	err       error // what must not happen
}

func startSink(t *testing.T, s flusso.Stream, name string) *sinkEngine {
	t.Helper()
	k := &sinkEngine{stream: s, name: name}
	var ctx context.Context
	ctx, k.stop = context.WithCancel(context.Background())
	k.all.Go(func() { k.run(ctx) })
	t.Cleanup(func() {
		k.stop()
		k.all.Wait()
	})
	return k
}

func (k *sinkEngine) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.attach(ctx)
		k.mu.Lock()
		var gap *flusso.GapError
		var unverified *flusso.UnverifiedError
		if errors.As(err, &gap) || errors.As(err, &unverified) || errors.Is(err, flusso.ErrSuperseded) {
			k.err = errors.Join(k.err, err)
		}
		over := k.err != nil
		k.mu.Unlock()
		if over {
			return
		}
	}
}

func (k *sinkEngine) attach(ctx context.Context) error {
	lane, err := k.stream.Lane(k.name)
	if err != nil {
		return err
	}
	attaching, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := lane.Consumer(attaching)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(closing) // what it could not commit comes again
	}()
	k.mu.Lock()
	k.attached++
	k.mu.Unlock()
	before := flusso.Position(0) // of this attach
	for {
		d, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		at := d.Item().(*flusso.Batch).Position
		k.mu.Lock()
		k.delivered++
		switch {
		case at == k.newest+1:
			k.newest = at
		case at > k.newest+1:
			k.err = fmt.Errorf("sink %s: position %s came after %s", k.name, at, k.newest)
		case before != 0 && at != before+1 && at > before:
			k.err = fmt.Errorf("sink %s: among repeated ones, position %s came after %s", k.name, at, before)
		default:
			k.again++
		}
		before = at
		failed := k.err
		k.mu.Unlock()
		if failed != nil {
			return failed
		}
		if err := d.Ack(ctx); err != nil && !errors.Is(err, flusso.ErrWithdrawn) {
			return err
		}
	}
}

func (k *sinkEngine) failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}
