package security_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/topics"
)

// feedOf makes a feed of that name with a commit, as the super user, and
// returns what a role needs on it.
func (b *secured) feedOf(t *testing.T, name string, role access.Role) []access.Permission {
	t.Helper()
	feed, err := topics.NewFeed(name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := role.FeedPermissions(feed)
	if err != nil {
		t.Fatal(err)
	}
	err = b.withFeeds(t.Context(), append(b.super(), kgo.SeedBrokers(b.Addr())), func(ctx context.Context, c *feeds.Client) error {
		if _, err := c.Create(ctx, name, feeds.CreateOptions{Bucket: "file://" + t.TempDir()}); err != nil {
			return err
		}
		return appendSealed(ctx, c, name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// withFeeds has do use a client of feeds. What it trims it trims at once.
func (b *secured) withFeeds(ctx context.Context, opts []kgo.Opt, do func(context.Context, *feeds.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, shortly/2)
	defer cancel()
	c, err := feeds.New(feeds.Config{Client: opts, TrimGrace: -1})
	if err != nil {
		return err
	}
	err = do(ctx, c)
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	return errors.Join(err, c.Close(closing))
}

// appendSealed makes a commit, and returns what went wrong with trimming, too.
func appendSealed(ctx context.Context, c *feeds.Client, feed string) error {
	s, err := c.Open(ctx, feed)
	if err != nil {
		return err
	}
	if _, err := s.Append(ctx, feeds.Batch{Records: []feeds.Record{{Payload: []byte("x")}}}); err != nil {
		return err
	}
	commit, err := s.Seal(ctx, "")
	if err == nil {
		err = commit.Warning
	}
	return err
}

func TestE18_what_a_reader_of_a_feed_needs(t *testing.T) {
	b := broker(t)
	b.addUsers(t, "feedreader")
	all := b.feedOf(t, "read", access.FeedReader)
	a := b.command(t, "feedreader")
	actions := []action{
		b.run(t, a, "read", "read"), b.run(t, a, "feed", "describe", "read"), b.run(t, a, "feed", "history", "read"), b.run(t, a, "feed", "verify", "read"),
	}
	b.proveAll(t, "feedreader", all, b.foresees(t, "feedreader", access.FeedReader, "--feed", "read"), actions, map[string]lack{
		"Read on topics read.feed.*": {"read read", []string{"Read on topic read.feed.log"}},
	})
}

func TestE18_what_a_writer_of_a_feed_needs(t *testing.T) {
	b := broker(t)
	b.addUsers(t, "feedwriter")
	all := b.feedOf(t, "write", access.FeedWriter)
	actions := []action{{"append and seal", func(ctx context.Context) error {
		return b.withFeeds(ctx, b.as("feedwriter"), func(ctx context.Context, c *feeds.Client) error { return appendSealed(ctx, c, "write") })
	}}}
	b.proveAll(t, "feedwriter", all, b.foresees(t, "feedwriter", access.FeedWriter, "--feed", "write"), actions, map[string]lack{
		"Read on topics write.feed.*":             {"append and seal", []string{"Read on topic write.feed.log"}},
		"DescribeConfigs on topics write.feed.*":  {"append and seal", []string{"DescribeConfigs on topic write.feed."}},
		"Write on topics write.feed.*":            {"append and seal", []string{"Write on topic write.feed."}},
		"Delete on topic write.feed.wal":          {"append and seal", []string{"Delete on topic write.feed.wal"}},
		"Write on transactional ids write.feed.*": {"append and seal", []string{"Write on transactional id write.feed.0"}},
	})
}

func TestE18_what_an_operator_of_feeds_needs(t *testing.T) {
	b := broker(t)
	b.addUsers(t, "feedoperator")
	all := b.feedOf(t, "operate", access.FeedOperator)
	dir := t.TempDir()
	actions := []action{{"create and delete", func(ctx context.Context) error {
		return b.withFeeds(ctx, b.as("feedoperator"), func(ctx context.Context, c *feeds.Client) error {
			err := c.Delete(ctx, "operate", feeds.DeleteOptions{})
			if err != nil && !errors.Is(err, feeds.ErrNoFeed) {
				return fmt.Errorf("delete: %w", err)
			}
			if _, err := c.Create(ctx, "operate", feeds.CreateOptions{Bucket: "file://" + dir}); err != nil {
				return fmt.Errorf("create: %w", err)
			}
			return appendSealed(ctx, c, "operate")
		})
	}}}
	b.proveAll(t, "feedoperator", all, b.foresees(t, "feedoperator", access.FeedOperator, "--feed", "operate"), actions, map[string]lack{
		"Read on topics operate.feed.*":             {"create and delete", []string{"Read on topic operate.feed.log"}},
		"Write on topics operate.feed.*":            {"create and delete", []string{"Write on topic operate.feed."}},
		"Create on topics operate.feed.*":           {"create and delete", []string{"Create on topic operate.feed."}},
		"AlterConfigs on topics operate.feed.*":     {"create and delete", []string{"AlterConfigs on topic operate.feed."}},
		"Delete on topics operate.feed.*":           {"create and delete", []string{"Delete on topic operate.feed."}},
		"Write on transactional ids operate.feed.*": {"create and delete", []string{"Write on transactional id operate.feed.0"}},
	})
}
