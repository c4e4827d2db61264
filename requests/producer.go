package requests

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// maxPending bounds the requests that are submitted and not yet durable.
const maxPending = 1024

// Producer sends requests. A request whose outcome is unknown may be sent
// again: asking twice is asked once.
type Producer struct {
	pipeline topics.Pipeline
	sinks    []string
	cl       *kgo.Client
	room     chan struct{}

	mu      sync.Mutex // orders what is submitted
	closed  bool
	closing sync.Once
	pending sync.WaitGroup
}

var _ flusso.Producer[flusso.Request] = (*Producer)(nil)

// MaxRequest bounds key and value of a request in bytes: well below what any
// topic takes, and thousands of index names.
const MaxRequest = 512 << 10

// NewProducer returns a producer with its own client, configured by opts.
// sinks are those of the stream.
func NewProducer(p topics.Pipeline, sinks []string, opts []kgo.Opt) (*Producer, error) {
	cl, err := kgo.NewClient(append(append([]kgo.Opt(nil), opts...),
		kgo.DefaultProduceTopic(p.RequestsTopic()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.DisableClientMetrics(),
	)...)
	if err != nil {
		return nil, fmt.Errorf("request lane of pipeline %s: configure the Kafka client: %w", p, err)
	}
	return &Producer{pipeline: p, sinks: append([]string(nil), sinks...), cl: cl, room: make(chan struct{}, maxPending)}, nil
}

// Publish implements [flusso.Producer]: it returns when the request is
// durable.
func (p *Producer) Publish(ctx context.Context, request flusso.Request) (flusso.Receipt, error) {
	f, err := p.Submit(ctx, request)
	if err != nil {
		return flusso.Receipt{}, err
	}
	return f.Wait(ctx)
}

// Submit implements [flusso.Producer].
func (p *Producer) Submit(ctx context.Context, request flusso.Request) (*flusso.Future, error) {
	if err := flusso.CheckRequest(request, p.sinks); err != nil {
		return nil, err
	}
	record := wire.EncodeRequest(p.pipeline.RequestsTopic(), request, time.Now())
	if size := len(record.Key) + len(record.Value); size > MaxRequest {
		return nil, &flusso.LimitError{
			What: "request of pipeline " + p.pipeline.String(), Limit: "request size in bytes", Value: int64(size), Max: MaxRequest,
			Setting: "nothing (it is fixed), ask in several requests",
		}
	}
	select {
	case p.room <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		<-p.room
		return nil, flusso.ErrClosed
	}
	f, resolve := flusso.NewFuture()
	p.pending.Add(1)
	// Not ctx: a record given up after it was sent has an unknown outcome, and
	// would end the idempotent producer's sequence.
	p.cl.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
		defer p.pending.Done()
		<-p.room
		if err != nil {
			resolve(flusso.Receipt{}, kafkaerr.Wrap("send a request of pipeline "+p.pipeline.String()+" to topic "+p.pipeline.RequestsTopic(), err, kafkaerr.OnTopic("Write", p.pipeline.RequestsTopic())))
			return
		}
		resolve(flusso.Receipt{Published: 1}, nil)
	})
	return f, nil
}

// Close implements [flusso.Producer]. What is not durable when ctx ends may
// still be, or not: ask again.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		p.pending.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("close the producer of requests of pipeline %s: %d may not have been sent: %w", p.pipeline, len(p.room), context.Cause(ctx))
	}
	p.closing.Do(p.cl.Close)
	<-done // the client failed what was left
	return err
}
