package flusso

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinels for decisions. Compare with [errors.Is].
var (
	// ErrClosed: the stream, producer or consumer was closed by its user.
	ErrClosed = errors.New("closed")
	// ErrSuperseded: another consumer took the lane over. Attach again only
	// if this process is meant to be the owner.
	ErrSuperseded = errors.New("superseded by another consumer of the lane")
	// ErrWithdrawn: the delivery was withdrawn by a nack of it or of an
	// earlier one. It comes again.
	ErrWithdrawn = errors.New("delivery withdrawn by a nack; it comes again")
	// ErrAcked: the delivery was acked already and cannot be returned.
	ErrAcked = errors.New("delivery already acked")
	// ErrFenced: a newer writer holds the lease. Details in [*FencedError].
	ErrFenced = errors.New("fenced by a newer writer")
	// ErrLost: the writer session lost its lease or its broker and it is not
	// known to whom. Ask for a new producer after a pause.
	ErrLost = errors.New("writer session lost")
	// ErrUnknownOutcome: it cannot be told whether the items were published.
	// Asking for a new producer settles it; replay from the watermark.
	ErrUnknownOutcome = errors.New("outcome of the publish is unknown")
	// ErrRejected: the items were certainly not published.
	ErrRejected = errors.New("publish rejected, nothing was published")
)

// UnknownSinkError names a sink the stream was not built with.
type UnknownSinkError struct {
	Sink  string
	Known []string
}

func (e *UnknownSinkError) Error() string {
	return fmt.Sprintf("unknown sink %q: this stream has %s; add it where the stream is built",
		e.Sink, strings.Join(e.Known, ", "))
}

// NameError rejects a name before it is used anywhere.
type NameError struct {
	Kind   string // "pipeline", "sink", "index", "document id", "incarnation"
	Name   string
	Reason string
}

func (e *NameError) Error() string {
	const shown = 80
	name := e.Name
	if len(name) > shown {
		name = name[:shown] + "…"
	}
	return fmt.Sprintf("invalid %s %q: %s", e.Kind, name, e.Reason)
}

// InvalidError rejects an item whose parts contradict each other.
type InvalidError struct {
	What   string // the item, "batch at position 40, envelope 3"
	Reason string
}

func (e *InvalidError) Error() string { return "invalid " + e.What + ": " + e.Reason }

// LimitError rejects something that is too large, before anything is sent.
type LimitError struct {
	What    string // the thing measured: "record orders/17 of the lane of sink audit"
	Limit   string // the limit: "record size"
	Value   int64
	Max     int64
	Setting string // the setting that raises it; empty where nothing does
}

func (e *LimitError) Error() string {
	if e.Setting == "" {
		return fmt.Sprintf("%s: %s is %d, the limit is %d, and nothing raises it: send less", e.What, e.Limit, e.Value, e.Max)
	}
	return fmt.Sprintf("%s: %s is %d, the limit is %d: raise %s or send less",
		e.What, e.Limit, e.Value, e.Max, e.Setting)
}

// PositionError rejects a live batch whose position does not follow its
// lane: equal to a complete one, lower, or another while a *more* is open.
type PositionError struct {
	Sink     string
	Last     Position // newest live position of the lane
	LastMore bool     // the newest live batch announced more of its position
	Got      Position
}

func (e *PositionError) Error() string {
	if e.LastMore {
		return fmt.Sprintf("lane of sink %q: got position %s, but position %s announced more: finish it first",
			e.Sink, e.Got, e.Last)
	}
	return fmt.Sprintf("lane of sink %q: got position %s, but the lane is at %s: positions strictly increase",
		e.Sink, e.Got, e.Last)
}

// FencedError tells which writer took the lease. It is an [ErrFenced].
type FencedError struct {
	Lease string // the lease: "writer of pipeline orders"
	Epoch uint64 // our writer epoch
	Newer uint64 // the newer writer's epoch
}

func (e *FencedError) Error() string {
	by := fmt.Sprintf("epoch %d", e.Newer)
	if e.Newer == e.Epoch { // both had opened before either published
		by = "another session of that epoch"
	}
	return fmt.Sprintf("%s: epoch %d was fenced by %s: another writer is running; stop one of them", e.Lease, e.Epoch, by)
}

// Is reports whether target is [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// GapError says that items that were not acked are gone. The consumer delivers nothing
// more; nothing is skipped until an operator decides.
type GapError struct {
	Sink         string
	Topic, Group string
	From, To     Offset   // half-open span of what is missing
	Acked        Position // through of the last acked item
	Next         Position // position of the first item still there, if known
	Cause        string   // "below the log start", "sequence 41 follows 38", "topic recreated"
}

func (e *GapError) Error() string {
	return fmt.Sprintf("gap in lane of sink %q (topic %s, group %s): offsets %s to %s are gone (%s); acked through %s, next position there %s: "+
		"stop the sink, accept the gap with `flusso-kafka-admin lane accept %s --yes`, and seed the sink again with `flusso-kafka-admin request send %s INDEX... --yes`",
		e.Sink, e.Topic, e.Group, e.From, e.To, e.Cause, e.Acked, e.Next, e.Sink, e.Sink)
}

// RetiredError says that an operator took the lane out of the watermark. It is
// not consumed until somebody restores it.
type RetiredError struct {
	Sink string
	By   string    // who retired it
	At   time.Time // when
	Why  string
}

func (e *RetiredError) Error() string {
	return fmt.Sprintf("lane of sink %q was retired by %s at %s (%s): nothing waits for it; to use the sink again, take it back with `flusso-kafka-admin lane restore %s --yes`",
		e.Sink, e.By, e.At.UTC().Format(time.RFC3339), e.Why, e.Sink)
}

// UnverifiedError says that the committed offset was set by somebody else and
// is ahead of what this lane had acked. The watermark stays, nothing is trimmed.
type UnverifiedError struct {
	Sink         string
	Topic, Group string
	Committed    Offset   // what the group says
	Acked        Offset   // what the lane had provably acked, NoOffset when unknown
	Through      Position // through at Acked
}

func (e *UnverifiedError) Error() string {
	acked, back := "nothing on record says what it had acked", ""
	if e.Acked >= 0 {
		acked = fmt.Sprintf("acked for certain only up to %s (through %s)", e.Acked, e.Through)
		back = fmt.Sprintf("move the group back to offset %s, or ", e.Acked)
	}
	return fmt.Sprintf("lane of sink %q (topic %s): group %s is at offset %s, which another tool set; %s: "+
		"stop the sink and %saccept the skip with `flusso-kafka-admin lane accept %s --yes`",
		e.Sink, e.Topic, e.Group, e.Committed, acked, back, e.Sink)
}
