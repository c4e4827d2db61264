// Package pack is the files of a feed's commits: packs, which hold a stream's
// records in order, and key indexes, which find the newest record of a key.
// Both are Parquet; docs/feed-format.md specifies them.
//
// The types to know are [Writer] and [Reader] for packs, [IndexWriter] and
// [Index] for key indexes. Memory is bounded whatever the size of a file; none
// of it knows Kafka or a bucket.
package pack

import (
	"fmt"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
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

// rowGroupBytes closes a row group: keys and payloads. Never rows: a thousand
// large ones would not fit in memory.
const rowGroupBytes = 8 << 20

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
