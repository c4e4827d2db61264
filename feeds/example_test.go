package feeds_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/embedded"
)

// A session appends records and seals them into a commit; anybody reads them,
// and finds the newest record of a key.
func Example() {
	if err := session(context.Background()); err != nil {
		fmt.Println(err) // and so what was printed differs from the output below
	}
	// Output:
	// appended 1 to 2
	// commit 1: hourly poll
	// 1/1 k1 hello
	// 1/2 k2 world
	// the latest of k2: world
}

func session(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "feed-example-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	broker, err := embedded.Open(ctx, filepath.Join(dir, "broker")) // yours is Apache Kafka
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()

	client, err := feeds.New(feeds.Config{Client: broker.Opts()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(ctx)) }()
	bucket := "file://" + filepath.ToSlash(filepath.Join(dir, "bucket")) // or s3://, gs://, azblob://
	if _, err := client.Create(ctx, "hourly", feeds.CreateOptions{Keyed: true, Bucket: bucket}); err != nil {
		return err
	}

	s, err := client.Open(ctx, "hourly")
	if err != nil {
		return err
	}
	appended, err := s.Append(ctx, feeds.Batch{Records: []feeds.Record{
		{Key: []byte("k1"), Payload: []byte("hello")},
		{Key: []byte("k2"), Payload: []byte("world")},
	}})
	if err != nil {
		return err // nothing of it, or, with flusso.ErrUnknownOutcome, resume tells
	}
	fmt.Println("appended", appended.First, "to", appended.Last)
	commit, err := s.Seal(ctx, "hourly poll")
	if err != nil {
		return err
	}
	fmt.Printf("commit %d: %s\n", commit.Number, commit.Message)

	for item, err := range client.Read(ctx, "hourly", feeds.ReadOptions{}) {
		if err != nil {
			return err
		}
		fmt.Printf("%d/%d %s %s\n", item.Stream, item.Sequence, item.Key, item.Payload)
	}
	latest, found, err := client.Latest(ctx, "hourly", []byte("k2"))
	if err != nil || !found {
		return err
	}
	fmt.Printf("the latest of k2: %s\n", latest.Payload)
	return nil
}
