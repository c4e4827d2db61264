// Package compare compares the documents of a source with those of a sink, row
// by row. [Read] reads a side, [Diff] compares two.
package compare

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Side is the documents of one side: by index and id a hash of each.
type Side map[string]map[string][sha256.Size]byte

// Reader calls f with every document of a side.
type Reader func(f func(index, id string, document []byte) error) error

// Read reads a side.
func Read(r Reader) (Side, error) {
	s := make(Side)
	err := r(func(index, id string, document []byte) error {
		ids := s[index]
		if ids == nil {
			ids = make(map[string][sha256.Size]byte)
			s[index] = ids
		}
		ids[id] = sha256.Sum256(document)
		return nil
	})
	return s, err
}

// Index is how the two sides of an index compare.
type Index struct {
	Index     string   `json:"index"`
	Source    int      `json:"source"`    // documents in the source
	Sink      int      `json:"sink"`      // documents in the sink
	Equal     int      `json:"equal"`     // in both, byte for byte
	Missing   int      `json:"missing"`   // only in the source
	Extra     int      `json:"extra"`     // only in the sink
	Different int      `json:"different"` // in both, not equal
	Examples  []string `json:"examples,omitempty"`
}

// Same reports whether nothing differs.
func (i Index) Same() bool { return i.Missing+i.Extra+i.Different == 0 }

// Result is how two sides compare, index by index.
type Result []Index

// Same reports whether nothing differs.
func (r Result) Same() bool { return !slices.ContainsFunc(r, func(i Index) bool { return !i.Same() }) }

// Equal is the number of documents that are the same on both sides.
func (r Result) Equal() int {
	n := 0
	for _, i := range r {
		n += i.Equal
	}
	return n
}

// Diff compares two sides.
func Diff(source, sink Side) Result {
	const shown = 5
	all := make(map[string]bool)
	for index := range source {
		all[index] = true
	}
	for index := range sink {
		all[index] = true
	}
	var out Result
	for _, index := range slices.Sorted(maps.Keys(all)) {
		a, b := source[index], sink[index]
		d := Index{Index: index, Source: len(a), Sink: len(b)}
		var examples []string
		for id, hash := range a {
			other, ok := b[id]
			switch {
			case !ok:
				d.Missing++
				examples = append(examples, "missing "+id)
			case other != hash:
				d.Different++
				examples = append(examples, "different "+id)
			default:
				d.Equal++
			}
		}
		for id := range b {
			if _, ok := a[id]; !ok {
				d.Extra++
				examples = append(examples, "extra "+id)
			}
		}
		slices.SortFunc(examples, cmp.Compare)
		d.Examples = examples[:min(len(examples), shown)]
		out = append(out, d)
	}
	return out
}

// Print writes a line for each index, and examples of what differs.
func (r Result) Print(w io.Writer) error {
	const row = "%-32s %9v %9v %9v %9v %9v %9v\n"
	if _, err := fmt.Fprintf(w, row, "INDEX", "SOURCE", "SINK", "EQUAL", "MISSING", "EXTRA", "DIFFERENT"); err != nil {
		return err
	}
	for _, i := range r {
		if _, err := fmt.Fprintf(w, row, i.Index, i.Source, i.Sink, i.Equal, i.Missing, i.Extra, i.Different); err != nil {
			return err
		}
		for _, e := range i.Examples {
			if _, err := fmt.Fprintf(w, "  %s\n", e); err != nil {
				return err
			}
		}
	}
	return nil
}
