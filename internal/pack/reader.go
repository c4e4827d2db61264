package pack

import (
	"errors"
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
	f, err := parquet.OpenFile(r, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, &DamagedError{What: whatPack, Reason: "cannot be opened", Cause: err}
	}
	if err := sameColumns(whatPack, f.Schema(), schemaOfPacks); err != nil {
		return nil, err
	}
	p := &Reader{f: f}
	if f.NumRows() == 0 {
		return p, nil
	}
	for row, err := range p.rows(0) {
		if err != nil {
			return nil, err
		}
		p.first = row.Sequence
		break
	}
	return p, nil
}

// sameColumns refuses a file of another schema.
func sameColumns(what string, got, want *parquet.Schema) error {
	if parquet.EqualNodes(got, want) {
		return nil
	}
	return &DamagedError{What: what, Reason: "its columns are not those of one"}
}

// First returns the sequence of the first record, 0 for an empty pack.
func (p *Reader) First() uint64 { return p.first }

// Records returns how many records the pack holds.
func (p *Reader) Records() uint64 { return uint64(p.f.NumRows()) }

// From iterates over the records from a sequence on, which may be below the
// first. Rows and what they point to are good until the next one. An error
// ends the iteration.
func (p *Reader) From(sequence uint64) iter.Seq2[*Row, error] {
	skip := uint64(0)
	if sequence > p.first {
		skip = sequence - p.first
	}
	return p.rows(skip)
}

// readAhead is how many rows are decoded at once; payloads are large.
const readAhead = 16

// rows iterates over the rows behind the first skip ones.
func (p *Reader) rows(skip uint64) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		before := uint64(0) // rows of the groups before
		var expect uint64
		for _, g := range p.f.RowGroups() {
			n := uint64(g.NumRows())
			if skip >= before+n {
				before += n
				continue
			}
			if !p.group(g, skip-min(skip, before), &expect, yield) {
				return
			}
			before += n
			skip = before
		}
	}
}

// group iterates over one row group and reports whether to go on.
func (p *Reader) group(g parquet.RowGroup, skip uint64, expect *uint64, yield func(*Row, error) bool) bool {
	rows := g.Rows()
	defer rows.Close() //nolint:errcheck // it was only read
	fail := func(reason string, err error) bool {
		yield(nil, &DamagedError{What: whatPack, Reason: reason, Cause: err})
		return false
	}
	if skip > 0 {
		if err := rows.SeekToRow(int64(skip)); err != nil {
			return fail(fmt.Sprintf("row %d cannot be found", skip), err)
		}
	}
	buf := make([]parquet.Row, readAhead)
	var row Row
	for {
		n, err := rows.ReadRows(buf)
		for _, r := range buf[:n] {
			if reason := row.set(r); reason != "" {
				return fail(reason, nil)
			}
			if *expect > 0 && row.Sequence != *expect {
				return fail(fmt.Sprintf("sequence %d where %d belongs", row.Sequence, *expect), nil)
			}
			*expect = row.Sequence + 1
			if !yield(&row, nil) {
				return false
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return true
		case err != nil:
			return fail("its rows cannot be read", err)
		}
	}
}

// set takes the values of a row and returns what is wrong with it.
func (r *Row) set(values parquet.Row) string {
	if len(values) != packColumns {
		return fmt.Sprintf("a row of %d columns", len(values))
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
		return "a fingerprint that is not 32 bytes long"
	}
	r.Payload = values[colPayload].ByteArray()
	r.AppendedAt = values[colAppendedAt].Int64()
	if r.Sequence == 0 {
		return "a row without a sequence"
	}
	return ""
}
