package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/exporter"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/topics"
)

// clock is a time that a test moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func pipeline(t testing.TB) topics.Pipeline {
	t.Helper()
	p, err := topics.NewPipeline("orders")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newExporter(t testing.TB, sinks ...string) (*exporter.Exporter, *clock, *prometheus.Registry) {
	t.Helper()
	c := &clock{time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)}
	e := exporter.New(exporter.Config{Pipeline: pipeline(t), Sinks: sinks, MaxAge: time.Minute, Now: c.Now})
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(e); err != nil {
		t.Fatal(err)
	}
	return e, c, reg
}

// samples are the values of a scrape, by name{label="value",…} without the
// pipeline and the namespace.
type samples map[string]float64

func scrape(t testing.TB, reg *prometheus.Registry) samples {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(samples)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() == "pipeline" {
					if l.GetValue() != "orders" {
						t.Errorf("%s is of pipeline %q", f.GetName(), l.GetValue())
					}
					continue
				}
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := strings.TrimPrefix(f.GetName(), exporter.Namespace+"_")
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if f.GetType() == dto.MetricType_COUNTER {
				out[name] = m.GetCounter().GetValue()
			} else {
				out[name] = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

func (s samples) want(t *testing.T, want samples) {
	t.Helper()
	for name, value := range want {
		got, ok := s[name]
		switch {
		case !ok:
			t.Errorf("there is no %s", name)
		case math.IsNaN(value) != math.IsNaN(got), !math.IsNaN(value) && got != value:
			t.Errorf("%s is %v, want %v", name, got, value)
		}
	}
}

var stateLabel = regexp.MustCompile(`\bstate="[^"]*"`)

// wantOneState checks that of the states of each thing exactly one is 1 and
// the others are 0.
func (s samples) wantOneState(t *testing.T) {
	t.Helper()
	sums := make(map[string]float64)
	for name, value := range s {
		thing := stateLabel.ReplaceAllString(name, "")
		if thing == name {
			continue
		}
		if value != 0 && value != 1 {
			t.Errorf("%s is %v", name, value)
		}
		sums[thing] += value
	}
	if len(sums) == 0 {
		t.Error("no series of states")
	}
	for thing, sum := range sums {
		if sum != 1 {
			t.Errorf("%v states of %s are 1, want one", sum, thing)
		}
	}
}

func totals(n uint64) *status.Totals {
	return &status.Totals{Batches: n, Envelopes: 2 * n, Bytes: 100 * n, Changes: 3 * n}
}

// example is a report on a sink that is well and one that was never attached.
func example(at time.Time) *status.Report {
	since := at.Add(-time.Hour)
	return &status.Report{
		Pipeline: "orders", At: at,
		Findings: []status.Finding{
			{Severity: status.Failure, Code: "no-consumer", Sink: "search"},
			{Severity: status.Note, Code: "small", Sink: "search"},
			{Severity: status.Note, Code: "small", Sink: "audit"},
		},
		Watermark: status.Watermark{
			Holders: []string{"search"}, Behind: "70", HoldsForSeconds: new(float64(90)),
			Floors: []status.Floor{
				{Sink: "audit", State: flusso.FloorAcked, Through: 70, Offset: 12},
				{Sink: "search", State: flusso.FloorMissing, Offset: -1},
			},
		},
		Lanes: []status.Lane{
			{
				Sink: "audit", State: status.CaughtUp, Known: true, Acked: 70, Tail: 70,
				Batches: new(uint64), Envelopes: new(uint64), Bytes: new(uint64), Changes: new(uint64), Seconds: new(float64),
				AckedTotals: totals(7), TailTotals: totals(7), StartOffset: 0, AckedOffset: 12, TailOffset: 12,
				Consumer: status.Attached, Members: []status.Member{{ClientID: "a", Owner: true, Since: &since}, {ClientID: "b"}},
				Retention: status.Retention{Milliseconds: new(int64(-1)), Bytes: new(int64(-1)), OffsetsSeconds: new(float64(604800))},
			},
			{
				Sink: "search", State: "group-missing", Tail: 70,
				TailTotals: totals(7), StartOffset: 0, AckedOffset: -1, TailOffset: 12, Consumer: status.Detached,
				Retention: status.Retention{Milliseconds: new(int64(1000)), RiskSeconds: new(float64(30))}, StandsSeconds: new(float64(75)),
			},
		},
		Requests: []status.Request{{Seconds: 5}, {Seconds: 40, Error: "garbage"}},
		Writer: status.Writer{
			Holder: &status.Member{Since: &since}, Epoch: 3, WroteAt: &since,
			IDs:  []status.WriterID{{ID: "orders.writer.0", State: "Ongoing"}, {ID: "orders.writer.1", State: "Newest"}, {ID: "orders.writer.2", Error: "no"}},
			Open: []status.Transaction{{Sink: "audit", BlockedSeconds: 2}, {Sink: "search", BlockedSeconds: 8, Hanging: true}, {Sink: "search", BlockedSeconds: 4}},
		},
		Cost: status.Cost{Requests: 9, Seconds: 0.25},
	}
}

// TestExporter_BeforeTheFirstReport: every lane that is known has its series,
// and not one of them claims a value.
func TestExporter_BeforeTheFirstReport(t *testing.T) {
	_, _, reg := newExporter(t, "search", "audit")
	s := scrape(t, reg)
	s.wantOneState(t)
	s.want(t, samples{
		"up": 0, "healthy": math.NaN(), "collections_total": 0, `collection_failures_total{reason="timeout"}`: 0,
		"collection_success_timestamp_seconds": math.NaN(), `watermark_state{state="unknown"}`: 1,
		`lane_lag_batches{sink="audit"}`: math.NaN(), `lane_state{sink="search",state="error"}`: 1,
		`lane_consumer_state{sink="search",state="unknown"}`: 1, `lane_floor_state{sink="audit",state="unknown"}`: 1,
		`writer_id_state{state="unknown",writer_id="orders.writer.3"}`: 1, `lane_findings{severity="failure",sink="audit"}`: math.NaN(),
	})
	for name, value := range s {
		own := name == "up" || strings.HasPrefix(name, "collection") || strings.Contains(name, `state="`)
		if !own && !math.IsNaN(value) {
			t.Errorf("%s is %v although nothing is known", name, value)
		}
		if strings.Contains(name, "_total{sink=") {
			t.Errorf("%s: a counter that is not known has a sample", name)
		}
	}
}

func TestExporter_Report(t *testing.T) {
	e, c, reg := newExporter(t)
	r := example(c.now)
	e.Set(r)
	s := scrape(t, reg)
	s.wantOneState(t)
	hourAgo := float64(c.now.Add(-time.Hour).Unix())
	s.want(t, samples{
		"up": 1, "healthy": 0, "collections_total": 1, "collection_requests_total": 9, "collection_requests": 9, "collection_duration_seconds": 0.25,
		"collection_success_timestamp_seconds":    float64(c.now.Unix()),
		`findings{code="gap",severity="failure"}`: 0, `findings{code="no-consumer",severity="failure"}`: 1, `findings{code="no-consumer",severity="note"}`: 0, `findings{code="small",severity="note"}`: 2,
		`lane_findings{severity="note",sink="search"}`: 1, `lane_findings{severity="warning",sink="search"}`: 0,
		`lookup_errors{part="writer"}`: 1, `lookup_errors{part="lanes"}`: 0,

		"watermark_position": math.NaN(), `watermark_state{state="none"}`: 1, "watermark_behind_positions": 70, "watermark_held_seconds": 90,
		`watermark_holder{sink="search"}`: 1, `watermark_holder{sink="audit"}`: 0,

		`lane_state{sink="audit",state="caught-up"}`: 1, `lane_state{sink="search",state="group-missing"}`: 1,
		`lane_floor_state{sink="search",state="group-missing"}`: 1, `lane_floor_position{sink="audit"}`: 70, `lane_floor_position{sink="search"}`: math.NaN(),
		`lane_lag_batches{sink="audit"}`: 0, `lane_lag_bytes{sink="search"}`: math.NaN(), `lane_lag_seconds{sink="audit"}`: 0,
		`lane_acked_batches_total{sink="audit"}`: 7, `lane_acked_envelopes_total{sink="audit"}`: 14, `lane_acked_changes_total{sink="audit"}`: 21,
		`lane_tail_bytes_total{sink="search"}`: 700,
		`lane_acked_position{sink="search"}`:   math.NaN(), `lane_tail_position{sink="search"}`: 70,
		`lane_acked_offset{sink="audit"}`: 12, `lane_acked_offset{sink="search"}`: math.NaN(), `lane_start_offset{sink="audit"}`: 0,
		`lane_members{sink="audit"}`: 2, `lane_members{sink="search"}`: 0, `lane_consumer_state{sink="search",state="detached"}`: 1,
		`lane_attached_timestamp_seconds{sink="audit"}`: hourAgo, `lane_attached_timestamp_seconds{sink="search"}`: math.NaN(),
		`lane_retention_risk_seconds{sink="audit"}`: math.Inf(1), `lane_retention_risk_seconds{sink="search"}`: 30,
		`lane_offsets_retention_seconds{sink="audit"}`: 604800, `lane_retired{sink="audit"}`: 0,
		`lane_standing_seconds{sink="audit"}`: math.NaN(), `lane_standing_seconds{sink="search"}`: 75,
		`lane_open_transactions{sink="search"}`: 2, `lane_hanging_transactions{sink="search"}`: 1, `lane_blocked_seconds{sink="search"}`: 8,
		"open_transactions": 3,

		"requests_waiting": 2, "requests_unreadable": 1, "requests_oldest_seconds": 40,
		"writer_attached": 1, "writer_attached_timestamp_seconds": hourAgo, "writer_epoch": 3, "writer_wrote_timestamp_seconds": hourAgo,
		`writer_id_state{state="Ongoing",writer_id="orders.writer.0"}`: 1,
		`writer_id_state{state="Newest",writer_id="orders.writer.1"}`:  1,
		`writer_id_state{state="unknown",writer_id="orders.writer.2"}`: 1,
	})
	if _, ok := s[`lane_acked_batches_total{sink="search"}`]; ok {
		t.Error("what search acked is not known and yet counted")
	}

	// The watermark gets known, the lane is retired, and what was found is gone.
	r = example(c.now)
	r.Healthy, r.Findings = true, nil
	r.Watermark.Position, r.Watermark.Holders, r.Watermark.Floors = 70, []string{"audit"}, r.Watermark.Floors[:1]
	r.Lanes[1].State, r.Lanes[1].Retired = status.Retired, &status.Retirement{}
	e.Set(r)
	s = scrape(t, reg)
	s.wantOneState(t)
	s.want(t, samples{
		"healthy": 1, `findings{code="no-consumer",severity="failure"}`: 0,
		"watermark_position": 70, `watermark_state{state="known"}`: 1, `lane_retired{sink="search"}`: 1,
		`lane_floor_state{sink="search",state="retired"}`: 1, "collections_total": 2, "collection_requests_total": 18,
	})
}

// TestExporter_EveryState: each state that a lane can have has a series.
func TestExporter_EveryState(t *testing.T) {
	e, c, reg := newExporter(t)
	for _, state := range status.LaneStates() {
		r := example(c.now)
		r.Lanes[0].State = state
		e.Set(r)
		s := scrape(t, reg)
		s.wantOneState(t)
		s.want(t, samples{fmt.Sprintf(`lane_state{sink="audit",state=%q}`, state): 1})
		if got := testutil.CollectAndCount(e, exporter.Namespace+"_lane_state"); got != 2*len(status.LaneStates()) {
			t.Errorf("%d series of states of two lanes, want %d each", got, len(status.LaneStates()))
		}
	}
}

// TestExporter_NoState: a state that a report leaves out is not known.
func TestExporter_NoState(t *testing.T) {
	e, _, reg := newExporter(t)
	e.Set(&status.Report{Lanes: []status.Lane{{Sink: "audit"}}})
	s := scrape(t, reg)
	s.wantOneState(t)
	s.want(t, samples{`lane_state{sink="audit",state="error"}`: 1, `lane_consumer_state{sink="audit",state="unknown"}`: 1, `lane_floor_state{sink="audit",state="unknown"}`: 1})
	for name := range s {
		if strings.Contains(name, `state=""`) {
			t.Errorf("a state without a name: %s", name)
		}
	}
}

// TestExporter_FailedParts: where one look-up failed, its values are unknown
// and the others stay.
func TestExporter_FailedParts(t *testing.T) {
	e, c, reg := newExporter(t)
	r := example(c.now)
	r.Watermark = status.Watermark{Error: "no", Behind: "0"}
	r.Requests, r.RequestsError = nil, "no"
	r.Writer = status.Writer{Error: "no", OpenError: "no"}
	r.Lanes[0] = status.Lane{Sink: "audit", State: status.Errored, Error: "no", StartOffset: -1, AckedOffset: -1, TailOffset: -1, Consumer: status.UnknownConsumer, ConsumerError: "no", Retention: status.Retention{OffsetsError: "no"}}
	r.SettingsError = "no"
	e.Set(r)
	s := scrape(t, reg)
	s.wantOneState(t)
	s.want(t, samples{
		"up": 1, `lookup_errors{part="watermark"}`: 1, `lookup_errors{part="requests"}`: 1, `lookup_errors{part="writer"}`: 2, `lookup_errors{part="lanes"}`: 1,
		`lookup_errors{part="consumers"}`: 1, `lookup_errors{part="settings"}`: 2,
		"watermark_position": math.NaN(), "watermark_behind_positions": math.NaN(), "watermark_held_seconds": math.NaN(),
		`watermark_holder{sink="audit"}`: math.NaN(), `lane_floor_state{sink="audit",state="unknown"}`: 1,
		"requests_waiting": math.NaN(), "requests_oldest_seconds": math.NaN(), "requests_unreadable": math.NaN(),
		"writer_attached": math.NaN(), "writer_epoch": math.NaN(), "open_transactions": math.NaN(), `lane_hanging_transactions{sink="search"}`: math.NaN(),
		`lane_lag_batches{sink="audit"}`: math.NaN(), `lane_members{sink="audit"}`: math.NaN(), `lane_retention_risk_seconds{sink="audit"}`: math.NaN(),
		`lane_tail_offset{sink="audit"}`: math.NaN(), `lane_tail_offset{sink="search"}`: 12,
	})
	if _, ok := s[`lane_tail_batches_total{sink="audit"}`]; ok {
		t.Error("a lane whose look-up failed counts items")
	}
}

// TestExporter_Failure: after a failed collection nothing of the report before
// it shows, the lanes are still there, and the reason is counted.
func TestExporter_Failure(t *testing.T) {
	e, c, reg := newExporter(t, "audit", "gone")
	e.Set(example(c.now))
	e.Fail(fmt.Errorf("collect: %w", context.DeadlineExceeded))
	e.Fail(errors.New("broken"))
	s := scrape(t, reg)
	s.wantOneState(t)
	s.want(t, samples{
		"up": 0, "collections_total": 3, `collection_failures_total{reason="timeout"}`: 1, `collection_failures_total{reason="other"}`: 1,
		`collection_failures_total{reason="auth"}`: 0, "collection_success_timestamp_seconds": float64(c.now.Unix()),
		"collection_requests": math.NaN(), "healthy": math.NaN(), "open_transactions": math.NaN(),
		`lane_lag_batches{sink="audit"}`: math.NaN(), `lane_tail_offset{sink="search"}`: math.NaN(), `lane_retired{sink="gone"}`: math.NaN(),
		`lane_state{sink="search",state="error"}`: 1, `findings{code="no-consumer",severity="failure"}`: math.NaN(),
	})
	if _, ok := s[`lane_acked_batches_total{sink="audit"}`]; ok {
		t.Error("a counter shows the value from before the failure")
	}
	e.Set(example(c.now))
	scrape(t, reg).want(t, samples{"up": 1, `lane_acked_batches_total{sink="audit"}`: 7, `lane_state{sink="gone",state="error"}`: 1})
}

// TestExporter_Stale: when reports cease to come, the last one ceases to count.
func TestExporter_Stale(t *testing.T) {
	e, c, reg := newExporter(t)
	e.Set(example(c.now))
	set := float64(c.now.Unix())
	c.now = c.now.Add(time.Minute)
	scrape(t, reg).want(t, samples{"up": 1, `lane_tail_offset{sink="audit"}`: 12})
	c.now = c.now.Add(time.Second)
	s := scrape(t, reg)
	s.wantOneState(t)
	s.want(t, samples{"up": 0, `lane_tail_offset{sink="audit"}`: math.NaN(), "collection_success_timestamp_seconds": set, "collection_duration_seconds": math.NaN()})
}

// TestExporter_Rewind: a rewind is no reset of the counters of what was acked.
func TestExporter_Rewind(t *testing.T) {
	e, c, reg := newExporter(t)
	for _, step := range []struct{ acked, want uint64 }{{7, 7}, {2, 7}, {3, 8}, {7, 12}, {0, 12}, {1, 13}} {
		r := example(c.now)
		r.Lanes[0].AckedTotals = totals(step.acked)
		e.Set(r)
		scrape(t, reg).want(t, samples{
			`lane_acked_batches_total{sink="audit"}`: float64(step.want),
			`lane_acked_bytes_total{sink="audit"}`:   float64(100 * step.want),
			`lane_tail_batches_total{sink="audit"}`:  7,
		})
	}
}

// TestExporter_AckedByLag: totals that no header tells follow from those of
// the tail and what waits; a lane without an item has 0 of everything.
func TestExporter_AckedByLag(t *testing.T) {
	e, c, reg := newExporter(t)
	r := example(c.now)
	l := &r.Lanes[0]
	l.AckedTotals = nil
	l.Batches, l.Envelopes, l.Bytes, l.Changes = new(uint64(3)), new(uint64(6)), new(uint64(300)), new(uint64(9))
	e.Set(r)
	scrape(t, reg).want(t, samples{`lane_acked_batches_total{sink="audit"}`: 4, `lane_acked_changes_total{sink="audit"}`: 12})

	r = example(c.now)
	l = &r.Lanes[1]
	l.Known, l.TailTotals, l.Tail, l.TailOffset = true, nil, 0, 0
	l.Batches, l.Envelopes, l.Bytes, l.Changes = new(uint64), new(uint64), new(uint64), new(uint64)
	e.Set(r)
	scrape(t, reg).want(t, samples{`lane_acked_batches_total{sink="search"}`: 0, `lane_tail_bytes_total{sink="search"}`: 0})
}

func TestExporter_Lint(t *testing.T) {
	e, c, reg := newExporter(t)
	e.Set(example(c.now))
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("metric %s: %s", p.Metric, p.Text)
	}
}

func TestExporter_Handler(t *testing.T) {
	e, c, _ := newExporter(t)
	e.Set(example(c.now))
	h, err := e.Handler()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("code %d, error %v", w.Code, err)
	}
	for _, want := range []string{
		exporter.Namespace + `_lane_members{pipeline="orders",sink="audit"} 2` + "\n", "\ngo_goroutines ", "\ngo_build_info{",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the answer has no %q", want)
		}
	}
}

// TestExporter_Concurrently: scrapes and reports do not get into each other's
// way, and a scrape sees one report or the other and no mixture.
func TestExporter_Concurrently(t *testing.T) {
	e, c, reg := newExporter(t)
	e.Set(example(c.now))
	at := c.now
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(100) {
			r := example(at)
			r.Lanes[0].TailTotals, r.Lanes[1].TailTotals = totals(i), totals(i)
			e.Set(r)
			if i%10 == 0 {
				e.Fail(errors.New("broken"))
			}
		}
	})
	for range 4 {
		wg.Go(func() {
			for range 50 {
				s := scrape(t, reg)
				a, b := s[`lane_tail_batches_total{sink="audit"}`], s[`lane_tail_batches_total{sink="search"}`]
				if a != b {
					t.Errorf("a scrape shows %v and %v of different reports", a, b)
				}
			}
		})
	}
	wg.Wait()
}

// many is a report on many lanes.
func many(at time.Time, lanes int) *status.Report {
	r := example(at)
	template, floor := r.Lanes[0], r.Watermark.Floors[0]
	r.Lanes, r.Watermark.Floors = nil, nil
	for i := range lanes {
		template.Sink = fmt.Sprintf("sink-%04d", i)
		floor.Sink = template.Sink
		r.Lanes, r.Watermark.Floors = append(r.Lanes, template), append(r.Watermark.Floors, floor)
	}
	return r
}

// TestExporter_SeriesOfAThousandLanes says how many series a lane costs.
func TestExporter_SeriesOfAThousandLanes(t *testing.T) {
	e, c, _ := newExporter(t)
	e.Set(many(c.now, 1000))
	if perLane := testutil.CollectAndCount(e) / 1000; perLane > 60 {
		t.Errorf("%d series for each lane, want at most 60", perLane)
	}
}

func BenchmarkExporter(b *testing.B) {
	for _, lanes := range []int{1, 1000} {
		at := time.Now()
		r := many(at, lanes)
		b.Run(fmt.Sprintf("report/lanes=%d", lanes), func(b *testing.B) {
			e, _, _ := newExporter(b)
			b.ReportAllocs()
			for b.Loop() {
				e.Set(r)
			}
		})
		b.Run(fmt.Sprintf("scrape/lanes=%d", lanes), func(b *testing.B) {
			e := exporter.New(exporter.Config{Pipeline: pipeline(b)})
			e.Set(r)
			h, err := e.Handler()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			}
		})
	}
}
