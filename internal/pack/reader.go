package pack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"iter"

	"github.com/parquet-go/parquet-go"
)

// Reader reads one pack. Its methods may be called concurrently, each
// iteration by one goroutine.
type Reader struct {
	f     *parquet.File
	first uint64
}

const whatPack = "pack"

// NewReader opens a pack of size bytes. It reads the file's footer. Errors are
// [*DamagedError] and those of r.
func NewReader(r io.ReaderAt, size int64) (*Reader, error) {
	f, err := openFile(whatPack, r, size, schemaOfPacks, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true), parquet.ReadBufferSize(packRead))
	if err != nil {
		return nil, err
	}
	p := &Reader{f: f}
	if f.NumRows() == 0 {
		return p, nil
	}
	// The footer says which sequence is the first; what is read is compared.
	least := f.Metadata().RowGroups[0].Columns[colSequence].MetaData.Statistics.MinValue
	if len(least) == 8 {
		p.first = binary.LittleEndian.Uint64(least)
	}
	if p.first == 0 {
		return nil, damagedPack("its footer does not say which sequence is the first")
	}
	return p, nil
}

// From iterates over the records from a sequence on, which may be below the
// first. Rows and what they point to are good until the next one. An error
// ends the iteration.
func (p *Reader) From(sequence uint64) iter.Seq2[*Row, error] {
	skip := uint64(0)
	if sequence > p.first {
		skip = sequence - p.first
	}
	return p.rows(skip, readAhead)
}

// At returns the record of a sequence; false where the pack does not hold it. It
// reads a page of each column at most, or as many as the record takes.
func (p *Reader) At(sequence uint64) (Row, bool, error) {
	if sequence < p.first {
		return Row{}, false, nil
	}
	for row, err := range p.rows(sequence-p.first, 1) {
		if err != nil {
			return Row{}, false, err
		}
		found := *row
		found.Key, found.Payload = bytes.Clone(row.Key), bytes.Clone(row.Payload)
		return found, true, nil
	}
	return Row{}, false, nil
}

// packRead is how much of a column is read at a time: each is a request, where
// the pack is in a bucket.
const packRead = 128 << 10

// readAhead is how many rows are decoded at once; payloads are large.
const readAhead = 16

// rows iterates over the rows behind the first skip ones, decoding ahead at once.
func (p *Reader) rows(skip uint64, ahead int) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		before := uint64(0) // rows of the groups before
		expect := p.first + skip
		for _, g := range p.f.RowGroups() {
			n := uint64(g.NumRows())
			if skip >= before+n {
				before += n
				continue
			}
			if !p.group(g, skip-min(skip, before), ahead, &expect, yield) {
				return
			}
			before += n
			skip = before
		}
	}
}

// group iterates over one row group and reports whether to go on.
func (p *Reader) group(g parquet.RowGroup, skip uint64, ahead int, expect *uint64, yield func(*Row, error) bool) bool {
	fail := func(err error) bool {
		yield(nil, err)
		return false
	}
	rows, err := openRows(whatPack, g, int64(skip), ahead)
	if err != nil {
		return fail(err)
	}
	defer rows.close()
	left := uint64(g.NumRows()) - skip
	var row Row
	for {
		some, err := rows.next()
		if err != nil {
			return fail(err)
		}
		if len(some) == 0 && left > 0 || uint64(len(some)) > left {
			return fail(damagedPack("a row group does not hold as many rows as it says"))
		}
		if len(some) == 0 {
			return true
		}
		left -= uint64(len(some))
		for _, r := range some {
			if err := guard(whatPack, "a row of other types", func() error { return row.set(r) }); err != nil {
				return fail(err)
			}
			if row.Sequence != *expect {
				return fail(damagedPack(fmt.Sprintf("sequence %d where %d belongs", row.Sequence, *expect)))
			}
			*expect = row.Sequence + 1
			if !yield(&row, nil) {
				return false
			}
		}
	}
}

func damagedPack(reason string) error { return &DamagedError{What: whatPack, Reason: reason} }

// set takes the values of a row.
func (r *Row) set(values parquet.Row) error {
	if len(values) != packColumns {
		return damagedPack(fmt.Sprintf("a row of %d columns", len(values)))
	}
	r.Sequence = uint64(values[colSequence].Int64())
	r.Key, r.Version = nil, nil
	if v := values[colKey]; !v.IsNull() {
		r.Key = v.ByteArray()
		if r.Key == nil {
			r.Key = []byte{}
		}
	}
	if v := values[colVersion]; !v.IsNull() {
		n := uint64(v.Int64())
		r.Version = &n
	}
	r.Tombstone = values[colTombstone].Boolean()
	if copy(r.Fingerprint[:], values[colFingerprint].ByteArray()) != len(r.Fingerprint) {
		return damagedPack("a fingerprint that is not 32 bytes long")
	}
	r.Payload = values[colPayload].ByteArray()
	r.AppendedAt = values[colAppendedAt].Int64()
	if r.Sequence == 0 {
		return damagedPack("a row without a sequence")
	}
	return nil
}
