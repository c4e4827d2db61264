package security_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// sinks of the pipeline of these tests.
var sinks = []string{"audit", "search"}

const incarnation = "pg-7001.slot_a"

// says returns the first of parts that text lacks.
func says(text string, parts []string) string {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// position counts up over all tests: positions of a lane never go back.
var position atomic.Uint64

func live() *flusso.Batch {
	at := flusso.Position(position.Add(1))
	return &flusso.Batch{Position: at, Changes: 1, Envelopes: []flusso.Envelope{{
		Index: "orders", ID: "17", Op: flusso.Upsert, Document: []byte(`{"total":42}`), Position: at,
	}}}
}

// stream opens a stream, hands it to do, and closes it.
func stream(ctx context.Context, cfg kafka.Config, do func(context.Context, *kafka.Stream) error) error {
	ctx, cancel := context.WithTimeout(ctx, shortly/2)
	defer cancel()
	cfg.Pipeline = pipeline
	s, err := kafka.Open(ctx, cfg)
	if err != nil {
		return err
	}
	err = do(ctx, s)
	return errors.Join(err, s.Close(ctx))
}

// publish publishes a batch to every lane.
func publish(ctx context.Context, s *kafka.Stream) error {
	p, err := s.Commits(ctx)
	if err != nil {
		return err
	}
	var c flusso.Commit
	b := live()
	for _, sink := range sinks {
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: b})
	}
	_, err = p.Publish(ctx, c)
	return err
}

// prepared makes topics, users and a first batch once.
var prepared sync.Once

func (b *secured) prepare(t *testing.T) {
	t.Helper()
	prepared.Do(func() {
		b.addUsers(t, "viewer", "operator", "ingest", "search")
		cfg := kafka.Config{Sinks: sinks, Incarnation: incarnation, CreateTopics: true, Client: append(b.super(), kgo.SeedBrokers(b.Addr()))}
		if err := stream(t.Context(), cfg, publish); err != nil {
			t.Fatal(err)
		}
	})
}

// warnings keeps what a stream warns of.
type warnings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *warnings) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func TestF4_what_an_ingest_engine_needs(t *testing.T) {
	b := broker(t)
	b.prepare(t)
	super := b.admin(t)
	cfg := kafka.Config{Sinks: sinks, Incarnation: incarnation, Client: b.as("ingest")}
	actions := []action{
		{"publish", func(ctx context.Context) error { return stream(ctx, cfg, publish) }},
		{"read the watermark", func(ctx context.Context) error {
			return stream(ctx, cfg, func(ctx context.Context, s *kafka.Stream) error {
				_, err := s.Watermark(ctx)
				return err
			})
		}},
		{"serve a request", func(ctx context.Context) error {
			return stream(ctx, cfg, func(ctx context.Context, s *kafka.Stream) error { return b.serve(ctx, s) })
		}},
		{"mirror and trim", func(ctx context.Context) error { return b.maintain(ctx, cfg, super) }},
		{"abort a transaction that hangs", func(ctx context.Context) error { return b.abortHanging(ctx, b.as("ingest"), lane(t, "audit")) }},
	}
	b.prove(t, "ingest", access.Ingest, "audit,search", actions, map[string]lack{
		"Read on topics shop.*":                    {"publish", []string{"Read on topic shop.lane."}},
		"DescribeConfigs on topics shop.*":         {"publish", []string{"DescribeConfigs on topic shop."}},
		"Write on topics shop.lane.*":              {"publish", []string{"Write on topic shop.lane."}},
		"Delete on topics shop.lane.*":             {"mirror and trim", []string{"Delete on topic shop.lane."}},
		"Describe on groups shop.sink.*":           {"read the watermark", []string{"Describe on group shop.sink."}},
		"Read on group shop.ingest":                {"serve a request", []string{"Read on group shop.ingest"}},
		"Write on transactional ids shop.writer.*": {"publish", []string{"Write on transactional id shop.writer.0"}},
		// Without these two it runs, and says what it does not do.
		"ClusterAction on the cluster":   {"abort a transaction that hangs", []string{"ClusterAction on the cluster"}},
		"DescribeConfigs on the cluster": {"mirror and trim", []string{"DescribeConfigs on the cluster"}},
	})
}

// serve takes a request and acks it with the marker that completes it, in one
// transaction [D2].
func (b *secured) serve(ctx context.Context, s *kafka.Stream) error {
	ask := kafka.Config{Pipeline: pipeline, Sinks: sinks, Client: append(b.super(), kgo.SeedBrokers(b.Addr()))}
	if err := stream(ctx, ask, request); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	in, err := s.Requests().Consumer(ctx)
	if err != nil {
		return err
	}
	d, err := in.Receive(ctx)
	if err != nil {
		return err
	}
	p, err := s.Commits(ctx)
	if err != nil {
		return err
	}
	done := &flusso.SnapshotComplete{Indexes: []string{"orders"}}
	_, err = p.Publish(ctx, flusso.Commit{Items: []flusso.Routed{{Sink: "search", Item: done}}, Acks: []flusso.Delivery[flusso.Request]{d}})
	return errors.Join(err, in.Close(ctx))
}

func request(ctx context.Context, s *kafka.Stream) error {
	out, err := s.Requests().Producer(ctx)
	if err != nil {
		return err
	}
	_, err = out.Publish(ctx, &flusso.Backfill{Sink: "search", Indexes: []string{"orders"}})
	return err
}

// lane names the lane of a sink.
func lane(t *testing.T, sink string) topics.Lane {
	t.Helper()
	return probe.Names(t, pipeline, sink)
}

// maintain has a stream publish, somebody ack all of it, and waits until the
// stream has trimmed the lane. Whatever the stream warns of is an error.
func (b *secured) maintain(ctx context.Context, cfg kafka.Config, super *kadm.Client) error {
	var warned warnings
	cfg.Logger, cfg.TrimAfter = warned.logger(), time.Millisecond
	return stream(ctx, cfg, func(ctx context.Context, s *kafka.Stream) error {
		if err := publish(ctx, s); err != nil {
			return err
		}
		if err := b.ackAll(ctx, "search"); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
		start := func() (int64, error) {
			got, err := super.ListStartOffsets(ctx, "shop.lane.search")
			if err != nil {
				return 0, err
			}
			o, _ := got.Lookup("shop.lane.search", 0)
			return o.Offset, o.Err
		}
		before, err := start()
		if err != nil {
			return err
		}
		for {
			now, err := start()
			if err != nil {
				return err
			}
			if text := warned.String(); text != "" {
				return errors.New(text)
			}
			if now > before {
				return nil
			}
		}
	})
}

// ackAll receives and acks what is in a lane, as the super user.
func (b *secured) ackAll(ctx context.Context, sink string) error {
	cfg := kafka.Config{Sinks: []string{sink}, Client: append(b.super(), kgo.SeedBrokers(b.Addr()))}
	return stream(ctx, cfg, func(ctx context.Context, s *kafka.Stream) error { return consume(ctx, s, sink) })
}

// consume receives and acks until nothing waits, at least once.
func consume(ctx context.Context, s *kafka.Stream, sink string) error {
	lane, err := s.Lane(sink)
	if err != nil {
		return err
	}
	in, err := lane.Consumer(ctx)
	if err != nil {
		return err
	}
	for {
		d, err := in.Receive(ctx)
		if err != nil {
			return err
		}
		if err := d.Ack(ctx); err != nil {
			return err
		}
		if up, err := in.CaughtUp(ctx); err != nil || up {
			return errors.Join(err, in.Flush(ctx), in.Close(ctx))
		}
	}
}

func TestF4_what_a_sink_needs(t *testing.T) {
	b := broker(t)
	b.prepare(t)
	super := b.admin(t)
	cfg := kafka.Config{Sinks: []string{"search"}, Client: b.as("search")}
	source := kafka.Config{Sinks: sinks, Incarnation: incarnation, Client: append(b.super(), kgo.SeedBrokers(b.Addr()))}
	actions := []action{
		{"apply", func(ctx context.Context) error {
			if err := stream(ctx, source, publish); err != nil {
				return fmt.Errorf("set up: %w", err)
			}
			// A group that has expired is the one that the mirror is asked for.
			if err := forget(ctx, super, "shop.sink.search"); err != nil {
				return fmt.Errorf("set up: %w", err)
			}
			return stream(ctx, cfg, func(ctx context.Context, s *kafka.Stream) error { return consume(ctx, s, "search") })
		}},
		{"ask for a backfill", func(ctx context.Context) error { return stream(ctx, cfg, request) }},
	}
	b.prove(t, "search", access.Sink, "search", actions, map[string]lack{
		"Read on topic shop.lane.search":            {"apply", []string{"Read on topic shop.lane.search"}},
		"DescribeConfigs on topic shop.lane.search": {"apply", []string{"DescribeConfigs on topic shop.lane.search"}},
		"Read on group shop.sink.search":            {"apply", []string{"Read on group shop.sink.search"}},
		"Describe on group shop.ingest":             {"apply", []string{"Describe on group shop.ingest"}},
		"Write on topic shop.requests":              {"ask for a backfill", []string{"Write on topic shop.requests"}},
		"DescribeConfigs on topic shop.requests":    {"ask for a backfill", []string{"DescribeConfigs on topic shop.requests"}},
	})
}

// forget deletes a group, once it is empty.
func forget(ctx context.Context, super *kadm.Client, group string) error {
	for {
		got, err := super.DeleteGroups(ctx, group)
		if err != nil {
			return err
		}
		switch err := got[group].Err; {
		case err == nil || errors.Is(err, kerr.GroupIDNotFound):
			return nil
		case !errors.Is(err, kerr.NonEmptyGroup) || ctx.Err() != nil:
			return err
		}
	}
}
