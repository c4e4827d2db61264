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
	drainWithin = time.Second
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
// body; one that announces a body and does not send it is a problem. Otherwise
// the server would wait for it before it answers, as long as a request may take,
// and the time of the answer may be over by then.
func (g *Gateway) drain(w http.ResponseWriter, r *http.Request) error {
	if r.Body == http.NoBody || r.ProtoMajor > 1 || r.Header.Get("Expect") != "" {
		return nil // there the server answers at once
	}
	within := min(drainWithin, g.bodyWithin)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within))
	if _, err := io.CopyN(io.Discard, r.Body, drainAtMost); bodyLate(err) { // which has ended the request's context, too
		return lateBody.problem("a body was announced, which nobody wants here, and did not arrive within %s", within)
	}
	return nil // what is left closes the connection behind the answer
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
