package kafka

import (
	"context"
	"errors"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/requests"
	"github.com/flusso/flusso-kafka/topics"
)

// requestLane is the request lane of a stream.
type requestLane struct{ stream *Stream }

// Producer implements [flusso.Lane].
func (l *requestLane) Producer(context.Context) (flusso.Producer[flusso.Request], error) {
	s := l.stream
	if s.life.Err() != nil {
		return nil, flusso.ErrClosed
	}
	p, err := requests.NewProducer(s.names.pipeline, s.names.sinks, s.clientOpts("requests"))
	if err != nil {
		return nil, err
	}
	rp := &requestProducer{Producer: p, stream: s}
	if err := s.adopt(rp); err != nil {
		return nil, errors.Join(err, p.Close(context.Background())) // nothing was sent: there is nothing to wait for
	}
	return rp, nil
}

// requestProducer is known to its stream until it is closed.
type requestProducer struct {
	*requests.Producer
	stream *Stream
}

// Close implements [flusso.Producer].
func (p *requestProducer) Close(ctx context.Context) error {
	p.stream.release(p)
	return p.Producer.Close(ctx)
}

// Consumer implements [flusso.Lane]. The writer session is opened first: what
// an earlier ingest engine still publishes for a request must be fenced before
// the request is taken from it.
func (l *requestLane) Consumer(ctx context.Context) (flusso.Consumer[flusso.Request], error) {
	s := l.stream
	if _, err := s.writer(ctx); err != nil {
		return nil, err
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	old := s.requests
	s.mu.Unlock()
	if old != nil {
		within, cancel := context.WithTimeout(ctx, handOver)
		_ = old.Supersede(within) // what it could not commit comes again
		cancel()
		s.release(old)
	}
	c, err := requests.Attach(ctx, requests.Config{
		Pipeline: s.names.pipeline, Client: s.clientOpts("ingest"), Lookup: s.client,
		Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	rc := &requestConsumer{Consumer: c, stream: s}
	if err := s.adopt(rc); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	s.mu.Lock()
	s.requests = rc
	s.mu.Unlock()
	return rc, nil
}

// requestConsumer is known to its stream until it is closed: it owns every
// commit of the ingest group.
type requestConsumer struct {
	*requests.Consumer
	stream *Stream
}

// Close implements [flusso.Consumer].
func (c *requestConsumer) Close(ctx context.Context) error {
	c.stream.release(c)
	return c.Consumer.Close(ctx)
}

// prepareAcks computes what the transaction must commit for requests that are
// acked with the items that complete them [D2].
func (s *Stream) prepareAcks(ctx context.Context, acks []flusso.Delivery[flusso.Request]) (*requests.Pending, error) {
	s.mu.Lock()
	c := s.requests
	s.mu.Unlock()
	if c == nil {
		return nil, &flusso.InvalidError{What: "commit with acks", Reason: "this stream has no consumer of the request lane"}
	}
	return c.Prepare(ctx, acks)
}

// commitMirror keeps the lanes' verified offsets in the ingest group.
func (s *Stream) commitMirror(ctx context.Context, due map[topics.Lane]offsets.Commit) error {
	mirror := make(map[string]requests.Mirrored, len(due))
	for l, c := range due {
		mirror[l.Topic()] = requests.Mirrored{
			TopicID: c.Meta.TopicID, Offset: c.Offset, LeaderEpoch: c.LeaderEpoch, Metadata: wire.FormatMetadata(*c.Meta),
		}
	}
	s.mu.Lock()
	c := s.requests
	s.mu.Unlock()
	if c != nil {
		return c.CommitMirror(ctx, mirror)
	}
	return requests.CommitMirror(ctx, s.client, s.names.pipeline, mirror)
}
