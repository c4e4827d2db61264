// Package pack is the files of a feed's commits: packs, which hold a stream's
// records in order, and key indexes, which find the newest record of a key.
// Both are Parquet; docs/feed-format.md specifies them.
//
// The types to know are [Writer] and [Reader] for packs, [IndexWriter] and
// [Index] for key indexes. Memory is bounded whatever the size of a file; none
// of it knows Kafka or a bucket.
package pack

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// Row is a record of a stream, as a pack holds it.
type Row struct {
	Sequence    uint64
	Key         []byte  // nil: keyless; an empty key is a key
	Version     *uint64 // nil: none
	Tombstone   bool
	Fingerprint [32]byte
	Payload     []byte
	AppendedAt  int64 // ms since 1970
}

// rowGroupBytes closes a row group: keys and payloads, and rowWeight for each
// record, which bounds those that hold nothing. Never rows alone: a thousand
// large ones would not fit in memory.
const (
	rowGroupBytes = 8 << 20
	rowWeight     = 64
)

// packSchema gives the columns of a pack their order and types. Keys and
// payloads are byte arrays without a string type: readers refuse those that
// are not UTF-8.
type packSchema struct {
	Sequence    uint64   `parquet:"sequence"`
	Key         []byte   `parquet:"key,optional"`
	Version     uint64   `parquet:"version,optional"`
	Tombstone   bool     `parquet:"tombstone"`
	Fingerprint [32]byte `parquet:"fingerprint"`
	Payload     []byte   `parquet:"payload"`
	AppendedAt  int64    `parquet:"appended_at,timestamp(millisecond)"`
}

// The columns of a pack.
const (
	colSequence = iota
	colKey
	colVersion
	colTombstone
	colFingerprint
	colPayload
	colAppendedAt
	packColumns
)

var schemaOfPacks = parquet.SchemaOf(packSchema{})

// codec returns one that is cheap to write: packs are written while appends go
// on, on the same machine. Each writer has its own: a codec keeps encoders.
func codec() *zstd.Codec { return &zstd.Codec{Level: zstd.SpeedFastest} }

func createdBy() parquet.WriterOption { return parquet.CreatedBy("flusso-kafka", "1", "") }

// DamagedError says that a file is not what docs/feed-format.md allows.
type DamagedError struct {
	What   string // "pack", "key index"
	Reason string
	Cause  error // may be nil
}

func (e *DamagedError) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("damaged %s: %s", e.What, e.Reason)
	}
	return fmt.Sprintf("damaged %s: %s: %v", e.What, e.Reason, e.Cause)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Cause }

// guard runs what reads a file, and turns the panics that the library has for
// some damaged ones into an error.
func guard(what, reason string, read func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &DamagedError{What: what, Reason: reason, Cause: fmt.Errorf("its reader panicked: %v", p)}
		}
	}()
	if err := read(); err != nil {
		if d, ok := errors.AsType[*DamagedError](err); ok {
			return d
		}
		return &DamagedError{What: what, Reason: reason, Cause: err}
	}
	return nil
}

// rowReader reads the rows of a row group, whatever the file's damage.
type rowReader struct {
	what string
	rows parquet.Rows
	buf  []parquet.Row
}

// openRows reads g from a row on, size rows at a time. The caller closes it.
func openRows(what string, g parquet.RowGroup, row int64, size int) (*rowReader, error) {
	r := &rowReader{what: what, buf: make([]parquet.Row, size)}
	err := guard(what, fmt.Sprintf("row %d cannot be found", row), func() error {
		if row > 0 {
			// Where they are known, each column begins with the page of the row,
			// otherwise with its first one.
			for _, chunk := range g.ColumnChunks() {
				if _, err := chunk.OffsetIndex(); err != nil {
					return err
				}
			}
		}
		r.rows = g.Rows()
		if row == 0 {
			return nil
		}
		return r.rows.SeekToRow(row)
	})
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// next returns the next rows, none at the end. They are good until the next call.
func (r *rowReader) next() (rows []parquet.Row, err error) {
	err = guard(r.what, "its rows cannot be read", func() error {
		n, rerr := r.rows.ReadRows(r.buf)
		rows = r.buf[:n]
		switch {
		case n > 0 || errors.Is(rerr, io.EOF): // another error comes again
			return nil
		case rerr == nil:
			return io.ErrNoProgress
		}
		return rerr
	})
	return rows, err
}

func (r *rowReader) close() {
	if r.rows == nil {
		return
	}
	_ = guard(r.what, "it cannot be closed", func() error { return r.rows.Close() }) // it was only read
}

// openFile opens a file and checks its columns.
func openFile(what string, r io.ReaderAt, size int64, want *parquet.Schema, options ...parquet.FileOption) (f *parquet.File, err error) {
	err = guard(what, "cannot be opened", func() error {
		var err error
		// That it is a Parquet file its end says, too.
		options = append(options, parquet.SkipMagicBytes(true))
		if f, err = parquet.OpenFile(&tailed{ReaderAt: r, size: size}, size, options...); err != nil {
			return err
		}
		if !parquet.EqualNodes(f.Schema(), want) {
			return &DamagedError{What: what, Reason: "its columns are not those of one"}
		}
		if reason := footerFault(f.Metadata(), size); reason != "" {
			return &DamagedError{What: what, Reason: reason}
		}
		return nil
	})
	return f, err
}

// footerFault returns what the footer says that no writer of ours does, or "":
// the library would follow it, to another decompressor or out of memory.
func footerFault(m *format.FileMetaData, size int64) string {
	total := int64(0)
	for i := range m.RowGroups {
		g := &m.RowGroups[i]
		total += g.NumRows
		for j := range g.Columns {
			c := &g.Columns[j]
			switch {
			case c.FilePath != "" || c.MetaData.Codec != format.Zstd || c.MetaData.DictionaryPageOffset != 0:
				return fmt.Sprintf("column %d of row group %d is not compressed or kept as it should be", j, i)
			case g.NumRows <= 0 || c.MetaData.NumValues != g.NumRows:
				return fmt.Sprintf("column %d of row group %d holds %d values of %d rows", j, i, c.MetaData.NumValues, g.NumRows)
			case !within(c.MetaData.DataPageOffset, c.MetaData.TotalCompressedSize, size),
				!within(c.ColumnIndexOffset, int64(c.ColumnIndexLength), size),
				!within(c.OffsetIndexOffset, int64(c.OffsetIndexLength), size),
				!within(c.MetaData.BloomFilterOffset, int64(c.MetaData.BloomFilterLength), size):
				return fmt.Sprintf("column %d of row group %d lies outside of it", j, i)
			}
		}
	}
	if total != m.NumRows {
		return fmt.Sprintf("its row groups hold %d rows, it says %d", total, m.NumRows)
	}
	return ""
}

// within reports whether a part lies within a file of that size.
func within(offset, length, size int64) bool {
	return offset >= 0 && length >= 0 && offset <= size && length <= size-offset
}
