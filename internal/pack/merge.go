package pack

import (
	"bytes"
	"container/heap"
	"fmt"
	"iter"
)

// MaxMerge is how many runs are merged at a time: each holds a page in memory.
const MaxMerge = 64

// Newer decides which of two records of one key is the newest: whether b wins
// over a. The caller knows the feed's rule.
type Newer func(a, b *Entry) bool

// BySequence lets the later record win.
func BySequence(a, b *Entry) bool { return b.Sequence > a.Sequence }

// ByVersion lets the highest version win, of equal ones the later record.
func ByVersion(a, b *Entry) bool {
	va, vb := version(a), version(b)
	return vb > va || vb == va && b.Sequence > a.Sequence
}

func version(e *Entry) uint64 {
	if e.Version == nil {
		return 0
	}
	return *e.Version
}

// Merge writes the entries of runs, each sorted by key with each key once, to
// out: of equal keys the newest. At most [MaxMerge] runs.
func Merge(out *IndexWriter, newer Newer, runs ...iter.Seq2[*Entry, error]) error {
	if len(runs) > MaxMerge {
		return fmt.Errorf("merge %d runs of keys: at most %d at a time", len(runs), MaxMerge)
	}
	var h heads
	defer func() {
		for _, r := range h {
			r.stop()
		}
	}()
	for _, run := range runs {
		next, stop := iter.Pull2(run)
		r := &head{next: next, stop: stop}
		ok, err := r.advance()
		if err != nil {
			stop()
			return err
		}
		if ok {
			h = append(h, r)
		} else {
			stop()
		}
	}
	heap.Init(&h)
	var best Entry
	have := false
	for len(h) > 0 {
		r := h[0]
		switch {
		case !have || !bytes.Equal(best.Key, r.entry.Key):
			if have {
				if err := out.Write(&best); err != nil {
					return err
				}
			}
			best.copy(&r.entry)
			have = true
		case newer(&best, &r.entry):
			best.copy(&r.entry)
		}
		ok, err := r.advance()
		if err != nil {
			return err
		}
		if ok {
			heap.Fix(&h, 0)
		} else {
			r.stop()
			heap.Pop(&h)
		}
	}
	if !have {
		return nil
	}
	return out.Write(&best)
}

// copy takes another entry over, with memory of its own.
func (e *Entry) copy(from *Entry) {
	key := append(e.Key[:0], from.Key...)
	*e = *from
	e.Key = key
}

// head is the next entry of a run.
type head struct {
	next  func() (*Entry, error, bool)
	stop  func()
	entry Entry
}

func (r *head) advance() (bool, error) {
	e, err, ok := r.next()
	if !ok || err != nil {
		return false, err
	}
	r.entry.copy(e)
	return true, nil
}

// heads is a heap of runs by their next key.
type heads []*head

func (h heads) Len() int           { return len(h) }
func (h heads) Less(i, j int) bool { return bytes.Compare(h[i].entry.Key, h[j].entry.Key) < 0 }
func (h heads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface]; it is never called, runs are only taken away.
func (h *heads) Push(x any) { *h = append(*h, x.(*head)) }

// Pop implements [heap.Interface].
func (h *heads) Pop() any {
	old := *h
	r := old[len(old)-1]
	*h = old[:len(old)-1]
	return r
}
