package feeds_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

func exposed(t *testing.T, reg prometheus.Gatherer) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("metrics")
		w := newWorld(t, feeds.CreateOptions{Bucket: address, MaxUnsealedBytes: 1000})
		reg := prometheus.NewPedanticRegistry()
		c := w.client("a", func(c *feeds.Config) { c.Registerer, c.PackBytes, c.MaxUnackedBytes = reg, 10, 600 })
		s, err := c.Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		expect := func(lines ...string) {
			t.Helper()
			got := exposed(t, reg)
			for _, line := range lines {
				if !strings.Contains(got, "\nflusso_kafka_feed_"+line+"\n") {
					t.Errorf("no series %s in\n%s", line, got)
				}
			}
		}
		expect(`appended_records_total{feed="orders"} 0`, `append_failures_total{feed="orders",outcome="unknown"} 0`,
			`seals_total{feed="orders",outcome="unfinished"} 0`, `lease_changes_total{change="taken",feed="orders"} 1`,
			`flusher_behind_records{feed="orders"} 0`, `unsealed_limit_bytes{feed="orders"} 1000`)
		store.be(away)
		for range 5 {
			if _, err := s.Append(t.Context(), batch("ten bytes.")); err != nil {
				t.Fatal(err)
			}
		}
		kfaketest.Pass(time.Hour)
		// The first is in a pack that can't be uploaded, which is as far as it goes.
		if b := s.Backlog(); b.Records < 4 || b.Bytes != 10*b.Records || b.Age < time.Hour-time.Second || b.Age > time.Hour+time.Second || b.Trouble == nil || b.Unsealed != 50 {
			t.Errorf("backlog %+v", b)
		}
		expect(`appended_records_total{feed="orders"} 5`, `appended_bytes_total{feed="orders"} 50`, `append_seconds_count{feed="orders"} 5`,
			`unsealed_bytes{feed="orders"} 50`, `segments_total{feed="orders"} 6`)
		store.be(sound)
		kfaketest.Pass(5 * time.Minute)
		if b := s.Backlog(); b.Records != 0 || b.Age != 0 || b.Trouble != nil {
			t.Errorf("backlog with the bucket back: %+v", b)
		}
		if _, err := s.Append(t.Context(), batch(strings.Repeat("x", 951))); !errorAs(err, func(e *feeds.FullError) bool { return e.Unsealed == 50 && e.Limit == 1000 }) {
			t.Errorf("append above maxUnsealedBytes: %v", err)
		}
		if _, err := s.Seal(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		expect(`seals_total{feed="orders",outcome="committed"} 1`, `flusher_behind_seconds{feed="orders"} 0`)
		fence := func() {
			t.Helper()
			if _, err := w.client("b").Open(t.Context(), feed); err != nil {
				t.Fatal(err)
			}
		}
		fence()
		if _, err := s.Append(t.Context(), batch("late")); err == nil {
			t.Error("appended behind a seal")
		}
		if s, err = c.Open(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		// One waits for the window for two seconds, behind one whose commit hangs.
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
		for _, size := range []int{400, 300} {
			time.AfterFunc(2*time.Second, in.Release)
			if _, err := s.AppendAsync(t.Context(), batch(strings.Repeat("x", size))); err != nil {
				t.Fatal(err)
			}
		}
		kfaketest.Pass(time.Second)
		expect(`window_wait_seconds_total{feed="orders"} 2`)
		fence()
		if _, err := s.Append(t.Context(), batch("late")); !errors.Is(err, flusso.ErrFenced) {
			t.Errorf("append of a session that was fenced: %v", err)
		}
		if _, err := s.Seal(t.Context(), ""); err == nil {
			t.Error("sealed by a session that was fenced")
		}
		expect(`append_failures_total{feed="orders",outcome="rejected"} 1`, `lease_changes_total{change="taken",feed="orders"} 2`,
			`lease_changes_total{change="fenced",feed="orders"} 1`, `seals_total{feed="orders",outcome="refused"} 1`)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := exposed(t, reg); got != "" {
			t.Errorf("series of a closed client:\n%s", got)
		}
	})
}
