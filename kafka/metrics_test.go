package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/kafka"
)

// TestMetrics: every series of a sink is there from the start, says what
// happened, and is gone when the stream is closed.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		p := open(t, []string{"audit", "search"}, func(c *kafka.Config) { c.Registerer = reg })
		s := p.Stream(t, "pg-1.slot")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, want := range []string{
			`flusso_kafka_acked_items_total{pipeline="P",sink="audit"} 0`,
			`flusso_kafka_lane_floor_state{pipeline="P",sink="search",state="unverified"} 0`,
			`flusso_kafka_watermark_holder{pipeline="P",sink="search"} 0`,
		} {
			wantSeries(t, reg, p.Name().String(), want)
		}

		commits, err := s.Commits(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b := &flusso.Batch{Position: 10}
		if _, err := commits.Publish(ctx, flusso.Commit{Items: []flusso.Routed{{Sink: "audit", Item: b}, {Sink: "search", Item: b}}}); err != nil {
			t.Fatal(err)
		}
		lane, err := s.Lane("audit")
		if err != nil {
			t.Fatal(err)
		}
		c, err := lane.Consumer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		d, err := c.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Watermark(ctx); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`flusso_kafka_published_items_total{pipeline="P"} 2`,
			`flusso_kafka_writer_sessions_total{pipeline="P"} 1`,
			`flusso_kafka_delivered_items_total{pipeline="P",sink="audit"} 1`,
			`flusso_kafka_acked_items_total{pipeline="P",sink="audit"} 1`,
			`flusso_kafka_acked_items_total{pipeline="P",sink="search"} 0`,
			`flusso_kafka_offset_commits_total{pipeline="P",sink="audit"} 1`,
			`flusso_kafka_lane_through_position{pipeline="P",sink="audit"} 10`,
			`flusso_kafka_lane_floor_state{pipeline="P",sink="audit",state="acked"} 1`,
			`flusso_kafka_lane_floor_state{pipeline="P",sink="search",state="group-missing"} 1`,
			`flusso_kafka_watermark_holder{pipeline="P",sink="search"} 1`,
			`flusso_kafka_watermark_position{pipeline="P"} 0`,
		} {
			wantSeries(t, reg, p.Name().String(), want)
		}
		problems, err := testutil.GatherAndLint(reg)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			if !strings.HasPrefix(problem.Metric, "flusso_kafka_client_") { // kprom's own
				t.Errorf("metric %s: %s", problem.Metric, problem.Text)
			}
		}
		if n, err := testutil.GatherAndCount(reg, "flusso_kafka_client_connects_total"); err != nil || n == 0 {
			t.Errorf("got %d series of the Kafka clients, error %v", n, err)
		}

		if err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
		left, err := reg.Gather()
		if err != nil || len(left) != 0 {
			t.Errorf("after close: %d metrics are left, error %v", len(left), err)
		}
	})
}

// wantSeries looks for one line of the text format, P standing for the
// pipeline.
func wantSeries(t *testing.T, reg *prometheus.Registry, pipeline, want string) {
	t.Helper()
	want = strings.ReplaceAll(want, `pipeline="P"`, `pipeline="`+pipeline+`"`)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	name, _, _ := strings.Cut(want, "{")
	for _, f := range families {
		if f.GetName() == name {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !strings.Contains(text.String(), want+"\n") {
		t.Errorf("want %s, got\n%s", want, text.String())
	}
}

// TestB12_AWriterFencedBeforeItsFirstPublishStaysDown: two writers that opened
// before either published count the same epoch, and yet the older one knows
// that it was superseded.
func TestB12_AWriterFencedBeforeItsFirstPublishStaysDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, []string{"audit"}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		publish := func(c flusso.Producer[flusso.Commit], at flusso.Position) error {
			_, err := c.Publish(ctx, flusso.Commit{Items: []flusso.Routed{{Sink: "audit", Item: &flusso.Batch{Position: at}}}})
			return err
		}
		a, b := p.Stream(t, "pg-1.slot"), p.Stream(t, "pg-1.slot")
		defer func() { _ = a.Close(ctx) }()
		defer func() { _ = b.Close(ctx) }()
		older, err := a.Commits(ctx)
		if err != nil {
			t.Fatal(err)
		}
		newer, err := b.Commits(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := publish(newer, 10); err != nil {
			t.Fatal(err)
		}
		wantFenced(t, "publish by the older", publish(older, 10))
		_, err = a.Commits(ctx)
		wantFenced(t, "a producer of the older again", err)
		if err := publish(newer, 20); err != nil {
			t.Fatalf("the newer one does not go on: %v", err)
		}
	})
}

func wantFenced(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, flusso.ErrFenced) {
		t.Fatalf("%s: got %v, want %v", what, err, flusso.ErrFenced)
	}
}
