package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
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
	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true))
	if err != nil {
		return nil, &DamagedError{What: whatIndex, Reason: "cannot be opened", Cause: err}
	}
	if err := sameColumns(whatIndex, f.Schema(), schemaOfIndexes); err != nil {
		return nil, err
	}
	return &Index{f: f}, nil
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

// find looks in one row group; past says that the keys of the group, and so
// those of every later one, are above it.
func find(g parquet.RowGroup, key []byte) (e Entry, found, past bool, err error) {
	chunk := g.ColumnChunks()[colIndexKey]
	value := parquet.ByteArrayValue(key)
	if filter := chunk.BloomFilter(); filter != nil {
		maybe, err := filter.Check(value)
		if err != nil {
			return e, false, false, damagedIndex("its filter cannot be read", err)
		}
		if !maybe {
			return e, false, false, nil
		}
	}
	bounds, err := chunk.ColumnIndex()
	if err != nil {
		return e, false, false, damagedIndex("its column index cannot be read", err)
	}
	places, err := chunk.OffsetIndex()
	if err != nil {
		return e, false, false, damagedIndex("its offset index cannot be read", err)
	}
	// Bounds are cut: one that is a beginning of the key may stand for a
	// greater one. The search starts at the last page that begins below for
	// certain, and reads on until it is past the key.
	n := bounds.NumPages()
	page := sort.Search(n, func(i int) bool {
		least := bounds.MinValue(i).ByteArray()
		return bytes.Compare(least, key) >= 0 || len(least) >= indexBound && bytes.HasPrefix(key, least)
	})
	if page > 0 {
		page--
	}
	if n == 0 {
		return e, false, false, nil
	}
	for entry, err := range entries(g, places.FirstRowIndex(page)) {
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

// All iterates over the entries by key. Entries and what they point to are
// good until the next one. An error ends the iteration.
func (x *Index) All() iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		for _, g := range x.f.RowGroups() {
			for e, err := range entries(g, 0) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// entries iterates over a row group from a row on.
func entries(g parquet.RowGroup, row int64) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		rows := g.Rows()
		defer rows.Close() //nolint:errcheck // it was only read
		if row > 0 {
			if err := rows.SeekToRow(row); err != nil {
				yield(nil, damagedIndex(fmt.Sprintf("row %d cannot be found", row), err))
				return
			}
		}
		buf := make([]parquet.Row, 64)
		var e Entry
		for {
			n, err := rows.ReadRows(buf)
			for _, r := range buf[:n] {
				if reason := e.set(r); reason != "" {
					yield(nil, damagedIndex(reason, nil))
					return
				}
				if !yield(&e, nil) {
					return
				}
			}
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(nil, damagedIndex("its rows cannot be read", err))
				return
			}
		}
	}
}

func (e *Entry) set(values parquet.Row) string {
	if len(values) != indexColumns {
		return fmt.Sprintf("a row of %d columns", len(values))
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
		return "an entry without a sequence"
	}
	return ""
}

func damagedIndex(reason string, cause error) error {
	return &DamagedError{What: whatIndex, Reason: reason, Cause: cause}
}
