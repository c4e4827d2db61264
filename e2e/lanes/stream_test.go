package lanes_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

// stream is a stream whose calls fail the test.
type stream struct {
	flusso.Stream
	t *testing.T
}

// use closes the stream at the end of the test.
func use(t *testing.T, s flusso.Stream) *stream {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		_ = s.Close(ctx) // tests that care have closed it
	})
	return &stream{s, t}
}

func (s *stream) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.t.Context(), probe.Wait)
}

func (s *stream) shut() {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	if err := s.Close(ctx); err != nil {
		s.t.Fatalf("close the stream: %v", err)
	}
}

func (s *stream) lane(sink string) flusso.Lane[flusso.LaneItem] {
	s.t.Helper()
	l, err := s.Lane(sink)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (s *stream) writer(sink string) flusso.Producer[flusso.LaneItem] {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	p, err := s.lane(sink).Producer(ctx)
	if err != nil {
		s.t.Fatalf("open a producer: %v", err)
	}
	return p
}

func (s *stream) publish(p flusso.Producer[flusso.LaneItem], items ...flusso.LaneItem) {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	for _, item := range items {
		if _, err := p.Publish(ctx, item); err != nil {
			s.t.Fatalf("publish: %v", err)
		}
	}
}

func (s *stream) reader(sink string) *reader {
	s.t.Helper()
	r, err := s.attach(sink)
	if err != nil {
		s.t.Fatalf("attach to the lane of sink %s: %v", sink, err)
	}
	return r
}

func (s *stream) attach(sink string) (*reader, error) {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	c, err := s.lane(sink).Consumer(ctx)
	if err != nil {
		return nil, err
	}
	return &reader{c, s}, nil
}

// attachFails returns the error of an attach, or of the first receive after it.
func (s *stream) attachFails(sink string) error {
	s.t.Helper()
	r, err := s.attach(sink)
	if err != nil {
		return err
	}
	return r.fails()
}

func (s *stream) watermark() flusso.Watermark {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	w, err := s.Watermark(ctx)
	if err != nil {
		s.t.Fatalf("read the watermark: %v", err)
	}
	return w
}

// reaches waits for the watermark to be exactly at a position.
func (s *stream) reaches(at flusso.Position) {
	s.t.Helper()
	probe.Eventually(s.t, "the watermark is at "+at.String(), func(ctx context.Context) error {
		w, err := s.Watermark(ctx)
		switch {
		case err != nil:
			return err
		case w.Position > at:
			s.t.Fatalf("the watermark is at %s, want %s: %+v", w.Position, at, w)
		case w.Position < at:
			return errors.New("it is at " + w.Position.String())
		}
		return nil
	})
}

// reader is a consumer whose calls fail the test.
type reader struct {
	flusso.Consumer[flusso.LaneItem]
	s *stream
}

// next receives one live batch of a position.
func (r *reader) next(at flusso.Position) flusso.Delivery[flusso.LaneItem] {
	r.s.t.Helper()
	ctx, cancel := r.s.bounded()
	defer cancel()
	d, err := r.Receive(ctx)
	if err != nil {
		r.s.t.Fatalf("receive position %s: %v", at, err)
	}
	if b, ok := d.Item().(*flusso.Batch); !ok || b.Position != at {
		r.s.t.Fatalf("received %+v, want position %s", d.Item(), at)
	}
	return d
}

// acks receives and acks these positions, durably.
func (r *reader) acks(positions ...flusso.Position) {
	r.s.t.Helper()
	for _, at := range positions {
		if err := r.next(at).Ack(r.s.t.Context()); err != nil {
			r.s.t.Fatalf("ack position %s: %v", at, err)
		}
	}
	ctx, cancel := r.s.bounded()
	defer cancel()
	if err := r.Flush(ctx); err != nil {
		r.s.t.Fatalf("flush: %v", err)
	}
}

func (r *reader) fails() error {
	r.s.t.Helper()
	ctx, cancel := r.s.bounded()
	defer cancel()
	d, err := r.Receive(ctx)
	if err == nil {
		r.s.t.Fatalf("received %+v, want an error", d.Item())
	}
	if ctx.Err() != nil {
		r.s.t.Fatalf("no answer in %s: %v", probe.Wait, err)
	}
	return err
}

func (r *reader) shut() {
	r.s.t.Helper()
	ctx, cancel := r.s.bounded()
	defer cancel()
	if err := r.Close(ctx); err != nil {
		r.s.t.Fatalf("close the consumer: %v", err)
	}
}

// sameBatch compares documents without printing them.
func sameBatch(t *testing.T, got flusso.LaneItem, want *flusso.Batch) {
	t.Helper()
	b, ok := got.(*flusso.Batch)
	if !ok || b.Position != want.Position || len(b.Envelopes) != len(want.Envelopes) {
		t.Fatalf("got a %T, want position %s with %d envelopes", got, want.Position, len(want.Envelopes))
	}
	for i, e := range b.Envelopes {
		w := want.Envelopes[i]
		if e.Index != w.Index || e.ID != w.ID || !bytes.Equal(e.Document, w.Document) {
			t.Fatalf("position %s, envelope %d: got %s/%s with %d bytes, want %s/%s with %d", b.Position, i, e.Index, e.ID, len(e.Document), w.Index, w.ID, len(w.Document))
		}
	}
}
