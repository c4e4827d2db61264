package feeds

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
)

const (
	metricsNamespace = "flusso_kafka"
	metricsSubsystem = "feed"
)

// How a seal and a lease can turn out, for series that are there from the start.
var (
	sealOutcomes = []string{"committed", "unfinished", "refused"}
	leaseChanges = []string{"taken", "fenced", "lost"}
	appendFates  = []string{"rejected", "unknown"}
)

// metrics are those of a client, by feed. A session's are there from its
// start. Without a registerer they count for nobody.
type metrics struct {
	registerer prometheus.Registerer
	registered []prometheus.Collector

	latency  *prometheus.HistogramVec
	records  *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	failures *prometheus.CounterVec
	segments *prometheus.CounterVec
	waits    *prometheus.CounterVec
	seals    *prometheus.CounterVec
	leases   *prometheus.CounterVec
}

func (c *Client) newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{registerer: reg}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: name, Help: help,
		}, append([]string{"feed"}, labels...))
	}
	m.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "append_seconds",
		Help:    "From the submit of a batch to its acknowledgement.",
		Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
	}, []string{"feed"})
	m.records = counter("appended_records_total", "Records acknowledged.")
	m.bytes = counter("appended_bytes_total", "Keys and payloads of them.")
	m.failures = counter("append_failures_total", "Batches that had their sequences and were not acknowledged, by what is known of them.", "outcome")
	m.segments = counter("segments_total", "Segments that were committed.")
	m.waits = counter("window_wait_seconds_total", "How long appends waited for the window of unacknowledged payload, or behind one that did.")
	m.seals = counter("seals_total", "Calls of seal by their outcome.", "outcome")
	m.leases = counter("lease_changes_total", "Sessions that took the lease, were fenced, or lost it.", "change")
	if reg == nil {
		return m, nil
	}
	for _, x := range []prometheus.Collector{m.latency, m.records, m.bytes, m.failures, m.segments, m.waits, m.seals, m.leases, &backlogs{c}} {
		if err := reg.Register(x); err != nil {
			m.unregister()
			return nil, err
		}
		m.registered = append(m.registered, x)
	}
	return m, nil
}

func (m *metrics) unregister() {
	for _, x := range m.registered {
		m.registerer.Unregister(x)
	}
	m.registered = nil
}

// begin makes the series of a feed.
func (m *metrics) begin(feed string) {
	m.latency.WithLabelValues(feed)
	for _, v := range []*prometheus.CounterVec{m.records, m.bytes, m.segments, m.waits} {
		v.WithLabelValues(feed)
	}
	for v, values := range map[*prometheus.CounterVec][]string{m.failures: appendFates, m.seals: sealOutcomes, m.leases: leaseChanges} {
		for _, value := range values {
			v.WithLabelValues(feed, value)
		}
	}
	m.leases.WithLabelValues(feed, "taken").Inc()
}

func (m *metrics) acked(feed string, records, bytes uint64, took time.Duration) {
	m.latency.WithLabelValues(feed).Observe(took.Seconds())
	m.records.WithLabelValues(feed).Add(float64(records))
	m.bytes.WithLabelValues(feed).Add(float64(bytes))
}

func (m *metrics) failed(feed string, unknown bool) {
	outcome := "rejected"
	if unknown {
		outcome = "unknown"
	}
	m.failures.WithLabelValues(feed, outcome).Inc()
}

func (m *metrics) sealed(feed string, err error) {
	outcome := "committed"
	if unfinished := (*SealError)(nil); errors.As(err, &unfinished) {
		outcome = "unfinished"
	} else if err != nil {
		outcome = "refused"
	}
	m.seals.WithLabelValues(feed, outcome).Inc()
}

func (m *metrics) ended(feed string, cause error) {
	switch {
	case errors.Is(cause, flusso.ErrFenced):
		m.leases.WithLabelValues(feed, "fenced").Inc()
	case errors.Is(cause, flusso.ErrLost):
		m.leases.WithLabelValues(feed, "lost").Inc()
	}
}

// Backlog is how far the flusher of a session is behind what was acknowledged
// [E11], and what its feed holds without commit.
type Backlog struct {
	Records  uint64
	Bytes    uint64        // keys and payloads
	Age      time.Duration // how long the oldest of them may have waited
	Unsealed uint64        // bytes of all streams without commit, as of the newest event and ack
	Limit    uint64        // the feed's MaxUnsealedBytes
	Trouble  error         // what keeps the flusher, or a seal, from going on; nil for nothing
}

// Backlog returns how far the session's flusher is behind.
func (s *Session) Backlog() Backlog {
	trouble, staged := s.trouble(), s.flusher().progress()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := Backlog{Unsealed: s.others + s.acked.Bytes, Limit: s.settings.MaxUnsealedBytes, Trouble: trouble}
	if s.acked.Last > staged.Last {
		b.Records, b.Bytes = s.acked.Last-staged.Last, s.acked.Bytes-staged.Bytes
		since := s.behind
		if staged.At.After(since) {
			since = staged.At
		}
		b.Age = max(0, time.Since(since))
	}
	return b
}

// progress is the last batch that is in a pack; zero for none.
func (g *stage) progress() wire.Append {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.staged
}

// advance notes an acknowledged batch.
func (s *Session) advance(a wire.Append) {
	staged := s.flusher().progress()
	s.mu.Lock()
	defer s.mu.Unlock()
	if staged.Last >= s.acked.Last {
		s.behind = a.At // until now it was not
	}
	s.acked = a
}

// backlogs collects those of the sessions that are open.
type backlogs struct{ client *Client }

func gauge(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(metricsNamespace, metricsSubsystem, name), help, []string{"feed"}, nil)
}

var (
	descBehindRecords = gauge("flusher_behind_records", "Records that were acknowledged and are in no pack yet.")
	descBehindBytes   = gauge("flusher_behind_bytes", "Keys and payloads of them.")
	descBehindSeconds = gauge("flusher_behind_seconds", "How long the oldest of them may have waited.")
	descUnsealed      = gauge("unsealed_bytes", "Keys and payloads of all streams without commit.")
	descUnsealedLimit = gauge("unsealed_limit_bytes", "How many there may be: appends are refused above.")
)

// Describe implements [prometheus.Collector].
func (b *backlogs) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descBehindRecords, descBehindBytes, descBehindSeconds, descUnsealed, descUnsealedLimit} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (b *backlogs) Collect(out chan<- prometheus.Metric) {
	newest := make(map[string]*Session) // one of two on a feed has been fenced
	b.client.mu.Lock()
	for s := range b.client.open {
		if have := newest[s.Feed()]; have == nil || have.epoch < s.epoch {
			newest[s.Feed()] = s
		}
	}
	b.client.mu.Unlock()
	for feed, s := range newest {
		x := s.Backlog()
		for d, v := range map[*prometheus.Desc]float64{
			descBehindRecords: float64(x.Records), descBehindBytes: float64(x.Bytes), descBehindSeconds: x.Age.Seconds(),
			descUnsealed: float64(x.Unsealed), descUnsealedLimit: float64(x.Limit),
		} {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, feed)
		}
	}
}
