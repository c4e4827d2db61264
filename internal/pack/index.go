package pack

import (
	"bytes"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// Entry is the newest record of a key within one stream.
type Entry struct {
	Key       []byte
	Sequence  uint64
	Version   *uint64 // nil: none
	Tombstone bool
	Pack      uint32 // which of the stream's packs holds it, from 0 on
}

type indexSchema struct {
	Key       []byte `parquet:"key"`
	Sequence  uint64 `parquet:"sequence"`
	Version   uint64 `parquet:"version,optional"`
	Tombstone bool   `parquet:"tombstone"`
	Pack      uint32 `parquet:"pack"`
}

// The columns of a key index.
const (
	colIndexKey = iota
	colIndexSequence
	colIndexVersion
	colIndexTombstone
	colIndexPack
	indexColumns
)

var schemaOfIndexes = parquet.SchemaOf(indexSchema{})

const (
	whatIndex = "key index"

	bloomBitsPerKey  = 10  // one look-up of an absent key in a hundred reads a page
	indexBound       = 256 // bytes of a page's least and greatest key that are kept
	indexPageBytes   = 64 << 10
	indexGroupBytes  = 32 << 20 // of keys
	indexEntryWeight = 32       // what an entry costs beside its key
)

// IndexWriter writes a key index. It is not for concurrent use.
type IndexWriter struct {
	w     *parquet.GenericWriter[indexSchema]
	row   [1]parquet.Row
	last  []byte
	n     uint64
	group int64
	err   error
}

// NewIndexWriter returns a writer of a key index to w, which the caller closes
// after it.
func NewIndexWriter(w io.Writer) *IndexWriter {
	schema := withIndexers("key_index", schemaOfIndexes, map[string]func() parquet.ColumnIndexer{
		"key": func() parquet.ColumnIndexer { return &keyBounds{limit: indexBound} },
	})
	return &IndexWriter{w: parquet.NewGenericWriter[indexSchema](w, schema, parquet.Compression(codec()), createdBy(),
		parquet.BloomFilters(parquet.SplitBlockFilter(bloomBitsPerKey, "key")),
		parquet.SkipPageStatistics("key"),
		parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending("key"))),
		parquet.PageBufferSize(indexPageBytes))}
}

// Write adds an entry, whose key must be above the one before. The entry may
// be reused after it. The first error stays.
func (x *IndexWriter) Write(e *Entry) error {
	if x.err != nil {
		return x.err
	}
	if x.n > 0 && bytes.Compare(e.Key, x.last) <= 0 {
		x.err = fmt.Errorf("write key index: key %q follows %q", e.Key, x.last)
		return x.err
	}
	version := parquet.NullValue().Level(0, 0, colIndexVersion)
	if e.Version != nil {
		version = parquet.Int64Value(int64(*e.Version)).Level(0, 1, colIndexVersion)
	}
	x.row[0] = append(x.row[0][:0],
		parquet.ByteArrayValue(e.Key).Level(0, 0, colIndexKey),
		parquet.Int64Value(int64(e.Sequence)).Level(0, 0, colIndexSequence),
		version,
		parquet.BooleanValue(e.Tombstone).Level(0, 0, colIndexTombstone),
		parquet.Int32Value(int32(e.Pack)).Level(0, 0, colIndexPack),
	)
	if _, err := x.w.WriteRows(x.row[:]); err != nil {
		x.err = fmt.Errorf("write key index: %w", err)
		return x.err
	}
	x.last = append(x.last[:0], e.Key...)
	x.n++
	if x.group += int64(len(e.Key)) + indexEntryWeight; x.group >= indexGroupBytes {
		x.group = 0
		if err := x.w.Flush(); err != nil {
			x.err = fmt.Errorf("write key index: %w", err)
		}
	}
	return x.err
}

// Entries returns how many were written.
func (x *IndexWriter) Entries() uint64 { return x.n }

// Close completes the index.
func (x *IndexWriter) Close() error {
	if x.err != nil {
		return x.err
	}
	if err := x.w.Close(); err != nil {
		x.err = fmt.Errorf("complete key index: %w", err)
	}
	return x.err
}
