package kafkaerr

import (
	"errors"
	"fmt"
)

// Error is an error with the operation it ended and what to do next.
type Error struct {
	Op    string // operation and object: "commit offset of group orders.sink.audit"
	Class Class
	Cause error

	advice string
}

// Error returns operation, cause and advice.
func (e *Error) Error() string {
	if e.advice != "" {
		return fmt.Sprintf("%s: %v: %s", e.Op, e.Cause, e.advice)
	}
	return fmt.Sprintf("%s: %v", e.Op, e.Cause)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

var advice = map[Class]string{
	Retriable:   "the broker asks to try again; check its health if this lasts",
	Fenced:      "another producer took the transactional id over, or the transaction timed out; open a new session after a pause",
	Superseded:  "another member took the group over, or its session timed out; attach again only if this process is meant to be the owner",
	Gap:         "records below the log start are gone; check retention and deletions, then seed the sink again",
	Recreated:   "the topic was deleted and created again; check who did it, then plan and seed the lane again",
	Missing:     "create the topic first, or check the name",
	Auth:        "check credentials, certificates and the permissions on the object",
	TooLarge:    "raise the limit of the topic or broker, or send less",
	TooOld:      "upgrade the broker: it does not know the request",
	Unreachable: "check the broker addresses, the network and whether the brokers run",
	Timeout:     "the broker did not answer in time; check its health, or allow more time",
}

// Wrap returns nil for nil, and otherwise an [*Error] that names op and adds
// what to do next. [errors.Is] and [errors.As] reach the cause. An error that
// carries advice already gets the operation alone. needs are the permissions
// that the operation takes: where the broker refused for want of one, the
// advice names it.
func Wrap(op string, err error, needs ...Need) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("%s: %w", op, err)
	}
	class := Classify(err)
	wrapped := &Error{Op: op, Class: class, Cause: err, advice: advice[class]}
	if n, ok := lacking(err, needs); ok {
		wrapped.advice = n.advice()
	}
	return wrapped
}
