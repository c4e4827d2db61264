package feeds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/pack"
	"github.com/flusso/flusso-kafka/internal/staging"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Verified is what was found of one commit.
type Verified struct {
	Commit  Commit
	Objects int    // that were read back, the manifest included
	Bytes   uint64 // of keys and payloads that were read
	Err     error  // what is wrong with it; nil for nothing
}

// Verify reads a feed's commits back, in their order: manifests and objects
// against their hashes, sequences without holes, key indexes against packs, each
// key by looking for it. An error ends the iteration; what is wrong with a commit
// is in its Err, and the others follow. Behind them comes an [*EventError] where
// the log holds an event that can't follow the one before it.
func (c *Client) Verify(ctx context.Context, name string) iter.Seq2[Verified, error] {
	return func(yield func(Verified, error) bool) {
		if err := c.verify(ctx, name, func(v Verified) bool { return yield(v, nil) }); err != nil {
			yield(Verified{}, err)
		}
	}
}

func (c *Client) verify(ctx context.Context, name string, yield func(Verified) bool) (err error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return err
	}
	var b *bucket.Bucket
	defer func() {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	var disorder error // the first
	order := succession{feed: feed.String()}
	for e, err := range c.events(ctx, feed) {
		if err != nil {
			return err
		}
		if err := order.next(e); disorder == nil {
			disorder = err
		}
		if e.Kind != wire.StreamCommitted {
			continue
		}
		if b == nil {
			if b, err = openBucket(ctx, feed, e.Settings); err != nil {
				return err
			}
		}
		v := verification{client: c, feed: feed, settings: e.Settings, bucket: b, Verified: Verified{Commit: commitOf(e)}}
		v.Err = v.run(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !yield(v.Verified) {
			return nil
		}
	}
	return disorder
}

// verification is that of one commit.
type verification struct {
	Verified

	client   *Client
	feed     topics.Feed
	settings Settings
	bucket   *bucket.Bucket
	keys     *keyIndexer
}

func (v *verification) run(ctx context.Context) (err error) {
	m, err := readManifest(ctx, v.bucket, v.feed, v.Commit)
	if err != nil {
		return err
	}
	v.Objects++
	c := v.Commit
	if m.Stream != c.Stream || m.Records != c.Records || m.First != c.First || m.Last != c.Last || m.Bytes != c.Bytes || m.Message != c.Message {
		return fmt.Errorf("manifest %s says stream %d, %d records, %d to %d, %d bytes; the log says stream %d, %d records, %d to %d, %d bytes, or the message differs",
			c.Manifest, m.Stream, m.Records, m.First, m.Last, m.Bytes, c.Stream, c.Records, c.First, c.Last, c.Bytes)
	}
	folder, err := staging.Make(v.client.cfg.StagingDir, "verify")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Remove()) }()
	dir := folder.Path
	v.keys = newKeyIndexer(dir, v.settings)
	for _, o := range m.Packs {
		if err := v.pack(ctx, o, dir); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	if v.Bytes != m.Bytes {
		return fmt.Errorf("its packs hold %d bytes of keys and payloads, its manifest says %d", v.Bytes, m.Bytes)
	}
	return v.index(ctx, m, dir)
}

func (v *verification) pack(ctx context.Context, o Object, dir string) (err error) {
	f, err := fetch(ctx, v.bucket, o, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	v.Objects++
	p, err := pack.NewReader(f, o.Size)
	if err != nil {
		return err
	}
	next := o.First
	for row, err := range p.From(0) {
		if err != nil {
			return err
		}
		if row.Sequence != next {
			return fmt.Errorf("sequence %d where %d belongs", row.Sequence, next)
		}
		next++
		v.Bytes += uint64(len(row.Key) + len(row.Payload))
		if err := v.keys.add(row); err != nil {
			return err
		}
	}
	if next != o.Last+1 {
		return fmt.Errorf("it ends at sequence %d, its manifest says %d", next-1, o.Last)
	}
	return v.keys.endPack()
}

// index builds the key index anew and compares entry by entry.
func (v *verification) index(ctx context.Context, m Manifest, dir string) (err error) {
	want, err := v.keys.merged()
	if err != nil {
		return err
	}
	if want == nil || m.Index == nil {
		if want != nil || m.Index != nil {
			return errors.New("its packs hold keys and it has no key index, or the other way around")
		}
		return nil
	}
	defer func() { err = errors.Join(err, want.Close()) }()
	got, err := fetch(ctx, v.bucket, *m.Index, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, got.Close()) }()
	v.Objects++
	err = sameEntries(got.File, want)
	if m.Index.Sums != nil { // look-ups go by them
		err = errors.Join(err, m.Index.Sums.Check(got.File, m.Index.Size))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.Index.Name, err)
	}
	return nil
}

func sameEntries(got, want *os.File) error {
	var open [2]*pack.Index
	for i, f := range []*os.File{got, want} {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if open[i], err = pack.OpenIndex(f, info.Size()); err != nil {
			return err
		}
	}
	if err := open[0].Check(); err != nil {
		return err
	}
	next, stop := iter.Pull2(open[1].All())
	defer stop()
	for g, err := range open[0].All() {
		if err != nil {
			return err
		}
		w, err, ok := next()
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("it names key %.80q, which is in no pack", g.Key)
		}
		if !bytes.Equal(g.Key, w.Key) || g.Sequence != w.Sequence || g.Pack != w.Pack || g.Tombstone != w.Tombstone || !sameVersion(g.Version, w.Version) {
			return fmt.Errorf("it names key %.80q at sequence %d of pack %d, the packs say key %.80q at %d of pack %d",
				g.Key, g.Sequence, g.Pack, w.Key, w.Sequence, w.Pack)
		}
	}
	if w, err, ok := next(); ok || err != nil {
		if err != nil {
			return err
		}
		return fmt.Errorf("it lacks key %.80q", w.Key)
	}
	return nil
}

func sameVersion(a, b *uint64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
