package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

const (
	// DefaultPatience outlasts the start of a broker in a container, 6 to 7
	// seconds, and leaves some of a command's usual 10 for what it asks.
	DefaultPatience = 8 * time.Second

	// Once is the patience of who tries again by itself, or can't wait.
	Once time.Duration = -1
)

const (
	firstPause = 100 * time.Millisecond
	maxPause   = 500 * time.Millisecond
	sayAfter   = time.Second // a wait that is longer is told
)

// reach returns after a broker answered. What a broker does that is starting,
// to refuse connections or close them, is tried again for the options' patience
// within ctx; what waiting does not change is returned at once.
func (c *Client) reach(ctx context.Context) error {
	w := waiting{Client: c, began: time.Now(), patience: cmp.Or(c.options.Patience, DefaultPatience)}
	if end, ok := ctx.Deadline(); ok && end.Before(w.began.Add(w.patience)) {
		w.patience, w.cut = end.Sub(w.began), true
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		c.tried.again()
		err := c.Ping(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(ctx.Err(), context.Canceled):
			return err
		case c.passing(err):
			if misfit := c.misfit(ctx, err); misfit != nil {
				return misfit
			}
			w.last, w.tries = err, w.tries+1
		case ctx.Err() != nil && w.last != nil && !c.tried.connected():
			return w.gaveUp(ctx) // this try came to nothing: the one before says more
		default:
			return c.Explain(ctx, err)
		}
		if time.Since(w.began)+pause >= w.patience {
			return w.gaveUp(ctx)
		}
		w.say()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done(): // canceled: the deadline is later than the pause
			timer.Stop()
			return ctx.Err()
		}
	}
}

// waiting is one wait for a broker.
type waiting struct {
	*Client

	began    time.Time
	patience time.Duration
	cut      bool // by the context's deadline
	said     bool
	tries    int
	last     error
}

// say tells, once, what takes so long.
func (w *waiting) say() {
	if w.said || w.options.Waiting == nil || time.Since(w.began) < sayAfter {
		return
	}
	w.said = true
	why := "it closes connections before it answers"
	var (
		errno syscall.Errno
		dns   *net.DNSError
	)
	switch {
	case errors.As(w.last, &dns):
		why = dns.Err
	case errors.As(w.last, &errno):
		why = errno.Error()
	}
	w.options.Waiting(fmt.Sprintf("waiting up to %s for %s, which may be starting: %s",
		w.patience.Round(100*time.Millisecond), strings.Join(w.options.Brokers, ", "), why))
}

// gaveUp explains the last try.
func (w *waiting) gaveUp(ctx context.Context) error {
	err := w.Explain(context.WithoutCancel(ctx), w.last) // it was no end of ctx
	if e := (*Error)(nil); errors.As(err, &e) && w.tries > 1 {
		e.Tried += fmt.Sprintf(", tried for %s", time.Since(w.began).Round(100*time.Millisecond))
		if w.cut {
			e.Advice += "; allow more time with --timeout"
		}
	}
	return err
}

// passing reports whether a broker that is starting could have been the cause:
// nobody spoke Kafka, a connection was refused or closed, or a name could not be
// looked up for now.
func (c *Client) passing(err error) bool {
	if kafkaerr.Classify(err) != kafkaerr.Unreachable || c.tried.anySpoke() {
		return false
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return !dns.IsNotFound && dns.IsTemporary
	}
	if dialing(err) {
		return errors.As(err, new(syscall.Errno)) // else the address is none
	}
	return true
}

// dialing reports whether no connection came about.
func dialing(err error) bool {
	op := (*net.OpError)(nil)
	return errors.As(err, &op) && op.Op == "dial"
}
