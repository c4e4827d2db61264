package feeds

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// DeletingError says that the deletion of a feed was begun and not finished. It
// is an [ErrDeleting].
type DeletingError struct {
	Feed string
	Half bool // its WAL is gone already
}

func (e *DeletingError) Error() string {
	state := "being deleted"
	if e.Half {
		state = "half deleted, its WAL is gone"
	}
	return fmt.Sprintf("feed %s is %s: `flusso-kafka-admin feed delete %s --yes` finishes that", e.Feed, state, e.Feed)
}

// Is reports whether target is [ErrDeleting].
func (e *DeletingError) Is(target error) bool { return target == ErrDeleting }

// DeleteOptions say what of a feed is removed.
type DeleteOptions struct {
	// KeepObjects leaves what is in the bucket where it is: for whoever reads the
	// packs on, and for a bucket that is gone for good, without which nothing of
	// the feed would go. Nothing removes these objects later: a new feed of the
	// name has a folder of its own.
	KeepObjects bool
}

// Delete removes a feed and everything of it: it takes the lease, writes that
// the feed is being deleted, then removes its objects, its WAL, its marker in
// the bucket and its log, in this order. After an error it may be repeated. What
// the bucket holds of other feeds is left alone. o says what of the feed is
// left, too; the zero value leaves nothing.
//
// While the WAL is there the bucket has to have the marker: without it what is
// there is not the feed's bucket, and a [*MarkerError] says so. Errors besides:
// [ErrNoFeed], a [*TakenError], a [*BucketError], what the brokers answered.
func (c *Client) Delete(ctx context.Context, name string, o DeleteOptions) error {
	feed, e, err := c.before(ctx, name)
	d := deletion{client: c, feed: feed, settings: e.Settings, keep: o.KeepObjects}
	switch {
	case errors.Is(err, ErrNoFeed): // its log is gone, or it never was a feed
		d.keep = true
		return d.finish(ctx)
	case err != nil:
		return err
	}
	_, err = c.describe(ctx, feed)
	if gone, ok := errors.AsType[*DeletingError](err); ok && gone.Half {
		// A deletion removes the WAL behind the objects, and the marker comes
		// next. Without a WAL nobody writes, so there is nobody to fence.
		if err := d.removeObjects(ctx, e.State.Deleted); err != nil {
			return err
		}
		return d.finish(ctx)
	}
	if err != nil {
		return err
	}
	if err := d.checkBucket(ctx); err != nil { // before anybody is fenced
		return err
	}
	if err := d.begin(ctx); err != nil {
		return c.taken(ctx, feed, e, err)
	}
	if err := d.removeObjects(ctx, false); err != nil {
		return err
	}
	return d.finish(ctx)
}

// deletion is one call of Delete.
type deletion struct {
	client   *Client
	feed     topics.Feed
	settings Settings
	keep     bool // what is in the bucket
}

// begin puts on record that the feed is being deleted. Whoever writes is fenced.
func (d *deletion) begin(ctx context.Context) error {
	l, err := d.client.administer(ctx, d.feed)
	if err != nil {
		return err
	}
	err = l.write(ctx, wire.FeedDeleting, 0, func(e *wire.Event) {
		e.State.Streams, e.State.Deleted = nil, true
	})
	return errors.Join(err, l.release(ctx))
}

func (d *deletion) checkBucket(ctx context.Context) error {
	if d.keep {
		return nil
	}
	b, err := openBucket(ctx, d.feed, d.settings)
	if err == nil {
		err = b.Close()
	}
	return d.failed(err)
}

// removeObjects removes everything but the marker, by which the bucket is known
// when the call is repeated. unmarked says that the marker may be gone, and all
// else before it.
func (d *deletion) removeObjects(ctx context.Context, unmarked bool) (err error) {
	if d.keep {
		return nil
	}
	defer func() { err = d.failed(err) }()
	b, err := openBucket(ctx, d.feed, d.settings)
	if _, ok := errors.AsType[*MarkerError](err); ok && unmarked && errors.Is(err, bucket.ErrMissing) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	mark := markerOf(d.feed.String(), d.settings.ID)
	for object, err := range b.List(ctx, streamsOf(d.feed, d.settings)) {
		if err != nil {
			return err
		}
		if object == mark {
			continue
		}
		if err := b.Delete(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func (d *deletion) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("delete feed %s: %w", d.feed, err)
	}
	return err
}

// finish removes what says how far a deletion came: the WAL, the marker, the log.
func (d *deletion) finish(ctx context.Context) error {
	wal, err := d.removeTopic(ctx, d.feed.WALTopic())
	if err != nil {
		return err
	}
	if !d.keep {
		if err := unmarkBucket(ctx, d.feed, d.settings); err != nil {
			return d.failed(err)
		}
	}
	log, err := d.removeTopic(ctx, d.feed.LogTopic())
	if err == nil && !wal && !log {
		err = d.failed(ErrNoFeed)
	}
	return err
}

// removeTopic deletes a topic, and reports whether it was there.
func (d *deletion) removeTopic(ctx context.Context, topic string) (bool, error) {
	got, err := kadm.NewClient(d.client.client).DeleteTopic(ctx, topic)
	if err == nil {
		err = got.Err
	}
	if kafkaerr.Classify(err) == kafkaerr.Missing {
		return false, nil
	}
	return true, kafkaerr.Wrap("delete topic "+topic, err, kafkaerr.OnTopic("Delete", topic))
}

// Remains returns the topics of a feed that are there: of one that is half
// deleted it is one of the two, of one that never was none.
func (c *Client) Remains(ctx context.Context, name string) ([]string, error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return nil, err
	}
	names := []string{feed.WALTopic(), feed.LogTopic()}
	described, err := c.admin.Describe(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe the topics of feed %s: %w", feed, err)
	}
	var there []string
	for _, topic := range names {
		t := described[topic]
		if t.Missing() {
			continue
		}
		if t.Err != nil {
			return nil, kafkaerr.Wrap("describe topic "+topic, t.Err)
		}
		there = append(there, topic)
	}
	return there, nil
}
