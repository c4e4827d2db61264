package feeds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Open allocates a new stream and takes the feed's writer lease: the session
// before, if any, is fenced [E1, E14]. It never waits for the bucket. A stream
// that was left open stays until it is resumed or discarded, see
// [Session.Left].
//
// Errors: [ErrNoFeed], [ErrDeleting], a [*StreamsError]; what the brokers
// answered; ctx's. Refusals that can be known before fence nobody. An
// [*OpenError] names the stream that is, or may be, on record although there is
// no session; with every other error there is none.
func (c *Client) Open(ctx context.Context, name string) (*Session, error) {
	return c.session(ctx, name, planOpen)
}

// Resume takes the lease and reattaches to the latest stream that is not
// sealed: a new epoch, the same stream, the next sequence [E16]. With nothing
// unsealed it is an [ErrNoOpenStream], and fences nobody. Other errors are
// those of Open.
func (c *Client) Resume(ctx context.Context, name string) (*Session, error) {
	return c.session(ctx, name, planResume)
}

// ResumeStream is Resume of the stream of that number, whichever was opened
// last. One that has a commit, or is sealed, is a [*NoStreamError].
func (c *Client) ResumeStream(ctx context.Context, name string, stream uint64) (*Session, error) {
	return c.session(ctx, name, func(e wire.Event, feed string) (wire.EventKind, uint64, error) {
		var open []uint64
		for _, st := range e.State.Streams {
			if st.Step == wire.StreamMarked {
				continue
			}
			if st.Number == stream {
				return wire.StreamResumed, stream, nil
			}
			open = append(open, st.Number)
		}
		return "", 0, &NoStreamError{Feed: feed, Stream: stream, Uncommitted: open}
	})
}

// planner decides from a feed's newest event what a session is going to be: by
// which event it comes on record, and on which stream.
type planner func(e wire.Event, feed string) (wire.EventKind, uint64, error)

func planOpen(e wire.Event, feed string) (wire.EventKind, uint64, error) {
	if n := len(e.State.Streams); n >= MaxStreams {
		numbers := make([]uint64, n)
		for i, st := range e.State.Streams {
			numbers[i] = st.Number
		}
		return "", 0, &StreamsError{Feed: feed, Streams: numbers}
	}
	return wire.StreamOpened, e.State.Newest + 1, nil
}

func planResume(e wire.Event, feed string) (wire.EventKind, uint64, error) {
	for _, st := range slices.Backward(e.State.Streams) {
		if st.Step != wire.StreamMarked {
			return wire.StreamResumed, st.Number, nil
		}
	}
	return "", 0, fmt.Errorf("resume feed %s: %w", feed, ErrNoOpenStream)
}

func (p planner) decide(e wire.Event, feed string) (wire.EventKind, uint64, error) {
	if e.State.Deleted {
		return "", 0, &DeletingError{Feed: feed}
	}
	return p(e, feed)
}

func (c *Client) session(ctx context.Context, name string, plan planner) (_ *Session, err error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return nil, err
	}
	if err := c.usable(); err != nil {
		return nil, err
	}
	before, err := c.state(ctx, feed)
	if err != nil {
		return nil, err
	}
	if _, _, err := plan.decide(before, name); err != nil {
		return nil, err
	}
	l, err := c.take(ctx, feed)
	if err != nil {
		return nil, err
	}
	var (
		kind   wire.EventKind
		number uint64
	)
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, l.release(ctx))
		if onRecord, known := l.begun(); onRecord || !known {
			err = &OpenError{Feed: name, Stream: number, Resumed: kind == wire.StreamResumed, Unknown: !known, Cause: err}
		}
	}()
	if !l.found {
		return nil, fmt.Errorf("feed %s: %w: create it first", feed, ErrNoFeed)
	}
	if kind, number, err = plan.decide(l.event, name); err != nil {
		return nil, err
	}
	if err := l.begin(ctx, kind, number); err != nil {
		return nil, err
	}
	return c.start(l, number)
}

// outcomeAtMost bounds the wait for what became of an event when its session
// is closed, which ends it right after.
const outcomeAtMost = time.Second

// begun reports, when the lease is released, whether its first event came on
// record, and whether that is known.
func (l *lease) begun() (onRecord, known bool) {
	if l.first == nil {
		return false, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), outcomeAtMost)
	defer cancel()
	select {
	case <-l.first.done:
		return l.first.err == nil, !errors.Is(l.first.err, flusso.ErrUnknownOutcome)
	case <-ctx.Done():
		return false, false
	}
}

// usable refuses what comes after Close.
func (c *Client) usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("feed client: %w", flusso.ErrClosed)
	}
	return nil
}

// begin publishes the event by which this holder comes on record: it opens or
// resumes a stream, or works on what others left (stream 0). A stream that was
// open and is not the one is abandoned.
func (l *lease) begin(ctx context.Context, kind wire.EventKind, stream uint64) error {
	tails := make(map[uint64]wire.Append)
	for _, st := range l.event.State.Streams {
		resumed := kind == wire.StreamResumed && st.Number == stream
		if st.Step != wire.StreamOpen && !resumed {
			continue
		}
		tail, err := l.client.tailOf(ctx, l.feed, l.ends[l.feed.WALTopic()], st)
		if _, hole := errors.AsType[*HoleError](err); hole && !resumed {
			continue // whoever resumes it is told
		}
		if err != nil {
			return err
		}
		if st.Step == wire.StreamOpen {
			tails[st.Number] = tail
		}
	}
	p, err := l.submit(ctx, l.next(kind, stream, func(e *wire.Event) {
		e.State.Epoch++
		e.State.Holder = l.client.holder()
		for i := range e.State.Streams {
			st := &e.State.Streams[i]
			if tail, known := tails[st.Number]; known {
				st.Last, st.Bytes = tail.Last, tail.Bytes
			}
			if st.Step == wire.StreamOpen {
				st.Step = wire.StreamAbandoned
			}
			if st.Number == stream {
				st.Step, st.Epoch = wire.StreamOpen, e.State.Epoch
			}
		}
		if kind == wire.StreamOpened {
			e.State.Newest = stream
			e.State.Streams = append(e.State.Streams, wire.StreamState{
				Number: stream, Step: wire.StreamOpen, From: int64(l.ends[l.feed.WALTopic()].High), Epoch: e.State.Epoch,
			})
		}
	}))
	if err != nil {
		return err
	}
	l.first = p
	if err := p.wait(ctx); err != nil {
		return err
	}
	reached(stepBegun)
	return nil
}
