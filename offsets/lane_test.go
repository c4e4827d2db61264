package offsets_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// deadline bounds every call of a test, far above what any takes.
const deadline = 20 * time.Second

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

func newPipeline(t testing.TB) topics.Pipeline { return must(topics.NewPipeline("orders"))(t) }

func newLane(t testing.TB, sink string) topics.Lane {
	t.Helper()
	return must(newPipeline(t).Lane(sink))(t)
}

// scribe writes a lane as its writer does: one transaction for each segment,
// four transactional ids taking turns, running totals in the headers.
type scribe struct {
	t    testing.TB
	c    *kfaketest.Cluster
	lane topics.Lane

	ids  [topics.WriterIDs]*kgo.Client
	turn int

	last        wire.Header // of the newest item that was committed or is in an open segment
	incarnation string
	epoch       uint64 // of the writer, 1 where it is not set
	builtAt     time.Time
}

func newCluster(t testing.TB, opts ...kfake.Opt) *kfaketest.Cluster {
	t.Helper()
	return kfaketest.New(t, opts...)
}

func newScribe(t testing.TB, c *kfaketest.Cluster, sink string) *scribe {
	t.Helper()
	s := &scribe{t: t, c: c, lane: newLane(t, sink), incarnation: "db1:slot", builtAt: time.Now().Add(-time.Hour).Truncate(time.Millisecond)}
	c.CreateTopic(t, s.lane.Topic())
	return s
}

func (s *scribe) client() *kgo.Client {
	s.t.Helper()
	if s.ids[s.turn] == nil {
		s.ids[s.turn] = s.c.Client(s.t, kgo.TransactionalID(fmt.Sprintf("%s.%d", s.lane.Topic(), s.turn)),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	}
	return s.ids[s.turn]
}

// next fills the header of the item that follows last.
func (s *scribe) next(last wire.Header, item flusso.LaneItem) wire.Header {
	h := wire.Fill(wire.Header{}, item)
	h.Incarnation, h.Epoch, h.Sequence = s.incarnation, max(s.epoch, 1), last.Sequence+1
	s.builtAt = s.builtAt.Add(time.Millisecond)
	h.BuiltAt = s.builtAt
	if last.Incarnation == h.Incarnation {
		h.Through, h.Newest = last.Through, last.Newest
	}
	if h.Kind == wire.Live {
		h.Newest = h.Position
		if !h.More {
			h.Through = h.Position
		}
	}
	size, _ := wire.Size(item)
	h.Totals = wire.Totals{
		Batches: last.Totals.Batches + 1, Envelopes: last.Totals.Envelopes + uint64(h.Envelopes),
		Bytes: last.Totals.Bytes + size, Changes: last.Totals.Changes + h.Changes,
	}
	return h
}

// segment writes items as one transaction and commits or aborts it.
func (s *scribe) segment(commit bool, items ...flusso.LaneItem) {
	s.t.Helper()
	s.begin(items...)(commit)
}

// begin writes items as one transaction and returns how to end it.
func (s *scribe) begin(items ...flusso.LaneItem) (end func(commit bool)) {
	s.t.Helper()
	cl := s.client()
	s.turn = (s.turn + 1) % len(s.ids)
	if err := cl.BeginTransaction(); err != nil {
		s.t.Fatal(err)
	}
	last := s.last
	var rs []*kgo.Record
	for _, item := range items {
		last = s.next(last, item)
		rs = wire.EncodeItem(rs, s.lane.Topic(), item, last)
	}
	if err := cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
	return func(commit bool) {
		s.t.Helper()
		if err := kfaketest.EndTransaction(context.Background(), cl, commit, s.lane.Topic()); err != nil {
			s.t.Fatal(err)
		}
		if commit {
			s.last = last
		}
	}
}

func live(pos flusso.Position, n int) *flusso.Batch { return sized(pos, n, 20) }

func sized(pos flusso.Position, n, size int) *flusso.Batch {
	b := &flusso.Batch{Position: pos, Changes: uint64(n) + 1}
	for i := range n {
		b.Envelopes = append(b.Envelopes, flusso.Envelope{
			Index: "orders", ID: fmt.Sprint(i), Op: flusso.Upsert, Document: slices.Repeat([]byte{'x'}, size), Position: pos,
		})
	}
	return b
}

func more(pos flusso.Position, n int) *flusso.Batch {
	b := live(pos, n)
	b.More = true
	return b
}

func snapshot(n int) *flusso.Batch { return live(flusso.NoPosition, n) }

func marker() *flusso.SnapshotComplete { return &flusso.SnapshotComplete{Indexes: []string{"orders"}} }

// truth is what a reader of the whole topic sees: every committed item.
type truth struct {
	start, stable, high flusso.Offset
	items               []offsets.Found
}

// read reads the whole lane with a plain read_committed consumer.
func (s *scribe) read() truth {
	s.t.Helper()
	ctx := within(s.t)
	adm := kadm.NewClient(s.c.Client(s.t))
	offset := func(l kadm.ListedOffsets, err error) flusso.Offset {
		o, _ := must(l, err)(s.t).Lookup(s.lane.Topic(), 0)
		if o.Err != nil {
			s.t.Fatal(o.Err)
		}
		return flusso.Offset(o.Offset)
	}
	tr := truth{
		start:  offset(adm.ListStartOffsets(ctx, s.lane.Topic())),
		stable: offset(adm.ListCommittedOffsets(ctx, s.lane.Topic())),
		high:   offset(adm.ListEndOffsets(ctx, s.lane.Topic())),
	}
	cl := s.c.Client(s.t, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.lane.Topic(): {0: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	for next := tr.start; next < tr.stable; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			s.t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			next = flusso.Offset(r.Offset) + 1
			h, ok, err := wire.HeaderOf(r)
			if err != nil {
				s.t.Fatal(err)
			}
			if ok {
				tr.items = append(tr.items, offsets.Found{At: flusso.Offset(r.Offset), LeaderEpoch: r.LeaderEpoch, Header: h})
			}
		})
		if len(fs.Records()) == 0 {
			break
		}
	}
	return tr
}

func (tr truth) below(off flusso.Offset) *offsets.Found {
	var found *offsets.Found
	if off <= tr.start {
		return nil
	}
	for i := range tr.items {
		if tr.items[i].At < off {
			found = &tr.items[i]
		}
	}
	return found
}

func (tr truth) from(off flusso.Offset) *offsets.Found {
	if off < tr.start {
		return nil
	}
	for i := range tr.items {
		if tr.items[i].At >= off {
			return &tr.items[i]
		}
	}
	return nil
}

// trim deletes what is below upTo.
func (s *scribe) trim(upTo flusso.Offset) {
	s.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = s.lane.Topic()
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Offset = int64(upTo)
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp := must(req.RequestWith(within(s.t), s.c.Client(s.t)))(s.t)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		s.t.Fatalf("delete records up to %s: code %d", upTo, code)
	}
}

// commit commits an offset with metadata to a group, as an admin tool would.
func commit(t testing.TB, c *kfaketest.Cluster, group string, lane topics.Lane, off flusso.Offset, metadata string) {
	t.Helper()
	os := make(kadm.Offsets)
	os.Add(kadm.Offset{Topic: lane.Topic(), At: int64(off), LeaderEpoch: -1, Metadata: metadata})
	if _, err := kadm.NewClient(c.Client(t)).CommitOffsets(within(t), group, os); err != nil {
		t.Fatal(err)
	}
}
