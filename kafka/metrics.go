package kafka

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
)

const namespace = "flusso_kafka"

// floorStates are all states of a lane's floor, for series that are there from
// the start.
var floorStates = []flusso.FloorState{
	flusso.FloorAcked, flusso.FloorNothing, flusso.FloorMissing, flusso.FloorOther,
	flusso.FloorUnverified, flusso.FloorRecreated, flusso.FloorRetired, flusso.FloorUnknown,
}

// metrics are the adapter's own. Every series of a sink is there from the
// start, so that a sink that never attached shows 0 and not nothing. A nil
// registerer makes all of it a no-op on unregistered collectors.
type metrics struct {
	registerer prometheus.Registerer
	registered []prometheus.Collector

	items        prometheus.Counter
	replays      prometheus.Counter
	failures     *prometheus.CounterVec
	sessions     prometheus.Counter
	epoch        prometheus.Gauge
	position     prometheus.Gauge
	stale        prometheus.Gauge
	through      *prometheus.GaugeVec
	holder       *prometheus.GaugeVec
	delivered    *prometheus.CounterVec
	acked        *prometheus.CounterVec
	nacked       *prometheus.CounterVec
	committed    *prometheus.CounterVec
	commitErrors *prometheus.CounterVec
	gaps         *prometheus.CounterVec
	unverified   *prometheus.CounterVec
	floor        *prometheus.GaugeVec
	trims        *prometheus.CounterVec
	maintenance  prometheus.Counter

	lanes []laneGauges // in the order of sinks, which is that of a watermark's floors; the watermark reader's
}

func newMetrics(reg prometheus.Registerer, pipeline string, sinks []string) (*metrics, error) {
	labels := prometheus.Labels{"pipeline": pipeline}
	m := &metrics{registerer: reg, lanes: make([]laneGauges, len(sinks))}
	var errs []error
	register := func(c prometheus.Collector) {
		if reg == nil {
			return
		}
		if err := reg.Register(c); err != nil {
			errs = append(errs, err)
			return
		}
		m.registered = append(m.registered, c)
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels})
		register(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels})
		register(g)
		return g
	}
	perSink := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}, []string{"sink"})
		for _, s := range sinks {
			v.WithLabelValues(s)
		}
		register(v)
		return v
	}
	gaugePerSink := func(name, help string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}, []string{"sink"})
		for _, s := range sinks {
			v.WithLabelValues(s)
		}
		register(v)
		return v
	}
	m.items = counter("published_items_total", "Lane items in committed segments.")
	m.replays = counter("dropped_replays_total", "Live batches dropped because their lane held them already.")
	m.failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "publish_failures_total", ConstLabels: labels,
		Help: "Commits that were not published, by what is known of them.",
	}, []string{"outcome"})
	for _, o := range []string{"rejected", "unknown"} {
		m.failures.WithLabelValues(o)
	}
	register(m.failures)
	m.sessions = counter("writer_sessions_total", "Writer sessions opened.")
	m.epoch = gauge("writer_epoch", "Epoch of the newest writer session of this process.")
	m.position = gauge("watermark_position", "Lowest position acked by every sink, as last read; 0 for none.")
	m.stale = gauge("watermark_stale", "1 while the last look-up of the watermark failed.")
	m.through = gaugePerSink("lane_through_position", "Position a lane is acked through, as last read; 0 for none.")
	m.floor = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "lane_floor_state", ConstLabels: labels,
		Help: "1 for the state of a lane's floor, as last read; the watermark waits for all but acked and retired.",
	}, []string{"sink", "state"})
	for _, sink := range sinks {
		for _, state := range floorStates {
			m.floor.WithLabelValues(sink, string(state))
		}
	}
	register(m.floor)
	m.holder = gaugePerSink("watermark_holder", "1 for the sinks that hold the watermark where it is.")
	m.delivered = perSink("delivered_items_total", "Items handed to the sink, redeliveries included.")
	m.acked = perSink("acked_items_total", "Items the sink acked.")
	m.nacked = perSink("nacked_items_total", "Items the sink returned.")
	m.committed = perSink("offset_commits_total", "Offsets committed for the lane.")
	m.commitErrors = perSink("offset_commit_errors_total", "Offset commits that failed or whose outcome is unknown.")
	m.unverified = perSink("unverified_total", "Attaches that ended because another tool had moved the group forward.")
	m.gaps = perSink("gaps_total", "Attaches that ended because unacked items were gone.")
	m.trims = perSink("trims_total", "Times the lane was trimmed.")
	m.maintenance = counter("maintenance_failures_total", "Failed rounds of mirroring and trimming; each is tried again.")
	if err := errors.Join(errs...); err != nil {
		m.unregister()
		return nil, fmt.Errorf("%w (one stream per pipeline and registerer)", err)
	}
	return m, nil
}

func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
	m.registered = nil
}

func (m *metrics) sessionOpened(epoch uint64) {
	m.sessions.Inc()
	m.epoch.Set(float64(epoch))
}

func (m *metrics) published(items int)          { m.items.Add(float64(items)) }
func (m *metrics) dropped(items int)            { m.replays.Add(float64(items)) }
func (m *metrics) publishFailed(outcome string) { m.failures.WithLabelValues(outcome).Inc() }
func (m *metrics) trimmed(sink string)          { m.trims.WithLabelValues(sink).Inc() }
func (m *metrics) maintenanceFailed()           { m.maintenance.Inc() }

func (m *metrics) watermark(w flusso.Watermark) {
	m.position.Set(float64(w.Position))
	m.stale.Set(0)
	if w.Stale {
		m.stale.Set(1)
	}
	holders := w.Holders // sorted, as the floors are
	for i := range w.Floors {
		f := &w.Floors[i]
		holds := len(holders) > 0 && holders[0] == f.Sink
		if holds {
			holders = holders[1:]
		}
		m.lanes[i].show(m, f, holds)
	}
}

// laneGauges are what a lane's gauges show. There are some for each state and
// lane, and most show what they did at the look before.
type laneGauges struct {
	through flusso.Position
	state   flusso.FloorState // empty before the first look
	holds   bool
}

func (g *laneGauges) show(m *metrics, f *flusso.LaneFloor, holds bool) {
	if g.through != f.Through {
		g.through = f.Through
		m.through.WithLabelValues(f.Sink).Set(float64(f.Through))
	}
	if g.state != f.State {
		if g.state != "" {
			m.floor.WithLabelValues(f.Sink, string(g.state)).Set(0)
		}
		g.state = f.State
		m.floor.WithLabelValues(f.Sink, string(f.State)).Set(1)
	}
	if g.holds != holds {
		g.holds = holds
		value := 0.0
		if holds {
			value = 1
		}
		m.holder.WithLabelValues(f.Sink).Set(value)
	}
}

// consumer returns the hooks of a sink's consumer.
func (m *metrics) consumer(sink string) group.Hooks {
	delivered, committed, refused := m.delivered.WithLabelValues(sink), m.committed.WithLabelValues(sink), m.commitErrors.WithLabelValues(sink)
	return group.Hooks{
		Committed: func(flusso.Offset, time.Duration) { committed.Inc() },
		Refused:   func(error) { refused.Inc() },
		Received:  delivered.Inc,
		Acked:     m.acked.WithLabelValues(sink).Inc,
		Nacked:    m.nacked.WithLabelValues(sink).Inc,
		Ended:     func(err error) { m.ended(sink, err) },
	}
}

// ended counts why a consumer delivers nothing more, or was never let in.
func (m *metrics) ended(sink string, err error) {
	if _, gap := errors.AsType[*flusso.GapError](err); gap {
		m.gaps.WithLabelValues(sink).Inc()
	}
	if _, moved := errors.AsType[*flusso.UnverifiedError](err); moved {
		m.unverified.WithLabelValues(sink).Inc()
	}
}

// clientSerial tells the clients of one process apart: kprom labels by client
// id, and a client may open while the one it replaces still closes.
var clientSerial atomic.Uint64

// clientOpts are the options of a client of the stream: the user's, a client
// id that says what it is for, and kprom's hooks on it.
func (s *Stream) clientOpts(role string) []kgo.Opt {
	id := fmt.Sprintf("flusso-%s-%s-%d", s.names.pipeline, role, clientSerial.Add(1))
	opts := append([]kgo.Opt(nil), s.cfg.Client...)
	opts = append(opts, kgo.ClientID(id))
	if s.cfg.Registerer != nil {
		opts = append(opts, kgo.WithHooks(kprom.NewMetrics(namespace+"_client",
			kprom.Registerer(s.cfg.Registerer), kprom.WithClientLabel())))
	}
	return opts
}
