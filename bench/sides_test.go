package bench_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
)

// window is what both sides may have in flight: the default of ours.
const window = 32 << 20

// rawProducer is the settings of who writes a producer by hand and knows how:
// idempotent and acknowledged by all, as kgo is by default, batches as large
// as a topic takes, compressed as ours are, and a buffer as large as our window.
func rawProducer(linger time.Duration) []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(linger),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()),
		kgo.MaxBufferedRecords(1 << 20),
		kgo.MaxBufferedBytes(window),
	}
}

// records builds what a batch is on each topic: the keys and values that ours
// writes. It allocates no more than it must.
func records(b *flusso.Batch, topics ...string) []*kgo.Record {
	size := 0
	for i := range b.Envelopes {
		size += len(b.Envelopes[i].Index) + 1 + len(b.Envelopes[i].ID)
	}
	keys := make([]byte, 0, size)
	slab := make([]kgo.Record, len(b.Envelopes)*len(topics))
	out := make([]*kgo.Record, 0, len(slab))
	for i := range b.Envelopes {
		e := &b.Envelopes[i]
		from := len(keys)
		keys = append(append(append(keys, e.Index...), '/'), e.ID...)
		for t, topic := range topics {
			r := &slab[t*len(b.Envelopes)+i]
			r.Topic, r.Key, r.Value, r.Timestamp = topic, keys[from:len(keys):len(keys)], e.Document, e.BuiltAt
			out = append(out, r)
		}
	}
	return out
}

// sending is a client that produces by hand, and notes the first failure.
type sending struct {
	cl     *kgo.Client
	once   sync.Once
	failed error
}

func (s *sending) produce(ctx context.Context, r *kgo.Record) { s.cl.Produce(ctx, r, s.promise) }

func (s *sending) promise(_ *kgo.Record, err error) {
	if err != nil {
		s.once.Do(func() { s.failed = err })
	}
}

// flush returns when the last record is acknowledged.
func (s *sending) flush(ctx context.Context) error {
	if err := s.cl.Flush(ctx); err != nil {
		return err
	}
	s.once.Do(func() {}) // orders the reading behind the promises
	return s.failed
}

// produce writes batches to all topics by hand and returns when the last
// record is acknowledged.
func produce(ctx context.Context, cl *kgo.Client, batches []*flusso.Batch, topics ...string) error {
	s := sending{cl: cl}
	for _, b := range batches {
		for _, r := range records(b, topics...) {
			s.produce(ctx, r)
		}
	}
	return s.flush(ctx)
}

// submit publishes batches to all sinks and returns when the last one is durable.
func submit(ctx context.Context, p flusso.Producer[flusso.Commit], batches []*flusso.Batch, sinks ...string) error {
	futures := make([]*flusso.Future, 0, len(batches))
	for _, b := range batches {
		items := make([]flusso.Routed, len(sinks))
		for i, sink := range sinks {
			items[i] = flusso.Routed{Sink: sink, Item: b}
		}
		f, err := p.Submit(ctx, flusso.Commit{Items: items})
		if err != nil {
			return err
		}
		futures = append(futures, f)
	}
	for i, f := range futures {
		r, err := f.Wait(ctx)
		if err != nil {
			return err
		}
		if r.Published != len(sinks) {
			return fmt.Errorf("batch %d of %d was published to %d of %d lanes", i+1, len(futures), r.Published, len(sinks))
		}
	}
	return nil
}

// fill publishes n batches to a lane and returns when the last one is durable.
func fill(ctx context.Context, p flusso.Producer[flusso.LaneItem], n int, batch func(i int) *flusso.Batch) error {
	var last *flusso.Future
	for i := range n {
		var err error
		if last, err = p.Submit(ctx, batch(i)); err != nil {
			return err
		}
	}
	_, err := last.Wait(ctx) // futures resolve in order
	return err
}

// inTurn takes the batches of a pool in turn, at positions that rise from 1 on.
func inTurn(pool []*flusso.Batch) func(i int) *flusso.Batch {
	return func(i int) *flusso.Batch { return bench.At(pool[i%len(pool)], flusso.Position(i+1)) }
}
