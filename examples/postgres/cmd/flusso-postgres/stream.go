package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// pipeline is what every engine says of the stream it works on. This file is
// the only one that knows the adapter.
type pipeline struct {
	name        string
	sinks       []string
	create      bool
	replication int
	maxMessage  int
	client      connect.Options
}

func (p *pipeline) addFlags(flags *pflag.FlagSet, getenv func(string) string) {
	p.client.AddFlags(flags, getenv)
	flags.StringVar(&p.name, "pipeline", "postgres", "`name` of the pipeline; topics and groups begin with it")
	flags.StringSliceVar(&p.sinks, "sinks", []string{bleveSink, postgresSink}, "all sinks of the pipeline; the same for every process")
	flags.BoolVar(&p.create, "create-topics", true, "create topics that are missing")
	flags.IntVar(&p.replication, "replication-factor", 0, "of topics that are created; 0 for the broker's default")
	flags.IntVar(&p.maxMessage, "max-message-bytes", 8<<20, "of topics that are created: bounds a document; 0 for the broker's default")
}

// open opens the stream; incarnation is empty for a sink.
func (p *pipeline) open(ctx context.Context, incarnation string, log *slog.Logger) (flusso.Stream, error) {
	opts, err := p.client.Opts()
	if err != nil {
		return nil, usageError{err}
	}
	return kafka.Open(ctx, kafka.Config{
		Pipeline: p.name, Sinks: p.sinks, Incarnation: incarnation, Client: opts, CreateTopics: p.create,
		Topics: topics.Options{ReplicationFactor: p.replication, MaxMessageBytes: p.maxMessage}, Logger: log,
	})
}

// shut closes a stream within its own time: the command's is over.
func shut(ctx context.Context, s flusso.Stream, log *slog.Logger) {
	const limit = 15 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		log.Warn("closing the stream", "error", err)
	}
}
