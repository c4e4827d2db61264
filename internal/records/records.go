// Package records reads and writes the records of a feed as lines, as JSON
// lines and as length-prefixed frames: what a shell pipes into a feed and out
// of it. docs/record-input.md specifies the three.
//
// The types to know are [Reader] and [Text].
package records

import (
	"fmt"

	"github.com/flusso/flusso-kafka/internal/wire"
)

// Format is how records are written.
type Format string

// The formats.
const (
	Lines  Format = "lines"  // a payload on each line
	JSONL  Format = "jsonl"  // a JSON object on each line
	Binary Format = "binary" // frames
)

// MaxRecord is the most bytes that a line or a frame may have: far above what
// a topic takes, so that what is no such input is not read into memory.
const MaxRecord = 128 << 20

// Error says which record of an input is none, and why.
type Error struct {
	Place  string // "line 7", "record 7 at byte 120"
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Place, e.Reason) }

// Record is a record of a feed.
type Record = wire.Record
