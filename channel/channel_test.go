package channel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/channel"
)

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func build(t *testing.T, capacity int, sinks ...string) *channel.Stream {
	t.Helper()
	s, err := channel.New(channel.Config{Sinks: sinks, Incarnation: "i", Capacity: capacity})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func commits(t *testing.T, s *channel.Stream) flusso.Producer[flusso.Commit] {
	t.Helper()
	return must(s.Commits(t.Context()))(t)
}

func reader(t *testing.T, s *channel.Stream, sink string) flusso.Consumer[flusso.LaneItem] {
	t.Helper()
	return must(must(s.Lane(sink))(t).Consumer(t.Context()))(t)
}

func at(pos flusso.Position, sinks ...string) flusso.Commit {
	var c flusso.Commit
	for _, sink := range sinks {
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: &flusso.Batch{Position: pos}})
	}
	return c
}

func ackNext(t *testing.T, c flusso.Consumer[flusso.LaneItem]) flusso.LaneItem {
	t.Helper()
	d := must(c.Receive(within(t)))(t)
	if err := d.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d.Item()
}

func pending(f *flusso.Future) bool {
	select {
	case <-f.Done():
		return false
	default:
		return true
	}
}

func TestNew_RejectsWhatCannotWork(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  channel.Config
		want string
	}{
		"no sink":           {channel.Config{Incarnation: "i"}, "no sink"},
		"a bad sink":        {channel.Config{Sinks: []string{"A"}, Incarnation: "i"}, `invalid sink "A"`},
		"a sink twice":      {channel.Config{Sinks: []string{"a", "a"}, Incarnation: "i"}, "named twice"},
		"no incarnation":    {channel.Config{Sinks: []string{"a"}}, "invalid incarnation"},
		"negative capacity": {channel.Config{Sinks: []string{"a"}, Incarnation: "i", Capacity: -1}, "negative"},
		"negative window":   {channel.Config{Sinks: []string{"a"}, Incarnation: "i", MaxUnackedBytes: -1}, "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := channel.New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error that says %q", err, tt.want)
			}
		})
	}
	if _, err := build(t, 1, "a").Reopen("no spaces"); err == nil {
		t.Error("reopen accepts a bad incarnation")
	}
}

func TestB7_AFullLaneMakesPublishWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := build(t, 2, "a", "b")
		c := commits(t, s)
		ctx := within(t)
		a, b := reader(t, s, "a"), reader(t, s, "b")
		for _, pos := range []flusso.Position{1, 2} {
			must(c.Publish(ctx, at(pos, "a", "b")))(t)
		}
		f := must(c.Submit(ctx, at(3, "a", "b")))(t)
		if !pending(f) {
			t.Fatal("a third item went into lanes of two")
		}
		if idle := must(s.Idle(ctx))(t); idle {
			t.Error("idle with a commit in line")
		}
		ackNext(t, a)
		if !pending(f) {
			t.Fatal("the commit went into lane a alone, or beyond the bound of lane b")
		}
		// An ack out of turn makes no room: the lane still holds both.
		first := must(b.Receive(ctx))(t)
		if err := must(b.Receive(ctx))(t).Ack(ctx); err != nil {
			t.Fatal(err)
		}
		if caught := must(b.CaughtUp(ctx))(t); caught || !pending(f) {
			t.Fatalf("pending %v, caught up %v; want a commit in line and a consumer that knows", pending(f), caught)
		}
		if err := first.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		if pending(f) {
			t.Fatal("there is room, but the commit still waits")
		}
		ackNext(t, a)
		for _, c := range []flusso.Consumer[flusso.LaneItem]{a, b} {
			if got := ackNext(t, c).(*flusso.Batch).Position; got != 3 {
				t.Errorf("got position %s, want 3", got)
			}
		}
	})
}

func TestB7_AnotherLaneIsNotHeldUpByAnotherProducer(t *testing.T) {
	s := build(t, 1, "a", "b")
	ctx := within(t)
	wa := must(must(s.Lane("a"))(t).Producer(ctx))(t)
	wb := must(must(s.Lane("b"))(t).Producer(ctx))(t)
	must(wa.Publish(ctx, &flusso.Batch{Position: 1}))(t)
	stuck := must(wa.Submit(ctx, &flusso.Batch{Position: 2}))(t)
	must(wb.Publish(ctx, &flusso.Batch{Position: 1}))(t)
	if !pending(stuck) {
		t.Error("lane a took more than it holds")
	}
}

// Two producers, two lanes, opposite orders: whoever held one lane while it
// waits for the other would wait for ever.
func TestB11_AtomicCommitsDoNotDeadlock(t *testing.T) {
	s := build(t, 1, "a", "b")
	ctx := within(t)
	c1, c2 := commits(t, s), commits(t, s)
	const n = 200
	marker := func(sinks ...string) flusso.Commit {
		var c flusso.Commit
		for _, sink := range sinks {
			c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: &flusso.SnapshotComplete{Indexes: []string{"x"}}})
		}
		return c
	}
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for _, p := range []struct {
		c     flusso.Producer[flusso.Commit]
		sinks []string
	}{{c1, []string{"a", "b"}}, {c2, []string{"b", "a", "a"}}} {
		wg.Go(func() {
			for range n {
				if _, err := p.c.Publish(ctx, marker(p.sinks...)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	for sink, items := range map[string]int{"a": 3 * n, "b": 2 * n} {
		r := reader(t, s, sink)
		wg.Go(func() {
			for range items {
				d, err := r.Receive(ctx)
				if err == nil {
					err = d.Ack(ctx)
				}
				if err != nil {
					errs <- fmt.Errorf("sink %s: %w", sink, err)
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
	if !must(s.Idle(ctx))(t) {
		t.Error("not idle")
	}
}

func TestPublish_ACommitAboveTheCapacityGoesAlone(t *testing.T) {
	s := build(t, 2, "a")
	ctx := within(t)
	c := commits(t, s)
	must(c.Publish(ctx, at(1, "a")))(t)
	var large flusso.Commit
	for i := range 5 {
		large.Items = append(large.Items, at(flusso.Position(2+i), "a").Items...)
	}
	f := must(c.Submit(ctx, large))(t)
	if !pending(f) {
		t.Fatal("it did not wait for the lane to be empty")
	}
	r := reader(t, s, "a")
	for i := range 6 {
		if got := ackNext(t, r).(*flusso.Batch).Position; got != flusso.Position(i+1) {
			t.Fatalf("got position %s, want %d", got, i+1)
		}
	}
	if pending(f) {
		t.Error("the future of what was received is pending")
	}
}

func TestB11_SubmitWaitsForTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := channel.New(channel.Config{Sinks: []string{"a", "b"}, Incarnation: "i", Capacity: 1, MaxUnackedBytes: 2000})
		if err != nil {
			t.Fatal(err)
		}
		ctx := within(t)
		c := commits(t, s)
		doc := func(pos flusso.Position, n int) flusso.Commit {
			return flusso.Commit{Items: []flusso.Routed{{Sink: "a", Item: &flusso.Batch{
				Position: pos, Envelopes: []flusso.Envelope{{Index: "x", ID: "1", Op: flusso.Upsert, Position: pos, Document: make([]byte, n)}},
			}}}}
		}
		must(c.Publish(ctx, doc(1, 5000)))(t)        // larger than the window, with nothing in line
		first := must(c.Submit(ctx, doc(2, 900)))(t) // in line: the lane is full
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := c.Submit(short, doc(3, 1500)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("above the window: got %v, want the context's error", err)
		}
		submitted := make(chan *flusso.Future)
		go func() {
			f, err := c.Submit(ctx, doc(3, 1500))
			if err != nil {
				t.Error(err)
			}
			submitted <- f
		}()
		synctest.Wait()
		select {
		case <-submitted:
			t.Fatal("accepted above the window")
		default:
		}
		r := reader(t, s, "a")
		ackNext(t, r)
		second := <-submitted
		if pending(first) || !pending(second) {
			t.Errorf("pending: first %v, second %v; want the second alone", pending(first), pending(second))
		}
		ackNext(t, r)
		ackNext(t, r)
		if pending(second) {
			t.Error("the second is still pending")
		}
	})
}

// The context of a publish that waits ends: the item stays accepted, and a
// producer asked for afterwards finds it.
func TestPublish_AContextThatEndsLeavesTheItemInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := build(t, 1, "a")
		ctx := within(t)
		c := commits(t, s)
		must(c.Publish(ctx, at(1, "a")))(t)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := c.Publish(short, at(2, "a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the context's error", err)
		}
		f := must(commits(t, s).Submit(ctx, at(2, "a")))(t)
		if !pending(f) {
			t.Fatal("a replay is answered before what it repeats is in the lane")
		}
		r := reader(t, s, "a")
		ackNext(t, r)
		if got := must(f.Wait(ctx))(t); got != (flusso.Receipt{Dropped: 1}) {
			t.Errorf("got %+v, want it dropped", got)
		}
		if got := ackNext(t, r).(*flusso.Batch).Position; got != 2 {
			t.Errorf("got %s, want 2", got)
		}
		if caught := must(r.CaughtUp(ctx))(t); !caught {
			t.Error("something is left")
		}
	})
}

func TestB12_WhatIsInLineFailsWithTheSession(t *testing.T) {
	s := build(t, 1, "a")
	ctx := within(t)
	c := commits(t, s)
	must(c.Publish(ctx, at(1, "a")))(t)
	first, second := must(c.Submit(ctx, at(2, "a")))(t), must(c.Submit(ctx, at(3, "a")))(t)
	next := must(s.Reopen("i"))(t)
	c2 := commits(t, next)
	for _, f := range []*flusso.Future{first, second} {
		var fenced *flusso.FencedError
		if _, err := f.Wait(ctx); !errors.As(err, &fenced) || fenced.Newer != 2 || fenced.Epoch != 1 {
			t.Fatalf("got %v, want to be fenced by epoch 2", err)
		}
	}
	r := reader(t, next, "a")
	ackNext(t, r)
	must(c2.Publish(ctx, at(2, "a")))(t) // not held, so not a replay
	if got := ackNext(t, r).(*flusso.Batch).Position; got != 2 {
		t.Errorf("got %s, want 2", got)
	}
}

func TestF1_CloseSaysWhatIsNotInItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := build(t, 1, "a")
		ctx := within(t)
		c := commits(t, s)
		must(c.Publish(ctx, at(1, "a")))(t)
		f := must(c.Submit(ctx, at(2, "a")))(t)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := c.Close(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 accepted") {
			t.Fatalf("close of the producer: got %v", err)
		}
		if !pending(f) {
			t.Fatal("closing the producer gave its item up")
		}
		if err := s.Close(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 accepted") {
			t.Fatalf("close of the stream: got %v", err)
		}
		if _, err := f.Wait(ctx); !errors.Is(err, flusso.ErrClosed) {
			t.Fatalf("its future: got %v, want %v", err, flusso.ErrClosed)
		}
		if err := s.Close(ctx); err != nil {
			t.Fatalf("close again: %v", err)
		}
		// What was published is still there for another view.
		next := must(s.Reopen("i"))(t)
		if got := ackNext(t, reader(t, next, "a")).(*flusso.Batch).Position; got != 1 {
			t.Errorf("got %s, want 1", got)
		}
	})
}

func TestF1_CloseDrainsWhileSinksWork(t *testing.T) {
	s := build(t, 1, "a")
	ctx := within(t)
	c := commits(t, s)
	r := reader(t, s, "a")
	var futures []*flusso.Future
	for i := range 20 {
		futures = append(futures, must(c.Submit(ctx, at(flusso.Position(i+1), "a")))(t))
	}
	done := make(chan error, 1)
	go func() { done <- s.Close(ctx) }()
	for range 19 { // the last one is in its lane then: nobody has to ack it
		d := must(r.Receive(ctx))(t)
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i, f := range futures {
		if _, err := f.Wait(ctx); err != nil {
			t.Fatalf("future %d: %v", i, err)
		}
	}
}

func TestD2_AnAckThatIsNoneOfOursIsRefused(t *testing.T) {
	s, other := build(t, 9, "a"), build(t, 9, "a")
	ctx := within(t)
	ask := must(other.Requests().Producer(ctx))(t)
	must(ask.Publish(ctx, &flusso.Backfill{Sink: "a", Indexes: []string{"x"}}))(t)
	d := must(must(other.Requests().Consumer(ctx))(t).Receive(ctx))(t)
	c := commits(t, s)
	_, err := c.Publish(ctx, flusso.Commit{Acks: []flusso.Delivery[flusso.Request]{d}})
	if _, ok := errors.AsType[*flusso.InvalidError](err); !ok {
		t.Fatalf("got %v, want an invalid commit", err)
	}
	must(c.Publish(ctx, at(1, "a")))(t)
}

// marked is a commit of the marker that answers a request.
func marked(sink string, ack flusso.Delivery[flusso.Request]) flusso.Commit {
	return flusso.Commit{
		Items: []flusso.Routed{{Sink: sink, Item: &flusso.SnapshotComplete{Indexes: []string{"x"}}}},
		Acks:  []flusso.Delivery[flusso.Request]{ack},
	}
}

// An ack is fine when its commit is accepted and refused when there is room:
// nothing of that commit is published, and all behind it is.
func TestD2_AnAckThatIsRefusedLateFailsItsCommitAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse func(t *testing.T, s *channel.Stream, d flusso.Delivery[flusso.Request])
		want   error
	}{
		"withdrawn": {func(t *testing.T, _ *channel.Stream, d flusso.Delivery[flusso.Request]) {
			if err := d.Nack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, flusso.ErrWithdrawn},
		"superseded": {func(t *testing.T, s *channel.Stream, _ flusso.Delivery[flusso.Request]) {
			must(s.Requests().Consumer(t.Context()))(t)
		}, flusso.ErrSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			s := build(t, 1, "a")
			ctx := within(t)
			ask := must(s.Requests().Producer(ctx))(t)
			must(ask.Publish(ctx, &flusso.Backfill{Sink: "a", Indexes: []string{"x"}}))(t)
			d := must(must(s.Requests().Consumer(ctx))(t).Receive(ctx))(t)
			c := commits(t, s)
			must(c.Publish(ctx, at(1, "a")))(t)
			first := must(c.Submit(ctx, marked("a", d)))(t)
			second := must(c.Submit(ctx, at(2, "a")))(t)
			tt.refuse(t, s, d)
			r := reader(t, s, "a")
			ackNext(t, r)
			if _, err := first.Wait(ctx); !errors.Is(err, tt.want) || !errors.Is(err, flusso.ErrRejected) {
				t.Fatalf("the marker: got %v, want %v", err, tt.want)
			}
			must(second.Wait(ctx))(t)
			third := must(c.Submit(ctx, at(3, "a")))(t)
			for _, want := range []flusso.Position{2, 3} {
				if got, ok := ackNext(t, r).(*flusso.Batch); !ok || got.Position != want {
					t.Fatalf("got %+v, want position %s and no marker", got, want)
				}
			}
			must(third.Wait(ctx))(t)
		})
	}
}

func TestLane_LetsGoOfWhatIsAcked(t *testing.T) {
	s := build(t, 4, "a")
	ctx := within(t)
	c, r := commits(t, s), reader(t, s, "a")
	freed := make(chan struct{}, 100)
	for i := range 50 {
		must(c.Publish(ctx, at(flusso.Position(i+1), "a")))(t)
		d := must(r.Receive(ctx))(t)
		runtime.AddCleanup(d.Item().(*flusso.Batch), func(struct{}) { freed <- struct{}{} }, struct{}{})
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 { // all but the last few, which the loop may still refer to
		runtime.GC()
		select {
		case <-freed:
		case <-ctx.Done():
			t.Fatal("acked items are kept")
		}
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, sinks := range []int{1, 4} {
		for _, envelopes := range []int{0, 100} {
			b.Run(fmt.Sprintf("sinks=%d/envelopes=%d", sinks, envelopes), func(b *testing.B) {
				benchmark(b, sinks, envelopes)
			})
		}
	}
}

// benchmark publishes, receives and acks one commit at a time.
func benchmark(b *testing.B, sinks, envelopes int) {
	ctx := context.Background()
	var names []string
	for i := range sinks {
		names = append(names, fmt.Sprintf("sink-%d", i))
	}
	s, err := channel.New(channel.Config{Sinks: names, Incarnation: "i"})
	if err != nil {
		b.Fatal(err)
	}
	c, err := s.Commits(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var readers []flusso.Consumer[flusso.LaneItem]
	for _, name := range names {
		l, err := s.Lane(name)
		if err != nil {
			b.Fatal(err)
		}
		r, err := l.Consumer(ctx)
		if err != nil {
			b.Fatal(err)
		}
		readers = append(readers, r)
	}
	batch := &flusso.Batch{}
	for i := range envelopes {
		batch.Envelopes = append(batch.Envelopes, flusso.Envelope{
			Index: "orders", ID: fmt.Sprint(i), Op: flusso.Upsert, Position: 1, Document: make([]byte, 512),
		})
	}
	commit := flusso.Commit{}
	for _, name := range names {
		commit.Items = append(commit.Items, flusso.Routed{Sink: name, Item: batch})
	}
	b.SetBytes(int64(sinks * envelopes * 512))
	b.ReportAllocs()
	for b.Loop() {
		batch.Position++
		if _, err := c.Publish(ctx, commit); err != nil {
			b.Fatal(err)
		}
		for _, r := range readers {
			d, err := r.Receive(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Ack(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// The ceiling is the count of today, and one more under the race detector,
// whatever the number of envelopes.
func TestCommit_AllocationsDoNotGrowWithEnvelopes(t *testing.T) {
	ctx := t.Context()
	s := build(t, 4, "a")
	c, r := commits(t, s), reader(t, s, "a")
	batch := &flusso.Batch{}
	for i := range 500 {
		batch.Envelopes = append(batch.Envelopes, flusso.Envelope{
			Index: "orders", ID: fmt.Sprint(i), Op: flusso.Upsert, Position: 1, Document: make([]byte, 64),
		})
	}
	got := testing.AllocsPerRun(50, func() {
		batch.Position++
		if _, err := c.Publish(ctx, flusso.Commit{Items: []flusso.Routed{{Sink: "a", Item: batch}}}); err != nil {
			t.Fatal(err)
		}
		d, err := r.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if got > 19 {
		t.Errorf("%.0f allocations to publish, receive and ack a batch of 500 envelopes, want at most 19", got)
	}
}
