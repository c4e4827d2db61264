package feeds

import (
	"context"
	"errors"
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// trim is step 4: the WAL below the oldest stream that has no commit goes,
// once everybody has had the grace to read it there. It needs no lease: what
// the log says may go, nobody can come to need again.
func (c *Client) trim(ctx context.Context, feed topics.Feed, described map[string]topics.Topic) error {
	plan := c.newTrimming()
	for e, err := range c.eventsBackwards(ctx, feed) {
		if err != nil {
			return err
		}
		if plan.see(e) {
			break
		}
	}
	return c.trimTo(ctx, feed, described, plan.upTo)
}

func (l *lease) trim(ctx context.Context) error { return l.client.trim(ctx, l.feed, l.topics) }

func (c *Client) trimTo(ctx context.Context, feed topics.Feed, described map[string]topics.Topic, upTo flusso.Offset) error {
	if upTo <= 0 {
		return nil
	}
	wal := feed.WALTopic()
	ends, err := partition.LookUp(ctx, c.client, wal)
	if err != nil || upTo <= ends[wal].Start {
		return err
	}
	if _, err := c.admin.TrimTopic(ctx, wal, described[wal].ID, upTo); err != nil {
		return fmt.Errorf("trim the WAL of feed %s below offset %s: it is tried again at the next seal, or by `flusso-kafka-admin feed repair %s --yes`: %w", feed, upTo, feed, err)
	}
	reached(stepTrimmed)
	return nil
}

// trimming finds the offset below which nobody needs the WAL any more.
//
// It comes from the feed's own events alone: a stream that had no commit at any
// time within the grace protects what lies from its beginning on, and where no
// stream does, what was committed or discarded before marks the end. It is
// taken from the log as it is now, never from what a holder remembers, which
// may be one that was fenced long ago.
type trimming struct {
	grace time.Duration
	old   time.Time
	upTo  flusso.Offset // 0 for none
	again time.Time     // when the grace of what was settled within it is over; zero for nothing

	protected flusso.Offset
	pastGrace bool // an event that is older than the grace was seen
}

func (c *Client) newTrimming() *trimming {
	grace := max(0, c.cfg.TrimGrace)
	return &trimming{grace: grace, old: time.Now().Add(-grace), protected: flusso.NoOffset}
}

// see takes the event before those that it saw, and returns whether it has seen
// enough. A log that ends earlier is all younger than the grace.
func (t *trimming) see(e wire.Event) (enough bool) {
	if !t.pastGrace {
		for _, st := range e.State.Streams {
			if from := flusso.Offset(st.From); t.protected == flusso.NoOffset || from < t.protected {
				t.protected = from
			}
		}
	}
	if t.pastGrace = t.pastGrace || !e.At.After(t.old); !t.pastGrace {
		if e.Kind == wire.StreamCommitted || e.Kind == wire.StreamDiscarded {
			t.again = e.At.Add(t.grace)
		}
		return false
	}
	switch {
	case t.protected != flusso.NoOffset:
		t.upTo = t.protected
	case e.Kind == wire.StreamCommitted:
		t.upTo = flusso.Offset(e.Commit.WAL)
	case e.Kind == wire.StreamDiscarded:
		t.upTo = flusso.Offset(e.WAL)
	}
	return t.upTo > 0 || t.protected != flusso.NoOffset
}

// housekeep trims the WAL and removes leftovers for as long as the session lives,
// also when its stream is sealed: at once, and when the grace of a commit is over.
func (s *Session) housekeep() {
	for {
		again, err := s.tidyAndTrim(s.life)
		if err != nil && s.life.Err() == nil && !s.endIfDeleted(s.life) {
			s.client.cfg.Logger.Warn("keep the bucket and the WAL of a feed tidy: it is tried again", "feed", s.feed, "err", err)
		}
		if err != nil {
			again = time.Now().Add(longestPause)
		}
		var due <-chan time.Time // never
		if !again.IsZero() {
			due = time.After(time.Until(again) + markersPoll)
		}
		select {
		case <-due:
		case <-s.settledOne:
		case <-s.life.Done():
			return
		}
	}
}

// tidyAndTrim removes leftovers of what was settled not long ago, and what nobody
// needs of the WAL; it returns when there is more to trim, zero for never.
func (s *Session) tidyAndTrim(ctx context.Context) (again time.Time, err error) {
	trim, tidy := s.client.newTrimming(), newTidying()
	trimmed := false
	for e, err := range s.client.eventsBackwards(ctx, s.feed) {
		if err != nil {
			return again, err
		}
		if e.Settings.ID != s.settings.ID {
			return again, deletedMeanwhile(s.feed)
		}
		trimmed = trimmed || trim.see(e)
		if tidied := tidy.see(e); trimmed && tidied {
			break
		}
	}
	return trim.again, errors.Join(
		s.client.tidyStreams(ctx, s.feed, s.settings, tidy.streams()),
		s.client.trimTo(ctx, s.feed, s.topics, trim.upTo),
	)
}

// settledNow lets housekeep look: a stream was committed.
func (s *Session) settledNow() {
	select {
	case s.settledOne <- struct{}{}:
	default: // it looks anyway
	}
}
