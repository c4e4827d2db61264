package feeds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Repair takes the lease and finishes every seal that was left half done, from
// whatever step it reached, and trims the WAL. It may be run twice. It fences
// whoever writes: a stream that was open stays and can be resumed. Beside an
// error it returns the commits that it made.
func (c *Client) Repair(ctx context.Context, name string) (_ []Commit, err error) {
	l, err := c.administer(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.release(ctx)) }()
	done, err := l.finishSealed(ctx)
	if err != nil {
		return done, err
	}
	return done, l.trim(ctx)
}

// NoStreamError says that a feed has no such stream, or none that could be
// discarded.
type NoStreamError struct {
	Feed        string
	Stream      uint64
	Uncommitted []uint64
}

func (e *NoStreamError) Error() string {
	return fmt.Sprintf("feed %s has no uncommitted stream %d: uncommitted are %v", e.Feed, e.Stream, e.Uncommitted)
}

// Discard takes the lease and drops a stream that has no commit; what was
// appended to it is gone. It fences whoever writes.
func (c *Client) Discard(ctx context.Context, name string, stream uint64, message string) (err error) {
	if err := checkMessage(name, message); err != nil {
		return err
	}
	l, err := c.administer(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.release(ctx)) }()
	if l.stateOf(stream).Number == 0 {
		e := &NoStreamError{Feed: name, Stream: stream, Uncommitted: []uint64{}}
		for _, st := range l.event.State.Streams {
			e.Uncommitted = append(e.Uncommitted, st.Number)
		}
		return e
	}
	return l.write(ctx, wire.StreamDiscarded, stream, func(e *wire.Event) {
		e.Message = message
		e.State.Streams = slices.DeleteFunc(e.State.Streams, func(st wire.StreamState) bool { return st.Number == stream })
	})
}

// administer takes the lease for work on what others left.
func (c *Client) administer(ctx context.Context, name string) (*lease, error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return nil, err
	}
	if err := c.usable(); err != nil {
		return nil, err
	}
	if _, err := c.state(ctx, feed); err != nil {
		return nil, err
	}
	l, err := c.take(ctx, feed)
	if err != nil {
		return nil, err
	}
	if err := l.begin(ctx, wire.LeaseTaken, 0); err != nil {
		return nil, errors.Join(err, l.release(ctx))
	}
	return l, nil
}
