package offsets_test

import (
	"context"
	"fmt"
	"math/bits"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// TestTailBehindAborted: the newest item is found in few reads, however much
// aborted data lies behind it.
func TestTailBehindAborted(t *testing.T) {
	for _, c := range []struct {
		name           string
		segments, each int // aborted ones
		fetches        int
	}{
		{"nothing", 0, 0, 1},
		{"one small", 1, 3, 2},
		{"one large", 1, 5000, 3},
		{"many small", 400, 1, 8},
		{"some large", 4, 2000, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScribe(t, newCluster(t), "audit")
			s.segment(true, live(1, 2))
			s.segment(true, live(2, 2))
			for range c.segments {
				s.segment(false, live(3, c.each))
			}
			requests := count(s.c)
			tail := must(offsets.New(s.c.Client(t)).Tails(within(t), []topics.Lane{s.lane}))(t)[s.lane]
			if tail.Err != nil || tail.Header.Position != 2 {
				t.Errorf("got %+v", tail)
			}
			if got := requests.take(); got[kmsg.Fetch] > c.fetches || got[kmsg.ListOffsets] != 3 || got[kmsg.Metadata] != 1 {
				t.Errorf("got requests %v, want at most %d fetches", got, c.fetches)
			}
		})
	}
}

// TestTailsOfManyLanes: a thousand lanes cost a handful of requests, also when
// some of them end in batches far above the bound of a read.
func TestTailsOfManyLanes(t *testing.T) {
	const n, brokers = 1000, 2
	lanes := make([]topics.Lane, n)
	names := make([]string, n)
	for i := range lanes {
		lanes[i] = newLane(t, fmt.Sprintf("s%04d", i))
		names[i] = lanes[i].Topic()
	}
	c := newCluster(t, kfake.NumBrokers(brokers), kfake.SeedTopics(1, names...))
	cl := c.Client(t, kgo.TransactionalID("w"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	var rs []*kgo.Record
	for i, l := range lanes {
		s := &scribe{incarnation: inc, builtAt: time.Now().Truncate(time.Millisecond)}
		item := live(flusso.Position(i+1), 2)
		if i%100 == 50 {
			item = sized(flusso.Position(i+1), 9, 100_000)
		}
		rs = wire.EncodeItem(rs, l.Topic(), item, s.next(wire.Header{}, item))
	}
	if err := cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := kfaketest.EndTransaction(context.Background(), cl, true, names...); err != nil {
		t.Fatal(err)
	}
	requests := count(c)
	st := offsets.New(c.Client(t))
	tails := must(st.Tails(within(t), lanes))(t)
	for i, l := range lanes {
		if got := tails[l]; got.Err != nil || got.Header.Position != flusso.Position(i+1) {
			t.Fatalf("lane %d: got %+v", i, got)
		}
	}
	got := requests.take()
	t.Logf("requests for the tails of %d lanes on %d brokers: %v", n, brokers, got)
	if got[kmsg.Metadata] != 1 || got[kmsg.ListOffsets] != 3*brokers || got[kmsg.Fetch] > 8*brokers {
		t.Errorf("got requests %v", got)
	}
	// The lag of all of them, with nothing committed but one.
	must(st.Lag(within(t), lanes))(t)
	got = requests.take()
	t.Logf("requests for their lag: %v", got)
	if got[kmsg.Fetch] > 20*brokers || got[kmsg.OffsetFetch] > brokers {
		t.Errorf("got requests %v", got)
	}
}

// long is a lane of n items of k records each, ten items a segment.
func long(t testing.TB, c *kfaketest.Cluster, sink string, n, k int) *scribe {
	s := newScribe(t, c, sink)
	for i := 0; i < n; i += 10 {
		var items []flusso.LaneItem
		for j := range min(10, n-i) {
			items = append(items, live(flusso.Position(2*(i+j+1)), k))
		}
		s.segment(true, items...)
	}
	return s
}

// TestOffsetOfSteps: a position is found in the logarithm of the log's length.
func TestOffsetOfSteps(t *testing.T) {
	s := long(t, newCluster(t), "audit", 3000, 1)
	tr := s.read()
	most := bits.Len64(uint64(tr.high - tr.start))
	requests := count(s.c)
	worst := 0
	for i := 0; i < len(tr.items); i += 97 {
		st := offsets.New(s.c.Client(t)) // knows nothing
		for _, pos := range []flusso.Position{tr.items[i].Header.Position, tr.items[i].Header.Position + 1} {
			got, err := st.OffsetOf(within(t), s.lane, pos)
			if err != nil || got != tr.items[i].Next() {
				t.Fatalf("offset of %s: got %s, %v, want %s", pos, got, err, tr.items[i].Next())
			}
			steps := requests.take()[kmsg.Fetch] - 1 // the tail
			worst = max(worst, steps)
		}
	}
	t.Logf("%d offsets, at most %d steps", tr.high-tr.start, worst)
	if worst > most {
		t.Errorf("%d steps for %d offsets, want at most %d", worst, tr.high-tr.start, most)
	}
}

// TestCommittedHeaderCostsOneRead: what a lag reads first, and then not again.
func TestCommittedHeaderCostsOneRead(t *testing.T) {
	s := long(t, newCluster(t), "audit", 200, 30)
	tr := s.read()
	for _, i := range []int{0, 57, 120, 199} {
		requests := count(s.c)
		st := offsets.New(s.c.Client(t))
		for range 2 {
			if f, err := st.Below(within(t), s.lane, tr.items[i].Next()); err != nil || f.At != tr.items[i].At {
				t.Fatalf("got %+v, %v", f, err)
			}
		}
		wantRequests(t, fmt.Sprint("item ", i), requests.take(), map[kmsg.Key]int{kmsg.Metadata: 1, kmsg.Fetch: 1})
	}
}
