package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Every request is bounded twice: what it asks of brokers and bucket ends with
// its context, and only windUpWithin later the server gives its connection up.
// So whoever asks has an answer, whatever does not answer here.
const (
	// windUpWithin is what a session takes at most, when a request's time is
	// over, to find out how it ended, and to let go of the lease.
	windUpWithin = 15 * time.Second
	// bodyWithin is how long a body may take.
	bodyWithin = time.Minute
	// drainWithin is how long an answer waits for a body that nobody wants: a
	// client may not read before it has sent it.
	drainWithin = 2 * time.Second
	// drainAtMost is how much of such a body is read; more, and the connection
	// is closed behind the answer.
	drainAtMost = 256 << 10
)

// bounded gives a request the time d for what it asks, and its answer
// windUpWithin more. A write that another node sent ends before that one stops
// waiting. To be called when the body was read.
func (g *Gateway) bounded(w http.ResponseWriter, r *http.Request, d time.Duration) (context.Context, context.CancelFunc) {
	if left, ok := timeLeft(r); ok {
		d = min(d, left)
	}
	// Where deadlines are not to be had, the server's hold.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + windUpWithin))
	return context.WithTimeout(r.Context(), d)
}

// drain reads what a client sends although its request is refused, or takes no
// body. Otherwise the server does that before it answers, until the deadline of
// the whole request. When nothing is left to be read, that deadline is lifted:
// reached, it would end the request's context.
func (g *Gateway) drain(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if r.Body != http.NoBody {
		if r.ProtoMajor > 1 || r.Header.Get("Expect") != "" {
			return // there the server answers at once
		}
		_ = control.SetReadDeadline(time.Now().Add(min(drainWithin, g.bodyWithin)))
		if _, err := io.CopyN(io.Discard, r.Body, drainAtMost); !errors.Is(err, io.EOF) {
			return // the connection is closed behind the answer
		}
	}
	_ = control.SetReadDeadline(time.Time{})
}

// headerTimeLeft is on a write that one node sends to another: how many
// milliseconds the one that sent it waits for the answer.
const headerTimeLeft = "Flusso-Time-Left"

// setTimeLeft tells another node how long ctx still lasts, less what the answer
// takes to come back.
func setTimeLeft(h http.Header, ctx context.Context) { //nolint:revive // headers are what it is about
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		h.Set(headerTimeLeft, strconv.FormatInt((left-left/10).Milliseconds(), 10))
	}
}

// timeLeft is how long the node that sent a write waits for its answer. What is
// no number says nothing: the time of this node counts.
func timeLeft(r *http.Request) (time.Duration, bool) {
	if r.Header.Get(headerForwarded) == "" {
		return 0, false
	}
	ms, err := strconv.ParseInt(r.Header.Get(headerTimeLeft), 10, 32)
	if err != nil || ms < 0 {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// bodyLate reports whether a body did not arrive in time.
func bodyLate(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
