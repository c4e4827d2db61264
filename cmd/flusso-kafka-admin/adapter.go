package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/demo"
	"github.com/flusso/flusso-kafka/internal/embedded"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// demoPipeline is the name of the demo's pipeline.
const demoPipeline = "demo"

// demoStream is the stream that the demo plays over, with what only its
// adapter knows and owns. This file is the only place that chooses it.
type demoStream struct {
	flusso.Stream

	broker *embedded.Broker
	source *demo.Source
	looks  *kgo.Client // for lags
	lanes  []topics.Lane
}

// openDemo opens broker, source and stream over a directory. The broker comes
// first: its lock keeps a second demo away from all of it.
func openDemo(ctx context.Context, dir string, seed uint64) (_ *demoStream, err error) {
	d := &demoStream{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(ctx))
		}
	}()
	if d.broker, err = embedded.Open(ctx, filepath.Join(dir, "broker")); err != nil {
		return nil, err
	}
	if d.source, err = demo.OpenSource(dir, seed); err != nil {
		return nil, err
	}
	if d.looks, err = kgo.NewClient(d.broker.Opts()...); err != nil {
		return nil, fmt.Errorf("set up the demo's Kafka client: %w", err)
	}
	p, err := topics.NewPipeline(demoPipeline)
	if err != nil {
		return nil, err
	}
	for _, sink := range demo.Sinks() {
		l, err := p.Lane(sink)
		if err != nil {
			return nil, err
		}
		d.lanes = append(d.lanes, l)
	}
	stream, err := kafka.Open(ctx, kafka.Config{
		Pipeline: demoPipeline, Sinks: demo.Sinks(), Incarnation: d.source.Incarnation(),
		Client: d.broker.Opts(), CreateTopics: true,
	})
	if err != nil {
		return nil, err
	}
	d.Stream = stream
	return d, nil
}

// lags returns the exact lag of each lane.
func (d *demoStream) lags() func(context.Context) (map[string]demo.Lag, error) {
	store := offsets.New(d.looks)
	return func(ctx context.Context) (map[string]demo.Lag, error) {
		got, err := store.Lag(ctx, d.lanes)
		out := make(map[string]demo.Lag, len(got))
		for l, lag := range got {
			if lag.Known {
				out[l.Sink] = demo.Lag{Acked: lag.Through, Batches: lag.Batches, Envelopes: lag.Envelopes, Age: lag.Age}
			}
		}
		return out, err
	}
}

// close closes what is open, the last first. The source and the broker are
// closed whatever becomes of the stream.
func (d *demoStream) close(ctx context.Context) error {
	var err error
	if d.Stream != nil {
		err = d.Close(ctx)
	}
	if d.looks != nil {
		d.looks.Close()
	}
	if d.source != nil {
		err = errors.Join(err, d.source.Close())
	}
	if d.broker != nil {
		err = errors.Join(err, d.broker.Close())
	}
	return err
}
