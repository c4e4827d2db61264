package segment

import (
	"errors"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

// Outcome is what became of an entry that was not committed.
type Outcome int

const (
	// Rejected says that its commit was never asked for: it is certainly not visible.
	Rejected Outcome = iota
	// Unknown says that the commit was asked for and its answer is not a plain
	// yes. It is settled by opening the lease again and reading what is there.
	Unknown
)

// String returns "rejected" or "unknown".
func (o Outcome) String() string {
	if o == Unknown {
		return "unknown"
	}
	return "rejected"
}

// Causes of an end that are the session's own. Compare with [errors.Is].
var (
	// ErrIdle: the session rested longer than [MaxIdle].
	ErrIdle = errors.New("session idle for more than a day, its transactional ids may have expired; open it again")
	// ErrReinitialized: the client fetched a new producer epoch in the middle
	// of a segment, so part of it was aborted.
	ErrReinitialized = errors.New("producer epoch changed within a transaction, a part of it was aborted by the broker")
	// ErrNoRecords: an entry with group offsets encoded to no record.
	ErrNoRecords = errors.New("entry with group offsets has no records")
)

// Error tells why an entry, or the session, was not committed. It is
// [flusso.ErrRejected] or [flusso.ErrUnknownOutcome] by its outcome, and
// [flusso.ErrLost] when the session has ended, unless its user closed it; a
// broker cannot tell a takeover from a timeout, so [flusso.ErrFenced] only
// when the cause says so ([Session.End]).
type Error struct {
	Lease   string
	Outcome Outcome
	Ended   bool // the session has ended; false: this entry alone failed
	Cause   error
}

// Error returns lease, outcome and cause.
func (e *Error) Error() string {
	if !e.Ended {
		return fmt.Sprintf("entry of lease %s rejected: %v", e.Lease, e.Cause)
	}
	if errors.Is(e.Cause, flusso.ErrClosed) {
		return fmt.Sprintf("session of lease %s: %v", e.Lease, e.Cause)
	}
	if e.Outcome == Unknown {
		return fmt.Sprintf("session of lease %s ended, the outcome of this commit is unknown until the lease is opened again: %v", e.Lease, e.Cause)
	}
	return fmt.Sprintf("session of lease %s ended, nothing of this was published: %v", e.Lease, e.Cause)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports what the error means for its receiver; see [Error].
func (e *Error) Is(target error) bool {
	switch target {
	case flusso.ErrRejected:
		return e.Outcome == Rejected
	case flusso.ErrUnknownOutcome:
		return e.Outcome == Unknown
	case flusso.ErrLost:
		return e.Ended && !errors.Is(e.Cause, flusso.ErrClosed) && !errors.Is(e.Cause, flusso.ErrFenced)
	}
	return false
}
