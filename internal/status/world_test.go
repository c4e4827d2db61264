package status_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

const incarnation = "pg-1"

// deadline bounds every call of a test, far above what any takes.
const deadline = 30 * time.Second

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// world is a cluster with a pipeline in it, written by one plain producer.
type world struct {
	t      testing.TB
	c      *kfaketest.Cluster
	p      topics.Pipeline
	writer *kgo.Client
	admin  *kadm.Client
	lanes  map[string]*lane
}

type lane struct {
	topics.Lane

	id    [16]byte
	last  wire.Header
	items []item
}

type item struct {
	header wire.Header
	next   flusso.Offset // after it
}

func newWorld(t testing.TB, opts ...kfake.Opt) *world {
	t.Helper()
	c := kfaketest.New(t, opts...)
	w := &world{
		t: t, c: c, p: must(topics.NewPipeline("shop"))(t),
		writer: c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0)),
		lanes:  make(map[string]*lane),
	}
	w.admin = kadm.NewClient(w.writer)
	w.create(w.p.RequestsTopic())
	return w
}

func (w *world) create(names ...string) map[string][16]byte {
	w.t.Helper()
	got := must(w.admin.CreateTopics(within(w.t), 1, 1, map[string]*string{
		topics.RetentionMs: new("-1"), topics.RetentionBytes: new("-1"),
	}, names...))(w.t)
	ids := make(map[string][16]byte)
	for _, n := range names {
		if err := got[n].Err; err != nil {
			w.t.Fatal(err)
		}
		ids[n] = got[n].ID
	}
	return ids
}

// add creates lanes.
func (w *world) add(sinks ...string) {
	w.t.Helper()
	var names []string
	for _, s := range sinks {
		l := &lane{Lane: must(w.p.Lane(s))(w.t)}
		w.lanes[s] = l
		names = append(names, l.Topic())
	}
	ids := w.create(names...)
	for _, s := range sinks {
		w.lanes[s].id = ids[w.lanes[s].Topic()]
	}
}

// publish writes n live batches of two envelopes to each lane.
func (w *world) publish(n int, sinks ...string) {
	w.t.Helper()
	var items []flusso.LaneItem
	for range n {
		items = append(items, &flusso.Batch{Changes: 2, Envelopes: []flusso.Envelope{
			{Index: "orders", ID: "1", Op: flusso.Upsert, Document: []byte(`{"n":1}`)},
			{Index: "orders", ID: "2", Op: flusso.Delete},
		}})
	}
	var all []encoded
	for _, s := range sinks {
		all = append(all, w.encode(s, items...))
	}
	w.produce(all...)
}

// encoded is records of a lane, with the last record of each item.
type encoded struct {
	lane    *lane
	records []*kgo.Record
	last    []int
}

func (w *world) write(sink string, items ...flusso.LaneItem) { w.produce(w.encode(sink, items...)) }

// encode encodes items; live batches get the positions 10, 20, …
func (w *world) encode(sink string, items ...flusso.LaneItem) encoded {
	w.t.Helper()
	l := w.lanes[sink]
	var rs []*kgo.Record
	var at []int // the last record of each item
	for _, it := range items {
		if b, ok := it.(*flusso.Batch); ok {
			fresh := *b
			fresh.Envelopes = slices.Clone(b.Envelopes)
			if fresh.Envelopes != nil || fresh.Changes > 0 {
				fresh.Position = l.last.Newest + 10
				for i := range fresh.Envelopes {
					fresh.Envelopes[i].Position = fresh.Position
				}
			}
			it = &fresh
		}
		h := wire.Fill(wire.Header{}, it)
		h.Incarnation, h.Epoch, h.Sequence, h.BuiltAt = incarnation, 1, l.last.Sequence+1, time.Now().Truncate(time.Millisecond)
		h.Through, h.Newest = l.last.Through, l.last.Newest
		if h.Kind == wire.Live {
			h.Newest, h.Through = h.Position, h.Position
		}
		size, _ := wire.Size(it)
		t := l.last.Totals
		h.Totals = wire.Totals{
			Batches: t.Batches + 1, Envelopes: t.Envelopes + uint64(h.Envelopes), Bytes: t.Bytes + size, Changes: t.Changes + h.Changes,
		}
		rs = wire.EncodeItem(rs, l.Topic(), it, h)
		at = append(at, len(rs)-1)
		l.last = h
		l.items = append(l.items, item{header: h})
	}
	return encoded{l, rs, at}
}

// produce writes what was encoded, in one go.
func (w *world) produce(all ...encoded) {
	w.t.Helper()
	var rs []*kgo.Record
	for _, e := range all {
		rs = append(rs, e.records...)
	}
	if err := w.writer.ProduceSync(within(w.t), rs...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	for _, e := range all {
		for i, j := range e.last {
			e.lane.items[len(e.lane.items)-len(e.last)+i].next = flusso.Offset(e.records[j].Offset + 1)
		}
	}
}

// ack commits the first n items of a lane as its sink does.
func (w *world) ack(sink string, n int) {
	w.t.Helper()
	l := w.lanes[sink]
	m := wire.Metadata{TopicID: l.id, Incarnation: incarnation}
	if n > 0 {
		it := l.items[n-1]
		m.Offset, m.Through, m.Sequence, m.Epoch = it.next, it.header.Through, it.header.Sequence, it.header.Epoch
	}
	w.commit(l.Group(), l.Topic(), m.Offset, wire.FormatMetadata(m))
}

func (w *world) commit(group, topic string, off flusso.Offset, metadata string) {
	w.t.Helper()
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: topic, At: int64(off), LeaderEpoch: -1, Metadata: metadata})
	got := must(w.admin.CommitOffsets(within(w.t), group, o))(w.t)
	if err := got.Error(); err != nil {
		w.t.Fatal(err)
	}
}

// attach keeps a member in a group until the test or the returned function ends.
func (w *world) attach(group, topic string) (leave func()) {
	w.t.Helper()
	assigned := make(chan struct{}, 1)
	cl := w.c.Client(w.t, kgo.ClientID("engine"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}))
	select {
	case <-assigned:
	case <-within(w.t).Done():
		w.t.Fatalf("group %s gave no assignment", group)
	}
	return cl.Close
}

func (w *world) sink(name string) (leave func()) {
	return w.attach(w.lanes[name].Group(), w.lanes[name].Topic())
}

func (w *world) engine() (leave func()) { return w.attach(w.p.IngestGroup(), w.p.RequestsTopic()) }

func (w *world) collector(o status.Options) *status.Collector {
	w.t.Helper()
	return must(status.New(w.c.Client(w.t, kgo.WithHooks(new(status.Counter))), w.p, o))(w.t)
}

func (w *world) collect(c *status.Collector) *status.Report {
	w.t.Helper()
	return must(c.Collect(within(w.t)))(w.t)
}

func laneOf(t testing.TB, r *status.Report, sink string) status.Lane {
	t.Helper()
	i := slices.IndexFunc(r.Lanes, func(l status.Lane) bool { return l.Sink == sink })
	if i < 0 {
		t.Fatalf("no lane of %s in the report", sink)
	}
	return r.Lanes[i]
}

// codes are the findings of a report as SEVERITY CODE SINK.
func codes(r *status.Report) []string {
	out := []string{}
	for _, f := range r.Findings {
		s := fmt.Sprintf("%s %s", f.Severity, f.Code)
		if f.Sink != "" {
			s += " " + f.Sink
		}
		out = append(out, s)
	}
	return out
}

// trim deletes the first n items of a lane.
func (w *world) trim(sink string, n int) {
	w.t.Helper()
	l := w.lanes[sink]
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: l.Topic(), At: int64(l.items[n-1].next)})
	got := must(w.admin.DeleteRecords(within(w.t), o))(w.t)
	if err := got.Error(); err != nil {
		w.t.Fatal(err)
	}
}

// set changes a setting of a lane's topic.
func (w *world) set(sink, setting, value string) {
	w.t.Helper()
	got := must(w.admin.AlterTopicConfigs(within(w.t), []kadm.AlterConfig{{Name: setting, Value: &value}}, w.lanes[sink].Topic()))(w.t)
	for _, r := range got {
		if r.Err != nil {
			w.t.Fatal(r.Err)
		}
	}
}
