package pack

import (
	"bytes"
	"iter"
	"slices"
)

// Run gathers keys in memory: the newest entry of each. Whoever fills it looks
// at its weight. It is not for concurrent use.
type Run struct {
	newer   Newer
	entries map[string]Entry
	weight  int
}

// runEntryWeight is about what an entry of a run takes in memory beside its key.
const runEntryWeight = 160

// NewRun returns an empty run.
func NewRun(newer Newer) *Run { return &Run{newer: newer, entries: make(map[string]Entry)} }

// Add notes a record with a key; one without is none of its business.
func (r *Run) Add(row *Row, pack uint32) {
	if row.Key == nil {
		return
	}
	e := Entry{Sequence: row.Sequence, Version: row.Version, Tombstone: row.Tombstone, Pack: pack}
	old, ok := r.entries[string(row.Key)]
	if ok && !r.newer(&old, &e) {
		return
	}
	if !ok {
		r.weight += len(row.Key) + runEntryWeight
	}
	r.entries[string(row.Key)] = e
}

// Len returns how many keys there are.
func (r *Run) Len() int { return len(r.entries) }

// Weight returns about how many bytes of memory the run takes.
func (r *Run) Weight() int { return r.weight }

// Sorted iterates over the entries by key.
func (r *Run) Sorted() iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		keys := make([][]byte, 0, len(r.entries))
		for k := range r.entries {
			keys = append(keys, []byte(k))
		}
		slices.SortFunc(keys, bytes.Compare)
		for _, k := range keys {
			e := r.entries[string(k)]
			e.Key = k
			if !yield(&e, nil) {
				return
			}
		}
	}
}
