package pack

import (
	"bytes"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// Writer writes one pack. It is not for concurrent use.
type Writer struct {
	w     *parquet.GenericWriter[packSchema]
	row   [1]parquet.Row
	group int64  // bytes in the open row group
	top   []byte // no payload of the open row group is above it
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

// Weight is what closes a pack: its bytes, and some for each record, so that
// those that hold nothing count.
func (s Summary) Weight() uint64 { return s.Bytes + rowWeight*s.Records }

// NewWriter returns a writer of a pack to w, which the caller closes after it.
func NewWriter(w io.Writer) *Writer {
	p := &Writer{}
	schema := withIndexers("pack", schemaOfPacks, map[string]func() parquet.ColumnIndexer{
		"key":         func() parquet.ColumnIndexer { return &keyBounds{limit: keyBound} },
		"fingerprint": func() parquet.ColumnIndexer { return &opaqueBounds{least: lowFingerprint, greatest: highFingerprint} },
		"payload": func() parquet.ColumnIndexer {
			return &opaqueBounds{least: func() []byte { return []byte{} }, greatest: func() []byte { return append([]byte{}, p.top...) }}
		},
	})
	p.w = parquet.NewGenericWriter[packSchema](w, schema, parquet.Compression(codec()), createdBy(),
		parquet.SkipPageBounds("payload"), parquet.SkipPageStatistics("payload"),
		parquet.SkipPageBounds("fingerprint"), parquet.SkipPageStatistics("fingerprint"),
		parquet.SkipPageStatistics("key"),
		parquet.PageBufferSize(packPageBytes), parquet.WriteBufferSize(256<<10))
	return p
}

// packPageBytes is how much of a column goes into one page: who looks for one
// record reads a page of each.
const packPageBytes = 256 << 10

// keyBound and payloadBound are how many bytes of a page's least and greatest
// key, and of a row group's greatest payload, are kept.
const (
	keyBound     = 64
	payloadBound = 16
)

func lowFingerprint() []byte { return make([]byte, 32) }

func highFingerprint() []byte { return bytes.Repeat([]byte{0xff}, 32) }

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
	if bytes.Compare(r.Payload, p.top) > 0 {
		p.top = cutHigh(r.Payload, payloadBound)
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
	if p.group += int64(n) + rowWeight; p.group >= rowGroupBytes {
		if err := p.w.Flush(); err != nil {
			p.err = fmt.Errorf("write pack: %w", err)
		}
		p.group, p.top = 0, nil
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
