package streamtest

import (
	"context"
	"errors"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// inc is the incarnation of most subtests.
const inc = "pg-7001.slot_a"

// env is what one subtest works with. Its methods fail the test and return
// only what succeeded, so that the clauses read as what they say.
type env struct {
	t *testing.T
	h Harness
	p Pipeline
}

// pipeline opens a fresh pipeline.
func (e *env) pipeline(sinks ...string) {
	e.t.Helper()
	e.p = e.h.Open(e.t, sinks)
}

// need returns the pipeline as something optional, or fails.
func need[T any](e *env, name string) T {
	e.t.Helper()
	p, ok := e.p.(T)
	if !ok {
		e.t.Fatalf("the pipeline of harness %s is no streamtest.%s: implement it, or excuse the clause", e.h.Name, name)
	}
	return p
}

// bounded is a context for one call.
func (e *env) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.t.Context(), e.h.Wait)
}

// do makes one bounded call.
func (e *env) do(what string, call func(ctx context.Context) error) {
	e.t.Helper()
	ctx, cancel := e.bounded()
	defer cancel()
	if err := call(ctx); err != nil {
		e.t.Fatalf("%s: %v", what, err)
	}
}

// eventually polls until cond holds. An error of cond is final.
func (e *env) eventually(what string, cond func(ctx context.Context) (bool, error)) {
	e.t.Helper()
	ctx, cancel := e.bounded()
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := cond(ctx)
		if err != nil {
			e.t.Fatalf("waiting until %s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			e.t.Fatalf("waited %s until %s", e.h.Wait, what)
		}
	}
}

// want fails unless err is one of the targets.
func (e *env) want(what string, err error, targets ...error) {
	e.t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			return
		}
	}
	e.t.Fatalf("%s: got error %v, want %v", what, err, targets)
}

// as fails unless err has a T in it.
func as[T error](e *env, what string, err error) T {
	e.t.Helper()
	var target T
	if !errors.As(err, &target) {
		e.t.Fatalf("%s: got error %v (%T), want a %T", what, err, err, target)
	}
	return target
}

// equal compares values as text.
func (e *env) equal(what string, got, want any) {
	e.t.Helper()
	if g, w := text(got), text(want); g != w {
		e.t.Fatalf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// stream is one process's view of the pipeline.
type stream struct {
	flusso.Stream
	e *env
}

// open starts a process.
func (e *env) open(incarnation string) *stream {
	e.t.Helper()
	s := &stream{e.p.Stream(e.t, incarnation), e}
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.h.Wait)
		defer cancel()
		_ = s.Close(ctx) // what a crashed or stopped one says here is nobody's business
	})
	return s
}

// crash ends the process without a good-bye.
func (s *stream) crash() {
	s.e.t.Helper()
	s.e.p.Crash(s.e.t, s.Stream)
}

// stop ends the process cleanly.
func (s *stream) stop() {
	s.e.t.Helper()
	s.e.do("close the stream", s.Close)
}

func (s *stream) lane(sink string) flusso.Lane[flusso.LaneItem] {
	s.e.t.Helper()
	l, err := s.Lane(sink)
	if err != nil {
		s.e.t.Fatalf("lane of sink %s: %v", sink, err)
	}
	return l
}

func (s *stream) writer(sink string) *producer[flusso.LaneItem] {
	s.e.t.Helper()
	return produce(s.e, s.lane(sink))
}

func (s *stream) reader(sink string) *consumer[flusso.LaneItem] {
	s.e.t.Helper()
	return consume(s.e, s.lane(sink))
}

func (s *stream) commits() *producer[flusso.Commit] {
	s.e.t.Helper()
	p := &producer[flusso.Commit]{e: s.e}
	s.e.do("open a producer of commits", func(ctx context.Context) (err error) {
		p.Producer, err = s.Commits(ctx)
		return err
	})
	return p
}

// watermark reads it once.
func (s *stream) watermark() flusso.Watermark {
	s.e.t.Helper()
	var w flusso.Watermark
	s.e.do("read the watermark", func(ctx context.Context) (err error) {
		w, err = s.Watermark(ctx)
		return err
	})
	return w
}

// reaches waits for the watermark to be exactly at a position, and fails
// at once when it is beyond it.
func (s *stream) reaches(at flusso.Position) flusso.Watermark {
	s.e.t.Helper()
	var w flusso.Watermark
	s.e.eventually("the watermark is at "+at.String(), func(ctx context.Context) (ok bool, err error) {
		w, err = s.Watermark(ctx)
		if err == nil && w.Position > at {
			s.e.t.Fatalf("the watermark is at %s, want %s: %s", w.Position, at, text(w))
		}
		return w.Position == at, err
	})
	return w
}

// stays reads the watermark several times, by this view and by a fresh one.
func (s *stream) stays(at flusso.Position) {
	s.e.t.Helper()
	fresh := s.e.open(s.watermark().Incarnation)
	for range 5 {
		if w := s.watermark(); w.Position != at {
			s.e.t.Fatalf("the watermark is at %s, want it to stay at %s: %s", w.Position, at, text(w))
		}
		if w := fresh.watermark(); w.Position > at {
			s.e.t.Fatalf("the watermark of a new reader is at %s, want at most %s: %s", w.Position, at, text(w))
		}
	}
	fresh.stop()
}

func (s *stream) idle() bool {
	s.e.t.Helper()
	var idle bool
	s.e.do("ask whether the stream is idle", func(ctx context.Context) (err error) {
		idle, err = s.Idle(ctx)
		return err
	})
	return idle
}

func (s *stream) drains() {
	s.e.t.Helper()
	s.e.eventually("the stream is idle", s.Idle)
}

// producer is a publishing end.
type producer[T any] struct {
	flusso.Producer[T]
	e *env
}

func produce[T any](e *env, l flusso.Lane[T]) *producer[T] {
	e.t.Helper()
	p := &producer[T]{e: e}
	e.do("open a producer", func(ctx context.Context) (err error) {
		p.Producer, err = l.Producer(ctx)
		return err
	})
	return p
}

func (p *producer[T]) publish(items ...T) flusso.Receipt {
	p.e.t.Helper()
	var sum flusso.Receipt
	for _, item := range items {
		p.e.do("publish "+text(item), func(ctx context.Context) error {
			r, err := p.Publish(ctx, item)
			sum.Published += r.Published
			sum.Dropped += r.Dropped
			return err
		})
	}
	return sum
}

// try publishes and returns the error, whether it comes at once or later.
func (p *producer[T]) try(item T) error {
	ctx, cancel := p.e.bounded()
	defer cancel()
	_, err := p.Publish(ctx, item)
	if err != nil && ctx.Err() != nil {
		p.e.t.Fatalf("publish %s: no answer in %s: %v", text(item), p.e.h.Wait, err)
	}
	return err
}

func (p *producer[T]) submit(item T) *flusso.Future {
	p.e.t.Helper()
	var f *flusso.Future
	p.e.do("submit "+text(item), func(ctx context.Context) (err error) {
		f, err = p.Submit(ctx, item)
		return err
	})
	return f
}

func (p *producer[T]) shut() {
	p.e.t.Helper()
	p.e.do("close the producer", p.Close)
}

// consumer is a receiving end.
type consumer[T any] struct {
	flusso.Consumer[T]
	e *env
}

func consume[T any](e *env, l flusso.Lane[T]) *consumer[T] {
	e.t.Helper()
	c := &consumer[T]{e: e}
	e.do("attach a consumer", func(ctx context.Context) (err error) {
		c.Consumer, err = l.Consumer(ctx)
		return err
	})
	return c
}

// next receives one item.
func (c *consumer[T]) next() *delivery[T] {
	c.e.t.Helper()
	d := &delivery[T]{e: c.e}
	c.e.do("receive", func(ctx context.Context) (err error) {
		d.Delivery, err = c.Receive(ctx)
		return err
	})
	return d
}

// gets receives exactly these items, in order.
func (c *consumer[T]) gets(items ...T) []*delivery[T] {
	c.e.t.Helper()
	var out []*delivery[T]
	for i, want := range items {
		d := c.next()
		if got := text(d.Item()); got != text(want) {
			c.e.t.Fatalf("delivery %d:\n got %s\nwant %s", i+1, got, text(want))
		}
		out = append(out, d)
	}
	return out
}

// acks receives exactly these items and acks each.
func (c *consumer[T]) acks(items ...T) {
	c.e.t.Helper()
	for _, item := range items {
		c.gets(item)[0].ack()
	}
}

// quiet is a time in which what must not come would.
const quiet = 100 * time.Millisecond

// nothing fails if anything else is delivered.
func (c *consumer[T]) nothing() {
	c.e.t.Helper()
	c.e.eventually("the consumer is caught up", c.CaughtUp)
	ctx, cancel := context.WithTimeout(c.e.t.Context(), quiet)
	defer cancel()
	d, err := c.Receive(ctx)
	if err == nil {
		c.e.t.Fatalf("received %s, want nothing more", text(d.Item()))
	}
	if ctx.Err() == nil {
		c.e.t.Fatalf("receive: %v, want nothing", err)
	}
}

// fails returns the error of a receive that must fail.
func (c *consumer[T]) fails() error {
	c.e.t.Helper()
	ctx, cancel := c.e.bounded()
	defer cancel()
	d, err := c.Receive(ctx)
	if err == nil {
		c.e.t.Fatalf("received %s, want an error", text(d.Item()))
	}
	if ctx.Err() != nil {
		c.e.t.Fatalf("receive: no answer in %s: %v", c.e.h.Wait, err)
	}
	return err
}

func (c *consumer[T]) caughtUp() bool {
	c.e.t.Helper()
	var ok bool
	c.e.do("ask whether the consumer is caught up", func(ctx context.Context) (err error) {
		ok, err = c.CaughtUp(ctx)
		return err
	})
	return ok
}

func (c *consumer[T]) flush() {
	c.e.t.Helper()
	c.e.do("flush the acks", c.Flush)
}

func (c *consumer[T]) shut() {
	c.e.t.Helper()
	c.e.do("close the consumer", c.Close)
}

// attachFails returns the error of an attach, or of the first receive after it.
func attachFails(e *env, l flusso.Lane[flusso.LaneItem]) (*consumer[flusso.LaneItem], error) {
	e.t.Helper()
	ctx, cancel := e.bounded()
	defer cancel()
	in, err := l.Consumer(ctx)
	if err != nil {
		return nil, err
	}
	c := &consumer[flusso.LaneItem]{in, e}
	return c, c.fails()
}

// delivery is a received item.
type delivery[T any] struct {
	flusso.Delivery[T]
	e *env
}

func (d *delivery[T]) ack() {
	d.e.t.Helper()
	d.e.do("ack "+text(d.Item()), d.Ack)
}

func (d *delivery[T]) nack() {
	d.e.t.Helper()
	d.e.do("nack "+text(d.Item()), d.Nack)
}

// ackErr returns the error of an ack that must fail.
func (d *delivery[T]) ackErr() error {
	d.e.t.Helper()
	ctx, cancel := d.e.bounded()
	defer cancel()
	err := d.Ack(ctx)
	if err == nil {
		d.e.t.Fatalf("ack of %s succeeded, want an error", text(d.Item()))
	}
	return err
}

func (d *delivery[T]) nackErr() error {
	d.e.t.Helper()
	ctx, cancel := d.e.bounded()
	defer cancel()
	err := d.Nack(ctx)
	if err == nil {
		d.e.t.Fatalf("nack of %s succeeded, want an error", text(d.Item()))
	}
	return err
}
