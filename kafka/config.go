package kafka

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/topics"
)

// Config is what [Open] needs. Zero values take the defaults named; pipeline,
// sinks and the brokers among Client are required.
type Config struct {
	Pipeline string
	Sinks    []string

	// Incarnation names the source's change feed: for Postgres its system
	// identifier and slot. Publishing and the watermark need it; a process
	// with sinks only may leave it empty.
	Incarnation string

	// Client configures every Kafka client of the stream: brokers, TLS, SASL,
	// dialer, logger. What the adapter relies on is set after it and wins.
	Client []kgo.Opt

	// CreateTopics creates what is missing at open, as Topics says. Topics
	// that are there but unsafe are an error either way.
	CreateTopics bool
	Topics       topics.Options

	// Standby lets several processes attach to the lane of a sink: one is
	// active, the others wait until it is gone. The default is takeover: the
	// newest wins. The writer, and with it the request lane, always goes to the
	// newest ingest engine; one that was superseded stays down.
	Standby bool

	// MaxUnackedBytes bounds what is submitted and not yet durable, 32 MiB by default.
	MaxUnackedBytes int64
	// SegmentBytes and SegmentAge say when a gathering segment goes out at
	// the latest while others are in flight: half of MaxUnackedBytes, so that
	// one gathers while one is acknowledged, but at most 16 MiB, so that its
	// transaction ends in time, and 250 ms by default.
	SegmentBytes int
	SegmentAge   time.Duration
	// MaxBatchBytes bounds keys and values of one commit, 64 MiB by default,
	// so that its transaction ends in time.
	MaxBatchBytes int64
	// PrefetchBytes bounds what a lane consumer holds undelivered, in
	// decompressed bytes, 32 MiB by default.
	PrefetchBytes int64
	// MaxOutstandingBytes bounds what a lane consumer has delivered and not got
	// back, by an ack or a nack, in decompressed bytes: Receive waits while one
	// more would exceed it, and an item above it goes alone. 0, the default, is no
	// bound: a sink that acks only when it has gathered so and so many deliveries
	// would wait for ever where that is less.
	MaxOutstandingBytes int64
	// TrimAfter is how long a floor must have been durable before the lane is
	// trimmed up to it, 5 minutes by default; negative never trims. A process
	// trims from its first writer session on.
	TrimAfter time.Duration

	Registerer prometheus.Registerer // metrics go here; nil for none
	Logger     *slog.Logger          // nil for none
}

// names are the validated names of a pipeline.
type names struct {
	pipeline topics.Pipeline
	sinks    []string // sorted
	lanes    []topics.Lane
	bySink   map[string]topics.Lane
}

// mostSegment bounds a segment that nobody configured: however large the window
// is, all of a segment must be acknowledged within one transaction's time.
const mostSegment = 16 << 20

// prepare validates the config and fills in the defaults.
func (c *Config) prepare() (names, error) {
	var n names
	p, err := topics.NewPipeline(c.Pipeline)
	if err != nil {
		return n, err
	}
	n.pipeline, n.bySink = p, make(map[string]topics.Lane, len(c.Sinks))
	if len(c.Sinks) == 0 {
		return n, &flusso.InvalidError{What: "config of pipeline " + c.Pipeline, Reason: "no sinks: name at least one"}
	}
	n.sinks = slices.Sorted(slices.Values(c.Sinks))
	for i, sink := range n.sinks {
		if i > 0 && sink == n.sinks[i-1] {
			return n, &flusso.InvalidError{What: "config of pipeline " + c.Pipeline, Reason: fmt.Sprintf("sink %q is named twice", sink)}
		}
		lane, err := p.Lane(sink)
		if err != nil {
			return n, err
		}
		n.lanes = append(n.lanes, lane)
		n.bySink[sink] = lane
	}
	if c.Incarnation != "" {
		if err := flusso.CheckIncarnation(c.Incarnation); err != nil {
			return n, err
		}
	}
	for _, v := range []struct {
		name  string
		value *int64
		def   int64
	}{
		{"MaxUnackedBytes", &c.MaxUnackedBytes, 32 << 20},
		{"MaxBatchBytes", &c.MaxBatchBytes, 64 << 20},
		{"PrefetchBytes", &c.PrefetchBytes, group.DefaultBudget},
	} {
		if *v.value < 0 {
			return n, &flusso.InvalidError{What: "config of pipeline " + c.Pipeline, Reason: fmt.Sprintf("%s is %d: use a positive number of bytes, or 0 for %d", v.name, *v.value, v.def)}
		}
		if *v.value == 0 {
			*v.value = v.def
		}
	}
	if c.MaxOutstandingBytes < 0 {
		return n, &flusso.InvalidError{What: "config of pipeline " + c.Pipeline, Reason: fmt.Sprintf("MaxOutstandingBytes is %d: use a positive number of bytes, or 0 for no bound", c.MaxOutstandingBytes)}
	}
	if c.SegmentBytes < 0 || c.SegmentAge < 0 {
		return n, &flusso.InvalidError{What: "config of pipeline " + c.Pipeline, Reason: "SegmentBytes and SegmentAge are not negative"}
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = int(min(max(c.MaxUnackedBytes/2, 1), mostSegment))
	}
	if c.TrimAfter == 0 {
		c.TrimAfter = 5 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return n, nil
}
