package outages_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/kafkatest"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// A sink that is away for longer than the broker keeps its offsets loses
// nothing: the watermark goes to none instead of a wrong value, nothing is
// trimmed that it had not acked, and it resumes where it was.
func TestC3_an_expired_group(t *testing.T) {
	t.Parallel()
	b := containers.Kafka(t, containers.WithConfig(map[string]string{
		"offsets.retention.minutes":           "1",
		"offsets.retention.check.interval.ms": "1000",
	}))
	p := kafkatest.Open(t, []kgo.Opt{kgo.SeedBrokers(b.Addr())}, []string{"away", "here"}, func(c *kafka.Config) { c.TrimAfter = 500 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	ingest := p.Stream(t, "feed-1")
	// The ingest engine receives requests: its group, and so the mirror in it, does not expire.
	if _, err := ingest.Requests().Consumer(ctx); err != nil {
		t.Fatal(err)
	}
	commits, err := ingest.Commits(ctx)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(at flusso.Position) {
		t.Helper()
		c := flusso.Commit{Items: []flusso.Routed{{Sink: "away", Item: change(at)}, {Sink: "here", Item: change(at)}}}
		if _, err := commits.Publish(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	for at := range flusso.Position(50) {
		publish(at + 1)
	}
	sink := p.Stream(t, "")
	here := attach(ctx, t, sink, "here")
	away := attach(ctx, t, sink, "away")
	receive(ctx, t, here, 1, 50)
	receive(ctx, t, away, 1, 20)
	probe.Eventually(t, "the watermark is at 20", func(ctx context.Context) error { return at(ctx, ingest, 20) })
	if err := away.Close(ctx); err != nil {
		t.Fatal(err)
	}
	left := time.Now()

	lane := p.Lane(t, "away")
	store := offsets.New(probe.Client(t, b.Addr()))
	probe.Within(t, 3*probe.Wait, "the broker has forgotten the group", func(ctx context.Context) error {
		got, err := store.Commits(ctx, []topics.Lane{lane})
		if err != nil {
			return err
		}
		if c := got[lane]; c.State != offsets.Missing {
			return fmt.Errorf("%s after it became empty it has offset %s", time.Since(left).Round(time.Second), c.Offset)
		}
		return nil
	})
	t.Logf("the broker forgot the group %s after its sink left", time.Since(left).Round(time.Second))

	fresh := p.Stream(t, "feed-1")
	w, err := fresh.Watermark(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if w.Position != flusso.NoPosition || w.Floors[0].State != flusso.FloorMissing {
		t.Errorf("the watermark of a new reader is at %s, want none: %+v", w.Position, w.Floors)
	}
	t.Logf("meanwhile: %s", w.Floors[0].Detail)
	publish(51)
	items := probe.Lane(t, b.Addr(), lane)
	if first := items[0].Position; first != 20 {
		t.Errorf("the lane of the sink that is away begins at position %s, want 20, the last that it had acked", first)
	}
	receive(ctx, t, here, 51, 51)

	away = attach(ctx, t, fresh, "away")
	receive(ctx, t, away, 21, 51)
	probe.Eventually(t, "the watermark is at 51", func(ctx context.Context) error { return at(ctx, ingest, 51) })
	for _, s := range []flusso.Stream{fresh, sink, ingest} {
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func attach(ctx context.Context, t *testing.T, s flusso.Stream, sink string) flusso.Consumer[flusso.LaneItem] {
	t.Helper()
	lane, err := s.Lane(sink)
	if err != nil {
		t.Fatal(err)
	}
	c, err := lane.Consumer(ctx)
	if err != nil {
		t.Fatalf("attach to the lane of sink %s: %v", sink, err)
	}
	return c
}

// receive receives and acks exactly these positions, durably.
func receive(ctx context.Context, t *testing.T, c flusso.Consumer[flusso.LaneItem], from, to flusso.Position) {
	t.Helper()
	for want := from; want <= to; want++ {
		d, err := c.Receive(ctx)
		if err != nil {
			t.Fatalf("receive position %s: %v", want, err)
		}
		if got := d.Item().(*flusso.Batch).Position; got != want {
			t.Fatalf("received position %s, want %s", got, want)
		}
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func at(ctx context.Context, s flusso.Stream, want flusso.Position) error {
	w, err := s.Watermark(ctx)
	if err != nil {
		return err
	}
	if w.Position != want {
		return errors.New("it is at " + w.Position.String())
	}
	return nil
}
