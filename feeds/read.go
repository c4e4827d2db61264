package feeds

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/pack"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Item is one record as it is read, or the news that a stream was discarded.
type Item struct {
	Record

	Stream     uint64
	Sequence   uint64
	AppendedAt time.Time
	Commit     uint64 // number of the commit it was read from; 0 for a record that is not sealed yet
	// Discarded says that the stream, of which records were delivered, was
	// dropped without a commit: forget them. The record is empty.
	Discarded bool

	// What [Item.Place] is made of, beside stream and sequence.
	of     string   // the feed, by [shortID]; empty where the item was not read on from
	passed uint64   // commits that were delivered or passed whole
	others []readTo // the other streams without commit, as far as they were read
}

// ReadOptions say where to read from and how far.
type ReadOptions struct {
	// Stream and Sequence are where to begin: with that record of that stream,
	// going on with what follows it. Stream 0 is the beginning of the feed.
	//
	// What lies before that is passed over, in the order of now: for a record
	// without commit all commits, and the streams without commit that have lower
	// numbers, as far as they go when reading begins. To go on where a reader
	// stopped keep its place and give After: of another stream, resumed or sealed
	// meanwhile, more may be before that record by now than was read.
	Stream, Sequence uint64
	// FromCommit begins with that commit instead.
	FromCommit uint64
	// After goes on where a reader stopped, behind the item whose place it is.
	After Place
	// Sealed leaves out what has no commit.
	Sealed bool
	// Follow goes on with what is appended, until the context ends. It
	// excludes Sealed.
	Follow bool
}

// Read iterates over the records of a feed: its commits in their order, then
// the streams without commit by number, marked by Commit 0, then, when told to
// follow, what is appended. Each record comes once, also where a seal happens
// meanwhile. Records are good until the next one. An error ends the iteration;
// the context's is how following ends.
func (c *Client) Read(ctx context.Context, name string, o ReadOptions) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		r, err := c.newReading(ctx, name, o)
		if err == nil {
			r.yield = yield
			err = r.run(ctx)
			err = errors.Join(err, r.close())
			if kafkaerr.Classify(err) == kafkaerr.Missing {
				err = deletedMeanwhile(r.feed)
			}
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Item{}, err)
		}
	}
}

// errStopped: whoever reads has had enough.
var errStopped = errors.New("stopped")

// reading is one call of Read.
type reading struct {
	client *Client
	feed   topics.Feed
	o      ReadOptions
	yield  func(Item, error) bool

	settings  Settings
	bucket    *bucket.Bucket
	commits   uint64            // number of the newest commit that was delivered or passed
	begun     bool              // the place to begin at was reached
	delivered map[uint64]uint64 // last sequence of each stream that was delivered or passed
	seen      map[uint64]bool   // streams without commit that a place names: whether a record was delivered, or only passed
	dropped   map[uint64]bool   // streams that were discarded
	othersOf  uint64            // the stream that others are the others of; 0 where they are to be looked at again
	others    []readTo
}

func (c *Client) newReading(ctx context.Context, name string, o ReadOptions) (*reading, error) {
	feed, err := topics.NewFeed(name)
	if err != nil {
		return nil, err
	}
	bad := func(reason string) (*reading, error) {
		return nil, &flusso.InvalidError{What: "place to read feed " + name + " from", Reason: reason}
	}
	switch {
	case o.Follow && o.Sealed:
		return bad("following what is sealed alone is not offered: read from the last commit again")
	case o.Stream == 0 && o.Sequence > 0:
		return bad("a sequence without its stream")
	case o.Stream > 0 && o.FromCommit > 0:
		return bad("a stream and a commit")
	case o.After != "" && (o.Stream > 0 || o.FromCommit > 0):
		return bad("a place to go on behind, and a stream or a commit")
	}
	e, err := c.state(ctx, feed)
	if err != nil {
		return nil, err
	}
	if o.Stream > e.State.Newest {
		return bad(fmt.Sprintf("there is no stream %d: the newest is %d", o.Stream, e.State.Newest))
	}
	if o.FromCommit > e.State.Commits {
		return bad(fmt.Sprintf("there is no commit %d: the newest is %d", o.FromCommit, e.State.Commits))
	}
	r := &reading{
		client: c, feed: feed, o: o, settings: e.Settings, begun: o.Stream == 0,
		delivered: make(map[uint64]uint64), seen: make(map[uint64]bool), dropped: make(map[uint64]bool),
	}
	if o.FromCommit > 0 {
		r.commits = o.FromCommit - 1
	}
	if o.Sequence > 1 {
		r.delivered[o.Stream], r.seen[o.Stream] = o.Sequence-1, false
	}
	if o.After != "" {
		return r, r.resume(o.After, e.State.Newest, e.State.Commits)
	}
	return r, nil
}

func (r *reading) close() error {
	if r.bucket == nil {
		return nil
	}
	return r.bucket.Close()
}

func (r *reading) run(ctx context.Context) error {
	wal := r.feed.WALTopic()
	var newest wire.Event // of the round before
	for {
		// Looked up first: what the WAL holds below belongs to streams that the
		// log tells of, and what comes behind is followed.
		ends, err := partition.LookUp(ctx, r.client.client, wal)
		if err != nil {
			return err
		}
		before := newest
		if newest, err = r.readCommits(ctx); err != nil || r.o.Sealed {
			return err
		}
		gone, err := r.readOpen(ctx, newest.State, ends[wal])
		if _, isGone := errors.AsType[*partition.GoneError](err); !isGone {
			return err
		}
		// The WAL was trimmed below what was to be read: what was there has
		// been committed, or discarded, and the log says which. Where nothing
		// has happened since it was read before, records are missing.
		if gone && before.Kind != "" && sameEvent(before, newest) {
			return fmt.Errorf("feed %s: its WAL was trimmed by something else, records that have no commit are missing: %w", r.feed, err)
		}
	}
}

// sameEvent tells whether nothing happened between two looks at the newest
// event: every change of streams or lease shows.
func sameEvent(a, b wire.Event) bool {
	return a.Kind == b.Kind && a.At.Equal(b.At) && a.Stream == b.Stream && a.State.Epoch == b.State.Epoch
}

// readCommits delivers the commits that are new, and returns the feed's newest
// event.
func (r *reading) readCommits(ctx context.Context) (wire.Event, error) {
	var state wire.Event
	for e, err := range r.client.events(ctx, r.feed) {
		if err != nil {
			return state, err
		}
		if e.Settings.ID != r.settings.ID { // the places that were read are another's
			return state, deletedMeanwhile(r.feed)
		}
		state = e
		switch {
		case e.Kind == wire.StreamDiscarded:
			if err := r.discarded(e.Stream); err != nil {
				return state, err
			}
		case e.Kind == wire.StreamCommitted && e.Commit.Number <= r.commits:
			// Delivered, or passed: of what the WAL still holds of it nothing is new.
			r.delivered[e.Stream] = e.Commit.Last
		case e.Kind == wire.StreamCommitted:
			if !r.begun && e.Stream != r.o.Stream {
				r.delivered[e.Stream] = e.Commit.Last // it lies before the place to begin at
			}
			r.begun = r.begun || e.Stream == r.o.Stream
			if err := r.readCommit(ctx, commitOf(e)); err != nil {
				return state, err
			}
			r.commits = e.Commit.Number
		}
	}
	return state, nil
}

func (r *reading) discarded(stream uint64) error {
	r.dropped[stream] = true
	r.begun = r.begun || stream == r.o.Stream // what follows it comes next
	known := r.seen[stream]
	r.forget(stream)
	if !known {
		return nil
	}
	if !r.yield(r.item(Item{Stream: stream, Discarded: true}), nil) {
		return errStopped
	}
	return nil
}

// readCommit delivers what was not delivered of a commit.
func (r *reading) readCommit(ctx context.Context, c Commit) error {
	r.forget(c.Stream) // it can't be discarded any more
	last := r.delivered[c.Stream]
	switch {
	case last > c.Last && r.o.After != "":
		return r.o.After.invalid("stream %d of feed %s has %d records: nothing can have been read behind them", c.Stream, r.feed, c.Last)
	case last >= c.Last:
		return nil
	}
	m, err := r.manifest(ctx, c)
	if err != nil {
		return err
	}
	for _, p := range m.Packs {
		if p.Last <= r.delivered[c.Stream] {
			continue
		}
		if err := r.readPack(ctx, c, p); err != nil {
			return fmt.Errorf("read commit %d of feed %s: %w", c.Number, r.feed, err)
		}
	}
	return nil
}

func (r *reading) open(ctx context.Context) error {
	if r.bucket != nil {
		return nil
	}
	var err error
	r.bucket, err = openBucket(ctx, r.feed, r.settings)
	return err
}

func (r *reading) manifest(ctx context.Context, c Commit) (Manifest, error) {
	if err := r.open(ctx); err != nil {
		return Manifest{}, fmt.Errorf("read commit %d of feed %s: %w", c.Number, r.feed, err)
	}
	return readManifest(ctx, r.bucket, r.feed, c)
}

// readManifest reads a commit's manifest and compares it with what the log
// says of it.
func readManifest(ctx context.Context, b *bucket.Bucket, feed topics.Feed, c Commit) (Manifest, error) {
	content, err := b.Read(ctx, c.Manifest, maxManifest)
	if err != nil {
		return Manifest{}, fmt.Errorf("read commit %d of feed %s: %w", c.Number, feed, err)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != c.ManifestHash {
		return Manifest{}, fmt.Errorf("read commit %d of feed %s: manifest %s: %w", c.Number, feed, c.Manifest, bucket.ErrDiffers)
	}
	return parseManifest(c.Manifest, content)
}

// readPack delivers a pack from the first record that was not delivered. It is
// fetched whole and compared with its hash first: nothing damaged is delivered.
func (r *reading) readPack(ctx context.Context, c Commit, o Object) (err error) {
	f, err := fetch(ctx, r.bucket, o, r.client.cfg.StagingDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, err := pack.NewReader(f, o.Size)
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	for row, err := range p.From(r.delivered[c.Stream] + 1) {
		if err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
		item := Item{Record: recordOf(row), Stream: c.Stream, Sequence: row.Sequence, AppendedAt: time.UnixMilli(row.AppendedAt), Commit: c.Number}
		r.delivered[c.Stream] = row.Sequence
		if !r.yield(r.item(item), nil) {
			return errStopped
		}
	}
	return nil
}

func recordOf(row *pack.Row) Record {
	return Record{Key: row.Key, Payload: row.Payload, Version: row.Version, Tombstone: row.Tombstone, Fingerprint: row.Fingerprint[:]}
}

// fetch copies an object into a temporary file, compared with its hash. Closing
// the file removes it.
func fetch(ctx context.Context, b *bucket.Bucket, o Object, dir string) (_ *fetched, err error) {
	sum, err := hex.DecodeString(o.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("object %s: %q is no SHA-256", o.Name, o.SHA256)
	}
	file, err := os.CreateTemp(dir, "flusso-read-")
	if err != nil {
		return nil, err
	}
	f := &fetched{File: file}
	// Where a file may lose its name while it is open, nothing is left of it by a
	// process that is killed.
	f.nameless = os.Remove(file.Name()) == nil
	if err = b.Copy(ctx, f, o.Name, [sha256.Size]byte(sum), o.Size); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// fetched is a temporary file.
type fetched struct {
	*os.File

	nameless bool
}

// Close closes the file and removes it.
func (f *fetched) Close() error {
	err := f.File.Close()
	if !f.nameless {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// readOpen delivers the streams without commit, by number, up to where the WAL
// ended, and then follows. Of a [*partition.GoneError] it says whether a stream
// that the state names was missing.
func (r *reading) readOpen(ctx context.Context, state wire.FeedState, ends partition.Ends) (gone bool, err error) {
	for _, st := range state.Streams {
		if !r.begun && st.Number < r.o.Stream {
			if err := r.pass(ctx, st, ends); err != nil {
				return true, err
			}
			continue
		}
		if err := r.readStream(ctx, st, ends.High); err != nil {
			return true, err
		}
	}
	r.begun = true
	if !r.o.Follow {
		return false, nil
	}
	// From where no batch was half written.
	return false, r.follow(ctx, ends.Stable)
}

// pass passes over a stream without commit that lies before the place to begin
// at: what is appended to it from now on is read.
func (r *reading) pass(ctx context.Context, st wire.StreamState, ends partition.Ends) error {
	last := st.Last
	if st.Step == wire.StreamOpen {
		tail, err := r.client.tailOf(ctx, r.feed, ends, st)
		if _, hole := errors.AsType[*HoleError](err); err != nil && !hole { // whoever reads it is told
			return err
		}
		last = max(last, tail.Last)
	}
	r.delivered[st.Number], r.seen[st.Number] = last, false
	return nil
}

func (r *reading) readStream(ctx context.Context, st wire.StreamState, end flusso.Offset) error {
	in, err := r.client.readBatches(r.feed, st.Number, flusso.Offset(st.From), r.delivered[st.Number]+1)
	if err != nil {
		return err
	}
	defer in.close()
	for in.r.Next() < end {
		records, a, err := in.readUntil(ctx, end)
		if err != nil {
			return err
		}
		if err := r.deliver(records, a); err != nil {
			return err
		}
	}
	return nil
}

// deliver delivers what was not delivered of a batch of the WAL.
func (r *reading) deliver(records []Record, a wire.Append) error {
	last := r.delivered[a.Stream]
	switch {
	case r.dropped[a.Stream]:
		return nil
	case a.First > last+1:
		return &HoleError{Feed: r.feed.String(), Stream: a.Stream, Want: last + 1, Got: a.First}
	}
	for i := range records {
		sequence := a.First + uint64(i)
		if sequence <= last {
			continue
		}
		records[i].Fingerprint = records[i].Identity()
		r.delivered[a.Stream], r.seen[a.Stream] = sequence, true
		if !r.yield(r.item(Item{Record: records[i], Stream: a.Stream, Sequence: sequence, AppendedAt: a.At}), nil) {
			return errStopped
		}
	}
	return nil
}
