package feeds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/topics"
)

// deletedMeanwhile is an [ErrNoFeed]: the feed was deleted while somebody was at
// work on it, whether or not another one has its name by now.
func deletedMeanwhile(feed topics.Feed) error {
	return fmt.Errorf("feed %s was deleted while it was read: %w", feed, ErrNoFeed)
}

// orDeleted is err, or that the feed of that id was deleted, where this is why
// it could not be read.
func (c *Client) orDeleted(ctx context.Context, feed topics.Feed, id string, err error) error {
	if class := kafkaerr.Classify(err); class == kafkaerr.Missing || class == kafkaerr.Recreated {
		return deletedMeanwhile(feed)
	}
	if _, gone := errors.AsType[*partition.GoneError](err); !gone {
		return err
	}
	// Of a log nothing is ever trimmed.
	if e, serr := c.state(ctx, feed); errors.Is(serr, ErrNoFeed) || serr == nil && e.Settings.ID != id {
		return deletedMeanwhile(feed)
	}
	return err
}

// lookAgainIn is how long a broker may take to learn of a topic: one that has
// just started knows none.
const lookAgainIn = time.Second

// endIfDeleted ends the session where its feed is not there any more, or another
// one has its name, and reports whether it did.
func (s *Session) endIfDeleted(ctx context.Context) bool {
	if !s.feedGone(ctx) || sleep(ctx, lookAgainIn) != nil || !s.feedGone(ctx) {
		return false
	}
	s.seg.End(fmt.Errorf("its feed was deleted: %w", ErrNoFeed))
	return true
}

// feedGone reports whether a topic of the feed is missing, or its log was created
// anew: it has another id then.
func (s *Session) feedGone(ctx context.Context) bool {
	described, err := s.client.describe(ctx, s.feed)
	if err != nil {
		_, half := errors.AsType[*DeletingError](err)
		return half || errors.Is(err, ErrNoFeed)
	}
	log := s.feed.LogTopic()
	return described[log].ID != s.topics[log].ID
}
