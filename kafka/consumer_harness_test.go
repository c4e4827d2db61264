package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// laneWorld is a cluster with one lane and a plain transactional writer,
// inside a bubble.
type laneWorld struct {
	t        testing.TB
	k        *kfaketest.Cluster
	lane     topics.Lane
	lookup   *kgo.Client
	admin    *kadm.Client
	store    *offsets.Store
	attached *attachments
	writers  int
	last     wire.Header
}

func auditLane(t testing.TB) topics.Lane {
	t.Helper()
	p, err := topics.NewPipeline("orders")
	if err != nil {
		t.Fatal(err)
	}
	lane, err := p.Lane("audit")
	if err != nil {
		t.Fatal(err)
	}
	return lane
}

func laneBubble(t *testing.T, f func(t *testing.T, w *laneWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lane := auditLane(t)
		k := kfaketest.New(t)
		k.CreateTopic(t, lane.Topic())
		cl := k.Client(t)
		f(t, &laneWorld{
			t: t, k: k, lane: lane, lookup: cl, admin: kadm.NewClient(cl), store: offsets.New(cl), attached: new(attachments),
			last: wire.Header{Epoch: 1, Incarnation: "pg-1"},
		})
	})
}

func laneCtx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// items are live batches at the positions, with one envelope for each unit of
// the position's last digit.
func liveBatches(positions ...flusso.Position) (items []flusso.LaneItem) {
	for _, p := range positions {
		b := &flusso.Batch{Position: p, Changes: 1}
		for i := range p % 10 {
			b.Envelopes = append(b.Envelopes, flusso.Envelope{
				Index: "order", ID: fmt.Sprintf("%d-%d", p, i), Op: flusso.Upsert, Document: []byte(`{"a":1}`), Position: p, BuiltAt: time.Now(),
			})
		}
		items = append(items, b)
	}
	return items
}

// publish writes items as one transaction, committed or not.
func (w *laneWorld) publish(commit bool, items ...flusso.LaneItem) {
	w.t.Helper()
	w.writers++
	cl, err := kgo.NewClient(append(w.k.Opts(), kgo.TransactionalID(fmt.Sprintf("writer-%d", w.writers%2)),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	last := w.last
	for _, item := range items {
		last = w.next(last, item)
		records := wire.EncodeItem(nil, w.lane.Topic(), item, last)
		if err := cl.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
			w.t.Fatalf("produce: %v", err)
		}
	}
	if err := kfaketest.EndTransaction(context.Background(), cl, commit, w.lane.Topic()); err != nil {
		w.t.Fatalf("end transaction: %v", err)
	}
	if commit {
		w.last = last
	}
}

func (w *laneWorld) next(h wire.Header, item flusso.LaneItem) wire.Header {
	h = wire.Fill(h, item)
	h.Sequence++
	h.Totals.Batches++
	h.Totals.Envelopes += uint64(h.Envelopes)
	h.Totals.Changes += h.Changes
	h.BuiltAt = time.Now()
	if b, ok := item.(*flusso.Batch); ok && b.Live() {
		h.Newest = b.Position
		if !b.More {
			h.Through = b.Position
		}
	}
	return h
}

func (w *laneWorld) config() laneConsumerConfig {
	return laneConsumerConfig{lane: w.lane, client: w.k.Opts(), lookup: w.lookup, store: w.store, attached: w.attached}
}

func (w *laneWorld) attach() *laneConsumer {
	w.t.Helper()
	c, err := attachLane(laneCtx(w.t), w.config())
	if err != nil {
		w.t.Fatalf("attach: %v", err)
	}
	w.cleanup(c)
	return c
}

func (w *laneWorld) cleanup(c *laneConsumer) {
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Close(ctx)
	})
}

func (w *laneWorld) close(c *laneConsumer) {
	w.t.Helper()
	if err := c.Close(laneCtx(w.t)); err != nil {
		w.t.Fatalf("close: %v", err)
	}
}

func (w *laneWorld) flush(c *laneConsumer) {
	w.t.Helper()
	if err := c.Flush(laneCtx(w.t)); err != nil {
		w.t.Fatalf("flush: %v", err)
	}
}

// receive takes the next live batch and checks that it is whole.
func (w *laneWorld) receive(c *laneConsumer, want flusso.Position) flusso.Delivery[flusso.LaneItem] {
	w.t.Helper()
	d, err := c.Receive(laneCtx(w.t))
	if err != nil {
		w.t.Fatalf("receive: %v, want position %s", err, want)
	}
	b, ok := d.Item().(*flusso.Batch)
	if !ok || b.Position != want || len(b.Envelopes) != int(want%10) {
		w.t.Fatalf("received %#v, want position %s", d.Item(), want)
	}
	return d
}

func (w *laneWorld) ack(ds ...flusso.Delivery[flusso.LaneItem]) {
	w.t.Helper()
	for _, d := range ds {
		if err := d.Ack(context.Background()); err != nil {
			w.t.Fatalf("ack: %v", err)
		}
	}
}

func (w *laneWorld) committed() offsets.Commit {
	w.t.Helper()
	got, err := w.store.Commits(laneCtx(w.t), []topics.Lane{w.lane})
	if err != nil {
		w.t.Fatalf("commits: %v", err)
	}
	return got[w.lane]
}

// wantThrough checks what is committed by its metadata.
func (w *laneWorld) wantThrough(through flusso.Position, sequence uint64) {
	w.t.Helper()
	c := w.committed()
	if !c.Own() || c.Meta.Through != through || c.Meta.Sequence != sequence || c.Meta.Incarnation != "pg-1" || c.Meta.TopicID == [16]byte{} {
		w.t.Fatalf("committed %+v (metadata %q), want through %s, sequence %d", c, c.Raw, through, sequence)
	}
}

// move sets the group's offset as an admin tool does.
func (w *laneWorld) move(group string, to int64, metadata string) {
	w.t.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: w.lane.Topic(), At: to, LeaderEpoch: -1, Metadata: metadata})
	// A client of its own: the topic may have another ID by now.
	if err := kadm.NewClient(w.k.Client(w.t)).CommitAllOffsets(laneCtx(w.t), group, os); err != nil {
		w.t.Fatalf("move the offset: %v", err)
	}
}

func (w *laneWorld) trim(to flusso.Offset) {
	w.t.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: w.lane.Topic(), At: int64(to)})
	got, err := w.admin.DeleteRecords(laneCtx(w.t), os)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		w.t.Fatalf("trim: %v", err)
	}
}

func wantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

func wantGap(t testing.TB, what string, err error) *flusso.GapError {
	t.Helper()
	gap := (*flusso.GapError)(nil)
	if !errors.As(err, &gap) {
		t.Fatalf("%s: got %v, want a gap error", what, err)
	}
	return gap
}
