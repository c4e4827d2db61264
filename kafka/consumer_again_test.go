package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// spoil does to a delivered item what its owner may do.
func spoil(d flusso.Delivery[flusso.LaneItem]) {
	b := d.Item().(*flusso.Batch)
	for i := range b.Envelopes {
		e := &b.Envelopes[i]
		for j := range e.Document {
			e.Document[j] = '#'
		}
		_ = append(e.Document, "beyond its end"...)
		e.ID, e.Position = "spoilt", 0
	}
	b.Envelopes, b.Position = b.Envelopes[:0], 0
}

// sink is a sink that spoils what it gets, with the model of what it must get.
type spoilingSink struct {
	*laneWorld
	t    *testing.T
	rng  *rand.Rand
	all  []*flusso.Batch // as they were published
	c    *laneConsumer
	next int // index of what comes next
	out  map[int]flusso.Delivery[flusso.LaneItem]
	done map[int]bool // acked, and not withdrawn since
	log  []string
}

func (s *spoilingSink) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *spoilingSink) floor() int {
	for i := range s.all {
		if !s.done[i] {
			return i
		}
	}
	return len(s.all)
}

func (s *spoilingSink) publishMore() {
	commit := s.rng.IntN(4) > 0
	var items []flusso.LaneItem
	for range 1 + s.rng.IntN(3) {
		at := flusso.Position(1)
		if n := len(s.all) + len(items); n > 0 {
			at = flusso.Position(10*n + 1)
		}
		b := &flusso.Batch{Position: at, Changes: 1}
		for i := range s.rng.IntN(4) {
			b.Envelopes = append(b.Envelopes, flusso.Envelope{
				Index: "order", ID: fmt.Sprintf("%s-%d", at, i), Op: flusso.Upsert, Position: at,
				Document: fmt.Appendf(nil, `{"at":%s,"i":%d,"x":%q}`, at, i, strings.Repeat("x", s.rng.IntN(200))), BuiltAt: time.Now().Truncate(time.Millisecond),
			})
		}
		items = append(items, b)
	}
	s.publish(commit, items...)
	s.note("publish %d, %t", len(items), commit)
	if commit {
		for _, it := range items {
			s.all = append(s.all, it.(*flusso.Batch))
		}
	}
}

func (s *spoilingSink) take() {
	if s.next == len(s.all) {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		if d, err := s.c.Receive(ctx); err == nil {
			s.t.Fatalf("received %#v, and nothing waits: %q", d.Item(), s.log)
		}
		return
	}
	d, err := s.c.Receive(laneCtx(s.t))
	if err != nil {
		s.t.Fatalf("receive: %v: %q", err, s.log)
	}
	s.note("got %d", s.next)
	if diff := cmp.Diff(s.all[s.next], d.Item()); diff != "" {
		s.t.Fatalf("item %d is not as it was published (-want +got):\n%s\n%q", s.next, diff, s.log)
	}
	spoil(d)
	s.out[s.next] = d
	s.next++
}

// pick returns one of the deliveries that are outstanding, -1 for none.
func (s *spoilingSink) pick() int {
	var in []int
	for i := range s.next {
		if s.out[i] != nil && !s.done[i] {
			in = append(in, i)
		}
	}
	if len(in) == 0 {
		return -1
	}
	return in[s.rng.IntN(len(in))]
}

func (s *spoilingSink) ackOne() {
	if i := s.pick(); i >= 0 {
		s.note("ack %d", i)
		s.ack(s.out[i])
		s.done[i] = true
	}
}

func (s *spoilingSink) nackOne() {
	i := s.pick()
	if i < 0 {
		return
	}
	s.note("nack %d", i)
	if err := s.out[i].Nack(context.Background()); err != nil {
		s.t.Fatalf("nack: %v: %q", err, s.log)
	}
	if ok, err := s.c.CaughtUp(laneCtx(s.t)); ok || err != nil {
		s.t.Fatalf("caught up behind a nack: %v, %v: %q", ok, err, s.log)
	}
	for j := i; j < s.next; j++ {
		wantIs(s.t, fmt.Sprintf("ack of %d, withdrawn with %d", j, i), s.out[j].Ack(context.Background()), flusso.ErrWithdrawn)
		delete(s.out, j)
		delete(s.done, j)
	}
	s.next = i
}

// reattach leaves the lane, or is taken over by the next.
func (s *spoilingSink) reattach() {
	s.note("attach")
	if s.c != nil && s.rng.IntN(2) == 0 {
		s.close(s.c)
	}
	s.c = s.attach()
	s.next = s.floor()
	for i := s.next; i < len(s.all); i++ {
		delete(s.out, i)
		delete(s.done, i)
	}
}

// What a sink does to its deliveries is its own business: whatever is acked,
// returned and taken over, and in which order, each item comes as it was
// published, after the one before it.
func TestA3_WhatComesAgainIsAsItWasPublished(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			laneBubble(t, func(t *testing.T, w *laneWorld) {
				s := &spoilingSink{
					laneWorld: w, t: t, rng: rand.New(rand.NewPCG(seed, 3)),
					out: map[int]flusso.Delivery[flusso.LaneItem]{}, done: map[int]bool{},
				}
				s.reattach()
				for range 120 {
					switch n := s.rng.IntN(20); {
					case n < 3:
						s.publishMore()
					case n < 12:
						s.take()
					case n < 16:
						s.ackOne()
					case n < 19:
						s.nackOne()
					default:
						s.reattach()
					}
				}
				for s.floor() < len(s.all) {
					for s.next < len(s.all) {
						s.take()
					}
					s.ackOne()
				}
				s.flush(s.c)
				if n := len(s.all); n > 0 {
					s.wantThrough(s.all[n-1].Position, uint64(n))
				}
			})
		})
	}
}

// nackSpoilt receives the items at positions, spoils them and returns the first.
func (w *laneWorld) nackSpoilt(c *laneConsumer, positions ...flusso.Position) {
	w.t.Helper()
	var ds []flusso.Delivery[flusso.LaneItem]
	for _, p := range positions {
		d := w.receive(c, p)
		spoil(d)
		ds = append(ds, d)
	}
	if err := ds[0].Nack(context.Background()); err != nil {
		w.t.Fatalf("nack: %v", err)
	}
}

func TestB5_ReadAgainWhileTheBrokerIsAway(t *testing.T) {
	for _, f := range []kfaketest.Fault{
		{Mode: kfaketest.Hang, Times: -1}, {Mode: kfaketest.Disconnect, Times: -1}, {Mode: kfaketest.Error, Code: kerr.NotLeaderForPartition, Times: -1},
	} {
		t.Run(f.Mode.String(), func(t *testing.T) {
			laneBubble(t, func(t *testing.T, w *laneWorld) {
				w.publish(true, liveBatches(11, 12, 13)...)
				c := w.attach()
				w.ack(w.receive(c, 11))
				in := w.k.Fault(t, kmsg.Fetch, f)
				w.nackSpoilt(c, 12, 13)
				for range 2 {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					if d, err := c.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Fatalf("received %v, %v", d, err)
					}
					cancel()
				}
				w.flush(c) // what is acked is none of its business
				w.wantThrough(11, 1)
				in.Release()
				w.ack(w.receive(c, 12), w.receive(c, 13))
				w.flush(c)
				w.wantThrough(13, 3)
			})
		})
	}
}

func TestF1_CloseWhileItemsAreReadAgain(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12)...)
		c := w.attach()
		d := w.receive(c, 11)
		w.k.Fault(t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		if err := d.Nack(context.Background()); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 1)
		go func() {
			_, err := c.Receive(laneCtx(t))
			waits <- err
		}()
		synctest.Wait()
		began := time.Now()
		w.close(c)
		if took := time.Since(began); took > time.Second {
			t.Errorf("close took %s", took)
		}
		wantIs(t, "receive", <-waits, flusso.ErrClosed)
	})
}

// The member is lost while items are read again: the next attach delivers them.
func TestB5_AttachesAgainWhileItemsAreReadAgain(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12, 13)...)
		c := w.attach()
		w.ack(w.receive(c, 11))
		w.flush(c)
		in := w.k.Fault(t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		w.nackSpoilt(c, 12, 13)
		w.k.Fault(t, kmsg.Heartbeat, kfaketest.Fault{Code: kerr.RebalanceInProgress, Times: 2})
		w.publish(true, liveBatches(21)...)
		kfaketest.Pass(10 * time.Second)
		in.Release()
		w.ack(w.receive(c, 12), w.receive(c, 13), w.receive(c, 21))
		w.flush(c)
		w.wantThrough(21, 4)
	})
}

func TestB8_WhatMustBeReadAgainIsGone(t *testing.T) {
	for name, tt := range map[string]struct {
		gone  func(*laneWorld)
		cause string
	}{
		"trimmed": {func(w *laneWorld) { w.trim(4) }, "below the log start"},
		"recreated": {func(w *laneWorld) {
			recreate(w)
			w.last = wire.Header{Epoch: 1, Incarnation: "pg-1"}
			w.publish(true, liveBatches(91, 92, 93)...)
		}, "recreated"},
	} {
		t.Run(name, func(t *testing.T) {
			laneBubble(t, func(t *testing.T, w *laneWorld) {
				w.publish(true, liveBatches(11, 12, 13)...) // 11 at offset 0, 12 at 1 and 2
				c := w.attach()
				w.ack(w.receive(c, 11))
				w.flush(c)
				a, b := w.receive(c, 12), w.receive(c, 13)
				tt.gone(w)
				if err := a.Nack(context.Background()); err != nil {
					t.Fatal(err)
				}
				d, err := c.Receive(laneCtx(t))
				if err == nil {
					t.Fatalf("received %#v", d.Item())
				}
				gap := wantGap(t, "receive", err)
				if gap.Acked != 11 || gap.From != 1 || !strings.Contains(gap.Cause, tt.cause) {
					t.Errorf("got %+v", gap)
				}
				if err := b.Ack(context.Background()); err == nil {
					t.Error("a withdrawn delivery was acked")
				}
				_, again := c.Receive(laneCtx(t))
				wantIs(t, "receive again", again, err)
			})
		})
	}
}

// Behind an item that can't be read everything before it may come again, and
// then the same error.
func TestB8_ANackBeforeWhatCannotBeRead(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12)...)
		w.last.Sequence++
		w.publish(true, liveBatches(13)...)
		c := w.attach()
		w.nackSpoilt(c, 11)
		w.nackSpoilt(c, 11, 12)
		w.ack(w.receive(c, 11), w.receive(c, 12))
		_, err := c.Receive(laneCtx(t))
		if gap := wantGap(t, "receive", err); gap.Acked != 12 || gap.Next != 13 {
			t.Errorf("got %+v", gap)
		}
	})
}

// A nack takes effect also for a sink that waits for something new.
func TestB5_ANackWakesAReceiveThatWaits(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12)...)
		c := w.attach()
		ds := slices.Collect(func(yield func(flusso.Delivery[flusso.LaneItem]) bool) {
			_ = yield(w.receive(c, 11)) && yield(w.receive(c, 12))
		})
		got := make(chan flusso.Delivery[flusso.LaneItem])
		go func() {
			defer close(got)
			for range 2 {
				d, err := c.Receive(laneCtx(t))
				if err != nil {
					t.Errorf("receive: %v", err)
					return
				}
				got <- d
			}
		}()
		synctest.Wait()
		spoil(ds[0])
		if err := ds[0].Nack(context.Background()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []flusso.Position{11, 12} {
			if d := <-got; d.Item().(*flusso.Batch).Position != want {
				t.Errorf("received %#v, want %s", d.Item(), want)
			}
		}
	})
}
