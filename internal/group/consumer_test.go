package group

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

func TestB4_RestartResumesAtTheFirstItemNotAcked(t *testing.T) {
	for _, mode := range []Mode{Takeover, Standby} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.produce(0, 4)
				c := w.attach(mode)
				a, b, d := w.receive(c, 0), w.receive(c, 1), w.receive(c, 2)
				w.ack(a, d)
				w.flush(c)
				w.wantCommitted(1)
				w.close(c)
				wantErr(t, "late ack", b.Ack(context.Background()), flusso.ErrClosed)
				if n := w.members(); n != 0 {
					t.Fatalf("after close the group has %d members", n)
				}
				c = w.attach(mode)
				for i := 1; i <= 4; i++ {
					w.ack(w.receive(c, i))
				}
				w.close(c)
				w.wantCommitted(5)
			})
		})
	}
}

func TestB4_TakeoverTheNewestAttachWins(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 4)
		old := w.attach(Takeover)
		a, b := w.receive(old, 0), w.receive(old, 1)
		w.ack(a)
		w.flush(old)
		began := time.Now()
		fresh := w.attach(Takeover)
		w.ack(w.receive(fresh, 1))
		if d := time.Since(began); d > time.Second {
			t.Fatalf("takeover took %s", d)
		}
		w.flush(fresh)
		w.wantCommitted(2)

		_ = b.Ack(context.Background()) // recorded at most: the broker refuses it
		_, err := old.Receive(ctxOf(t, time.Minute))
		for err == nil {
			_, err = old.Receive(ctxOf(t, time.Minute))
		}
		wantErr(t, "receive of the old one", err, flusso.ErrSuperseded)
		wantErr(t, "late ack", b.Ack(context.Background()), flusso.ErrSuperseded)
		wantErr(t, "flush of the old one", old.Flush(context.Background()), flusso.ErrSuperseded)
		w.wantCommitted(2)
		w.ack(w.receive(fresh, 2))
		w.flush(fresh)
		w.wantCommitted(3)
	})
}

func TestCase15_NoPingPong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 9)
		attaches := 0
		cfg := w.config(Takeover)
		cfg.Hooks.Attached = func(flusso.Offset) { attaches++ }
		old := w.attachWith(cfg, &numbers{})
		fresh := w.attachWith(cfg, &numbers{})
		kfaketest.Pass(5 * time.Minute)
		synctest.Wait()
		if attaches != 2 {
			t.Fatalf("the lane changed hands %d times, want 2", attaches)
		}
		_, err := old.Receive(ctxOf(t, time.Minute))
		for err == nil {
			_, err = old.Receive(ctxOf(t, time.Minute))
		}
		wantErr(t, "the old one", err, flusso.ErrSuperseded)
		w.ack(w.receive(fresh, 0))
		w.flush(fresh)
	})
}

func TestB5_NackedItemsComeAgainInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 3)
		c := w.attach(Takeover)
		a, b, d := w.receive(c, 0), w.receive(c, 1), w.receive(c, 2)
		if err := b.Nack(context.Background()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "ack after nack", d.Ack(context.Background()), flusso.ErrWithdrawn)
		w.ack(w.receive(c, 1), w.receive(c, 2), w.receive(c, 3), a)
		wantErr(t, "nack of an acked one", a.Nack(context.Background()), flusso.ErrAcked)
		w.flush(c)
		w.wantCommitted(4)
	})
}

// The group rebalances when it is decided where to read again and the client is
// not told yet. What it is told then, while it asks where the new attach begins,
// would win over the answer.
func TestB5_ANackWhileTheGroupRebalances(t *testing.T) {
	for _, mode := range []Mode{Takeover, Standby} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.produce(0, 9)
				attached := 0
				cfg := w.config(mode)
				cfg.Hooks.Attached = func(flusso.Offset) { attached++ }
				seeks := 0
				cfg.seeking = func() {
					if seeks++; seeks == 1 {
						w.k.Fault(t, kmsg.Heartbeat, kfaketest.Fault{Code: kerr.RebalanceInProgress})
						kfaketest.Pass(10 * time.Second)
					}
				}
				c := w.attachWith(cfg, &numbers{})
				a, b, _, d := w.receive(c, 0), w.receive(c, 1), w.receive(c, 2), w.receive(c, 3)
				w.ack(a, b)
				if err := d.Nack(context.Background()); err != nil {
					t.Fatal(err)
				}
				kfaketest.Pass(30 * time.Second)
				w.drain(c, 2, 9) // 2 was not acked: the new attach begins there
				w.wantCommitted(10)
				if attached != 2 || seeks != 2 {
					t.Errorf("%d attaches and %d seeks, want 2 of each", attached, seeks)
				}
			})
		})
	}
}

func TestB5_ANackWhileRecordsAreFiled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		given := make(chan delivery, 1)
		c := w.attachWith(w.config(Takeover), &numbers{before: func(v int) {
			if v == 5 {
				select {
				case d := <-given:
					if err := d.Nack(context.Background()); err != nil {
						t.Errorf("nack: %v", err)
					}
				default:
				}
			}
		}})
		w.produce(0, 2)
		a := w.receive(c, 0)
		given <- w.receive(c, 1)
		w.receive(c, 2)
		w.produce(3, 9)
		synctest.Wait()
		w.ack(a)
		w.drain(c, 1, 9)
		w.wantCommitted(10)
	})
}

// A log that was cut and written anew under a consumer: what comes again is
// another item by now, and is not delivered.
func TestB8_WhatComesAgainMustBeTheSame(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 3)
		r := &numbers{}
		c := w.attachWith(w.config(Takeover), r)
		w.ack(w.receive(c, 0))
		d := w.receive(c, 1)
		synctest.Wait()
		r.shift = 10
		if err := d.Nack(context.Background()); err != nil {
			t.Fatal(err)
		}
		_, err := c.Receive(ctxOf(t, time.Minute))
		wantErr(t, "receive", err, ErrRewritten)
		wantErr(t, "the reader names it", err, errGone)
		if !strings.Contains(err.Error(), "at 1:") {
			t.Errorf("got %v, want the offset that is read again", err)
		}
		w.flush(c)
		w.wantCommitted(1)
	})
}

func TestA5_CaughtUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		caughtUp := func(c *consumer, want bool) {
			t.Helper()
			synctest.Wait()
			if got, err := c.CaughtUp(ctxOf(t, time.Minute)); got != want || err != nil {
				t.Fatalf("caught up: got %v, %v, want %v", got, err, want)
			}
		}
		c := w.attach(Takeover)
		caughtUp(c, true) // nothing was ever there, and nothing is polled
		w.produce(0, 1)
		caughtUp(c, false)
		a := w.receive(c, 0)
		caughtUp(c, false)
		b := w.receive(c, 1)
		caughtUp(c, true)
		if err := a.Nack(context.Background()); err != nil {
			t.Fatal(err)
		}
		caughtUp(c, false)
		_ = b
		w.ack(w.receive(c, 0), w.receive(c, 1))
		w.close(c)
		c = w.attach(Takeover) // exactly at the end
		caughtUp(c, true)
	})
}

func TestStandbyWaitsForTheLane(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 4)
		active := w.attach(Standby)
		a, b := w.receive(active, 0), w.receive(active, 1)
		w.ack(a)
		replica := w.attach(Standby)
		kfaketest.Pass(time.Minute)
		if _, err := replica.Receive(ctxOf(t, time.Second)); err == nil {
			t.Fatal("the replica took the lane from its owner")
		}
		// The rebalance that let the replica in ended the deliveries.
		wantErr(t, "ack over a rebalance", b.Ack(context.Background()), flusso.ErrWithdrawn)
		w.ack(w.receive(active, 1))
		w.close(active)
		w.wantCommitted(2)
		w.ack(w.receive(replica, 2))
		w.flush(replica)
		w.wantCommitted(3)
	})
}

func TestModesDoNotMix(t *testing.T) {
	for _, first := range []Mode{Takeover, Standby} {
		t.Run(first.String()+" first", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.attach(first)
				other := Standby
				if first == Standby {
					kfaketest.Pass(10 * time.Second) // until it joined
					other = Takeover
				}
				_, err := Attach(ctxOf(t, time.Minute), w.config(other), false, &numbers{})
				mixed, ok := errorAs[*MixedModeError](err)
				if !ok || len(mixed.Members) != 1 || mixed.Group != testGroup {
					t.Fatalf("got %v", err)
				}
			})
		})
	}
}
