package kafka_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/kafka"
)

// caseWorld is a pipeline inside a bubble, for tests that tell a short story.
type caseWorld struct {
	pipeline
	t *testing.T
}

func story(t *testing.T, sinks []string, tune func(*kafka.Config), body func(t *testing.T, w *caseWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(t, &caseWorld{open(t, sinks, tune), t}) })
}

func (w *caseWorld) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *caseWorld) process(incarnation string) flusso.Stream {
	w.t.Helper()
	s := w.Stream(w.t, incarnation)
	w.t.Cleanup(func() { w.Crash(w.t, s) })
	return s
}

func (w *caseWorld) do(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

func (w *caseWorld) commits(s flusso.Stream) flusso.Producer[flusso.Commit] {
	w.t.Helper()
	p, err := s.Commits(w.ctx())
	w.do("open a producer", err)
	return p
}

// publish publishes a live batch at each position to every sink.
func (w *caseWorld) publish(s flusso.Stream, p flusso.Producer[flusso.Commit], positions ...flusso.Position) (sum flusso.Receipt) {
	w.t.Helper()
	for _, at := range positions {
		r, err := p.Publish(w.ctx(), toSinks(at, s.Sinks()...))
		w.do("publish "+at.String(), err)
		sum.Published, sum.Dropped = sum.Published+r.Published, sum.Dropped+r.Dropped
	}
	return sum
}

func toSinks(at flusso.Position, sinks ...string) (c flusso.Commit) {
	for _, sink := range sinks {
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: caseBatch(at, "doc")})
	}
	return c
}

func caseBatch(at flusso.Position, id string) *flusso.Batch {
	return &flusso.Batch{Position: at, Changes: 1, Envelopes: []flusso.Envelope{
		{Index: "order", ID: id, Op: flusso.Upsert, Document: []byte(`{"n":1}`), Position: at},
		{Index: "order", ID: id + "-gone", Op: flusso.Delete, Position: at},
	}}
}

func (w *caseWorld) attach(s flusso.Stream, sink string) flusso.Consumer[flusso.LaneItem] {
	w.t.Helper()
	l, err := s.Lane(sink)
	w.do("lane", err)
	c, err := l.Consumer(w.ctx())
	w.do("attach", err)
	return c
}

// receive takes the live batches at the positions, in order.
func (w *caseWorld) receive(c flusso.Consumer[flusso.LaneItem], positions ...flusso.Position) (ds []flusso.Delivery[flusso.LaneItem]) {
	w.t.Helper()
	for _, at := range positions {
		d, err := c.Receive(w.ctx())
		w.do("receive position "+at.String(), err)
		if b, ok := d.Item().(*flusso.Batch); !ok || b.Position != at {
			w.t.Fatalf("received %+v, want position %s", d.Item(), at)
		}
		ds = append(ds, d)
	}
	return ds
}

func (w *caseWorld) ack(ds ...flusso.Delivery[flusso.LaneItem]) {
	w.t.Helper()
	for _, d := range ds {
		w.do("ack", d.Ack(context.Background()))
	}
}

// applies receives, acks and flushes.
func (w *caseWorld) applies(c flusso.Consumer[flusso.LaneItem], positions ...flusso.Position) {
	w.t.Helper()
	w.ack(w.receive(c, positions...)...)
	w.do("flush", c.Flush(w.ctx()))
}

// nothing checks that nothing comes for a while.
func (w *caseWorld) nothing(c flusso.Consumer[flusso.LaneItem]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if d, err := c.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		w.t.Fatalf("received %+v, %v, want nothing", d, err)
	}
}

func (w *caseWorld) mark(s flusso.Stream, want flusso.Position) flusso.Watermark {
	w.t.Helper()
	m, err := s.Watermark(w.ctx())
	w.do("watermark", err)
	if m.Position != want {
		w.t.Fatalf("the watermark is at %s, want %s: %+v", m.Position, want, m)
	}
	return m
}

// sleep lets the bubble's time go by.
func (w *caseWorld) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
