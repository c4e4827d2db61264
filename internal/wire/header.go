// Package wire is what flusso-kafka writes into Kafka: record keys and
// headers, commit metadata and requests, each versioned. docs/wire-format.md
// specifies it and testdata/vectors.json pins it.
//
// The two types to know are [Header], which ends every lane item and answers
// every question about the prefix before it, and [Metadata], which goes with
// every offset that is committed.
package wire

import (
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// Kind says what a header ends.
type Kind uint8

// The kinds of lane item.
const (
	Live     Kind = iota + 1 // a live batch
	Snapshot                 // a snapshot batch
	Complete                 // a SnapshotComplete marker
)

// Totals are running counts of a lane since it was created, this item
// included. The difference of two is exactly what lies between them.
type Totals struct {
	Batches   uint64 // lane items: live and snapshot batches, markers
	Envelopes uint64
	Bytes     uint64 // keys and values of the records, uncompressed
	Changes   uint64 // source changes
}

// Header ends a lane item: it is on the last record of each.
type Header struct {
	Kind        Kind
	Position    flusso.Position // of a live batch; NoPosition otherwise
	More        bool            // further live batches of the same position follow
	Through     flusso.Position // what acking up to and including this item confirms
	Newest      flusso.Position // position of the lane's newest live batch in this incarnation, this one included
	Records     uint32          // Kafka records of the item, this one included; at least 1
	Envelopes   uint32          // envelopes of the item: Records, or 0 where the only record carries headers alone
	Changes     uint64          // source changes the item was built from
	Incarnation string          // source incarnation
	Epoch       uint64          // writer epoch: counted by the lanes, 1 and up
	BuiltAt     time.Time       // when the item was handed to the writer; milliseconds
	Sequence    uint64          // sequence of the item in its lane, 1 and up, without holes
	Totals      Totals
	Indexes     []string // of a Complete
}

// Metadata goes with an offset that is committed for a lane: enough to know
// the lane's through without reading the lane.
type Metadata struct {
	Offset      flusso.Offset // the offset it was committed with: binds the two
	Through     flusso.Position
	Sequence    uint64   // sequence of the last acked item
	Epoch       uint64   // writer epoch of the last acked item
	TopicID     [16]byte // identity of the topic, so that a recreated one is noticed
	Incarnation string
	Retired     Retirement // not zero: the watermark does not wait for the lane
}
