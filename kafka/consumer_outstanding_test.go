package kafka

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// waits checks that Receive waits, and returns what it gets once something is
// given back.
func (w *laneWorld) waits(c *laneConsumer, want flusso.Position, giveBack func()) flusso.Delivery[flusso.LaneItem] {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if d, err := c.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		w.t.Fatalf("received %#v, %v, with all outstanding that may be", d, err)
	}
	got := make(chan flusso.Delivery[flusso.LaneItem], 1)
	go func() {
		d, err := c.Receive(laneCtx(w.t))
		if err != nil {
			w.t.Errorf("receive: %v", err)
		}
		got <- d
	}()
	synctest.Wait() // it waits by now
	giveBack()
	d := <-got
	if d == nil || d.Item().(*flusso.Batch).Position != want {
		w.t.Fatalf("received %v, want %s", d, want)
	}
	return d
}

// attachBounded attaches with a bound of what is outstanding, in bytes.
func (w *laneWorld) attachBounded(outstanding int64) *laneConsumer {
	w.t.Helper()
	cfg := w.config()
	cfg.outstanding = outstanding
	c, err := attachLane(laneCtx(w.t), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.cleanup(c)
	return c
}

// An envelope of liveBatches takes 217 bytes.
func TestMaxOutstandingBytes_ReceiveWaitsForAcks(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 21, 31, 41, 59, 61)...)
		c := w.attachBounded(3 * 217)
		a, b, d := w.receive(c, 11), w.receive(c, 21), w.receive(c, 31)
		e := w.waits(c, 41, func() { w.ack(b) }) // in any order
		w.ack(b)                                 // again: it gives back nothing
		w.ack(a, d)
		large := w.waits(c, 59, func() { w.ack(e) }) // alone, since it is above the bound
		last := w.waits(c, 61, func() { w.ack(large) })
		w.ack(last)
		w.flush(c)
		w.wantThrough(61, 6)
	})
}

func TestMaxOutstandingBytes_ANackGivesBack(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 21, 31)...)
		c := w.attachBounded(2 * 217)
		for range 3 {
			a := w.receive(c, 11)
			w.receive(c, 21)
			again := w.waits(c, 11, func() {
				if err := a.Nack(context.Background()); err != nil {
					t.Error(err)
				}
			})
			if err := again.Nack(context.Background()); err != nil {
				t.Error(err)
			}
		}
		a, b := w.receive(c, 11), w.receive(c, 21)
		w.ack(w.waits(c, 31, func() { w.ack(a) }), b)
		// What is outstanding ends with the attach, and counts no more.
		w.publish(true, liveBatches(41, 51, 61)...)
		w.receive(c, 41)
		w.receive(c, 51)
		c = w.attachBounded(2 * 217)
		w.receive(c, 41)
		w.receive(c, 51)
	})
}
