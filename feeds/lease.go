package feeds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// stableAtMost bounds how long an opener waits for foreign transactions: those
// of writers before it were aborted by the fencing.
const stableAtMost = 30 * time.Second

// lease is the writer lease of a feed, held: every writer before is fenced.
type lease struct {
	client *Client
	feed   topics.Feed
	seg    *segment.Session
	topics map[string]topics.Topic   // the feed's, by name
	ends   map[string]partition.Ends // when the lease was taken

	// turn is held by whoever writes; a channel, since waiting for it must
	// honour a context.
	turn  chan struct{}
	found bool       // whether the feed has any event
	event wire.Event // the newest: nobody else writes any; belongs to the holder of the turn

	first *publication // the event by which it comes on record; nil before it was handed over
}

// takeTurn waits for the turn.
func (l *lease) takeTurn(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lease) passTurn() { <-l.turn }

// state reads the newest event without taking the lease. It is an [ErrNoFeed]
// where there is none.
func (c *Client) state(ctx context.Context, feed topics.Feed) (wire.Event, error) {
	ends, err := partition.LookUp(ctx, c.client, feed.LogTopic())
	if kafkaerr.Classify(err) == kafkaerr.Missing {
		return wire.Event{}, fmt.Errorf("feed %s: %w: create it first", feed, ErrNoFeed)
	}
	if err != nil {
		return wire.Event{}, err
	}
	e, found, err := c.newestEvent(ctx, feed, c.readable(ctx, feed.LogTopic(), ends[feed.LogTopic()]))
	if err == nil && !found {
		err = fmt.Errorf("feed %s: its log holds no event: %w: create it first", feed, ErrNoFeed)
	}
	return e, err
}

// markersAtMost bounds the wait for the end of a transaction that may have been
// committed already.
const markersAtMost = 2 * time.Second

// readable waits, not for long, until what was durable at ends can be read: a
// broker may acknowledge a commit some milliseconds before it shows it.
func (c *Client) readable(ctx context.Context, topic string, ends partition.Ends) partition.Ends {
	ctx, cancel := context.WithTimeout(ctx, markersAtMost)
	defer cancel()
	for high := ends.High; ends.Stable < high; {
		if sleep(ctx, markersPoll) != nil {
			break
		}
		now, err := partition.LookUp(ctx, c.client, topic)
		if err != nil {
			break // what is known has to do
		}
		ends = now[topic]
	}
	return ends
}

const markersPoll = 5 * time.Millisecond

func (c *Client) newestEvent(ctx context.Context, feed topics.Feed, ends partition.Ends) (e wire.Event, found bool, err error) {
	r, err := partition.Newest(ctx, c.cfg.Client, feed.LogTopic(), ends, ends.Start, func(*kgo.Record) (bool, error) { return true, nil })
	if err != nil {
		return e, false, fmt.Errorf("read the log of feed %s: %w", feed, err)
	}
	if r == nil {
		return e, false, nil
	}
	e, err = wire.DecodeEvent(r)
	if err != nil {
		return e, false, fmt.Errorf("read the log of feed %s: %w", feed, err)
	}
	return e, true, nil
}

// take fences every earlier writer, then reads where the feed stands. The
// order is what makes it safe: read first, and a zombie could write in between.
func (c *Client) take(ctx context.Context, feed topics.Feed) (*lease, error) {
	described, err := c.describe(ctx, feed)
	if err != nil {
		return nil, err
	}
	seg, err := segment.Open(ctx, c.segmentConfig(feed, described))
	if err != nil {
		return nil, fmt.Errorf("take the lease of feed %s: %w", feed, err)
	}
	l := &lease{client: c, feed: feed, seg: seg, topics: described, turn: make(chan struct{}, 1)}
	if err := l.read(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take the lease of feed %s: %w", feed, err), l.release(ctx))
	}
	reached(stepTaken)
	return l, nil
}

func (l *lease) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stableAtMost)
	defer cancel()
	var err error
	if l.ends, err = l.stable(ctx); err != nil {
		return err
	}
	l.event, l.found, err = l.client.newestEvent(ctx, l.feed, l.ends[l.feed.LogTopic()])
	return err
}

// matchStream matches the appends of a stream and keeps the newest.
func matchStream(stream uint64, newest *wire.Append) func(*kgo.Record) (bool, error) {
	return func(r *kgo.Record) (bool, error) {
		a, ok, err := wire.AppendOf(r)
		if err != nil || !ok || a.Stream != stream {
			return false, err
		}
		*newest = a
		return true, nil
	}
}

// publish writes an event under the lease and returns when it is durable. The
// caller holds the turn, or is alone.
func (l *lease) publish(ctx context.Context, e wire.Event) error {
	p, err := l.submit(ctx, e)
	if err != nil {
		return err
	}
	return p.wait(ctx)
}

// publication is an event that was accepted for writing. It may become durable
// although nobody waits for it any more.
type publication struct {
	event wire.Event
	done  chan struct{}
	err   error // set before done is closed
}

// wait waits until the event is durable, or certainly or possibly not. When ctx
// ends first it is ctx's error, and another wait may tell.
func (p *publication) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("wait for event %s: %w", p.event.Kind, context.Cause(ctx))
	}
}

// submit hands an event over. From then on it is the newest one of this lease,
// whether or not somebody waits for it: events commit in their order, and with
// one that does not the lease ends. The caller holds the turn, or is alone.
func (l *lease) submit(ctx context.Context, e wire.Event) (*publication, error) {
	topic := l.feed.LogTopic()
	r, err := wire.EncodeEvent(topic, e)
	if err != nil {
		return nil, err
	}
	if size, most := len(r.Value)+eventOverhead, int(largest(l.topics[topic])); size > most {
		return nil, &flusso.LimitError{
			What: fmt.Sprintf("event %s of feed %s, with the messages of the streams that have no commit", e.Kind, l.feed), Limit: "record size",
			Value: int64(size), Max: int64(most), Setting: "max.message.bytes of topic " + topic,
		}
	}
	p := &publication{event: e, done: make(chan struct{})}
	err = l.seg.Submit(ctx, segment.Entry{
		Bytes:  len(r.Value),
		Encode: func() ([]*kgo.Record, error) { return []*kgo.Record{r}, nil },
		Resolve: func(err error) {
			if err != nil {
				p.err = fmt.Errorf("write event %s of feed %s: %w", e.Kind, l.feed, err)
			}
			close(p.done)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("write event %s of feed %s: %w", e.Kind, l.feed, err)
	}
	l.event, l.found = e, true
	return p, nil
}

// eventOverhead is what an event takes in its record batch beside its text, at most.
const eventOverhead = 256

// write publishes the event that follows the newest one; change says what is
// new in it. The caller holds the turn, or is alone.
func (l *lease) write(ctx context.Context, kind wire.EventKind, stream uint64, change func(*wire.Event)) error {
	return l.publish(ctx, l.next(kind, stream, change))
}

// next is the event that follows the newest one.
func (l *lease) next(kind wire.EventKind, stream uint64, change func(*wire.Event)) wire.Event {
	e := l.event
	e.Kind, e.At, e.Stream, e.Message, e.Commit, e.WAL = kind, time.Now(), stream, "", nil, 0
	e.State.Streams = slices.Clone(e.State.Streams)
	change(&e)
	return e
}

// releaseAtMost bounds the release of a lease, whose user may have given up.
const releaseAtMost = 5 * time.Second

// release closes the segment session. The lease stays on record as ours until
// somebody takes it.
func (l *lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseAtMost)
	defer cancel()
	return l.seg.Close(ctx)
}
