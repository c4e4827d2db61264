package feeds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/markers"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/topics"
)

// endHanging ends what a broker left open of writers before: see [markers]. It
// is called under the lease, so that nothing of theirs is under way any more.
func (l *lease) endHanging(ctx context.Context) error {
	ids := make(map[int64]string)
	for i, producer := range l.seg.ProducerIDs() {
		ids[producer] = l.feed.WriterID(i)
	}
	ended, err := markers.End(ctx, l.client.client, l.client.cfg.Client, ids, l.feed.LogTopic(), l.feed.WALTopic())
	for _, t := range ended {
		l.client.cfg.Logger.Warn("ended a transaction of an earlier writer as its coordinator had decided it: a broker had left out its marker",
			"topic", t.Topic, "offset", t.Offset, "producer", t.ProducerID, "epoch", t.ProducerEpoch, "committed", t.Committed)
	}
	return err
}

// hangs reports whether a broker left something of the feed's writers open: it
// stays open in the log after its coordinator was done with it.
func (c *Client) hangs(ctx context.Context, feed topics.Feed) (bool, error) {
	open, err := c.opened(ctx, feed)
	if err != nil || len(open) == 0 {
		return false, err
	}
	ids := make([]string, topics.WriterIDs)
	for i := range ids {
		ids[i] = feed.WriterID(i)
	}
	described, err := kadm.NewClient(c.client).DescribeTransactions(ctx, ids...)
	if err != nil {
		return false, kafkaerr.Wrap("describe the transactional ids of feed "+feed.String(), err)
	}
	open = slices.DeleteFunc(open, func(t markers.Transaction) bool {
		for _, id := range described {
			if id.ProducerID == t.ProducerID && id.Err == nil {
				return !markers.Over(id.State)
			}
		}
		return true // somebody else's
	})
	if len(open) == 0 || sleep(ctx, markers.Settle) != nil {
		return false, context.Cause(ctx)
	}
	still, err := c.opened(ctx, feed)
	return slices.ContainsFunc(still, func(t markers.Transaction) bool {
		return slices.ContainsFunc(open, func(o markers.Transaction) bool {
			return o.Topic == t.Topic && o.ProducerID == t.ProducerID && o.Offset == t.Offset
		})
	}), err
}

func (c *Client) opened(ctx context.Context, feed topics.Feed) ([]markers.Transaction, error) {
	open, failed := markers.Open(ctx, c.client, feed.LogTopic(), feed.WALTopic())
	for _, err := range failed {
		return nil, fmt.Errorf("look for what is open in feed %s: %w", feed, err)
	}
	return open, nil
}

// stable waits until nothing is open in the feed's topics. What writers before
// had open was aborted by the fencing, or decided before it: where its markers
// were lost with a broker it would stay for ever, and with it what somebody was
// told is durable.
func (l *lease) stable(ctx context.Context) (map[string]partition.Ends, error) {
	names := []string{l.feed.LogTopic(), l.feed.WALTopic()}
	settling, cancel := context.WithTimeout(ctx, markers.Settle)
	ends, err := partition.AwaitStable(settling, l.client.client, names...)
	cancel()
	if _, open := errors.AsType[*partition.OpenTransactionError](err); !open || ctx.Err() != nil {
		return ends, err
	}
	if err := l.endHanging(ctx); err != nil {
		return nil, err
	}
	return partition.AwaitStable(ctx, l.client.client, names...)
}
