package feeds

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/flusso/flusso-kafka/internal/snappy"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Client opens sessions on feeds and reads them. Its methods may be called
// concurrently.
type Client struct {
	cfg    Config
	client *kgo.Client // for questions; sessions and readers have their own
	admin  *topics.Admin

	metrics    *metrics
	firstPause time.Duration // between attempts at a bucket; then twice as long each time

	mu     sync.Mutex
	open   map[*Session]struct{}
	closed bool

	working sync.WaitGroup // what sessions run in the background, those that have ended included
}

// New returns a client. It dials nothing.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(cfg.Client...)
	if err != nil {
		return nil, fmt.Errorf("set up a Kafka client for feeds: %w", err)
	}
	c := &Client{cfg: cfg, client: cl, admin: topics.New(cl), firstPause: firstPause, open: make(map[*Session]struct{})}
	if c.metrics, err = c.newMetrics(cfg.Registerer); err != nil {
		cl.Close()
		return nil, fmt.Errorf("register metrics of feeds: %w (one client per registerer)", err)
	}
	return c, nil
}

// Close closes every session that is open, without sealing: its stream can be
// resumed. It returns when nothing runs any more, or with what was not drained
// when ctx ends first. It may be called again.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	var sessions []*Session
	for s := range c.open {
		sessions = append(sessions, s)
	}
	c.mu.Unlock()
	errs := make([]error, len(sessions))
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() { errs[i] = s.Close(ctx) })
	}
	wg.Wait()
	if err := await(ctx, &c.working); err != nil {
		errs = append(errs, fmt.Errorf("wait for what feed sessions still run: %w", err))
	}
	c.client.Close()
	c.metrics.unregister()
	return errors.Join(errs...)
}

// await waits for a group, and returns why ctx ended when that was first.
func await(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ExistsError says that a feed that was to be created is there.
type ExistsError struct{ Feed string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("feed %s exists: its settings never change; delete it first, or choose another name", e.Feed)
}

// CreateOptions are chosen once, when a feed is created.
type CreateOptions struct {
	Keyed            bool
	Latest           string // [LatestSequence], the default, or [LatestVersion], which needs Keyed
	Bucket           string // URL of the bucket, without credentials
	MaxUnsealedBytes uint64 // [DefaultMaxUnsealedBytes] when zero
}

func (o CreateOptions) settings(feed string) (Settings, error) {
	bad := func(reason string) (Settings, error) {
		return Settings{}, &flusso.InvalidError{What: "settings of feed " + feed, Reason: reason}
	}
	if o.Latest == "" {
		o.Latest = LatestSequence
	}
	switch {
	case o.Bucket == "":
		return bad("no bucket: give the URL where its commits go, file:///var/lib/feeds for a folder")
	case secretive(o.Bucket):
		return bad("the URL of its bucket goes on record for everybody to read: leave user and password out, they come from the environment")
	case o.Latest != LatestSequence && o.Latest != LatestVersion:
		return bad(fmt.Sprintf("latest %q: %s or %s", o.Latest, LatestSequence, LatestVersion))
	case o.Latest == LatestVersion && !o.Keyed:
		return bad("latest by version needs keys")
	}
	if o.MaxUnsealedBytes == 0 {
		o.MaxUnsealedBytes = DefaultMaxUnsealedBytes
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return Settings{
		ID: hex.EncodeToString(id[:]), Keyed: o.Keyed, Latest: o.Latest, Bucket: o.Bucket, MaxUnsealedBytes: o.MaxUnsealedBytes,
	}, nil
}

// secretive reports whether a URL carries a user or a password [F4].
func secretive(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.User != nil
}

// Create makes a feed: its topics, then, under its lease, its first event. It
// may be repeated after an error. Errors: [*ExistsError], [*DeletingError],
// [*TakenError]; [*flusso.NameError] and [*flusso.InvalidError] for what can't be;
// [*topics.UnsafeError]; what the brokers answered.
func (c *Client) Create(ctx context.Context, name string, o CreateOptions) (_ Settings, err error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return Settings{}, err
	}
	settings, err := o.settings(name)
	if err != nil {
		return Settings{}, err
	}
	specs, err := feed.Specs(c.cfg.Topics)
	if err != nil {
		return Settings{}, err
	}
	if before, err := c.state(ctx, feed); !errors.Is(err, ErrNoFeed) {
		if err == nil {
			err = c.exists(ctx, feed, before)
		}
		return Settings{}, err
	}
	if err := markBucket(ctx, feed, settings); err != nil {
		return Settings{}, fmt.Errorf("mark the bucket of feed %s: %w", name, err)
	}
	handed := false // the event that creates it may become durable
	defer func() {
		if err != nil && !handed {
			c.unmark(ctx, feed, settings)
		}
	}()
	if _, err := c.admin.Ensure(ctx, specs); err != nil {
		return Settings{}, fmt.Errorf("create the topics of feed %s: %w", name, err)
	}
	l, err := c.take(ctx, feed)
	if err != nil {
		return Settings{}, c.taken(ctx, feed, wire.Event{}, err)
	}
	defer func() { err = errors.Join(err, l.release(ctx)) }()
	if l.found {
		return Settings{}, &ExistsError{Feed: name}
	}
	e := wire.Event{
		Kind: wire.FeedCreated, At: time.Now(), Settings: settings,
		State: wire.FeedState{Epoch: 1, Holder: c.holder()},
	}
	handed = true
	err = l.publish(ctx, e)
	handed = !errors.Is(err, flusso.ErrRejected)
	return settings, c.taken(ctx, feed, wire.Event{}, err)
}

// exists is why a feed that is on record can't be created.
func (c *Client) exists(ctx context.Context, feed topics.Feed, e wire.Event) error {
	_, err := c.describe(ctx, feed)
	switch {
	case err != nil:
		return err
	case e.State.Deleted:
		return &DeletingError{Feed: feed.String()}
	}
	return &ExistsError{Feed: feed.String()}
}

// unmark removes the marker of a feed that was not created: each attempt has
// one of its own.
func (c *Client) unmark(ctx context.Context, feed topics.Feed, settings Settings) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookAtMost)
	defer cancel()
	if err := unmarkBucket(ctx, feed, settings); err != nil {
		c.cfg.Logger.Warn("the marker of a feed that was not created stays in its bucket, and does no harm", "feed", feed, "object", markerOf(feed.String(), settings.ID), "err", err)
	}
}

func (c *Client) holder() *wire.FeedHolder {
	return &wire.FeedHolder{Name: c.cfg.Holder, Address: c.cfg.Address}
}

// Holder returns who holds the writer lease of a feed, by the newest event on
// record, and its writer epoch [E15].
func (c *Client) Holder(ctx context.Context, name string) (Holder, uint64, error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return Holder{}, 0, err
	}
	e, err := c.state(ctx, feed)
	if err != nil {
		return Holder{}, 0, err
	}
	return *e.State.Holder, e.State.Epoch, nil
}

// segmentConfig configures the segment session of a feed's lease.
func (c *Client) segmentConfig(feed topics.Feed, described map[string]topics.Topic) segment.Config {
	return segment.Config{
		Lease: feed.WriterLease(), Opts: c.cfg.Client,
		MaxBytes: c.cfg.SegmentBytes, MaxAge: c.cfg.SegmentAge, MaxUnackedBytes: c.cfg.MaxUnackedBytes,
		BatchMaxBytes: func(topic string) int32 { return largest(described[topic]) },
		Shared:        snappy.New("", ""),
		Committed:     func() { c.metrics.segments.WithLabelValues(feed.String()).Inc() },
		Logger:        c.cfg.Logger,
	}
}

// describe returns the feed's topics by name. Without its log there is no feed,
// and a deletion took its WAL first.
func (c *Client) describe(ctx context.Context, feed topics.Feed) (map[string]topics.Topic, error) {
	names := []string{feed.LogTopic(), feed.WALTopic()}
	described, err := c.admin.Describe(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe the topics of feed %s: %w", feed, err)
	}
	for _, name := range names {
		switch t := described[name]; {
		case t.Missing() && name == feed.WALTopic(): // the log is there
			return nil, &DeletingError{Feed: feed.String(), Half: true}
		case t.Missing():
			return nil, fmt.Errorf("feed %s: topic %s is missing: %w: create it first", feed, name, ErrNoFeed)
		case t.Err != nil:
			return nil, kafkaerr.Wrap("describe topic "+name, t.Err)
		}
	}
	return described, nil
}

// largest returns the limit of a record batch of a topic.
func largest(t topics.Topic) int32 {
	if t.MaxMessageBytes > 0 {
		return int32(t.MaxMessageBytes)
	}
	return usualBatch
}

// usualBatch is Kafka's default max.message.bytes, less its own allowance.
const usualBatch = 1_000_012
