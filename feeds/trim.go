package feeds

import (
	"context"
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// trim is step 4: the WAL below the oldest stream that has no commit goes,
// once everybody has had the grace to read it there.
func (l *lease) trim(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	e := l.event
	l.pass()
	upTo, err := l.client.trimTo(ctx, l, e)
	if err != nil || upTo <= 0 {
		return err
	}
	wal := l.feed.WALTopic()
	if _, err := l.client.admin.TrimTopic(ctx, wal, l.topics[wal].ID, upTo); err != nil {
		return fmt.Errorf("trim the WAL of feed %s below offset %s: it is tried again at the next seal, or by `flusso-kafka-admin feed repair %s`: %w", l.feed, upTo, l.feed, err)
	}
	return nil
}

// trimTo is the offset below which nobody needs the WAL any more: that of the
// newest commit older than the grace, and of no uncommitted stream.
func (c *Client) trimTo(ctx context.Context, l *lease, newest wire.Event) (flusso.Offset, error) {
	upTo := flusso.Offset(0)
	old := time.Now().Add(-max(0, c.cfg.TrimGrace))
	for e, err := range c.events(ctx, l.feed) {
		if err != nil {
			return 0, err
		}
		if e.Kind == wire.StreamCommitted && !e.At.After(old) {
			upTo = max(upTo, flusso.Offset(e.Commit.WAL))
		}
	}
	for _, st := range newest.State.Streams {
		upTo = min(upTo, flusso.Offset(st.From))
	}
	return upTo, nil
}
