// Package pgerr words the errors of a connection attempt.
package pgerr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Connect returns what a connection attempt failed with, real causes only.
// A client that prefers TLS and may do without tries both, on every address,
// and the driver lists each refusal: that the server has no TLS is no cause
// when it was asked without TLS next. errors.Is and errors.As reach all that
// err has. Any other error, and nil, comes back as it is.
func Connect(err error) error {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	all := attempts(failed.Unwrap())
	var real []string
	for _, a := range all {
		text := a.Error()
		if noTLS(a) {
			continue
		}
		if len(real) == 0 || real[len(real)-1] != text {
			real = append(real, text)
		}
	}
	if len(real) == 0 || len(real) == len(all) {
		return err
	}
	return &connectError{
		text: fmt.Sprintf("user %s, database %s: %s", failed.Config.User, failed.Config.Database, strings.Join(real, "; ")), err: err,
	}
}

type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }

func (e *connectError) Unwrap() error { return e.err }

// attempts flattens joined errors, and looks into no other.
func attempts(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, attempts(e)...)
	}
	return out
}

// noTLS: the driver does not export this error.
func noTLS(err error) bool {
	return strings.HasSuffix(err.Error(), "server refused TLS connection")
}
