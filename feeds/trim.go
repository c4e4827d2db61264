package feeds

import (
	"context"
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
	wal := feed.WALTopic()
	upTo, err := c.trimTo(ctx, feed)
	if err != nil || upTo <= 0 {
		return err
	}
	ends, err := partition.LookUp(ctx, c.client, wal)
	if err != nil || upTo <= ends[wal].Start {
		return err
	}
	if _, err := c.admin.TrimTopic(ctx, wal, described[wal].ID, upTo); err != nil {
		return fmt.Errorf("trim the WAL of feed %s below offset %s: it is tried again at the next seal, or by `flusso-kafka-admin feed repair %s`: %w", feed, upTo, feed, err)
	}
	reached(stepTrimmed)
	return nil
}

func (l *lease) trim(ctx context.Context) error { return l.client.trim(ctx, l.feed, l.topics) }

// trimTo is the offset below which nobody needs the WAL any more, 0 for none.
//
// It comes from the feed's own events alone: a stream that had no commit at any
// time within the grace protects what lies from its beginning on, and where no
// stream does, what was committed or discarded before marks the end. It is
// taken from the log as it is now, never from what a holder remembers, which
// may be one that was fenced long ago.
func (c *Client) trimTo(ctx context.Context, feed topics.Feed) (flusso.Offset, error) {
	old := time.Now().Add(-max(0, c.cfg.TrimGrace))
	var (
		protected = flusso.NoOffset
		upTo      flusso.Offset
		settled   bool // an event that is older than the grace was seen
	)
	for e, err := range c.eventsBackwards(ctx, feed) {
		if err != nil {
			return 0, err
		}
		if !settled {
			for _, st := range e.State.Streams {
				if from := flusso.Offset(st.From); protected == flusso.NoOffset || from < protected {
					protected = from
				}
			}
		}
		if settled = settled || !e.At.After(old); !settled {
			continue
		}
		if protected != flusso.NoOffset {
			return protected, nil
		}
		if e.Kind == wire.StreamCommitted {
			upTo = max(upTo, flusso.Offset(e.Commit.WAL))
		}
		if e.Kind == wire.StreamDiscarded {
			upTo = max(upTo, flusso.Offset(e.WAL))
		}
		if upTo > 0 {
			return upTo, nil
		}
	}
	return 0, nil // all of it is younger than the grace
}
