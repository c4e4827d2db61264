package feeds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/pack"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Latest returns the newest record of a key: by the feed's rule, over its
// commits and what is not sealed yet. found is false where the key never was;
// a tombstone that is the newest is returned, with Tombstone set: the key was
// deleted. A commit costs a look-up in its index, some requests to the bucket, as
// far back as the key is found, or all commits where the rule is the version. A
// stream without commit is read whole from the WAL, in constant memory: up to the
// feed's MaxUnsealedBytes in all, so give ctx a deadline; by the rule of the
// sequence, those that are newer than the one that has the key. Errors: [ErrNoFeed], a [*KeyError] for a feed without
// keys, what the brokers and the bucket answered.
func (c *Client) Latest(ctx context.Context, name string, key []byte) (item Item, found bool, err error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return Item{}, false, err
	}
	var before wire.Event
	for {
		l := latest{client: c, feed: feed, key: key}
		item, found, err = l.run(ctx)
		// A stream may have been committed while it was read, and its records
		// trimmed: then the look begins anew. Where nothing has happened,
		// records are missing.
		if _, gone := errors.AsType[*partition.GoneError](err); !gone || before.Kind != "" && sameEvent(before, l.newest) {
			return item, found, err
		}
		if err := c.orDeleted(ctx, feed, l.newest.Settings.ID, err); errors.Is(err, ErrNoFeed) {
			return Item{}, false, err
		}
		before = l.newest
	}
}

func (l *latest) run(ctx context.Context) (Item, bool, error) {
	c, feed, name, key := l.client, l.feed, l.feed.String(), l.key
	var commits []Commit
	for e, err := range c.events(ctx, feed) {
		if err != nil {
			return Item{}, false, err
		}
		l.newest = e
		if e.Kind == wire.StreamCommitted {
			commits = append(commits, commitOf(e))
		}
	}
	if !l.newest.Settings.Keyed {
		return Item{}, false, &KeyError{Feed: name, Record: 0}
	}
	err := l.unsealed(ctx) // first: they are what may go
	if err == nil {
		err = l.sealed(ctx, commits)
	}
	if err != nil {
		return Item{}, false, fmt.Errorf("look up the latest record of key %.80q of feed %s: %w", key, feed, err)
	}
	return l.best, l.found, nil
}

// latest is one look-up.
type latest struct {
	client *Client
	feed   topics.Feed
	key    []byte
	newest wire.Event
	best   Item
	found  bool
}

func (l *latest) byVersion() bool { return l.newest.Settings.Latest == LatestVersion }

// unsealed looks in the streams without commit; later ones win.
func (l *latest) unsealed(ctx context.Context) error {
	wal := l.feed.WALTopic()
	ends, err := partition.LookUp(ctx, l.client.client, wal)
	if err != nil {
		return l.client.orDeleted(ctx, l.feed, l.newest.Settings.ID, err)
	}
	streams := slices.Clone(l.newest.State.Streams)
	if !l.byVersion() {
		slices.Reverse(streams) // the newest that has the key decides
	}
	for _, st := range streams {
		if err := l.stream(ctx, st, ends[wal].High); err != nil {
			return err
		}
		if l.found && !l.byVersion() {
			return nil
		}
	}
	return nil
}

func (l *latest) stream(ctx context.Context, st wire.StreamState, end flusso.Offset) error {
	in, err := l.client.readBatches(l.feed, st.Number, flusso.Offset(st.From), 1)
	if err != nil {
		return err
	}
	defer in.close()
	for in.r.Next() < end {
		if ctx.Err() != nil { // what was fetched before is not read on
			return context.Cause(ctx)
		}
		records, a, err := in.readUntil(ctx, end)
		if err != nil {
			return err
		}
		for i := range records {
			r := &records[i]
			if r.Key == nil || !bytes.Equal(r.Key, l.key) || !l.wins(r.Version, true) {
				continue
			}
			r.Fingerprint = r.Identity()
			l.best, l.found = Item{Record: *r, Stream: a.Stream, Sequence: a.First + uint64(i), AppendedAt: a.At}, true
		}
	}
	return nil
}

// wins decides whether a record is newer than the best one; later says that
// it lies behind it.
func (l *latest) wins(version *uint64, later bool) bool {
	if !l.found {
		return true
	}
	if !l.byVersion() {
		return later
	}
	have, got := uint64(0), uint64(0)
	if l.best.Version != nil {
		have = *l.best.Version
	}
	if version != nil {
		got = *version
	}
	return got > have || got == have && later
}

// sealed looks in the commits, the newest first.
func (l *latest) sealed(ctx context.Context, commits []Commit) (err error) {
	if len(commits) == 0 || l.found && !l.byVersion() {
		return nil
	}
	b, err := openBucket(ctx, l.feed, l.newest.Settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for _, c := range slices.Backward(commits) {
		m, err := readManifest(ctx, b, l.feed, c)
		if err != nil {
			return err
		}
		if err := l.commit(ctx, b, c, m); err != nil {
			return err
		}
		if l.found && !l.byVersion() {
			return nil
		}
	}
	return nil
}

func (l *latest) commit(ctx context.Context, b *bucket.Bucket, c Commit, m Manifest) error {
	if m.Index == nil {
		return nil
	}
	x, err := openIndex(ctx, b, m.Index)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Index.Name, err)
	}
	e, found, err := x.Find(l.key)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Index.Name, err)
	}
	if !found || !l.wins(e.Version, false) {
		return nil
	}
	if int(e.Pack) >= len(m.Packs) {
		return fmt.Errorf("%s names pack %d of %d", m.Index.Name, e.Pack, len(m.Packs))
	}
	o := m.Packs[e.Pack]
	p, err := pack.NewReader(b.At(ctx, o.Name), o.Size)
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	row, held, err := p.At(e.Sequence)
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	if !held {
		return fmt.Errorf("%s does not hold sequence %d, which %s names", o.Name, e.Sequence, m.Index.Name)
	}
	if !bytes.Equal(row.Key, l.key) {
		return fmt.Errorf("%s holds another record at sequence %d than %s says", o.Name, e.Sequence, m.Index.Name)
	}
	l.best, l.found = Item{Record: recordOf(&row), Stream: c.Stream, Sequence: row.Sequence, AppendedAt: time.UnixMilli(row.AppendedAt), Commit: c.Number}, true
	return nil
}

// openIndex opens a key index for look-ups. One that was written before there
// were sums is taken as it is: what is damaged there besides pages [Client.Verify]
// tells.
func openIndex(ctx context.Context, b *bucket.Bucket, o *Object) (*pack.Index, error) {
	r := b.At(ctx, o.Name)
	if o.Sums == nil {
		return pack.OpenIndex(r, o.Size)
	}
	return pack.OpenCheckedIndex(r, o.Size, *o.Sums)
}
