package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Who is stopped by the bucket is told how to do without it, and nobody else:
// what Kafka refuses it refuses without the objects, too.
func TestFeedDeleteNamesTheWayAroundABucket(t *testing.T) {
	cmd := tree(t)["feed delete"]
	if err := cmd.ParseFlags([]string{"orders", "--brokers", "a:1"}); err != nil {
		t.Fatal(err)
	}
	target := &feedTarget{cmd: cmd}
	const way = "`flusso-kafka-admin feed delete orders --keep-objects --yes --brokers a:1`"
	for name, c := range map[string]struct {
		err   error
		there bool
	}{
		"an object":       {&feeds.BucketError{Cause: errors.New("no")}, true},
		"another bucket":  {&feeds.MarkerError{Feed: "orders", Bucket: "file:///b", Cause: errors.New("no")}, true},
		"a permission":    {kafkaerr.Wrap("delete topic orders.feed.wal", kerr.TopicAuthorizationFailed), false},
		"nobody answers":  {kafkaerr.Wrap("delete topic orders.feed.wal", context.DeadlineExceeded), false},
		"there is no one": {feeds.ErrNoFeed, false},
	} {
		failed := fmt.Errorf("delete feed orders: %w", c.err)
		got := target.objectsLeft("orders", failed)
		if !errors.Is(got, c.err) || strings.Contains(got.Error(), way) != c.there || !c.there && got.Error() != failed.Error() {
			t.Errorf("%s: %v", name, got)
		}
	}
}
