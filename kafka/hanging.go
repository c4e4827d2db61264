package kafka

import (
	"context"
	"slices"

	"github.com/flusso/flusso-kafka/internal/lease"
)

// endHanging aborts transactions that hang on the lanes: open in a lane's log
// although the coordinator knows of none. Apache Kafka leaves such behind when a
// broker goes down between the end of a transaction and its markers (seen on
// 4.3.1), and readers wait behind them for ever.
//
// It is called by a session that holds the lease, and touches its own producer
// ids only: whatever they have open belongs to a writer that was fenced.
func (s *Stream) endHanging(ctx context.Context, own []int64) error {
	state := lease.Describe(ctx, s.client, s.names.pipeline, s.names.lanes)
	for _, t := range state.Open {
		if !t.Hanging || !slices.Contains(own, t.ProducerID) {
			continue
		}
		if err := lease.Abort(ctx, s.client, t); err != nil {
			return err
		}
		s.log.Warn("aborted a hanging transaction of an earlier writer", "topic", t.Lane.Topic(),
			"producer", t.ProducerID, "epoch", t.ProducerEpoch, "offset", t.Offset)
	}
	return state.Err()
}
