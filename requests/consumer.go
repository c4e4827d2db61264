// Package requests is the request lane on Kafka: sinks ask, the ingest engine
// receives, and what was asked is asked until it is acked [D1].
//
// The two types to know are [Producer] and [Consumer]. [List] shows what waits
// without joining the group.
package requests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Config is what a consumer of the request lane needs.
type Config struct {
	Pipeline topics.Pipeline
	// Client configures the consumer's own client: brokers, TLS, SASL, hooks.
	Client []kgo.Opt
	// Lookup is a client for questions beside the group. The caller owns it.
	Lookup *kgo.Client
	Logger *slog.Logger // nil for none
}

// mark is what a commit needs to know of a request.
type mark struct {
	offset      flusso.Offset // of its record
	leaderEpoch int32
	topicID     [16]byte
}

type delivery = group.Delivery[flusso.Request, mark]

// Consumer receives requests until they are acked. Acks above the contiguous
// floor are committed too, so that a request which is done is not delivered
// again after a restart.
//
// It is the one owner of the commits of the pipeline's ingest group: its own,
// those that a transaction makes in its place ([Consumer.Prepare]) and those
// of the lanes' mirror ([Consumer.CommitMirror]) never overlap.
type Consumer struct {
	*group.Consumer[flusso.Request, mark]
	pipeline topics.Pipeline
}

var _ flusso.Consumer[flusso.Request] = (*Consumer)(nil)

// Attach takes over the request lane of a pipeline and returns when it is ours.
//
// Errors: [*flusso.GapError] when requests not acked are gone; the group has
// members in the other mode; what the brokers answered, wrapped; ctx's.
func Attach(ctx context.Context, cfg Config) (*Consumer, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := group.Attach(ctx, group.Config{
		Group: cfg.Pipeline.IngestGroup(), Topic: cfg.Pipeline.RequestsTopic(), Mode: group.Takeover,
		Opts: cfg.Client, Lookup: cfg.Lookup, Logger: cfg.Logger,
	}, true, &reader{pipeline: cfg.Pipeline, lookup: cfg.Lookup, log: cfg.Logger})
	if err != nil {
		return nil, fmt.Errorf("request lane of pipeline %s: %w", cfg.Pipeline, err)
	}
	return &Consumer{Consumer: c, pipeline: cfg.Pipeline}, nil
}

// reader is what the request lane's consumer knows beyond the group's.
type reader struct {
	pipeline topics.Pipeline
	lookup   *kgo.Client
	log      *slog.Logger
}

// Attach implements [group.Reader].
func (q *reader) Attach(ctx context.Context, c group.Committed) (group.Start[flusso.Request, mark], error) {
	var none group.Start[flusso.Request, mark]
	start, err := group.ListOffset(ctx, q.lookup, q.pipeline.RequestsTopic(), group.Earliest)
	if err != nil {
		return none, err
	}
	at, leaderEpoch := start, int32(-1)
	acked := make(map[flusso.Offset]bool)
	if c.Found {
		at, leaderEpoch = c.Offset, c.LeaderEpoch
		// Metadata that is not ours says nothing; its offset counts exactly.
		if m, err := wire.ParseRequestMetadata(c.Metadata); err == nil && m.Offset == c.Offset {
			if m.TopicID != c.TopicID && m.TopicID != [16]byte{} {
				return none, q.gap(at, start, "topic recreated")
			}
			for _, o := range m.Acked {
				acked[o] = true
			}
		}
		if at < start {
			return none, q.gap(at, start, "below the log start")
		}
	}
	behind := func(m mark) group.Reading[flusso.Request, mark] {
		return group.Reading[flusso.Request, mark]{
			Offset: m.offset + 1, LeaderEpoch: m.leaderEpoch,
			Read: func(r *kgo.Record, add func(group.Item[flusso.Request, mark])) (int64, error) {
				return 0, q.read(r, c.TopicID, acked, add)
			},
		}
	}
	before := mark{offset: at - 1, leaderEpoch: leaderEpoch, topicID: c.TopicID}
	return group.Start[flusso.Request, mark]{Reading: behind(before), Floor: at, Mark: before, Again: behind}, nil
}

func (q *reader) read(r *kgo.Record, topicID [16]byte, acked map[flusso.Offset]bool, add func(group.Item[flusso.Request, mark])) error {
	defer r.Recycle()
	if r.Attrs.IsControl() {
		return nil
	}
	offset := flusso.Offset(r.Offset)
	it := group.Item[flusso.Request, mark]{
		Mark: mark{offset, r.LeaderEpoch, topicID}, End: offset + 1,
		Size: int64(len(r.Key) + len(r.Value)), Acked: acked[offset],
	}
	if it.Acked { // it may be one that cannot be read, and was cancelled
		add(it)
		return nil
	}
	request, err := wire.DecodeRequest(r)
	if bad := (*wire.FormatError)(nil); errors.As(err, &bad) {
		// Nobody can ever serve it, and it must not stop those behind it. A
		// newer version's is another thing: that one can be served.
		q.log.Warn("a request that cannot be read is passed over", "pipeline", q.pipeline.String(), "offset", r.Offset, "err", err)
		it.Acked, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("request lane of pipeline %s: %w", q.pipeline, err)
	}
	it.Item = request
	add(it)
	return nil
}

// Commit implements [group.Reader].
func (q *reader) Commit(floor flusso.Offset, m mark, above []mark) group.Commit {
	acked := make([]flusso.Offset, len(above))
	for i, a := range above {
		acked[i] = a.offset
	}
	return group.Commit{
		Offset: floor, LeaderEpoch: m.leaderEpoch,
		Metadata: wire.FormatRequestMetadata(wire.RequestMetadata{Offset: floor, TopicID: m.topicID, Acked: acked}),
	}
}

// Broken implements [group.Reader].
func (q *reader) Broken(ctx context.Context, next flusso.Offset, _ mark, err error) error {
	cause := "out of the log's range"
	switch kafkaerr.Classify(err) {
	case kafkaerr.Missing:
		cause = "topic deleted"
	case kafkaerr.Recreated:
		cause = "topic recreated"
	}
	if errors.Is(err, group.ErrRewritten) {
		cause = group.ErrRewritten.Error()
	}
	to, serr := group.ListOffset(ctx, q.lookup, q.pipeline.RequestsTopic(), group.Earliest)
	if serr != nil {
		to = flusso.NoOffset
	}
	return fmt.Errorf("%w: %w", q.gap(next, to, cause), err)
}

func (q *reader) gap(from, to flusso.Offset, cause string) *GapError {
	return &GapError{&flusso.GapError{
		Topic: q.pipeline.RequestsTopic(), Group: q.pipeline.IngestGroup(), From: from, To: to, Cause: cause,
	}}
}

// GapError says that requests that were not acked are gone. It unwraps to a
// [*flusso.GapError].
type GapError struct{ gap *flusso.GapError }

// Error names the offsets and what to do.
func (e *GapError) Error() string {
	return fmt.Sprintf("requests at offsets %s to %s of topic %s are gone (%s): give them up with `flusso-kafka-admin request cancel --gone --yes`, "+
		"then send again the backfill requests that were not served", e.gap.From, e.gap.To, e.gap.Topic, e.gap.Cause)
}

// Unwrap returns the gap.
func (e *GapError) Unwrap() error { return e.gap }
