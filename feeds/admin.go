package feeds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Repair finishes every seal that was left half done, from whatever step it
// reached, trims the WAL, and removes from the bucket what no commit leads to,
// see [Client.Leftovers]. It may be run twice. Where there is a seal to finish it
// takes the lease, and fences whoever writes: a stream that was open stays and
// can be resumed. Otherwise a session that may be at work is left alone, and so
// are leftovers. Beside an error it returns the commits that it made. A
// [*LeftoversError] comes where nothing but leftovers stayed.
func (c *Client) Repair(ctx context.Context, name string) (done []Commit, err error) {
	feed, before, err := c.before(ctx, name)
	if err != nil {
		return nil, err
	}
	needsLease := oldestSeal(before.State.Streams, 0).Number != 0
	if !needsLease {
		if needsLease, err = c.hangs(ctx, feed); err != nil {
			return nil, err
		}
	}
	if !needsLease {
		described, err := c.describe(ctx, feed)
		if err != nil {
			return nil, err
		}
		if err := c.trim(ctx, feed, described); err != nil || isOpen(before.State) || before.State.Deleted {
			return nil, err
		}
		return nil, c.tidyAll(ctx, feed, nil)
	}
	l, err := c.administer(ctx, feed)
	if err != nil {
		return nil, c.taken(ctx, feed, before, err)
	}
	defer func() { err = errors.Join(err, l.release(ctx)) }()
	stop := l.showLife()
	done, err = l.finishSealed(ctx, 0)
	stop()
	if err != nil {
		l.giveUp(ctx)
		return done, err
	}
	return done, errors.Join(l.trim(ctx), c.tidyAll(ctx, feed, l))
}

// NoStreamError says that a feed has no such stream, or none that could be
// discarded.
type NoStreamError struct {
	Feed        string
	Stream      uint64
	Uncommitted []uint64
}

func (e *NoStreamError) Error() string {
	if len(e.Uncommitted) == 0 {
		return fmt.Sprintf("feed %s has no uncommitted stream %d, and no other", e.Feed, e.Stream)
	}
	return fmt.Sprintf("feed %s has no uncommitted stream %d: uncommitted are %v", e.Feed, e.Stream, e.Uncommitted)
}

// Discard takes the lease and drops a stream that has no commit; what was
// appended to it is gone. It fences whoever writes. A stream that is not there
// is a [*NoStreamError], and fences nobody.
func (c *Client) Discard(ctx context.Context, name string, stream uint64, message string) (err error) {
	if err := CheckMessage(name, message); err != nil {
		return err
	}
	feed, before, err := c.before(ctx, name)
	if err != nil {
		return err
	}
	if err := uncommitted(before, name, stream); err != nil {
		return err
	}
	l, err := c.administer(ctx, feed)
	if err != nil {
		return c.taken(ctx, feed, before, err)
	}
	defer func() { err = errors.Join(err, l.release(ctx)) }()
	if err := uncommitted(l.event, name, stream); err != nil {
		return err
	}
	err = l.write(ctx, wire.StreamDiscarded, stream, func(e *wire.Event) {
		e.Message, e.WAL = message, int64(l.ends[feed.WALTopic()].High)
		e.State.Streams = slices.DeleteFunc(e.State.Streams, func(st wire.StreamState) bool { return st.Number == stream })
	})
	if err != nil {
		return c.taken(ctx, feed, before, err)
	}
	tidying, cancel := context.WithTimeout(ctx, lookAtMost)
	defer cancel()
	if err := c.tidyStreams(tidying, feed, l.event.Settings, settled{stream: nil}); err != nil { // it is discarded all the same
		c.cfg.Logger.Warn("what it uploaded stays in the bucket until a repair", "feed", feed, "stream", stream, "err", err)
	}
	return nil
}

// uncommitted is a [*NoStreamError] where the feed has no such stream without
// commit.
func uncommitted(e wire.Event, feed string, stream uint64) error {
	none := &NoStreamError{Feed: feed, Stream: stream, Uncommitted: []uint64{}}
	for _, st := range e.State.Streams {
		if st.Number == stream {
			return nil
		}
		none.Uncommitted = append(none.Uncommitted, st.Number)
	}
	return none
}

// before returns where a feed stands before anybody takes its lease.
func (c *Client) before(ctx context.Context, name string) (topics.Feed, wire.Event, error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return feed, wire.Event{}, err
	}
	if err := c.usable(); err != nil {
		return feed, wire.Event{}, err
	}
	e, err := c.state(ctx, feed)
	return feed, e, err
}

// taken is err, or a [*TakenError] where it says that somebody else took the
// lease. Who that is the log tells, which was at before when it was ours.
func (c *Client) taken(ctx context.Context, feed topics.Feed, before wire.Event, err error) error {
	if kafkaerr.Classify(err) != kafkaerr.Fenced {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, causeTimeout)
	defer cancel()
	t := &TakenError{Feed: feed.String(), Cause: err}
	e, serr := c.state(ctx, feed)
	switch {
	case errors.Is(serr, ErrNoFeed) || serr == nil && before.Settings.ID != "" && e.Settings.ID != before.Settings.ID:
		t.Gone = before.Settings.ID != ""
	case serr == nil && e.State.Epoch > before.State.Epoch && *e.State.Holder != *c.holder():
		t.Holder, t.Epoch = *e.State.Holder, e.State.Epoch
	}
	return t
}

// administer takes the lease for work on what others left.
func (c *Client) administer(ctx context.Context, feed topics.Feed) (*lease, error) {
	l, err := c.take(ctx, feed)
	if err != nil {
		return nil, err
	}
	if err := l.begin(ctx, wire.LeaseTaken, 0); err != nil {
		return nil, errors.Join(err, l.release(ctx))
	}
	return l, nil
}
