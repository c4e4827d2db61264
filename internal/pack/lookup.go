package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sort"

	"github.com/parquet-go/parquet-go"
)

// Index finds keys in a key index, reading the pages it needs alone. Its
// methods may be called concurrently.
type Index struct {
	f *parquet.File
}

// OpenIndex opens a key index of size bytes. Errors are [*DamagedError] and
// those of r.
func OpenIndex(r io.ReaderAt, size int64) (*Index, error) {
	// A filter is read where it is asked, not for every row group.
	f, err := openFile(whatIndex, r, size, schemaOfIndexes,
		parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true), parquet.ReadBufferSize(indexRead))
	if err != nil {
		return nil, err
	}
	return &Index{f: f}, nil
}

// OpenCheckedIndex is OpenIndex of one that has sums: whatever a look-up reads is
// what was written, or it is a [*DamagedError].
func OpenCheckedIndex(r io.ReaderAt, size int64, sums Sums) (*Index, error) {
	if reason := sums.fault(size); reason != "" {
		return nil, damagedIndex(reason)
	}
	return OpenIndex(&checked{r: r, size: size, sums: sums}, size)
}

// Entries returns how many keys the index holds.
func (x *Index) Entries() uint64 { return uint64(x.f.NumRows()) }

// Find returns the entry of a key, or false where there is none.
func (x *Index) Find(key []byte) (Entry, bool, error) {
	for _, g := range x.f.RowGroups() {
		e, found, past, err := find(g, key)
		if err != nil || found || past {
			return e, found, err
		}
	}
	return Entry{}, false, nil
}

// Check reads all of the index and looks whether each key would be found: by the
// filter, which denies keys silently where it is damaged, and by the bounds of
// pages. It is a [*DamagedError] where one would not.
func (x *Index) Check() error {
	var last []byte
	for _, g := range x.f.RowGroups() {
		row, page := int64(0), 0
		pages, err := pageStarts(g)
		if err != nil {
			return err
		}
		for e, err := range entries(g, 0, readEntries) {
			if err != nil {
				return err
			}
			if last != nil && bytes.Compare(e.Key, last) <= 0 {
				return damagedIndex(fmt.Sprintf("key %.80q follows %.80q", e.Key, last))
			}
			last = append(last[:0], e.Key...)
			starts, err := candidates(g, e.Key)
			if err != nil {
				return err
			}
			for page+1 < len(pages) && pages[page+1] <= row {
				page++
			}
			if !slices.Contains(starts, pages[page]) {
				return damagedIndex(fmt.Sprintf("its filter or the bounds of its pages deny key %.80q, which it holds", e.Key))
			}
			row++
		}
	}
	return nil
}

// pageStarts returns the first rows of the pages of a row group.
func pageStarts(g parquet.RowGroup) (starts []int64, err error) {
	err = guard(whatIndex, "its page index cannot be read", func() error {
		places, err := g.ColumnChunks()[colIndexKey].OffsetIndex()
		if err != nil {
			return err
		}
		for i := range places.NumPages() {
			starts = append(starts, places.FirstRowIndex(i))
		}
		if len(starts) == 0 || starts[0] != 0 {
			return errors.New("its first page does not begin with the first row")
		}
		return nil
	})
	return starts, err
}

// find looks in one row group; past says that the keys of the group, and so
// those of every later one, are above it.
func find(g parquet.RowGroup, key []byte) (e Entry, found, past bool, err error) {
	starts, err := candidates(g, key)
	if err != nil || len(starts) == 0 {
		return e, false, false, err
	}
	// What begins with as many bytes as bounds keep can't be told apart by
	// them: the first keys of the pages tell.
	n := sort.Search(len(starts)-1, func(i int) bool {
		if err != nil {
			return true
		}
		for first, ferr := range entries(g, starts[i+1], 1) {
			if ferr != nil {
				err = ferr
				return true
			}
			return bytes.Compare(first.Key, key) > 0
		}
		return true
	})
	if err != nil {
		return e, false, false, err
	}
	for entry, err := range entries(g, starts[n], readEntries) {
		if err != nil {
			return e, false, false, err
		}
		switch c := bytes.Compare(entry.Key, key); {
		case c == 0:
			e = *entry
			e.Key = bytes.Clone(entry.Key)
			return e, true, false, nil
		case c > 0:
			return e, false, true, nil
		}
	}
	return e, false, false, nil
}

// candidates returns the first rows of the pages of a row group that may hold
// a key, in order; none where the key is not there.
func candidates(g parquet.RowGroup, key []byte) (starts []int64, err error) {
	err = guard(whatIndex, "its filter or page index cannot be read", func() error {
		chunk := g.ColumnChunks()[colIndexKey]
		if filter := chunk.BloomFilter(); filter != nil {
			maybe, err := filter.Check(parquet.ByteArrayValue(key))
			if err != nil || !maybe {
				return err
			}
		}
		bounds, err := chunk.ColumnIndex()
		if err != nil {
			return err
		}
		places, err := chunk.OffsetIndex()
		if err != nil {
			return err
		}
		if bounds.NumPages() != places.NumPages() {
			return fmt.Errorf("bounds of %d pages, places of %d", bounds.NumPages(), places.NumPages())
		}
		// Bounds are cut: one that is a beginning of the key may stand for a
		// greater one. So the first page is the last that begins below or at
		// the key for certain, the last the last that may.
		least := func(i int) []byte { return bounds.MinValue(i).ByteArray() }
		end := sort.Search(bounds.NumPages(), func(i int) bool { return bytes.Compare(least(i), key) > 0 })
		first := max(0, sort.Search(end, func(i int) bool { return len(least(i)) >= indexBound && bytes.HasPrefix(key, least(i)) })-1)
		for i := first; i < end; i++ {
			starts = append(starts, places.FirstRowIndex(i))
		}
		return nil
	})
	return starts, err
}

// indexRead is how much of an index is read at a time, where it is read in
// pieces: each is a request to a bucket.
const indexRead = 32 << 10

// readEntries is how many entries are decoded at once.
const readEntries = 64

// All iterates over the entries by key. Entries and what they point to are
// good until the next one. An error ends the iteration.
func (x *Index) All() iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		for _, g := range x.f.RowGroups() {
			for e, err := range entries(g, 0, readEntries) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// entries iterates over a row group from a row on, decoding size at once.
func entries(g parquet.RowGroup, row int64, size int) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		rows, err := openRows(whatIndex, g, row, size)
		if err != nil {
			yield(nil, err)
			return
		}
		defer rows.close()
		left := g.NumRows() - row
		var e Entry
		for {
			some, err := rows.next()
			if err == nil && (len(some) == 0 && left > 0 || int64(len(some)) > left) {
				err = damagedIndex("a row group does not hold as many rows as it says")
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if len(some) == 0 {
				return
			}
			left -= int64(len(some))
			for _, r := range some {
				if err := guard(whatIndex, "a row of other types", func() error { return e.set(r) }); err != nil {
					yield(nil, err)
					return
				}
				if !yield(&e, nil) {
					return
				}
			}
		}
	}
}

func (e *Entry) set(values parquet.Row) error {
	if len(values) != indexColumns {
		return damagedIndex(fmt.Sprintf("a row of %d columns", len(values)))
	}
	e.Key = values[colIndexKey].ByteArray()
	e.Sequence = uint64(values[colIndexSequence].Int64())
	e.Version = nil
	if v := values[colIndexVersion]; !v.IsNull() {
		n := uint64(v.Int64())
		e.Version = &n
	}
	e.Tombstone = values[colIndexTombstone].Boolean()
	e.Pack = uint32(values[colIndexPack].Int32())
	if e.Sequence == 0 {
		return damagedIndex("an entry without a sequence")
	}
	return nil
}

func damagedIndex(reason string) error { return &DamagedError{What: whatIndex, Reason: reason} }
