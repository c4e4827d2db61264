package offsets

import (
	"errors"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// ErrUnknown says that the log holds no answer: the offset or position is
// below the log start, or nothing is there. It never stands for zero. Details
// are in an [*UnknownError].
var ErrUnknown = errors.New("unknown: the lane holds no answer")

// UnknownError tells why a lane holds no answer. It is an [ErrUnknown].
type UnknownError struct {
	Lane   topics.Lane
	What   string        // what was asked: "item below offset 40"
	Start  flusso.Offset // log start, NoOffset when not known
	Reason string
}

// Error names the lane, the question and the log start.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("lane of sink %q (topic %s): %s: %s; its log starts at offset %s",
		e.Lane.Sink, e.Lane.Topic(), e.What, e.Reason, e.Start)
}

// Is reports whether target is [ErrUnknown].
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// RecreatedError says that a lane's topic was deleted and created again: the
// offset committed for the old one points into other data. It unwraps to a
// [*flusso.GapError], since what was unacked in the old topic is gone.
type RecreatedError struct {
	Lane      topics.Lane
	Committed [16]byte // topic ID the offset was committed for
	Now       [16]byte // topic ID of today
	gap       *flusso.GapError
}

// Error names both topic IDs and what to do.
func (e *RecreatedError) Error() string {
	return fmt.Sprintf("lane of sink %q was recreated: group %s committed offset %s (through %s) for topic %s with ID %s, which now has ID %s: "+
		"stop the sink, accept the gap with `flusso-kafka-admin lane accept %s --yes`, and seed the sink again with `flusso-kafka-admin request send %s INDEX... --yes`",
		e.Lane.Sink, e.Lane.Group(), e.gap.From, e.gap.Acked, e.Lane.Topic(), topics.IDString(e.Committed), topics.IDString(e.Now), e.Lane.Sink, e.Lane.Sink)
}

// Unwrap returns the gap.
func (e *RecreatedError) Unwrap() error { return e.gap }
