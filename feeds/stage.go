package feeds

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/pack"
	"github.com/flusso/flusso-kafka/internal/staging"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// stage builds the packs of one stream while it is open [E11]. It reads the
// WAL, not a queue in memory: it may fall behind by any amount, and holds one
// row group, the keys of one pack and one batch. Appending never waits for it.
// What it staged is adopted by nobody else: the next holder builds its own.
type stage struct {
	client   *Client
	feed     topics.Feed
	settings Settings
	epoch    uint64
	state    wire.StreamState           // of the stream
	over     func(context.Context) bool // asked after an error: whether there is no feed any more; nil for nobody to ask

	// What run works on.
	dir   string
	pack  *packFile
	packs []Object
	keys  *keyIndexer
	next  uint64 // sequence that comes next

	mu        sync.Mutex
	sealed    bool
	last      uint64             // of the sealed stream
	message   string             // the same
	sealedAt  time.Time          // the same
	hurry     chan struct{}      // closed when it is: somebody waits
	interrupt context.CancelFunc // ends the wait for more, when the stream is sealed
	staged    wire.Append        // the last batch that is in a pack; zero for none
	trouble   error              // why it stands still, while it does
	done      chan struct{}      // closed when run has ended
	err       error              // why, nil when all of the sealed stream is in the bucket

	// Set before done is closed, where err is nil.
	manifest   Object
	manifested Manifest
}

// packFile is a pack that is being written, in the staging folder.
type packFile struct {
	file *os.File
	hash hash.Hash
	size counter
	w    *pack.Writer
}

type counter int64

// Write implements [io.Writer].
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func (c *Client) newStage(feed topics.Feed, settings Settings, epoch uint64, st wire.StreamState) *stage {
	return &stage{
		client: c, feed: feed, settings: settings, epoch: epoch, state: st,
		hurry: make(chan struct{}), done: make(chan struct{}),
	}
}

// run stages until the stream is sealed and all of it is in the bucket, or ctx
// ends. While the stream is open it begins anew, from the WAL, whatever fails;
// once it is sealed somebody waits, and is told.
func (g *stage) run(ctx context.Context) {
	defer close(g.done)
	for pause := g.client.firstPause; ; pause = min(2*pause, longestPause) {
		err := g.work(ctx)
		g.mu.Lock()
		g.trouble = err
		g.mu.Unlock()
		if err == nil || ctx.Err() != nil || !g.open() || errors.Is(err, errOvertaken) || g.over != nil && g.over(ctx) {
			g.err = err
			return
		}
		g.client.cfg.Logger.Warn("stage a stream: it begins anew", "feed", g.feed, "stream", g.state.Number, "err", err)
		if g.pause(ctx, pause) != nil {
			g.err = err
			return
		}
	}
}

func (g *stage) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.sealed
}

// pause waits, until the stream is sealed at the latest where it was not.
func (g *stage) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	hurry := g.hurry
	if !g.open() {
		hurry = nil
	}
	select {
	case <-timer.C:
	case <-hurry:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (g *stage) work(ctx context.Context) (err error) {
	folder, err := staging.Make(g.client.cfg.StagingDir, g.feed.String())
	if err != nil {
		return fmt.Errorf("stage stream %d of feed %s: %w", g.state.Number, g.feed, err)
	}
	g.dir = folder.Path
	g.keys, g.pack, g.packs, g.next = newKeyIndexer(g.dir, g.settings), nil, nil, 1
	g.mu.Lock()
	g.staged = wire.Append{}
	g.mu.Unlock()
	defer func() {
		if g.pack != nil {
			err = errors.Join(err, g.pack.file.Close())
		}
		err = errors.Join(err, folder.Remove())
	}()
	g.lookAtBucket(ctx)
	in, err := g.client.readBatches(g.feed, g.state.Number, flusso.Offset(g.state.From), 1)
	if err != nil {
		return err
	}
	defer in.close()
	for {
		waiting, all := g.wait(ctx)
		if all {
			return g.complete(ctx)
		}
		records, a, err := in.read(waiting)
		switch {
		case err != nil && ctx.Err() == nil && waiting.Err() != nil:
			continue // it was sealed meanwhile
		case err != nil:
			return err
		}
		if a.Epoch > g.epoch {
			return fmt.Errorf("stage stream %d of feed %s: %w: batch of epoch %d, this is %d", g.state.Number, g.feed, errOvertaken, a.Epoch, g.epoch)
		}
		if err := g.add(ctx, records, a); err != nil {
			return err
		}
	}
}

// errOvertaken: somebody else appends to the stream, and stages it. An idle
// session learns of it here first.
var errOvertaken = errors.New("another session writes the stream")

// wait returns the context to wait for more under, or true when there will be
// no more.
func (g *stage) wait(ctx context.Context) (context.Context, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sealed {
		return ctx, g.next > g.last
	}
	if g.interrupt != nil {
		g.interrupt()
	}
	waiting, cancel := context.WithCancel(ctx)
	g.interrupt = cancel
	return waiting, false
}

// seal says that the stream ends at last.
func (g *stage) seal(last uint64, message string, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.sealed {
		close(g.hurry)
	}
	g.sealed, g.last, g.message, g.sealedAt = true, last, message, at
	if g.interrupt != nil {
		g.interrupt()
	}
}

func (g *stage) add(ctx context.Context, records []Record, a wire.Append) error {
	row := pack.Row{Sequence: a.First, AppendedAt: a.At.UnixMilli()}
	for i := range records {
		r := &records[i]
		if g.pack == nil {
			if err := g.openPack(); err != nil {
				return err
			}
		}
		row.Key, row.Payload, row.Version, row.Tombstone = r.Key, r.Payload, r.Version, r.Tombstone
		row.Fingerprint = [32]byte(r.Identity())
		if err := g.pack.w.Write(&row); err != nil {
			return fmt.Errorf("stage stream %d of feed %s: %w", g.state.Number, g.feed, err)
		}
		if err := g.keys.add(&row); err != nil {
			return fmt.Errorf("index stream %d of feed %s: %w", g.state.Number, g.feed, err)
		}
		row.Sequence++
		if g.pack.w.Summary().Weight() >= uint64(g.client.cfg.PackBytes) {
			if err := g.closePack(ctx); err != nil {
				return err
			}
		}
	}
	g.next = a.Last + 1
	g.mu.Lock()
	g.staged = a
	g.mu.Unlock()
	return nil
}

func (g *stage) openPack() error {
	f, err := os.CreateTemp(g.dir, "pack-")
	if err != nil {
		return fmt.Errorf("stage stream %d of feed %s: %w", g.state.Number, g.feed, err)
	}
	p := &packFile{file: f, hash: sha256.New()}
	p.w = pack.NewWriter(io.MultiWriter(f, p.hash, &p.size))
	g.pack = p
	return nil
}

// closePack completes the open pack and puts it into the bucket.
func (g *stage) closePack(ctx context.Context) error {
	p := g.pack
	if err := p.w.Close(); err != nil {
		return fmt.Errorf("stage stream %d of feed %s: %w", g.state.Number, g.feed, err)
	}
	sum := p.w.Summary()
	o := g.object("pack", sum.First, sum.Last, sum.Records, p.hash, int64(p.size))
	if err := g.put(ctx, p.file, &o); err != nil {
		return err
	}
	reached(stepPack)
	if err := g.keys.endPack(); err != nil {
		return fmt.Errorf("index stream %d of feed %s: %w", g.state.Number, g.feed, err)
	}
	g.packs = append(g.packs, o)
	g.pack = nil
	return errors.Join(p.file.Close(), os.Remove(p.file.Name()))
}

func (g *stage) object(kind string, first, last, records uint64, h hash.Hash, size int64) Object {
	sum := hex.EncodeToString(h.Sum(nil))
	return Object{
		Name: fmt.Sprintf("%s%s-%012d-%s", folderOf(g.feed.String(), g.settings.ID, g.state.Number, g.epoch), kind, first, sum),
		Size: size, SHA256: sum, First: first, Last: last, Records: records,
	}
}

// The pauses between attempts at the bucket: while the stream is open it is
// tried for ever, once it is sealed somebody waits.
const (
	firstPause     = time.Second
	longestPause   = time.Minute
	sealedAttempts = 4
)

// put puts an object into the bucket, again and again while it can't be.
func (g *stage) put(ctx context.Context, content io.ReadSeeker, o *Object) error {
	sum, err := hex.DecodeString(o.SHA256)
	if err != nil {
		return err
	}
	pause, hurried := g.client.firstPause, 0
	for attempt := 1; ; attempt++ {
		err := g.useBucket(ctx, func(b *bucket.Bucket) error {
			return b.Put(ctx, o.Name, content, [sha256.Size]byte(sum), o.Size)
		})
		g.mu.Lock()
		g.trouble = err
		hurry := g.sealed
		g.mu.Unlock()
		if err == nil {
			return nil
		}
		if hurry {
			if hurried++; hurried == 1 {
				pause = g.client.firstPause
			}
		}
		err = fmt.Errorf("flush stream %d of feed %s: %w", g.state.Number, g.feed, err)
		if ctx.Err() != nil || hurried >= sealedAttempts || g.over != nil && g.over(ctx) {
			return err
		}
		g.client.cfg.Logger.Warn("flush to the bucket: it is tried again", "feed", g.feed, "stream", g.state.Number, "attempt", attempt, "err", err)
		if g.pause(ctx, pause) != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

// useBucket opens the bucket, each time anew: a folder that was unmounted, or
// moved, is noticed by its marker, and nothing is written into what is there in
// its place.
func (g *stage) useBucket(ctx context.Context, use func(*bucket.Bucket) error) error {
	b, err := openBucket(ctx, g.feed, g.settings)
	if err != nil {
		return err
	}
	return errors.Join(use(b), b.Close())
}

// lookAtMost bounds the look at the bucket before anything goes there.
const lookAtMost = 5 * time.Second

// lookAtBucket warns of a bucket that can't be reached before it is needed:
// nothing waits for it until a pack is full, or the stream is sealed.
func (g *stage) lookAtBucket(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookAtMost)
	defer cancel()
	err := g.useBucket(ctx, func(*bucket.Bucket) error { return nil })
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	g.mu.Lock()
	g.trouble = err
	g.mu.Unlock()
	g.client.cfg.Logger.Warn("the bucket can't be used: appends go on, a seal would fail", "feed", g.feed, "stream", g.state.Number, "err", err)
}

// complete puts what is left into the bucket: the last pack, the key index,
// then the manifest that names them all.
func (g *stage) complete(ctx context.Context) error {
	if g.pack != nil {
		if err := g.closePack(ctx); err != nil {
			return err
		}
	}
	reached(stepPacks)
	index, err := g.index(ctx)
	if err != nil {
		return err
	}
	reached(stepIndex)
	g.mu.Lock()
	m := Manifest{
		Version: manifestVersion, Feed: g.feed.String(), FeedID: g.settings.ID, Stream: g.state.Number, Epoch: g.epoch,
		Last: g.last, Records: g.last, Bytes: g.staged.Bytes, Keyed: g.settings.Keyed, Latest: g.settings.Latest,
		Message: g.message, SealedAt: g.sealedAt.UTC().Truncate(time.Millisecond), Packs: g.packs, Index: index,
	}
	g.mu.Unlock()
	if m.Records > 0 {
		m.First = 1
	}
	if m.Packs == nil {
		m.Packs = []Object{}
	}
	content, err := m.encode()
	if err != nil {
		return err
	}
	h := sha256.New()
	h.Write(content)
	o := g.object("manifest", m.First, m.Last, m.Records, h, int64(len(content)))
	if err := g.put(ctx, bytes.NewReader(content), &o); err != nil {
		return err
	}
	g.manifest, g.manifested = o, m
	return nil
}

// index puts the stream's key index into the bucket; nil for a stream without
// keys.
func (g *stage) index(ctx context.Context) (_ *Object, err error) {
	f, err := g.keys.merged()
	if f == nil || err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	sums := pack.NewSummer()
	size, err := io.Copy(io.MultiWriter(h, sums), f)
	if err != nil {
		return nil, fmt.Errorf("index stream %d of feed %s: %w", g.state.Number, g.feed, err)
	}
	x, err := pack.OpenIndex(f, size)
	if err != nil {
		return nil, err
	}
	o := g.object("index", g.packs[0].First, g.packs[len(g.packs)-1].Last, x.Entries(), h, size)
	of := sums.Sums()
	o.Sums = &of
	return &o, g.put(ctx, f, &o)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
