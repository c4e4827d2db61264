// Package exporter turns reports on a pipeline into Prometheus metrics.
//
// The type to know is [Exporter], a [prometheus.Collector]. Whoever collects
// reports hands each to [Exporter.Set], or the error instead of it to
// [Exporter.Fail]; a scrape only reads what was handed in and never waits for a
// broker. docs/metrics.md lists every series.
//
// What is not known is never 0, nor the value before: a gauge is NaN, a counter
// has no sample, and the series of states say why.
package exporter

import (
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/topics"
)

// Namespace starts the name of every series: kafka.Config.Registerer has
// flusso_kafka_ for what an engine counts of itself, and this is what the
// brokers say of the pipeline to one who looks from outside.
const Namespace = "flusso_kafka_admin"

// Config is what an exporter is made of.
type Config struct {
	Pipeline topics.Pipeline
	// Sinks have series before a report names them, and keep them when a
	// report does not.
	Sinks []string
	// MaxAge is how old the last report may become until its values count as
	// unknown, as after a failure: a few intervals between reports. 0: for ever.
	MaxAge time.Duration
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

// Exporter is a collector of what the last report said. Its methods are safe
// for concurrent use.
type Exporter struct {
	cfg    Config
	series series

	mu       sync.Mutex
	taken    time.Time // when the last report was handed in; zero before
	sinks    []string  // of the last report and the configuration, sorted
	known    []prometheus.Metric
	unknown  []prometheus.Metric // the same series without values; nil until needed
	failed   bool                // the last collection
	progress map[string]*progress
	codes    codes

	collections, requests float64
	failures              map[string]float64 // by reason
	lastRequests          float64
	lastSeconds           float64
}

// The reasons of a failed collection.
const (
	reasonTimeout     = "timeout"
	reasonUnreachable = "unreachable"
	reasonAuth        = "auth"
	reasonOther       = "other"
)

var reasons = []string{reasonTimeout, reasonUnreachable, reasonAuth, reasonOther}

// New returns an exporter that nothing is known to yet.
func New(cfg Config) *Exporter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	e := &Exporter{
		cfg:          cfg,
		series:       newSeries(cfg.Pipeline.String()),
		sinks:        sorted(cfg.Sinks),
		progress:     make(map[string]*progress),
		codes:        newCodes(),
		failures:     make(map[string]float64),
		lastRequests: math.NaN(),
		lastSeconds:  math.NaN(),
	}
	return e
}

// Set takes the report of a collection that succeeded. The report must not
// change afterwards.
func (e *Exporter) Set(r *status.Report) {
	e.mu.Lock()
	defer e.mu.Unlock()
	sinks := slices.Clone(e.cfg.Sinks)
	for i := range r.Lanes {
		sinks = append(sinks, r.Lanes[i].Sink)
	}
	e.sinks = sorted(sinks)
	for sink := range e.progress {
		if _, ok := slices.BinarySearch(e.sinks, sink); !ok {
			delete(e.progress, sink)
		}
	}
	e.codes.add(r.Findings)
	e.taken, e.failed = e.cfg.Now(), false
	e.known, e.unknown = e.build(r), nil
	e.collections++
	e.requests += float64(r.Cost.Requests)
	e.lastRequests, e.lastSeconds = float64(r.Cost.Requests), r.Cost.Seconds
}

// Fail takes the error of a collection: until the next report nothing is known.
func (e *Exporter) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed = true
	e.collections++
	e.failures[reason(err)]++
	e.lastRequests, e.lastSeconds = math.NaN(), math.NaN()
}

func reason(err error) string {
	switch kafkaerr.Classify(err) {
	case kafkaerr.Timeout:
		return reasonTimeout
	case kafkaerr.Unreachable:
		return reasonUnreachable
	case kafkaerr.Auth:
		return reasonAuth
	default:
		return reasonOther
	}
}

// Describe implements [prometheus.Collector].
func (e *Exporter) Describe(out chan<- *prometheus.Desc) {
	for _, d := range e.series.descs {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (e *Exporter) Collect(out chan<- prometheus.Metric) {
	for _, m := range e.metrics() {
		out <- m
	}
}

// metrics returns what a scrape gets now.
func (e *Exporter) metrics() []prometheus.Metric {
	e.mu.Lock()
	defer e.mu.Unlock()
	up := !e.failed && !e.taken.IsZero() && (e.cfg.MaxAge == 0 || e.cfg.Now().Sub(e.taken) <= e.cfg.MaxAge)
	lasting := e.known
	if !up {
		if e.unknown == nil {
			e.unknown = e.build(nil)
		}
		lasting = e.unknown
	}
	b := builder{out: slices.Clone(lasting)}
	s := &e.series.collecting
	b.add(s.up, boolean(up))
	b.add(s.collections, e.collections)
	for _, reason := range reasons {
		b.add(s.failures, e.failures[reason], reason)
	}
	b.add(s.requestsTotal, e.requests)
	requests, seconds, success := e.lastRequests, e.lastSeconds, math.NaN()
	if !up {
		requests, seconds = math.NaN(), math.NaN()
	}
	if !e.taken.IsZero() {
		success = unix(e.taken)
	}
	b.add(s.requests, requests)
	b.add(s.duration, seconds)
	b.add(s.success, success)
	return b.out
}

// Handler answers scrapes with the exporter's series, those of the Go runtime
// and the process, and the build.
func (e *Exporter) Handler() (http.Handler, error) {
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		e, collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), nil
}

func sorted(sinks []string) []string {
	sinks = slices.Clone(sinks)
	slices.Sort(sinks)
	return slices.Compact(sinks)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// unix returns a time in seconds, as Prometheus wants timestamps.
func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
