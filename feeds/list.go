package feeds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// List returns the names of the feeds that the client may see, sorted.
func (c *Client) List(ctx context.Context) ([]string, error) {
	all, err := c.admin.Read(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list feeds: %w", err)
	}
	var names []string
	for _, topic := range all.Names {
		if feed, err := topics.ParseFeedLogTopic(topic); err == nil {
			names = append(names, feed.String())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Stream is a stream that has no commit.
type Stream struct {
	Number  uint64
	State   string // "open", "abandoned" or "sealed"
	Last    uint64 // last sequence
	Bytes   uint64 // keys and payloads
	Message string // of a sealed stream
}

// Description is a feed as its log and its WAL tell.
type Description struct {
	Feed     string
	Settings Settings
	Holder   Holder
	Epoch    uint64
	Streams  []Stream  // without commit, by number
	Commits  uint64    // number of the newest
	Newest   uint64    // number of the newest stream
	Event    string    // the newest event
	At       time.Time // when it was written
	Appended time.Time // newest append to a stream that is not sealed; zero for none
	Deleting bool
	// Half says that its WAL is gone and its log is left: nothing but
	// [Client.Delete] is left to do, and what Streams tell is from the log alone.
	Half bool
}

// Describe returns what is on record of a feed. It takes no lease.
func (c *Client) Describe(ctx context.Context, name string) (Description, error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return Description{}, err
	}
	e, err := c.state(ctx, feed)
	if err != nil {
		return Description{}, err
	}
	d := Description{
		Feed: name, Settings: e.Settings, Holder: *e.State.Holder, Epoch: e.State.Epoch, Commits: e.State.Commits,
		Newest: e.State.Newest, Event: string(e.Kind), At: e.At, Deleting: e.State.Deleted,
	}
	wal := feed.WALTopic()
	ends, err := partition.LookUp(ctx, c.client, wal)
	if kafkaerr.Classify(err) == kafkaerr.Missing {
		d.Deleting, d.Half = true, true
	} else if err != nil {
		return d, err
	}
	for _, st := range e.State.Streams {
		s := Stream{Number: st.Number, State: string(st.Step), Last: st.Last, Bytes: st.Bytes, Message: st.Message}
		if st.Step != wire.StreamMarked && !d.Half {
			// Somebody may be appending to an open one: what can be read now.
			tail, err := c.tailOf(ctx, feed, ends[wal], st)
			if _, hole := errors.AsType[*HoleError](err); err != nil && !hole {
				return d, err
			}
			if tail.Last > s.Last {
				s.Last, s.Bytes = tail.Last, tail.Bytes
			}
			if tail.At.After(d.Appended) {
				d.Appended = tail.At
			}
		}
		d.Streams = append(d.Streams, s)
	}
	return d, nil
}

// Held reports whether a session may be at work: a stream is open, or one is
// being sealed. One that ended in order has said so. Of one that died a stream
// stays open; the seal that it was in counts for five minutes, within which
// somebody who is alive shows that.
func (d Description) Held() bool {
	if d.Half {
		return false // nobody can append
	}
	open := slices.ContainsFunc(d.Streams, func(s Stream) bool { return s.State == string(wire.StreamOpen) })
	return open || sealing(d.Streams, wire.EventKind(d.Event), d.At, time.Now())
}

// Unsealed returns how many bytes of keys and payloads wait for a commit, of
// which there may be Settings.MaxUnsealedBytes.
func (d Description) Unsealed() uint64 {
	sum := uint64(0)
	for _, s := range d.Streams {
		sum += s.Bytes
	}
	return sum
}

// HalfFull reports whether more than half of what may wait for a commit does.
func (d Description) HalfFull() bool { return halfFull(d.Settings, d.Unsealed()) }

func halfFull(s Settings, unsealed uint64) bool { return unsealed > s.MaxUnsealedBytes/2 }

// tailOf returns the newest append of a stream that is open, which the WAL
// knows; all of it is zero where the stream is empty. It is a [*HoleError]
// where the WAL lacks what the log says was there.
func (c *Client) tailOf(ctx context.Context, feed topics.Feed, ends partition.Ends, st wire.StreamState) (wire.Append, error) {
	var newest wire.Append
	_, err := partition.Newest(ctx, c.cfg.Client, feed.WALTopic(), ends, flusso.Offset(st.From), matchStream(st.Number, &newest))
	if err != nil {
		return wire.Append{}, fmt.Errorf("find the last sequence of stream %d of feed %s: %w", st.Number, feed, err)
	}
	if newest.Last < st.Last {
		return wire.Append{}, &HoleError{Feed: feed.String(), Stream: st.Number, Want: newest.Last + 1, Got: st.Last + 1, Offset: ends.Start}
	}
	return newest, nil
}
