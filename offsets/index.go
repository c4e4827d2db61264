package offsets

import (
	"math/bits"
	"slices"
	"sort"
	"sync"

	flusso "github.com/flusso/flusso-kafka"
)

// Found is a committed item and where it ends.
type Found struct {
	At          flusso.Offset // offset of the record that carries the header
	LeaderEpoch int32         // of that record's batch; -1 when unknown
	Header      Header
}

// Next returns the offset to commit when everything up to and including the
// item is acked.
func (f Found) Next() flusso.Offset { return f.At + 1 }

// cut reports whether the first records of the item are gone, in a log that
// begins at start.
func (f Found) cut(start flusso.Offset) bool { return f.At-start+1 < flusso.Offset(f.Header.Records) }

// The size of an index: how many headers it keeps next to the tail and next
// to the mark on each side, and at most in all.
const (
	indexNear = 16
	indexSize = 96
)

// Index maps offsets of one lane to headers: every header near the tail and
// near the committed offset, ever fewer farther back, never more than about a
// hundred. It answers only what it knows exactly: an answer is the one a read
// would have given, or none. It belongs to one topic ID and leader epoch and
// to one source incarnation; another one empties it. It may be used
// concurrently.
type Index struct {
	mu      sync.Mutex
	topicID [16]byte
	epoch   int32
	mark    flusso.Offset
	start   flusso.Offset
	entries []entry // ascending
}

// entry is a header with what is known around it: no item ends in
// [since, At) or in (At, until).
type entry struct {
	Found
	since, until flusso.Offset
}

// NewIndex returns an empty index.
func NewIndex() *Index { return &Index{mark: flusso.NoOffset} }

// Len returns the number of headers kept.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.entries)
}

// Reset says which topic and leader epoch the lane has now. Any other than
// before empties the index: after an unclean election the log may have been
// written anew.
func (x *Index) Reset(topicID [16]byte, leaderEpoch int32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reset(topicID, leaderEpoch)
}

func (x *Index) reset(topicID [16]byte, leaderEpoch int32) {
	if x.topicID != topicID || x.epoch != leaderEpoch {
		x.topicID, x.epoch = topicID, leaderEpoch
		x.entries, x.start = nil, 0
	}
}

// see takes the ends of the log into account: what is below its start is
// unknown from now on, and a log that ends before a header was truncated.
func (x *Index) see(e Ends) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reset(e.TopicID, e.LeaderEpoch)
	x.trim(e.Start)
	if n := len(x.entries); n > 0 && x.entries[n-1].At >= e.High {
		x.entries = nil
	}
}

// Trim says that the log starts at start.
func (x *Index) Trim(start flusso.Offset) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trim(start)
}

func (x *Index) trim(start flusso.Offset) {
	x.start = max(x.start, start)
	x.entries = slices.DeleteFunc(x.entries, func(e entry) bool { return e.At < x.start })
}

// Mark says what is committed: headers near it are kept.
func (x *Index) Mark(committed flusso.Offset) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mark = committed
}

// Add records a committed item of the topic with that ID, led in that epoch,
// as a consumer or writer sees it go by.
func (x *Index) Add(topicID [16]byte, leaderEpoch int32, f Found) {
	x.add(topicID, leaderEpoch, f, f.At, f.Next())
}

// add records that f is an item, and that no other ends in [since, until).
func (x *Index) add(topicID [16]byte, leaderEpoch int32, f Found, since, until flusso.Offset) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reset(topicID, leaderEpoch)
	if f.At < x.start {
		return
	}
	if n := len(x.entries); n > 0 {
		newest := &x.entries[n-1]
		switch {
		case newest.Header.Incarnation == f.Header.Incarnation:
			f.Header.Incarnation = newest.Header.Incarnation // one string for all
		case f.At > newest.At:
			x.entries = x.entries[:0]
		default:
			return // of an older incarnation: a read answers
		}
	}
	i := x.search(f.At)
	if i < len(x.entries) && x.entries[i].At == f.At {
		e := &x.entries[i]
		e.since, e.until = min(e.since, since), max(e.until, until)
	} else {
		x.entries = slices.Insert(x.entries, i, entry{f, since, until})
	}
	if i > 0 {
		x.link(i - 1)
	}
	if i+1 < len(x.entries) {
		x.link(i)
	}
	if len(x.entries) > indexSize {
		x.thin()
	}
}

// link completes what entries i and i+1 know of each other.
func (x *Index) link(i int) {
	a, b := &x.entries[i], &x.entries[i+1]
	if a.Header.Sequence+1 == b.Header.Sequence || a.until >= b.since {
		a.until, b.since = max(a.until, b.At), min(b.since, a.Next())
	}
}

// search returns the position of the first entry at or above off.
func (x *Index) search(off flusso.Offset) int {
	return sort.Search(len(x.entries), func(i int) bool { return x.entries[i].At >= off })
}

// Below returns the newest item that ends below off, if that is known.
func (x *Index) Below(off flusso.Offset) (Found, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.search(off) - 1
	if i < 0 || off <= x.start || off > x.entries[i].until {
		return Found{}, false
	}
	return x.entries[i].Found, true
}

// From returns the first item that ends at or above off, if that is known.
func (x *Index) From(off flusso.Offset) (Found, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.search(off)
	if i == len(x.entries) || off < x.start || off < x.entries[i].since {
		return Found{}, false
	}
	return x.entries[i].Found, true
}

// around returns the newest entry for which beyond is false and the oldest
// for which it is true; beyond must be false up to some item and true from
// there on.
func (x *Index) around(beyond func(*Header) bool) (before, after *Found) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(len(x.entries), func(i int) bool { return beyond(&x.entries[i].Header) })
	if i > 0 {
		f := x.entries[i-1].Found
		before = &f
	}
	if i < len(x.entries) {
		f := x.entries[i].Found
		after = &f
	}
	return before, after
}

// thin drops entries far from tail and mark: of those whose distance from
// the tail has the same number of binary digits it keeps two.
func (x *Index) thin() {
	n := len(x.entries)
	tail := x.entries[n-1].Header.Sequence
	mark := x.search(x.mark)
	var kept [65]int
	out := x.entries[:0]
	for i := range n {
		e := x.entries[i]
		near := i >= n-indexNear || x.mark >= 0 && i >= mark-indexNear && i < mark+indexNear
		if !near {
			digits := bits.Len64(tail - min(tail, e.Header.Sequence))
			if kept[digits] >= 2 {
				continue
			}
			kept[digits]++
		}
		out = append(out, e)
	}
	clear(x.entries[len(out):])
	x.entries = out
}
