package feeds

import (
	"context"
	"fmt"
	"iter"

	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// History iterates over a feed's commits in their order [E13]: those that are
// on record when it begins. An error ends the iteration: [ErrNoFeed], and what
// the brokers answered.
func (c *Client) History(ctx context.Context, name string) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		feed, err := topics.NewFeed(name)
		if err != nil {
			yield(Commit{}, err)
			return
		}
		for e, err := range c.events(ctx, feed) {
			if err != nil {
				yield(Commit{}, err)
				return
			}
			if e.Kind == wire.StreamCommitted && !yield(commitOf(e), nil) {
				return
			}
		}
	}
}

// events iterates over a feed's log up to where it ends now, open transactions
// waited for: what was durable before the call is there.
func (c *Client) events(ctx context.Context, feed topics.Feed) iter.Seq2[wire.Event, error] {
	topic := feed.LogTopic()
	return func(yield func(wire.Event, error) bool) {
		if _, err := c.state(ctx, feed); err != nil { // tells a feed that is not there
			yield(wire.Event{}, err)
			return
		}
		ends, err := partition.LookUp(ctx, c.client, topic)
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		r, err := partition.NewReader(c.cfg.Client, topic, ends[topic].Start)
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		defer r.Close()
		for r.Next() < ends[topic].High {
			rec, err := r.Read(ctx)
			if err != nil {
				yield(wire.Event{}, fmt.Errorf("read the log of feed %s: %w", feed, err))
				return
			}
			if rec.Attrs.IsControl() {
				continue
			}
			e, err := wire.DecodeEvent(rec)
			if err != nil {
				yield(wire.Event{}, fmt.Errorf("read the log of feed %s: %w", feed, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}
