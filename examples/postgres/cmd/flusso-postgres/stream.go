package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"

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
	flags.StringSliceVar(&p.sinks, "sinks", []string{bleveSink, postgresSink}, "all sinks of the pipeline; the same for every process (README: Adding and retiring a sink)")
	flags.BoolVar(&p.create, "create-topics", true, "create topics that are missing")
	flags.IntVar(&p.replication, "replication-factor", 0, "of topics that are created, checked on those that exist; 0 for the broker's default")
	flags.IntVar(&p.maxMessage, "max-message-bytes", 8<<20, "bounds a document: of topics that are created, and those that exist are raised to it, never lowered "+
		"(with --create-topics=false a lower one is refused); 0 for the broker's default, and to leave topics as they are")
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

// usable finds what is wrong with the settings alone.
func (p *pipeline) usable() error {
	if _, err := p.client.Opts(); err != nil {
		return usageError{err}
	}
	return nil
}

// prepare makes sure that the brokers answer and the topics are there and safe,
// before anything is created elsewhere. It warns of lanes of sinks that are
// not among the pipeline's.
func (p *pipeline) prepare(ctx context.Context, log *slog.Logger) error {
	if err := p.usable(); err != nil {
		return err
	}
	p.client.Waiting = func(text string) { log.Info("not connected yet", "what", text) }
	client, err := p.client.Dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	existing, err := kadm.NewClient(client.Client).ListTopics(ctx)
	if err != nil {
		return client.Explain(ctx, fmt.Errorf("list the topics: %w", err))
	}
	for _, l := range strays(p.name, p.sinks, existing.Names()) {
		log.Warn("the cluster has a lane of a sink that is not among --sinks: it gets nothing, and the source does not wait for it; "+
			"name the sink to go on with it, or delete topic and group if it is retired (README: Adding and retiring a sink)",
			"sink", l.Sink, "topic", l.Topic(), "group", l.Group(), "sinks", p.sinks)
	}
	stream, err := p.open(ctx, "", log)
	if err != nil {
		return err
	}
	shut(ctx, stream, log)
	return nil
}

// strays returns the pipeline's lanes of sinks that are not named.
func strays(pipeline string, sinks, names []string) []topics.Lane {
	var out []topics.Lane
	for _, name := range names {
		l, err := topics.ParseLaneTopic(name)
		if err == nil && l.Pipeline.String() == pipeline && !slices.Contains(sinks, l.Sink) {
			out = append(out, l)
		}
	}
	return out
}

// tooLarge adds the way out to the error of a document that the lanes do not
// take: each lane has its own limit, and the first to refuse is the one named.
func (p *pipeline) tooLarge(err error) error {
	limit, ok := errors.AsType[*flusso.LimitError](err)
	if !ok || !strings.HasPrefix(limit.Setting, maxMessageSetting) {
		return err
	}
	const most = 60 << 20 // of the adapter, less what comes around a document
	if limit.Value > most {
		return fmt.Errorf("%w: no lane takes a document of that size, whatever its topic allows: make it smaller, or leave its table out", err)
	}
	const step = 1 << 20
	want := (limit.Value/step + 2) * step
	return fmt.Errorf("%w: the same holds for each lane (%s), and for each start until it is raised: start ingest with --max-message-bytes %d, "+
		"which raises every lane's topic (with --create-topics=false: kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config max.message.bytes=%d for each)",
		err, strings.Join(p.laneTopics(), ", "), want, want)
}

// maxMessageSetting begins the setting that a [flusso.LimitError] of a record names.
const maxMessageSetting = "max.message.bytes"

func (p *pipeline) laneTopics() []string {
	var out []string
	name, err := topics.NewPipeline(p.name)
	for _, s := range slices.Sorted(slices.Values(p.sinks)) {
		if l, lerr := name.Lane(s); err == nil && lerr == nil {
			out = append(out, l.Topic())
		}
	}
	return out
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
