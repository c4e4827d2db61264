package pack

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// Writer writes one pack. It is not for concurrent use.
type Writer struct {
	w     *parquet.GenericWriter[packSchema]
	row   [1]parquet.Row
	group int64 // bytes in the open row group
	sum   Summary
	err   error
}

// Summary is what a pack holds.
type Summary struct {
	First, Last uint64 // sequences; 0 for an empty pack
	Records     uint64
	Keyed       uint64 // records with a key
	Bytes       uint64 // keys and payloads
}

// NewWriter returns a writer of a pack to w, which the caller closes after it.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: parquet.NewGenericWriter[packSchema](w, parquet.Compression(codec()), createdBy(),
		parquet.SkipPageBounds("payload"), parquet.SkipPageStatistics("payload"),
		parquet.SkipPageBounds("fingerprint"), parquet.SkipPageStatistics("fingerprint"),
		parquet.PageBufferSize(1<<20), parquet.WriteBufferSize(256<<10))}
}

// Write adds a row, whose sequence must be the one after the row before. The
// row may be reused after it. The first error stays.
func (p *Writer) Write(r *Row) error {
	if p.err != nil {
		return p.err
	}
	if p.sum.Records > 0 && r.Sequence != p.sum.Last+1 {
		p.err = fmt.Errorf("write pack: sequence %d follows %d", r.Sequence, p.sum.Last)
		return p.err
	}
	p.row[0] = appendRow(p.row[0][:0], r)
	if _, err := p.w.WriteRows(p.row[:]); err != nil {
		p.err = fmt.Errorf("write pack: %w", err)
		return p.err
	}
	if p.sum.Records == 0 {
		p.sum.First = r.Sequence
	}
	n := len(r.Key) + len(r.Payload)
	p.sum.Last = r.Sequence
	p.sum.Records++
	p.sum.Bytes += uint64(n)
	if r.Key != nil {
		p.sum.Keyed++
	}
	if p.group += int64(n); p.group >= rowGroupBytes {
		p.group = 0
		if err := p.w.Flush(); err != nil {
			p.err = fmt.Errorf("write pack: %w", err)
		}
	}
	return p.err
}

// Summary returns what was written.
func (p *Writer) Summary() Summary { return p.sum }

// Close completes the pack.
func (p *Writer) Close() error {
	if p.err != nil {
		return p.err
	}
	if err := p.w.Close(); err != nil {
		p.err = fmt.Errorf("complete pack: %w", err)
	}
	return p.err
}

// appendRow states definition levels itself: an empty key is a key, which
// the mapping from Go values would take for none.
func appendRow(out parquet.Row, r *Row) parquet.Row {
	key, version := parquet.NullValue().Level(0, 0, colKey), parquet.NullValue().Level(0, 0, colVersion)
	if r.Key != nil {
		key = parquet.ByteArrayValue(r.Key).Level(0, 1, colKey)
	}
	if r.Version != nil {
		version = parquet.Int64Value(int64(*r.Version)).Level(0, 1, colVersion)
	}
	return append(out,
		parquet.Int64Value(int64(r.Sequence)).Level(0, 0, colSequence),
		key, version,
		parquet.BooleanValue(r.Tombstone).Level(0, 0, colTombstone),
		parquet.FixedLenByteArrayValue(r.Fingerprint[:]).Level(0, 0, colFingerprint),
		parquet.ByteArrayValue(r.Payload).Level(0, 0, colPayload),
		parquet.Int64Value(r.AppendedAt).Level(0, 0, colAppendedAt),
	)
}
