package kafka

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// laneConsumerConfig is what a consumer of a lane needs.
type laneConsumerConfig struct {
	lane        topics.Lane
	client      []kgo.Opt      // brokers, TLS, SASL, dialer, hooks
	lookup      *kgo.Client    // for questions beside the group; the caller owns it
	store       *offsets.Store // the same
	standby     bool
	budget      int64 // bytes held undelivered
	outstanding int64 // bytes delivered and not back, 0 for any
	log         *slog.Logger
	hooks       group.Hooks
	attached    *attachments // the stream's; nil for a consumer on its own
}

// laneConsumer receives the items of a lane.
type laneConsumer struct {
	*group.Consumer[flusso.LaneItem, laneMark]
	lane     topics.Lane
	attached *attachments
}

var _ flusso.Consumer[flusso.LaneItem] = (*laneConsumer)(nil)

// attachLane attaches to a lane. A consumer of the same stream that has it is
// superseded first, with what it acked made durable; one of another process is
// superseded by the group.
//
// Errors: [*flusso.GapError], [*flusso.UnverifiedError], [*flusso.RetiredError] and
// [*group.MixedModeError] in place of a consumer; what the brokers answered,
// wrapped; ctx's.
func attachLane(ctx context.Context, cfg laneConsumerConfig) (*laneConsumer, error) {
	done, err := cfg.attached.take(ctx, cfg.lane)
	if err != nil {
		return nil, err
	}
	defer done()
	mode := group.Takeover
	if cfg.standby {
		mode = group.Standby
	}
	c, err := group.Attach(ctx, group.Config{
		Group: cfg.lane.Group(), Topic: cfg.lane.Topic(), Mode: mode,
		Opts: cfg.client, Lookup: cfg.lookup, Budget: cfg.budget, Outstanding: cfg.outstanding, Logger: cfg.log, Hooks: cfg.hooks,
	}, false, &laneReader{lane: cfg.lane, store: cfg.store})
	if err != nil {
		return nil, err
	}
	lc := &laneConsumer{Consumer: c, lane: cfg.lane, attached: cfg.attached}
	cfg.attached.put(lc)
	return lc, nil
}

// Close implements [flusso.Consumer].
func (c *laneConsumer) Close(ctx context.Context) error {
	c.attached.drop(c)
	return c.Consumer.Close(ctx)
}
