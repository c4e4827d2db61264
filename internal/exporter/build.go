package exporter

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/topics"
)

// lane is what a report says of one lane, gathered from its places.
type lane struct {
	*status.Lane
	report *status.Report
	floor  *status.Floor // nil when the watermark does not name the lane
	holder bool
	acked  [4]float64 // totals that never go back, see progress

	blocked, hanging, open float64
}

// build makes the samples of a report; nil is for nothing known.
func (e *Exporter) build(r *status.Report) []prometheus.Metric {
	b := &builder{out: make([]prometheus.Metric, 0, 64+64*len(e.sinks))}
	s := &e.series
	addNumbers(b, s.pipeline, r)
	addStates(b, s.pipelineStates, r)
	for _, part := range parts {
		value := math.NaN()
		if r != nil {
			value = part.errors(r)
		}
		b.add(s.partErrors, value, part.name)
	}
	e.buildFindings(b, r)
	e.buildWriterIDs(b, r)

	lanes := e.lanes(r)
	severities := make(map[string]map[status.Severity]float64)
	if r != nil {
		for i := range r.Findings {
			f := &r.Findings[i]
			if severities[f.Sink] == nil {
				severities[f.Sink] = make(map[status.Severity]float64)
			}
			severities[f.Sink][f.Severity]++
		}
	}
	for _, sink := range e.sinks {
		l := lanes[sink]
		addNumbers(b, s.lane, l, sink)
		addStates(b, s.laneStates, l, sink)
		for _, severity := range severityList {
			value := math.NaN()
			if l != nil {
				value = severities[sink][severity]
			}
			b.add(s.laneFindings, value, sink, string(severity))
		}
	}
	return b.out
}

func (e *Exporter) lanes(r *status.Report) map[string]*lane {
	if r == nil {
		return nil
	}
	lanes := make(map[string]*lane, len(r.Lanes))
	for i := range r.Lanes {
		l := &r.Lanes[i]
		lanes[l.Sink] = &lane{Lane: l, report: r, acked: e.ackedTotals(l)}
	}
	for i := range r.Watermark.Floors {
		f := &r.Watermark.Floors[i]
		if l := lanes[f.Sink]; l != nil {
			l.floor = f
		}
	}
	for _, sink := range r.Watermark.Holders {
		if l := lanes[sink]; l != nil {
			l.holder = true
		}
	}
	for i := range r.Writer.Open {
		t := &r.Writer.Open[i]
		if l := lanes[t.Sink]; l != nil {
			l.open++
			l.blocked = max(l.blocked, t.BlockedSeconds)
			l.hanging += boolean(t.Hanging)
		}
	}
	return lanes
}

// progress makes a counter of totals that go back when a lane is rewound: what
// is acked once more counts once more.
type progress struct{ last, base [4]float64 }

func (e *Exporter) ackedTotals(l *status.Lane) [4]float64 {
	totals := [4]float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	switch {
	case l.AckedTotals != nil:
		totals = four(l.AckedTotals)
	case l.Known && l.Batches != nil && l.Envelopes != nil && l.Bytes != nil && l.Changes != nil:
		lag := four(&status.Totals{Batches: *l.Batches, Envelopes: *l.Envelopes, Bytes: *l.Bytes, Changes: *l.Changes})
		for i, tail := range tailTotals(l) {
			totals[i] = max(0, tail-lag[i])
		}
	}
	p := e.progress[l.Sink]
	if p == nil {
		p = &progress{}
		e.progress[l.Sink] = p
	}
	for i := range totals {
		if math.IsNaN(totals[i]) {
			continue
		}
		if totals[i] < p.last[i] {
			p.base[i] += p.last[i] - totals[i]
		}
		p.last[i] = totals[i]
		totals[i] += p.base[i]
	}
	return totals
}

// tailTotals are 0 for a lane that has no item.
func tailTotals(l *status.Lane) [4]float64 {
	switch {
	case l.TailTotals != nil:
		return four(l.TailTotals)
	case l.Known:
		return [4]float64{}
	}
	return [4]float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
}

func four(t *status.Totals) [4]float64 {
	return [4]float64{float64(t.Batches), float64(t.Envelopes), float64(t.Bytes), float64(t.Changes)}
}

func (e *Exporter) buildFindings(b *builder, r *status.Report) {
	counts := make(map[code]float64)
	if r != nil {
		for i := range r.Findings {
			counts[codeOf(&r.Findings[i])]++
		}
	}
	for _, c := range e.codes.list {
		value := math.NaN()
		if r != nil {
			value = counts[c]
		}
		b.add(e.series.findings, value, string(c.severity), c.code)
	}
}

func (e *Exporter) buildWriterIDs(b *builder, r *status.Report) {
	found := make(map[string]*status.WriterID)
	if r != nil {
		for i := range r.Writer.IDs {
			found[r.Writer.IDs[i].ID] = &r.Writer.IDs[i]
		}
	}
	for i := range topics.WriterIDs {
		id := e.cfg.Pipeline.WriterID(i)
		addStates(b, e.series.writerIDStates, found[id], id)
	}
}

// position is a position as a metric: NaN for none.
func position(p status.Position) float64 {
	if flusso.Position(p) == flusso.NoPosition {
		return math.NaN()
	}
	return float64(p)
}

func offset(o status.Offset) float64 {
	if o < 0 {
		return math.NaN()
	}
	return float64(o)
}

// number types of a report, where nil is for not known.
func optional[N uint64 | int64 | float64](n *N) float64 {
	if n == nil {
		return math.NaN()
	}
	return float64(*n)
}
