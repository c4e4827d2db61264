package offsets_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// backlogs are lane lengths in items.
var backlogs = []int{1_000, 10_000, 100_000}

// backlog is a lane of n small items, five hundred a segment.
func backlog(b *testing.B, n int) (*scribe, truth) {
	s := newScribe(b, newCluster(b), "audit")
	for i := 0; i < n; i += 500 {
		var items []flusso.LaneItem
		for j := range min(500, n-i) {
			items = append(items, live(flusso.Position(i+j+1), 1))
		}
		s.segment(true, items...)
	}
	return s, s.read()
}

func reportFetches(b *testing.B, n *counter) {
	got := n.take()
	b.ReportMetric(float64(got[kmsg.Fetch])/float64(b.N), "fetches/op")
	total := 0
	for _, k := range got {
		total += k
	}
	b.ReportMetric(float64(total)/float64(b.N), "requests/op")
}

// BenchmarkLag is the lag of a sink that acked the first tenth, by a store
// that knows nothing yet.
func BenchmarkLag(b *testing.B) {
	for _, n := range backlogs {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			s, tr := backlog(b, n)
			f := tr.items[n/10]
			st := offsets.New(s.c.Client(b))
			commit(b, s.c, s.lane.Group(), s.lane, f.Next(), wire.FormatMetadata(metaOf(f, topicID(b, st, s.lane))))
			cl := s.c.Client(b)
			requests := count(s.c)
			b.ReportAllocs()
			for b.Loop() {
				got := must(offsets.New(cl).Lag(b.Context(), []topics.Lane{s.lane}))(b)[s.lane]
				if got.Batches != uint64(n-n/10-1) {
					b.Fatalf("got %+v", got)
				}
			}
			reportFetches(b, requests)
		})
	}
}

// BenchmarkBelowCold translates random offsets without an index.
func BenchmarkBelowCold(b *testing.B) {
	for _, n := range backlogs {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			s, tr := backlog(b, n)
			cl := s.c.Client(b)
			rnd := rand.New(rand.NewPCG(1, 1))
			requests := count(s.c)
			b.ReportAllocs()
			for b.Loop() {
				must(offsets.New(cl).Below(b.Context(), s.lane, 1+flusso.Offset(rnd.Int64N(int64(tr.high-1)))))(b)
			}
			reportFetches(b, requests)
		})
	}
}

// BenchmarkOffsetOfCold finds random positions without an index.
func BenchmarkOffsetOfCold(b *testing.B) {
	for _, n := range backlogs {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			s, _ := backlog(b, n)
			cl := s.c.Client(b)
			rnd := rand.New(rand.NewPCG(1, 1))
			requests := count(s.c)
			b.ReportAllocs()
			for b.Loop() {
				must(offsets.New(cl).OffsetOf(b.Context(), s.lane, 1+flusso.Position(rnd.IntN(n))))(b)
			}
			reportFetches(b, requests)
		})
	}
}

// BenchmarkFloors is a look at all lanes while every commit is ours, and raw
// the request that it makes, by hand.
func BenchmarkFloors(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		lanes := make([]topics.Lane, n)
		names := make([]string, n)
		for i := range lanes {
			lanes[i] = newLane(b, fmt.Sprintf("s%04d", i))
			names[i] = lanes[i].Topic()
		}
		c := newCluster(b, kfake.SeedTopics(1, names...))
		st, cl := offsets.New(c.Client(b)), c.Client(b)
		ids := must(st.Ends(within(b), lanes))(b)
		req := kmsg.NewPtrOffsetFetchRequest()
		for _, l := range lanes {
			meta := wire.Metadata{Offset: 8, Through: 100, Sequence: 3, Epoch: 1, TopicID: ids[l].TopicID, Incarnation: inc}
			commit(b, c, l.Group(), l, 8, wire.FormatMetadata(meta))
			g := kmsg.NewOffsetFetchRequestGroup()
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic, t.TopicID, t.Partitions = l.Topic(), ids[l].TopicID, []int32{0}
			g.Group, g.Topics = l.Group(), append(g.Topics, t)
			req.Groups = append(req.Groups, g)
		}
		b.Run(fmt.Sprintf("lanes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(st.Floors(b.Context(), newPipeline(b), inc, lanes))(b)
			}
		})
		b.Run(fmt.Sprintf("raw=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(cl.Broker(0).Request(b.Context(), req))(b)
			}
		})
	}
}

// BenchmarkIndexBelow is a look into a full index.
func BenchmarkIndexBelow(b *testing.B) {
	x, high := fullIndex()
	b.ReportAllocs()
	for b.Loop() {
		x.Below(high)
	}
}

func fullIndex() (x *offsets.Index, high flusso.Offset) {
	x = offsets.NewIndex()
	const n = 10_000
	for i := range n {
		x.Add(idNow, 0, offsets.Found{At: flusso.Offset(i), Header: wire.Header{Sequence: uint64(i + 1), Incarnation: inc}})
	}
	return x, n
}

func TestIndexAllocates(t *testing.T) {
	x, high := fullIndex()
	if got := testing.AllocsPerRun(100, func() { x.Below(high); x.From(high - 3) }); got != 0 {
		t.Errorf("looking costs %v allocations", got)
	}
	next := high
	if got := testing.AllocsPerRun(1000, func() {
		x.Add(idNow, 0, offsets.Found{At: next, Header: wire.Header{Sequence: uint64(next + 1), Incarnation: inc}})
		next++
	}); got > 1 {
		t.Errorf("adding costs %v allocations", got)
	}
	if got := testing.AllocsPerRun(100, func() { offsets.Judge(ours(10), none, idNow, inc) }); got > 1 {
		t.Errorf("judging our own commit costs %v allocations", got)
	}
}
