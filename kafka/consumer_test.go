package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
)

func TestB1_ItemsArriveWholeAndInOrder(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(13, 20)...) // one without envelopes
		w.publish(false, liveBatches(33)...)    // aborted
		w.publish(true, liveBatches(35)...)
		w.publish(true, &flusso.SnapshotComplete{Indexes: []string{"order"}})
		c := w.attach()
		w.ack(w.receive(c, 13), w.receive(c, 20), w.receive(c, 35))
		d, err := c.Receive(laneCtx(t))
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := d.Item().(*flusso.SnapshotComplete); !ok || m.Indexes[0] != "order" {
			t.Fatalf("received %#v", d.Item())
		}
		w.flush(c)
		w.wantThrough(35, 3)
		w.ack(d)
		w.flush(c)
		w.wantThrough(35, 4) // a marker confirms nothing [C1]
		synctest.Wait()
		if ok, err := c.CaughtUp(laneCtx(t)); !ok || err != nil {
			t.Fatalf("caught up behind a commit marker: got %v, %v", ok, err)
		}
		w.close(c)
		c = w.attach()
		if ok, err := c.CaughtUp(laneCtx(t)); err != nil {
			t.Fatalf("caught up: %v, %v", ok, err)
		}
		w.publish(true, liveBatches(41)...)
		w.ack(w.receive(c, 41))
		w.flush(c)
		w.wantThrough(41, 5)
	})
}

func TestB4_TakeoverInTheSameProcessIsToldAtOnce(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12, 13)...)
		old := w.attach()
		a, b := w.receive(old, 11), w.receive(old, 12)
		w.ack(a) // recorded, not waited for
		fresh := w.attach()
		wantIs(t, "late ack", b.Ack(context.Background()), flusso.ErrSuperseded)
		_, err := old.Receive(laneCtx(t))
		wantIs(t, "receive of the old one", err, flusso.ErrSuperseded)
		w.ack(w.receive(fresh, 12), w.receive(fresh, 13))
		w.flush(fresh)
		w.wantThrough(13, 3)
	})
}

func TestB8_Case10_TrimmedBelowTheCommitIsAGap(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12, 13)...)
		c := w.attach()
		w.ack(w.receive(c, 11))
		w.close(c)
		w.trim(4)     // in the middle of nothing: behind 12 and the first of 13
		for range 2 { // Case11: the same after a full restart
			_, err := attachLane(laneCtx(t), w.config())
			gap := wantGap(t, "attach", err)
			if gap.From != 1 || gap.To != 4 || gap.Acked != 11 || gap.Next != 13 || gap.Sink != "audit" || !strings.Contains(gap.Cause, "log start") {
				t.Fatalf("got %+v", gap)
			}
		}
		w.wantThrough(11, 1)
	})
}

func TestB8_Case10_TrimmedUnderARunningConsumerIsAGap(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11)...)
		cfg := w.config()
		var ended error
		cfg.hooks.Ended = func(err error) { ended = err }
		c, err := attachLane(laneCtx(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.cleanup(c)
		w.ack(w.receive(c, 11))
		w.flush(c)
		// The log is cut while a fetch is on its way.
		fetch := w.k.Fault(t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Hang})
		w.publish(true, liveBatches(21)...)
		<-fetch.Hit()
		w.publish(true, liveBatches(31)...)
		w.publish(true, liveBatches(41)...)
		w.trim(6) // 11, 21 and 31, each with its marker
		fetch.Release()
		d, err := c.Receive(laneCtx(t))
		for err == nil && d.Item().(*flusso.Batch).Position == 21 {
			d, err = c.Receive(laneCtx(t)) // the fetch before may have had it
		}
		gap := wantGap(t, "receive", err)
		_, again := c.Receive(laneCtx(t))
		wantIs(t, "receive again", again, err)
		wantIs(t, "hook", ended, err)
		if gap.Topic != w.lane.Topic() || gap.Group != w.lane.Group() || gap.To != 6 || gap.Next != 41 || gap.Acked != 11 {
			t.Fatalf("got %+v", gap)
		}
	})
}

func TestB8_ANewSinkOfATrimmedLaneIsAGap(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 13, 12)...)
		w.trim(3) // inside 13
		c := w.attach()
		_, err := c.Receive(laneCtx(t))
		gap := wantGap(t, "receive", err)
		if gap.Acked != flusso.NoPosition || gap.Next != 13 || !strings.Contains(gap.Cause, "sequence 2") {
			t.Fatalf("got %+v", gap)
		}
	})
}

func TestB8_RecreatedTopicIsAGap(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12)...)
		c := w.attach()
		w.ack(w.receive(c, 11))
		w.close(c)
		before := w.committed().Raw
		recreate(w)
		w.last = wire.Header{Epoch: 1, Incarnation: "pg-1"}
		w.publish(true, liveBatches(91, 92, 93)...)
		w.move(w.lane.Group(), 1, before) // a broker may keep it
		_, err := attachLane(laneCtx(t), w.config())
		if gap := wantGap(t, "attach", err); gap.Acked != 11 || !strings.Contains(gap.Cause, "recreated") {
			t.Fatalf("got %+v", gap)
		}
	})
}

func TestB8_TopicRecreatedUnderARunningConsumerIsAGap(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12)...)
		c := w.attach()
		w.ack(w.receive(c, 11))
		w.flush(c)
		recreate(w)
		w.last = wire.Header{Epoch: 1, Incarnation: "pg-1"}
		w.publish(true, liveBatches(91, 92, 93)...)
		var err error
		for err == nil {
			var d flusso.Delivery[flusso.LaneItem]
			if d, err = c.Receive(laneCtx(t)); err == nil && d.Item().(*flusso.Batch).Position > 12 {
				t.Fatalf("delivered %v of the new topic", d.Item())
			}
		}
		_ = wantGap(t, "receive", err)
	})
}

func recreate(w *laneWorld) {
	w.t.Helper()
	if _, err := w.admin.DeleteTopic(laneCtx(w.t), w.lane.Topic()); err != nil {
		w.t.Fatal(err)
	}
	w.k.CreateTopic(w.t, w.lane.Topic())
}

func TestC6_ForeignCommits(t *testing.T) {
	// Offsets: 11 at 0, 12 at 1 and 2, 13 at 3 to 5.
	tests := []struct {
		name   string
		to     int64
		meta   string
		mirror bool // up to and including 12, offset 3
		want   flusso.Position
		err    bool
	}{
		{name: "rewound to the beginning", to: 0, want: 11},
		{name: "rewound behind the mirror", to: 1, mirror: true, want: 12},
		{name: "rewound into an item", to: 2, mirror: true, want: 12},
		{name: "where the mirror is", to: 3, mirror: true, want: 13},
		{name: "garbage as metadata", to: 3, meta: "\x00garbage", mirror: true, want: 13},
		{name: "forward of the mirror", to: 6, mirror: true, err: true},
		{name: "forward without a mirror", to: 3, err: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			laneBubble(t, func(t *testing.T, w *laneWorld) {
				w.publish(true, liveBatches(11, 12, 13)...)
				c := w.attach()
				w.ack(w.receive(c, 11), w.receive(c, 12))
				w.close(c)
				w.wantThrough(12, 2)
				if tt.mirror {
					w.move(w.lane.Pipeline.IngestGroup(), 3, w.committed().Raw)
				}
				w.move(w.lane.Group(), tt.to, tt.meta)
				c, err := attachLane(laneCtx(t), w.config())
				if tt.err {
					un := (*flusso.UnverifiedError)(nil)
					if !errors.As(err, &un) || un.Committed != flusso.Offset(tt.to) {
						t.Fatalf("attach: got %v", err)
					}
					if w.committed().Offset != flusso.Offset(tt.to) {
						t.Fatal("the offset was moved")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				w.cleanup(c)
				for p := tt.want; p <= 13; p++ {
					w.ack(w.receive(c, p))
				}
				w.flush(c)
				w.wantThrough(13, 3)
			})
		})
	}
}

func TestExpiredGroupResumesAtTheMirror(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12)...)
		c := w.attach()
		w.ack(w.receive(c, 11))
		w.close(c)
		w.move(w.lane.Pipeline.IngestGroup(), 1, w.committed().Raw)
		if _, err := w.admin.DeleteGroup(laneCtx(t), w.lane.Group()); err != nil {
			t.Fatal(err)
		}
		w.trim(1)
		c = w.attach()
		w.ack(w.receive(c, 12))
		w.flush(c)
		w.wantThrough(12, 2)
	})
}

func TestRewrittenLogIsAGap(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11, 12)...)
		c := w.attach()
		w.ack(w.receive(c, 11))
		w.close(c)
		m := *w.committed().Meta
		m.Sequence = 7 // as if another item had been there
		w.move(w.lane.Group(), 1, wire.FormatMetadata(m))
		_, err := attachLane(laneCtx(t), w.config())
		if gap := wantGap(t, "attach", err); !strings.Contains(gap.Cause, "written anew") {
			t.Fatalf("got %+v", gap)
		}
	})
}

func TestHolesInTheSequenceAreGaps(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.publish(true, liveBatches(11)...)
		w.last.Sequence += 2
		w.last.Totals.Batches += 2
		w.publish(true, liveBatches(22)...)
		c := w.attach()
		w.ack(w.receive(c, 11))
		_, err := c.Receive(laneCtx(t))
		gap := wantGap(t, "receive", err)
		if gap.Cause != "sequence 4 follows 1" || gap.Acked != 11 || gap.Next != 22 || gap.From != 1 {
			t.Fatalf("got %+v", gap)
		}
		w.flush(c)
		w.wantThrough(11, 1) // what came before the hole is acked all the same
		_, again := c.Receive(laneCtx(t))
		wantIs(t, "receive again", again, err)
	})
}

func TestB7_PrefetchStopsAtTheBudgetAndALargeBatchGoesAlone(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		big := &flusso.Batch{Position: 21, Envelopes: []flusso.Envelope{{
			Index: "order", ID: "big", Op: flusso.Upsert, Document: make([]byte, 300<<10), Position: 21, BuiltAt: time.Now(),
		}}}
		w.publish(true, liveBatches(11, 12)...)
		w.publish(true, big)
		for p := flusso.Position(31); p < 300; p += 10 {
			w.publish(true, liveBatches(p)...)
		}
		cfg := w.config()
		cfg.budget = 4 << 10
		c, err := attachLane(laneCtx(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.cleanup(c)
		synctest.Wait()
		w.ack(w.receive(c, 11), w.receive(c, 12), w.receive(c, 21))
		for p := flusso.Position(31); p < 300; p += 10 {
			w.ack(w.receive(c, p))
		}
		w.flush(c)
		w.wantThrough(291, 30)
	})
}

func TestLaneModesDoNotMix(t *testing.T) {
	laneBubble(t, func(t *testing.T, w *laneWorld) {
		w.attach()
		cfg := w.config()
		cfg.standby, cfg.attached = true, nil
		_, err := attachLane(laneCtx(t), cfg)
		mixed := (*group.MixedModeError)(nil)
		if !errors.As(err, &mixed) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestCase18_CommitMetadataFits200Bytes(t *testing.T) {
	r := laneReader{}
	c := r.Commit(1<<62, laneMark{
		end: 1 << 62, sequence: 1 << 63, through: 1<<64 - 1, epoch: 1 << 63,
		topicID: [16]byte{1: 255}, incarnation: strings.Repeat("x", flusso.MaxIncarnation),
	}, nil)
	if len(c.Metadata) > wire.MaxMetadata {
		t.Fatalf("%d bytes: %s", len(c.Metadata), c.Metadata)
	}
}
