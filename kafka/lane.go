package kafka

import (
	"context"
	"errors"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// lane is the lane of one sink.
type lane struct {
	stream *Stream
	names  topics.Lane
}

// Producer implements [flusso.Lane].
func (l *lane) Producer(ctx context.Context) (flusso.Producer[flusso.LaneItem], error) {
	sink := l.names.Sink
	return newProducer(ctx, l.stream, func(item flusso.LaneItem) flusso.Commit {
		return flusso.Commit{Items: []flusso.Routed{{Sink: sink, Item: item}}}
	})
}

// Consumer implements [flusso.Lane].
func (l *lane) Consumer(ctx context.Context) (flusso.Consumer[flusso.LaneItem], error) {
	s := l.stream
	if s.life.Err() != nil {
		return nil, flusso.ErrClosed
	}
	c, err := attachLane(ctx, laneConsumerConfig{
		lane: l.names, client: s.clientOpts("sink-" + l.names.Sink), lookup: s.client, store: s.store,
		standby: s.cfg.Standby, budget: s.cfg.PrefetchBytes, outstanding: s.cfg.MaxOutstandingBytes, log: s.log,
		hooks: s.metrics.consumer(l.names.Sink), attached: &s.attached,
	})
	if err != nil {
		return nil, err
	}
	sc := &streamConsumer{laneConsumer: c, stream: s}
	if err := s.adopt(sc); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return sc, nil
}

// streamConsumer is known to its stream until it is closed.
type streamConsumer struct {
	*laneConsumer
	stream *Stream
}

// Close implements [flusso.Consumer].
func (c *streamConsumer) Close(ctx context.Context) error {
	c.stream.release(c)
	return c.laneConsumer.Close(ctx)
}
