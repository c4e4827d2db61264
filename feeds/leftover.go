package feeds

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Leftovers iterates over the objects of a feed's bucket that no commit leads to
// and none is going to: those of streams that were discarded, and what holders
// uploaded who did not finish. They do no harm. The holder removes them once
// their stream is committed or discarded; [Client.Repair] looks for all of them.
// An error ends the iteration.
func (c *Client) Leftovers(ctx context.Context, name string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		feed, err := topics.NewFeed(name)
		if err == nil {
			err = c.leftovers(ctx, feed, func(_ *bucket.Bucket, object string) error {
				if !yield(object, nil) {
					return errStopped
				}
				return nil
			})
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield("", err)
		}
	}
}

// settled is what became of a stream: its commit, or nil where it was discarded.
type settled map[uint64]*Commit

// leftovers looks at everything that the bucket holds of a feed.
func (c *Client) leftovers(ctx context.Context, feed topics.Feed, found func(*bucket.Bucket, string) error) (err error) {
	// The events first: whatever is not settled by them is left alone.
	known := settled{}
	var settings Settings
	for e, err := range c.events(ctx, feed) {
		if err != nil {
			return err
		}
		settings = e.Settings
		known.note(e)
	}
	b, err := openBucket(ctx, feed, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	l := look{feed: feed, settings: settings, bucket: b, found: found}
	return l.below(ctx, streamsOf(feed, settings), known)
}

func (s settled) note(e wire.Event) {
	if e.Kind == wire.StreamCommitted {
		commit := commitOf(e)
		s[e.Stream] = &commit
	}
	if e.Kind == wire.StreamDiscarded {
		s[e.Stream] = nil
	}
}

// look is for objects that no commit leads to.
type look struct {
	feed     topics.Feed
	settings Settings
	bucket   *bucket.Bucket
	found    func(*bucket.Bucket, string) error
}

// streamsOf is what the names of all objects of a feed begin with, but for the
// marker's.
func streamsOf(feed topics.Feed, settings Settings) string {
	return fmt.Sprintf("%s-%s/", feed, settings.ID)
}

// below looks at the objects whose names begin so, in their order: by stream.
func (l *look) below(ctx context.Context, prefix string, known settled) error {
	var (
		stream uint64
		named  map[string]bool // of that stream; nil for one that is not settled
	)
	for object, err := range l.bucket.List(ctx, prefix) {
		if err != nil {
			return err
		}
		number, ok := l.streamOf(object)
		if !ok {
			continue // the marker, or something of somebody else
		}
		if number != stream {
			stream = number
			if named, err = l.named(ctx, number, known); err != nil {
				return err
			}
		}
		if named == nil || named[object] {
			continue
		}
		if err := l.found(l.bucket, object); err != nil {
			return err
		}
	}
	return nil
}

// streamOf reads the number of the stream that an object is of off its name.
func (l *look) streamOf(object string) (uint64, bool) {
	rest, ok := strings.CutPrefix(object, streamsOf(l.feed, l.settings))
	if !ok {
		return 0, false
	}
	digits, _, ok := strings.Cut(rest, "/")
	if !ok || len(digits) != 12 {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil
}

// named returns the objects that the commit of a stream leads to; nil where the
// stream is not settled.
func (l *look) named(ctx context.Context, stream uint64, known settled) (map[string]bool, error) {
	commit, ok := known[stream]
	if !ok {
		return nil, nil //nolint:nilnil // none is an answer
	}
	names := make(map[string]bool)
	if commit == nil {
		return names, nil
	}
	m, err := readManifest(ctx, l.bucket, l.feed, *commit) // not to be read: nothing of the stream goes
	if err != nil {
		return nil, err
	}
	names[commit.Manifest] = true
	for _, o := range m.Packs {
		names[o.Name] = true
	}
	if m.Index != nil {
		names[m.Index.Name] = true
	}
	return names, nil
}

// remove removes what is found. Only a holder of the lease does.
func remove(ctx context.Context, n *int) func(*bucket.Bucket, string) error {
	return func(b *bucket.Bucket, object string) error {
		*n++
		return b.Delete(ctx, object)
	}
}

// tidyAtMost bounds how many streams a session looks at when it begins.
const tidyAtMost = 8

// tidying finds the streams that were settled not long ago and may have
// leftovers: one that a holder opened and committed itself has none.
type tidying struct {
	known  settled
	opened map[uint64]uint64 // by which epoch
	events int
}

func newTidying() *tidying { return &tidying{known: settled{}, opened: make(map[uint64]uint64)} }

// see takes the event before those that it saw, and returns whether it has seen
// enough.
func (t *tidying) see(e wire.Event) (enough bool) {
	if t.events >= eventsWindow/2 {
		return true
	}
	t.events++
	if e.Kind == wire.StreamOpened {
		t.opened[e.Stream] = e.State.Epoch
	}
	if len(t.known) < tidyAtMost {
		t.known.note(e)
	}
	return false
}

func (t *tidying) streams() settled {
	for stream, commit := range t.known {
		if commit != nil && t.opened[stream] == commit.Epoch {
			delete(t.known, stream)
		}
	}
	return t.known
}

// tidyStreams removes the leftovers of some streams.
func (c *Client) tidyStreams(ctx context.Context, feed topics.Feed, settings Settings, known settled) (err error) {
	if len(known) == 0 {
		return nil
	}
	b, err := openBucket(ctx, feed, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	removed := 0
	look := look{feed: feed, settings: settings, bucket: b, found: remove(ctx, &removed)}
	for stream := range known {
		if err := look.below(ctx, fmt.Sprintf("%s%012d/", streamsOf(feed, settings), stream), known); err != nil {
			return fmt.Errorf("remove what no commit of feed %s leads to: %w", feed, err)
		}
	}
	c.removedLeftovers(feed, removed)
	return nil
}

// LeftoversError says that [Client.Repair] could not look for leftovers, or not
// remove all of them. They do no harm, and everything else is done.
type LeftoversError struct {
	Feed  string
	Cause error
}

func (e *LeftoversError) Error() string {
	return fmt.Sprintf("what no commit of feed %s leads to stays in its bucket, which does no harm; nothing else is left to repair: `flusso-kafka-admin feed repair %s --yes` tries again: %v",
		e.Feed, e.Feed, e.Cause)
}

// Unwrap returns the cause.
func (e *LeftoversError) Unwrap() error { return e.Cause }

// tidyAll removes all leftovers. Where there are some it takes the lease, unless
// a session may be at work, which removes its own: then they stay.
func (c *Client) tidyAll(ctx context.Context, feed topics.Feed, held *lease) (err error) {
	defer func() {
		if err != nil {
			err = &LeftoversError{Feed: feed.String(), Cause: err}
		}
	}()
	if held == nil {
		any := false
		err = c.leftovers(ctx, feed, func(*bucket.Bucket, string) error {
			any = true
			return errStopped
		})
		if err != nil && !errors.Is(err, errStopped) || !any {
			return err
		}
		if held, err = c.administer(ctx, feed); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, held.release(ctx)) }()
	}
	removed := 0
	err = c.leftovers(ctx, feed, remove(ctx, &removed))
	c.removedLeftovers(feed, removed)
	return err
}

func (c *Client) removedLeftovers(feed topics.Feed, objects int) {
	if objects > 0 {
		c.cfg.Logger.Info("removed what no commit leads to", "feed", feed, "objects", objects)
	}
}

// isOpen reports whether a session may be at work, where nothing is half sealed.
func isOpen(s wire.FeedState) bool {
	return slices.ContainsFunc(s.Streams, func(st wire.StreamState) bool { return st.Step == wire.StreamOpen })
}
