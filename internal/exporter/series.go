package exporter

import (
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

// series are all families of series.
type series struct {
	descs []*prometheus.Desc

	collecting     collecting
	pipeline       []number[*status.Report]
	pipelineStates []states[*status.Report]
	lane           []number[*lane]
	laneStates     []states[*lane]
	writerIDStates []states[*status.WriterID]

	partErrors, findings, laneFindings metric
}

// collecting are the families on the collecting itself.
type collecting struct {
	up, collections, failures, requestsTotal, requests, duration, success metric
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

func newSeries(pipeline string) series {
	var s series
	constant := prometheus.Labels{"pipeline": pipeline}
	describe := func(name, help string, kind prometheus.ValueType, labels ...string) metric {
		d := prometheus.NewDesc(Namespace+"_"+name, help, labels, constant)
		s.descs = append(s.descs, d)
		return metric{d, kind}
	}
	s.collecting = collecting{
		up:            describe("up", "1 while the last collection succeeded and is recent; 0 makes every other value unknown.", gauge),
		collections:   describe("collections_total", "Collections that ended, failed ones included.", counter),
		failures:      describe("collection_failures_total", "Collections that failed, by reason.", counter, "reason"),
		requestsTotal: describe("collection_requests_total", "Requests sent to brokers by collections that succeeded.", counter),
		requests:      describe("collection_requests", "Requests that the last collection sent to brokers.", gauge),
		duration:      describe("collection_duration_seconds", "How long the last collection took.", gauge),
		success:       describe("collection_success_timestamp_seconds", "When the last collection succeeded, in Unix time.", gauge),
	}
	s.partErrors = describe("lookup_errors", "Look-ups of the last collection that failed, by what they were for.", gauge, "part")
	s.findings = describe("findings", "Findings of the last collection, by severity and code.", gauge, "severity", "code")
	s.laneFindings = describe("lane_findings", "Findings on a lane, by severity.", gauge, "sink", "severity")

	s.pipeline, s.pipelineStates = pipelineNumbers(), pipelineStates()
	s.lane, s.laneStates, s.writerIDStates = laneNumbers(), laneStates(), writerIDStates()
	register(describe, s.pipeline)
	registerStates(describe, s.pipelineStates, "state")
	register(describe, s.lane, "sink")
	registerStates(describe, s.laneStates, "sink", "state")
	registerStates(describe, s.writerIDStates, "writer_id", "state")
	return s
}

type describer func(name, help string, kind prometheus.ValueType, labels ...string) metric

func register[T any](describe describer, families []number[T], labels ...string) {
	for i := range families {
		f := &families[i]
		f.metric = describe(f.name, f.help, f.kind, labels...)
	}
}

func registerStates[T any](describe describer, families []states[T], labels ...string) {
	for i := range families {
		f := &families[i]
		f.metric = describe(f.name, f.help, gauge, labels...)
	}
}

// part is something that is looked up on its own, and may fail on its own.
type part struct {
	name   string
	errors func(*status.Report) float64
}

var parts = []part{
	{"watermark", func(r *status.Report) float64 { return boolean(r.Watermark.Error != "") }},
	{"lanes", func(r *status.Report) float64 {
		return failed(r, func(l *status.Lane) bool { return l.Error != "" })
	}},
	{"consumers", func(r *status.Report) float64 {
		return failed(r, func(l *status.Lane) bool { return l.ConsumerError != "" })
	}},
	{"settings", func(r *status.Report) float64 {
		return boolean(r.SettingsError != "") + failed(r, func(l *status.Lane) bool {
			return l.Retention.Error != "" || l.Retention.OffsetsError != ""
		})
	}},
	{"requests", func(r *status.Report) float64 { return boolean(r.RequestsError != "") }},
	{"writer", func(r *status.Report) float64 {
		n := boolean(r.Writer.Error != "") + boolean(r.Writer.OpenError != "")
		for i := range r.Writer.IDs {
			n += boolean(r.Writer.IDs[i].Error != "")
		}
		return n
	}},
}

// failed counts lanes.
func failed(r *status.Report, failed func(*status.Lane) bool) float64 {
	n := 0.0
	for i := range r.Lanes {
		n += boolean(failed(&r.Lanes[i]))
	}
	return n
}

// unless is a value that is not known where something failed.
func unless(failed bool, value float64) float64 {
	if failed {
		return math.NaN()
	}
	return value
}

func pipelineNumbers() []number[*status.Report] {
	return []number[*status.Report]{
		{name: "healthy", help: "1 while no finding is graver than a note.", kind: gauge, value: func(r *status.Report) float64 {
			return boolean(r.Healthy)
		}},
		{name: "watermark_position", help: "Position that every sink has acked; NaN while there is none.", kind: gauge, value: func(r *status.Report) float64 {
			return unless(r.Watermark.Error != "", position(r.Watermark.Position))
		}},
		{name: "watermark_behind_positions", help: "How far the highest floor of a lane is ahead of the watermark.", kind: gauge, value: func(r *status.Report) float64 {
			return unless(r.Watermark.Error != "", digits(r.Watermark.Behind))
		}},
		{name: "watermark_held_seconds", help: "Age of the first unacked item of the lanes that hold the watermark.", kind: gauge, value: func(r *status.Report) float64 {
			return unless(r.Watermark.Error != "", optional(r.Watermark.HoldsForSeconds))
		}},
		{name: "requests_waiting", help: "Requests that the ingest engine has not completed.", kind: gauge, value: func(r *status.Report) float64 {
			return unless(r.RequestsError != "", float64(len(r.Requests)))
		}},
		{name: "requests_unreadable", help: "Waiting requests that cannot be read.", kind: gauge, value: func(r *status.Report) float64 {
			n := 0.0
			for i := range r.Requests {
				n += boolean(r.Requests[i].Error != "")
			}
			return unless(r.RequestsError != "", n)
		}},
		{name: "requests_oldest_seconds", help: "Age of the oldest waiting request, 0 when none waits.", kind: gauge, value: func(r *status.Report) float64 {
			oldest := 0.0
			for i := range r.Requests {
				oldest = max(oldest, r.Requests[i].Seconds)
			}
			return unless(r.RequestsError != "", oldest)
		}},
		{name: "writer_attached", help: "1 while an ingest engine is attached.", kind: gauge, value: func(r *status.Report) float64 {
			return unless(r.Writer.Error != "", boolean(r.Writer.Holder != nil))
		}},
		{name: "writer_attached_timestamp_seconds", help: "When the ingest engine attached, in Unix time; NaN while none is, or it does not tell.", kind: gauge, value: func(r *status.Report) float64 {
			if r.Writer.Holder == nil || r.Writer.Holder.Since == nil {
				return math.NaN()
			}
			return unix(*r.Writer.Holder.Since)
		}},
		{name: "writer_epoch", help: "Writer epoch of the newest item; NaN while there is none.", kind: gauge, value: func(r *status.Report) float64 {
			return unless(r.Writer.Epoch == 0, float64(r.Writer.Epoch))
		}},
		{name: "writer_wrote_timestamp_seconds", help: "When the newest item was built, in Unix time; NaN while there is none.", kind: gauge, value: func(r *status.Report) float64 {
			if r.Writer.WroteAt == nil {
				return math.NaN()
			}
			return unix(*r.Writer.WroteAt)
		}},
		{name: "open_transactions", help: "Transactions that are open on lanes.", kind: gauge, value: func(r *status.Report) float64 {
			return unless(r.Writer.OpenError != "", float64(len(r.Writer.Open)))
		}},
	}
}

func pipelineStates() []states[*status.Report] {
	return []states[*status.Report]{{
		name: "watermark_state", help: "1 for what is known of the watermark.",
		all: []string{"known", "none", "unknown"}, unknown: "unknown",
		of: func(r *status.Report) string {
			switch {
			case r.Watermark.Error != "":
				return "unknown"
			case flusso.Position(r.Watermark.Position) == flusso.NoPosition:
				return "none"
			}
			return "known"
		},
	}}
}

// retired is the state of the floor of a lane that the watermark does not wait
// for.
const retired = string(status.Retired)

func laneStates() []states[*lane] {
	var all []string
	for _, s := range status.LaneStates() {
		all = append(all, string(s))
	}
	return []states[*lane]{
		{
			name: "lane_state", help: "1 for the state of a lane.",
			all: all, unknown: string(status.Errored),
			of: func(l *lane) string { return string(l.State) },
		},
		{
			name: "lane_floor_state", help: "1 for the state of a lane's floor: only acked counts towards the watermark, which does not wait for retired.",
			all: []string{
				string(flusso.FloorAcked), string(flusso.FloorNothing), string(flusso.FloorMissing), string(flusso.FloorOther),
				string(flusso.FloorUnverified), string(flusso.FloorRecreated), string(flusso.FloorUnknown), retired,
			},
			unknown: string(flusso.FloorUnknown),
			of: func(l *lane) string {
				switch {
				case l.floor != nil:
					return string(l.floor.State)
				case l.Retired != nil:
					return retired
				}
				return string(flusso.FloorUnknown)
			},
		},
		{
			name: "lane_consumer_state", help: "1 for whether the sink's group has a member.",
			all: []string{status.Attached, status.Detached, status.UnknownConsumer}, unknown: status.UnknownConsumer,
			of: func(l *lane) string { return l.Consumer },
		},
	}
}

// waits is how the four counts of a lane are named and told.
var waits = []struct{ name, lag, acked, tail string }{
	{"batches", "Items not acked.", "Items acked; those acked again after a rewind count again.", "Items ever written to the lane."},
	{"envelopes", "Envelopes not acked.", "Envelopes acked; those acked again after a rewind count again.", "Envelopes ever written to the lane."},
	{"bytes", "Bytes not acked: keys and values, uncompressed.", "Bytes acked, of keys and values; those acked again after a rewind count again.", "Bytes of keys and values ever written to the lane."},
	{"changes", "Changes of the source not acked.", "Changes of the source acked; those acked again after a rewind count again.", "Changes of the source ever written to the lane."},
}

func laneNumbers() []number[*lane] {
	numbers := []number[*lane]{
		{name: "lane_lag_seconds", help: "Age of the first item not acked, 0 when caught up.", kind: gauge, value: func(l *lane) float64 { return optional(l.Seconds) }},
		{name: "lane_acked_position", help: "Through of the newest acked item; NaN while there is none.", kind: gauge, value: func(l *lane) float64 { return position(l.Acked) }},
		{name: "lane_tail_position", help: "Through of the newest item; NaN while there is none.", kind: gauge, value: func(l *lane) float64 { return position(l.Tail) }},
		{name: "lane_floor_position", help: "What the lane counts for the watermark: position acked through; NaN while none.", kind: gauge, value: func(l *lane) float64 {
			if l.floor == nil {
				return math.NaN()
			}
			return position(l.floor.Through)
		}},
		{name: "lane_start_offset", help: "Offset where the lane's log starts.", kind: gauge, value: func(l *lane) float64 { return offset(l.StartOffset) }},
		{name: "lane_acked_offset", help: "Offset committed by the sink's group; NaN while there is none.", kind: gauge, value: func(l *lane) float64 { return offset(l.AckedOffset) }},
		{name: "lane_tail_offset", help: "Offset after the newest item.", kind: gauge, value: func(l *lane) float64 { return offset(l.TailOffset) }},
		{name: "lane_members", help: "Members of the sink's group.", kind: gauge, value: func(l *lane) float64 {
			return unless(l.Consumer == status.UnknownConsumer, float64(len(l.Members)))
		}},
		{name: "lane_attached_timestamp_seconds", help: "When the member that owns the lane attached, in Unix time; NaN while none does, or it does not tell.", kind: gauge, value: func(l *lane) float64 {
			for i := range l.Members {
				if m := &l.Members[i]; m.Owner && m.Since != nil {
					return unix(*m.Since)
				}
			}
			return math.NaN()
		}},
		{name: "lane_standing_seconds", help: "For how long the acked offset has stood, as far as this process saw.", kind: gauge, value: func(l *lane) float64 {
			return optional(l.StandsSeconds)
		}},
		{name: "lane_retired", help: "1 for a lane that the watermark does not wait for.", kind: gauge, value: func(l *lane) float64 {
			return boolean(l.Retired != nil)
		}},
		{name: "lane_retention_risk_seconds", help: "Until the first unacked item may be deleted; +Inf when nothing threatens it.", kind: gauge, value: retentionRisk},
		{name: "lane_offsets_retention_seconds", help: "How long a group without members keeps its offsets.", kind: gauge, value: func(l *lane) float64 {
			return optional(l.Retention.OffsetsSeconds)
		}},
		{name: "lane_open_transactions", help: "Transactions that are open on the lane.", kind: gauge, value: func(l *lane) float64 {
			return unless(l.report.Writer.OpenError != "", l.open)
		}},
		{name: "lane_hanging_transactions", help: "Open transactions that will not end by themselves.", kind: gauge, value: func(l *lane) float64 {
			return unless(l.report.Writer.OpenError != "", l.hanging)
		}},
		{name: "lane_blocked_seconds", help: "For how long an open transaction has kept readers waiting, 0 for none.", kind: gauge, value: func(l *lane) float64 {
			return unless(l.report.Writer.OpenError != "", l.blocked)
		}},
		{name: "watermark_holder", help: "1 for the sinks that hold the watermark where it is.", kind: gauge, value: func(l *lane) float64 {
			return unless(l.report.Watermark.Error != "", boolean(l.holder))
		}},
	}
	lags := []func(*lane) *uint64{
		func(l *lane) *uint64 { return l.Batches }, func(l *lane) *uint64 { return l.Envelopes },
		func(l *lane) *uint64 { return l.Bytes }, func(l *lane) *uint64 { return l.Changes },
	}
	for i, w := range waits {
		numbers = append(numbers,
			number[*lane]{name: "lane_lag_" + w.name, help: w.lag, kind: gauge, value: func(l *lane) float64 { return optional(lags[i](l)) }},
			number[*lane]{name: "lane_acked_" + w.name + "_total", help: w.acked, kind: counter, value: func(l *lane) float64 { return l.acked[i] }},
			number[*lane]{name: "lane_tail_" + w.name + "_total", help: w.tail, kind: counter, value: func(l *lane) float64 { return tailTotals(l.Lane)[i] }},
		)
	}
	return numbers
}

// retentionRisk tells "nothing threatens it" from "not known".
func retentionRisk(l *lane) float64 {
	r := &l.Retention
	forEver := r.Milliseconds != nil && r.Bytes != nil && *r.Milliseconds < 0 && *r.Bytes < 0
	caughtUp := l.Known && l.Batches != nil && *l.Batches == 0
	switch {
	case r.RiskSeconds != nil:
		return *r.RiskSeconds
	case forEver || caughtUp:
		return math.Inf(1)
	}
	return math.NaN()
}

// The states of a transactional id besides Kafka's own.
const (
	neverUsed = "none"
	unknownID = "unknown"
)

func writerIDStates() []states[*status.WriterID] {
	return []states[*status.WriterID]{{
		name: "writer_id_state", help: "1 for Kafka's state of a transactional id of the writer.",
		all: []string{
			"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
			"PrepareEpochFence", "Dead", neverUsed, unknownID,
		},
		unknown: unknownID,
		of: func(id *status.WriterID) string {
			if id.Error != "" {
				return unknownID
			}
			return id.State
		},
	}}
}

// digits is a number that JSON has as a string.
func digits(text string) float64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return math.NaN()
	}
	return float64(n)
}
