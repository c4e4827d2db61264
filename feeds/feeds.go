// Package feeds is writer sessions on feeds: a session takes the feed's lease,
// appends batches that are durable when they are acknowledged, and seals them
// into commits.
//
// The two types to know are [Client], which opens sessions and reads feeds,
// and [Session], which appends. What is durable and who writes is decided by
// Kafka; a bucket only ever receives immutable objects. docs/contract.md,
// clauses E1 to E18, says what is promised, docs/feed-format.md what is
// written.
package feeds

import (
	"time"

	"github.com/flusso/flusso-kafka/internal/wire"
)

// Record is what a feed holds: payload bytes with an optional key, an optional
// version, a tombstone mark and a fingerprint.
type Record = wire.Record

// Settings are chosen when a feed is created and never change.
type Settings = wire.FeedSettings

// Holder is who holds a feed's writer lease.
type Holder = wire.FeedHolder

// The rules for the newest record of a key.
const (
	LatestSequence = wire.LatestSequence
	LatestVersion  = wire.LatestVersion
)

// Batch is what is appended together: all of it becomes visible, or nothing.
type Batch struct {
	Records []Record // at least one
	// FencingToken, when not 0, must equal the session's writer epoch [E7].
	FencingToken uint64
	// MatchSequence, when not nil, must equal the last sequence that the
	// stream has when the batch is submitted, those in flight included; 0
	// means an empty stream [E8].
	MatchSequence *uint64
	// ID is what the client calls the batch, at most 64 visible ASCII
	// characters; empty for none. A batch that is repeated with its id, to
	// this session or to one that resumed the stream, is not appended again:
	// it gets the range of the first time, whatever its token and its match,
	// as long as it is one of the [RecentBatches].
	ID string
}

// Range is where an appended batch is in its stream.
type Range struct {
	Stream      uint64
	First, Last uint64 // sequences, both included
	Records     uint64
}

// Commit is a sealed stream in the history of its feed.
type Commit struct {
	wire.FeedCommit

	Stream  uint64
	Message string
	At      time.Time // when it was committed
	Epoch   uint64    // writer epoch that committed it
	// Warning says what is left to do behind the commit: its WAL could not be
	// trimmed. Nil for nothing; the commit stands either way.
	Warning error
}
