// Package flusso is the stream port between one ingest engine and many sink
// engines: the types that cross it and the interfaces an adapter implements.
// It compiles with the standard library alone and knows no broker.
//
// The two types to know are [Stream], which hands out the lane of each sink,
// the request lane and the watermark, and [Delivery], the handle with which a
// received item is acked or returned. The clauses every adapter must keep are
// in docs/contract.md; the suite that checks them is package streamtest.
package flusso

import (
	"fmt"
	"strconv"
	"time"
)

// Position is a place in the source's change feed, assigned by the source
// and never decreasing within one source incarnation. Zero is [NoPosition].
// Positions of different incarnations do not compare.
type Position uint64

// NoPosition means "none": no change, nothing acked, no watermark.
const NoPosition Position = 0

// String returns the position in decimal, or "none" for [NoPosition].
func (p Position) String() string {
	if p == NoPosition {
		return "none"
	}
	return strconv.FormatUint(uint64(p), 10)
}

// Offset is a place in a lane's durable log by Kafka's convention: the offset
// of the next item to read, so a committed offset N says that everything below
// N was acked. Offsets have holes; never count by subtracting them.
type Offset int64

// NoOffset means "unknown": nothing committed, or nothing found.
const NoOffset Offset = -1

// String returns the offset in decimal, or "unknown" for a negative one.
func (o Offset) String() string {
	if o < 0 {
		return "unknown"
	}
	return strconv.FormatInt(int64(o), 10)
}

// Op says what an envelope does to its document.
type Op uint8

const (
	// Upsert replaces the document, or creates it.
	Upsert Op = iota + 1
	// Delete removes the document; its envelope carries none.
	Delete
)

// String returns "upsert" or "delete".
func (o Op) String() string {
	switch o {
	case Upsert:
		return "upsert"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Envelope is one operation on one document.
type Envelope struct {
	Index    string    // index the document belongs to: see [CheckIndex]
	ID       string    // id of the document in the index: see [CheckID]
	Op       Op        // Upsert or Delete
	Document []byte    // the document, at least one byte; nil on a delete
	Position Position  // position of the change that produced it; NoPosition for a snapshot row
	BuiltAt  time.Time // when the document was built; adapters may keep milliseconds only
}

// LaneItem is what a lane carries: a [*Batch] or a [*SnapshotComplete].
// The set is closed; a type switch over the two is exhaustive.
type LaneItem interface{ laneItem() }

// Batch is the envelopes that one ingest commit built, in build order.
//
// A batch with a position is live. One without is a snapshot batch: its
// envelopes carry no position either and acking it confirms nothing.
// A live batch without envelopes is normal: it carries its position.
type Batch struct {
	Envelopes []Envelope
	Position  Position // position of the last change covered; NoPosition for a snapshot batch
	More      bool     // further batches of the same position follow (live batches only)
	Changes   uint64   // number of source changes it was built from
}

// Live reports whether the batch carries a position.
func (b *Batch) Live() bool { return b.Position != NoPosition }

func (*Batch) laneItem() {}

// SnapshotComplete follows the last batch of a snapshot in its lane.
type SnapshotComplete struct {
	Indexes []string // indexes that are now whole, at least one
}

func (*SnapshotComplete) laneItem() {}

// Request is what a sink asks of the ingest engine. The only kind is [*Backfill].
type Request interface{ request() }

// Backfill asks for a snapshot of indexes, to be published to the lane of Sink
// and ended there by a [SnapshotComplete].
type Backfill struct {
	Sink    string
	Indexes []string // at least one
}

func (*Backfill) request() {}

// Routed is a lane item and the sink whose lane it goes to.
type Routed struct {
	Sink string
	Item LaneItem
}

// Commit is what one atomic publish carries: items for any number of lanes,
// in order within each lane, and the requests that they complete.
type Commit struct {
	Items []Routed
	// Acks are acked together with the items where the adapter can do so, and
	// right after them where it cannot: so that a request whose
	// SnapshotComplete is published is not asked for again. They must come
	// from the same stream's request lane, and go with snapshot batches and
	// markers only: where the acks are refused the items stay out, and a live
	// batch that stayed out would be a hole.
	Acks []Delivery[Request]
}

// Receipt tells what became of a publish that succeeded.
type Receipt struct {
	Published int // items now in their lanes
	Dropped   int // replayed live batches that their lane already held
}
