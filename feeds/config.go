package feeds

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/flusso/flusso-kafka/topics"
)

// Defaults and limits.
const (
	DefaultMaxUnackedBytes  = 16 << 20
	DefaultMaxUnsealedBytes = 64 << 30
	DefaultPackBytes        = 64 << 20
	DefaultTrimGrace        = 5 * time.Minute

	// MaxBatchBytes bounds keys and payloads of one batch, so that its segment
	// fits the transaction timeout.
	MaxBatchBytes = 64 << 20
	// MaxBatchRecords bounds the records of one batch, for those that hold next
	// to nothing.
	MaxBatchRecords = 1 << 19
	// MaxStreams is how many streams without commit a feed may have.
	MaxStreams = 8
)

// Config describes a client. Client is required.
type Config struct {
	// Client reaches the brokers: seeds, TLS, SASL, dialer.
	Client []kgo.Opt
	// Holder names this process in the lease's records; host and process id by default.
	Holder string
	// Address is where other processes can send writes to while this one
	// holds the lease [E15]; empty for nowhere.
	Address string
	// MaxUnackedBytes bounds the payload that [Session.AppendAsync] has not
	// acknowledged; [DefaultMaxUnackedBytes] when zero [E3].
	MaxUnackedBytes int64
	// SegmentBytes and SegmentAge close a segment that gathers [E5]: 8 MiB and
	// 250 ms when zero.
	SegmentBytes int
	SegmentAge   time.Duration
	// StagingDir is where packs are built before they go into a bucket; the
	// system's folder for temporary files when empty.
	StagingDir string
	// PackBytes closes a pack: [DefaultPackBytes] when zero.
	PackBytes int64
	// TrimGrace is how long a committed stream stays in the WAL for those who
	// read it there: [DefaultTrimGrace] when zero, negative for none.
	TrimGrace time.Duration
	// Topics are what is chosen for the topics of a new feed.
	Topics topics.Options

	Registerer prometheus.Registerer // metrics go here; nil for none. One client per registerer
	Logger     *slog.Logger          // nil for none
}

func (c Config) withDefaults() (Config, error) {
	bad := func(setting string, value any, reason string) (Config, error) {
		return Config{}, &flusso.InvalidError{What: fmt.Sprintf("setting %s of a feed client: %v", setting, value), Reason: reason}
	}
	switch {
	case len(c.Client) == 0:
		return bad("Client", "none", "give at least kgo.SeedBrokers")
	case c.MaxUnackedBytes < 0:
		return bad("MaxUnackedBytes", c.MaxUnackedBytes, "1 and up, or 0 for the default")
	case c.PackBytes < 0:
		return bad("PackBytes", c.PackBytes, "1 and up, or 0 for the default")
	case c.SegmentBytes < 0:
		return bad("SegmentBytes", c.SegmentBytes, "1 and up, or 0 for the default")
	case c.SegmentAge < 0:
		return bad("SegmentAge", c.SegmentAge, "positive, or 0 for the default")
	}
	if c.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown-host"
		}
		c.Holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if c.MaxUnackedBytes == 0 {
		c.MaxUnackedBytes = DefaultMaxUnackedBytes
	}
	if c.PackBytes == 0 {
		c.PackBytes = DefaultPackBytes
	}
	if c.TrimGrace == 0 {
		c.TrimGrace = DefaultTrimGrace
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = segment.DefaultMaxBytes
	}
	if c.SegmentAge == 0 {
		c.SegmentAge = segment.DefaultMaxAge
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
