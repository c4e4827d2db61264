package feeds

import (
	"context"
	"fmt"
	"iter"
	"slices"

	flusso "github.com/flusso/flusso-kafka"

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
// waited for: what was durable before the call is there. All are of one feed:
// where it was deleted meanwhile it ends with an [ErrNoFeed].
func (c *Client) events(ctx context.Context, feed topics.Feed) iter.Seq2[wire.Event, error] {
	topic := feed.LogTopic()
	return func(yield func(wire.Event, error) bool) {
		newest, err := c.state(ctx, feed) // tells a feed that is not there
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		ends, err := partition.LookUp(ctx, c.client, topic)
		if err != nil {
			yield(wire.Event{}, c.orDeleted(ctx, feed, newest.Settings.ID, err))
			return
		}
		for e, err := range c.eventsWithin(ctx, feed, ends[topic].Start, ends[topic].High) {
			if err != nil {
				err = c.orDeleted(ctx, feed, newest.Settings.ID, err)
			} else if e.Settings.ID != newest.Settings.ID {
				err = deletedMeanwhile(feed) // and created anew
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// eventsWithin iterates over the events of a feed's log within [from, to).
func (c *Client) eventsWithin(ctx context.Context, feed topics.Feed, from, to flusso.Offset) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		if from >= to {
			return
		}
		r, err := partition.NewReader(c.cfg.Client, feed.LogTopic(), from)
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		defer r.Close()
		for r.Next() < to {
			rec, err := r.Read(ctx)
			if err != nil {
				yield(wire.Event{}, fmt.Errorf("read the log of feed %s: %w", feed, err))
				return
			}
			if rec.Attrs.IsControl() || flusso.Offset(rec.Offset) >= to {
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

// eventsWindow is how many offsets of the log are read at a time, backwards: an
// event takes two.
const eventsWindow = 256

// eventsBackwards iterates over a feed's events, the newest first: those that
// are on record when it begins. A long history is not read for what is recent.
func (c *Client) eventsBackwards(ctx context.Context, feed topics.Feed) iter.Seq2[wire.Event, error] {
	topic := feed.LogTopic()
	return func(yield func(wire.Event, error) bool) {
		ends, err := partition.LookUp(ctx, c.client, topic)
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		window := flusso.Offset(eventsWindow)
		for to := ends[topic].High; to > ends[topic].Start; window *= 2 {
			from := max(ends[topic].Start, to-window)
			var some []wire.Event
			for e, err := range c.eventsWithin(ctx, feed, from, to) {
				if err != nil {
					yield(wire.Event{}, err)
					return
				}
				some = append(some, e)
			}
			for _, e := range slices.Backward(some) {
				if !yield(e, nil) {
					return
				}
			}
			to = from
		}
	}
}
