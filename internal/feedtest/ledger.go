package feedtest

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flusso/flusso-kafka/feeds"
)

// Keys is how many keys the records of a test have.
const Keys = 7

// BatchOf returns the batch of that name, the same whoever asks: n records, or
// where n is 0 one to four, some with a key, and an id for every other batch.
// Each payload tells its batch, its place in it, and how many there are.
func BatchOf(name string, n int) feeds.Batch {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	sum := h.Sum64()
	if n == 0 {
		n = 1 + int(sum%4)
	}
	var b feeds.Batch
	for i := range n {
		r := feeds.Record{Payload: fmt.Appendf(nil, "%s#%d/%d", name, i, n)}
		if bits := sum >> (8 + 8*(i%6)); bits%3 > 0 {
			r.Key = Key(int(bits>>2) % Keys)
			r.Tombstone = bits%10 == 0
		}
		b.Records = append(b.Records, r)
	}
	if sum>>3%2 == 0 {
		b.ID = name
	}
	return b
}

// Key is one of the [Keys].
func Key(i int) []byte { return fmt.Appendf(nil, "k%d", i) }

// batchOf is the inverse of a payload.
func batchOf(payload string) (name string, i, n int, err error) {
	name, rest, _ := strings.Cut(payload, "#")
	if _, err := fmt.Sscanf(rest, "%d/%d", &i, &n); err != nil || payload != fmt.Sprintf("%s#%d/%d", name, i, n) {
		return "", 0, 0, fmt.Errorf("nobody appended %q", payload)
	}
	return name, i, n, nil
}

// Place is where a record is.
type Place struct{ Stream, Sequence uint64 }

func (p Place) String() string { return fmt.Sprintf("%d/%d", p.Stream, p.Sequence) }

// ack is what a writer was told of one record.
type ack struct {
	payload string
	epoch   uint64 // of the session
}

// Ledger is what the writers and administrators of a feed were told, and the
// comparison of the feed with that. Of what it was not told of, a batch may be
// there, whole, or not. It may be used concurrently.
type Ledger struct {
	mu        sync.Mutex
	acked     map[Place]ack
	at        map[string]Place // batch → its first record, of those that were acked
	rejected  map[string]bool  // batches
	unknown   map[string]bool  // batches
	commits   map[uint64]feeds.Commit
	discarded map[uint64]bool // streams; true: certainly
}

// NewLedger returns an empty one.
func NewLedger() *Ledger {
	return &Ledger{
		acked: make(map[Place]ack), at: make(map[string]Place), rejected: make(map[string]bool), unknown: make(map[string]bool),
		commits: make(map[uint64]feeds.Commit), discarded: make(map[uint64]bool),
	}
}

// Acked notes that a session was told that a batch is durable; epoch 0: that it
// was appended before. Where two were told so of the same place the test fails,
// unless it was one batch, that was repeated.
func (l *Ledger) Acked(t testing.TB, batch string, at feeds.Range, epoch uint64) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Last != at.First+at.Records-1 || at.First == 0 || at.Records == 0 {
		t.Errorf("batch %s was acked for %+v", batch, at)
	}
	if other, twice := l.at[batch]; twice && other != (Place{at.Stream, at.First}) {
		t.Errorf("batch %s was acked for %s and for %d/%d", batch, other, at.Stream, at.First)
	}
	l.at[batch] = Place{at.Stream, at.First}
	for i := range at.Records {
		p := Place{at.Stream, at.First + i}
		mine := ack{fmt.Sprintf("%s#%d/%d", batch, i, at.Records), epoch}
		other, taken := l.acked[p]
		if taken && other.payload != mine.payload {
			t.Errorf("%s was acked for %s by epoch %d and for %s by epoch %d", p, other.payload, other.epoch, mine.payload, epoch)
		}
		if taken {
			mine.epoch = max(mine.epoch, other.epoch) // of who appended it: who was told so again says 0
		}
		l.acked[p] = mine
	}
}

// Rejected notes that a batch is certainly not there, unless it is repeated.
func (l *Ledger) Rejected(batch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rejected[batch] = true
}

// Unknown notes that a batch may be there.
func (l *Ledger) Unknown(batch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unknown[batch] = true
}

// Committed notes a commit that somebody was told of.
func (l *Ledger) Committed(t testing.TB, c feeds.Commit) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if have, ok := l.commits[c.Number]; ok && (have.Stream != c.Stream || have.ManifestHash != c.ManifestHash || have.Records != c.Records) {
		t.Errorf("commit %d is stream %d with manifest %s and stream %d with manifest %s", c.Number, have.Stream, have.ManifestHash, c.Stream, c.ManifestHash)
	}
	l.commits[c.Number] = c
}

// Discarded notes that a stream was discarded, or may have been.
func (l *Ledger) Discarded(stream uint64, certainly bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.discarded[stream] = l.discarded[stream] || certainly
}

// Records returns how many records were acked.
func (l *Ledger) Records() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// Counts says what there is in the ledger.
func (l *Ledger) Counts() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d records in %d batches acked, %d batches rejected, %d unknown; %d commits, %d discards",
		len(l.acked), len(l.at), len(l.rejected), len(l.unknown), len(l.commits), len(l.discarded))
}

// Compare reads all of a feed that nobody writes to and compares it with the
// ledger: commits numbered without holes; sequences without holes; each acked
// record once and in its place; nothing that was rejected; batches whole; of
// each key the newest; everything verified. It returns what is there.
func (l *Ledger) Compare(ctx context.Context, t testing.TB, c *feeds.Client, feed string) map[Place]string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	commits := l.history(ctx, t, c, feed)
	d, err := c.Describe(ctx, feed)
	if err != nil {
		t.Fatal(err)
	}
	visible := make(map[uint64]bool)
	for stream := range commits {
		visible[stream] = true
	}
	for _, st := range d.Streams {
		if visible[st.Number] {
			t.Errorf("stream %d has a commit and is %s", st.Number, st.State)
		}
		visible[st.Number] = true
	}
	for stream, certainly := range l.discarded {
		if visible[stream] && certainly {
			t.Errorf("stream %d was discarded and is there", stream)
		}
	}
	there := read(ctx, t, c, feed, commits)
	for p := range there {
		if !visible[p.Stream] {
			t.Errorf("%s is read, of a stream that is not there", p)
		}
	}
	l.acks(t, there, visible)
	l.whole(t, there)
	n := 0
	for v, err := range c.Verify(ctx, feed) {
		if err != nil || v.Err != nil {
			t.Errorf("verify: %v, %v", v.Err, err)
		}
		n++
	}
	if n != len(commits) {
		t.Errorf("%d of %d commits are verified", n, len(commits))
	}
	return there
}

// history returns the commits by their streams.
func (l *Ledger) history(ctx context.Context, t testing.TB, c *feeds.Client, feed string) map[uint64]feeds.Commit {
	t.Helper()
	next, commits := uint64(1), make(map[uint64]feeds.Commit)
	for c, err := range c.History(ctx, feed) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Number != next {
			t.Errorf("commit %d follows %d", c.Number, next-1)
		}
		next = c.Number + 1
		if other, twice := commits[c.Stream]; twice {
			t.Errorf("stream %d is commit %d and commit %d", c.Stream, other.Number, c.Number)
		}
		commits[c.Stream] = c
		if told, ok := l.commits[c.Number]; ok && (told.Stream != c.Stream || told.Message != c.Message || told.Records != c.Records || told.ManifestHash != c.ManifestHash) {
			t.Errorf("commit %d is %+v, a writer was told %+v", c.Number, c, told)
		}
	}
	for number, c := range l.commits {
		if number >= next {
			t.Errorf("commit %d of stream %d, of which a writer was told, is not in the history", number, c.Stream)
		}
	}
	return commits
}

// acks compares what was acked with what is there, and the order of the
// records with that of the sessions.
func (l *Ledger) acks(t testing.TB, there map[Place]string, visible map[uint64]bool) {
	t.Helper()
	places := slices.SortedFunc(maps.Keys(l.acked), func(a, b Place) int {
		if a.Stream != b.Stream {
			return int(a.Stream) - int(b.Stream)
		}
		return int(a.Sequence) - int(b.Sequence)
	})
	var before Place
	for _, p := range places {
		told := l.acked[p]
		if told.epoch > 0 && p.Stream == before.Stream && told.epoch < l.acked[before].epoch {
			t.Errorf("%s was acked by epoch %d, and %s, before it, by epoch %d", p, told.epoch, before, l.acked[before].epoch)
		}
		if told.epoch > 0 {
			before = p
		}
		if visible[p.Stream] {
			if there[p] != told.payload {
				t.Errorf("%s was acked for %s by epoch %d, and %q is there", p, told.payload, told.epoch, there[p])
			}
			continue
		}
		if _, discarded := l.discarded[p.Stream]; !discarded {
			t.Errorf("%s was acked for %s, and its stream is gone without having been discarded", p, told.payload)
		}
	}
}

// whole checks that each batch is there once, as a whole and in one place, or
// not at all, and that none is there that was rejected.
func (l *Ledger) whole(t testing.TB, there map[Place]string) {
	t.Helper()
	first, parts, sizes := make(map[string]Place), make(map[string]int), make(map[string]int)
	for p, payload := range there {
		batch, i, n, err := batchOf(payload)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		at := Place{p.Stream, p.Sequence - uint64(i)}
		if other, seen := first[batch]; seen && other != at {
			t.Errorf("batch %s is at %s and at %s", batch, other, at)
		}
		first[batch], sizes[batch] = at, n
		parts[batch]++
		if _, acked := l.at[batch]; l.rejected[batch] && !acked {
			t.Errorf("%s holds %s, which was rejected", p, payload)
		}
	}
	for batch, n := range parts {
		if n != sizes[batch] {
			t.Errorf("%d of the %d records of batch %s are there", n, sizes[batch], batch)
		}
	}
}

// read returns what can be read, by place, and compares it with the history
// and with Latest.
func read(ctx context.Context, t testing.TB, c *feeds.Client, feed string, commits map[uint64]feeds.Commit) map[Place]string {
	t.Helper()
	there, last, newest := make(map[Place]string), make(map[uint64]uint64), make(map[string]feeds.Item)
	var before feeds.Item
	for item, err := range c.Read(ctx, feed, feeds.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		p := Place{item.Stream, item.Sequence}
		if item.Sequence != last[item.Stream]+1 {
			t.Errorf("stream %d: sequence %d follows %d", item.Stream, item.Sequence, last[item.Stream])
		}
		last[item.Stream] = item.Sequence
		if item.Commit != commits[item.Stream].Number {
			t.Errorf("%s is read from commit %d, the history says %d", p, item.Commit, commits[item.Stream].Number)
		}
		if !inOrder(before, item) {
			t.Errorf("%s of commit %d comes behind %d/%d of commit %d", p, item.Commit, before.Stream, before.Sequence, before.Commit)
		}
		before = feeds.Item{Stream: item.Stream, Sequence: item.Sequence, Commit: item.Commit}
		there[p] = string(item.Payload)
		if item.Key != nil {
			item.Payload = slices.Clone(item.Payload)
			newest[string(item.Key)] = item
		}
	}
	for stream, c := range commits {
		if last[stream] != c.Records || c.Last != c.Records {
			t.Errorf("commit %d has %d records, up to %d; %d are read", c.Number, c.Records, c.Last, last[stream])
		}
	}
	for i := range Keys {
		want, has := newest[string(Key(i))]
		got, found, err := c.Latest(ctx, feed, Key(i))
		if err != nil || found != has || string(got.Payload) != string(want.Payload) || got.Tombstone != want.Tombstone || got.Stream != want.Stream || got.Sequence != want.Sequence {
			t.Errorf("latest of %s: %s at %d/%d, %v, %v; want %s at %d/%d", Key(i), got.Payload, got.Stream, got.Sequence, found, err, want.Payload, want.Stream, want.Sequence)
		}
	}
	return there
}

// inOrder: commits, then the streams without commit by number.
func inOrder(a, b feeds.Item) bool {
	switch {
	case a.Stream == b.Stream:
		return true
	case a.Commit == 0 && b.Commit == 0:
		return a.Stream < b.Stream
	case a.Commit == 0:
		return a.Stream == 0 // the very first
	}
	return b.Commit == 0 || a.Commit < b.Commit
}

// Glance reads what there is while others write: sequences without holes, no
// half of a batch, nothing rejected. It returns the error with which reading
// ended.
func (l *Ledger) Glance(ctx context.Context, t testing.TB, c *feeds.Client, feed string) error {
	t.Helper()
	there, last := make(map[Place]string), make(map[uint64]uint64)
	for item, err := range c.Read(ctx, feed, feeds.ReadOptions{}) {
		if err != nil {
			return err
		}
		if item.Discarded {
			maps.DeleteFunc(there, func(p Place, _ string) bool { return p.Stream == item.Stream })
			continue
		}
		if item.Sequence != last[item.Stream]+1 {
			t.Errorf("while others write: stream %d: sequence %d follows %d", item.Stream, item.Sequence, last[item.Stream])
		}
		last[item.Stream] = item.Sequence
		there[Place{item.Stream, item.Sequence}] = string(item.Payload)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole(t, there)
	return nil
}
