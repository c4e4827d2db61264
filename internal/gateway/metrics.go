package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What became of a write that was sent to another node.
const (
	forwardAnswered    = "answered"
	forwardRefused     = "refused"     // the node does not hold the lease
	forwardUnreachable = "unreachable" // nothing was sent
	forwardUnknown     = "unknown"     // it was cut off
	forwardWithheld    = "withheld"    // nothing was sent, it is no peer
)

type metrics struct {
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	forwarded *prometheus.CounterVec
	repeated  prometheus.Counter
	records   prometheus.Counter
}

func newMetrics(r prometheus.Registerer, g *Gateway) (*metrics, error) {
	const prefix = "flusso_kafka_gateway_"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "requests_total", Help: "Requests that were answered, by operation and status.",
		}, []string{"operation", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "request_seconds", Help: "How long requests took; one that follows, until it ended.",
			Buckets: []float64{.005, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
		}, []string{"operation"}),
		forwarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "forwarded_total", Help: "Writes that were sent to the node that holds the lease, by outcome.",
		}, []string{"operation", "outcome"}),
		repeated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "repeated_batches_total", Help: "Batches that were there already, by their id.",
		}),
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "appended_records_total", Help: "Records that were appended by sessions of this node.",
		}),
	}
	for _, route := range g.table() {
		for _, name := range route.name {
			if name != "" {
				m.seconds.WithLabelValues(name)
			}
		}
	}
	for _, op := range []string{"append", "seal", "close"} {
		for _, outcome := range []string{forwardAnswered, forwardRefused, forwardUnreachable, forwardUnknown, forwardWithheld} {
			m.forwarded.WithLabelValues(op, outcome)
		}
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.seconds, m.forwarded, m.repeated, m.records,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: prefix + "sessions", Help: "Sessions that are open on this node.",
		}, func() float64 { return float64(g.open()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: prefix + "followers", Help: "Readers that follow at this node.",
		}, func() float64 { return float64(len(g.followers)) }),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) answered(operation string, status int, took time.Duration) {
	m.requests.WithLabelValues(operation, code(status)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}
