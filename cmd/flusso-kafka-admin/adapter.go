package main

import (
	"context"
	"errors"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/channel"
	"github.com/flusso/flusso-kafka/internal/demo"
)

// demoStream is the stream that the demo plays over, and what only its adapter
// knows.
type demoStream struct {
	flusso.Stream
	name  string // what people should know about the broker
	lags  func(context.Context) (map[string]demo.Lag, error)
	close func(context.Context) error
}

// openDemo opens the demo's source and its stream over data.
func openDemo(_ context.Context, data string, seed uint64) (*demo.Source, *demoStream, error) {
	source, err := demo.OpenSource(data, seed)
	if err != nil {
		return nil, nil, err
	}
	stream, err := channel.New(channel.Config{Sinks: demo.Sinks(), Incarnation: source.Incarnation()})
	if err != nil {
		return nil, nil, errors.Join(err, source.Close())
	}
	return source, &demoStream{
		Stream: stream,
		name:   "lanes in memory",
		close: func(ctx context.Context) error {
			return errors.Join(stream.Close(ctx), source.Close())
		},
	}, nil
}
