package feeds

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/topics"
)

// marker ties a bucket to a feed: what has another id, or none, is not its.
type marker struct {
	Version int    `json:"v"`
	Feed    string `json:"feed"`
	ID      string `json:"id"`
}

// MarkerError says that a bucket is not the feed's: its marker is missing or
// another feed's.
type MarkerError struct {
	Feed   string
	Bucket string
	Cause  error
}

func (e *MarkerError) Error() string {
	return fmt.Sprintf("bucket %s is not that of feed %s: %v: is it the one that the feed was created with, and complete?", e.Bucket, e.Feed, e.Cause)
}

// Unwrap returns the cause.
func (e *MarkerError) Unwrap() error { return e.Cause }

// BucketError says what could not be done with which object of a feed's bucket,
// and what helps where that is known. Kafka has nothing to do with it.
type BucketError = bucket.Error

// openBucket opens a feed's bucket and checks its marker.
func openBucket(ctx context.Context, feed topics.Feed, settings Settings) (*bucket.Bucket, error) {
	b, err := bucket.Open(ctx, settings.Bucket)
	if err != nil {
		return nil, err
	}
	content, err := b.Read(ctx, markerOf(feed.String(), settings.ID), 4096)
	var m marker
	switch {
	case errors.Is(err, bucket.ErrMissing):
		if gone := b.Accessible(ctx); gone != nil { // stores that tell a missing bucket by a missing object
			err = gone
			break
		}
		err = &MarkerError{Feed: feed.String(), Bucket: bucket.Name(settings.Bucket), Cause: err}
	case err == nil:
		if jerr := json.Unmarshal(content, &m); jerr != nil || m.ID != settings.ID {
			err = &MarkerError{Feed: feed.String(), Bucket: bucket.Name(settings.Bucket), Cause: fmt.Errorf("its marker says %.100q", content)}
		}
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// markBucket writes the marker of a new feed.
func markBucket(ctx context.Context, feed topics.Feed, settings Settings) (err error) {
	b, err := bucket.Create(ctx, settings.Bucket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	content, err := json.Marshal(marker{Version: manifestVersion, Feed: feed.String(), ID: settings.ID})
	if err != nil {
		return err
	}
	return b.Put(ctx, markerOf(feed.String(), settings.ID), bytes.NewReader(content), sha256.Sum256(content), int64(len(content)))
}

// unmarkBucket removes the marker that markBucket wrote, and the folder around
// it where nothing else is in there.
func unmarkBucket(ctx context.Context, feed topics.Feed, settings Settings) (err error) {
	b, err := bucket.Open(ctx, settings.Bucket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.Delete(ctx, markerOf(feed.String(), settings.ID)); err != nil {
		return err
	}
	b.RemoveFolders(streamsOf(feed, settings))
	return nil
}
