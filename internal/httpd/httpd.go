// Package httpd is what the HTTP servers of the command line share: who may
// ask, which certificate is shown, and how a server starts and ends. What is
// served it does not know.
//
// The two things to know are [Guard], which lets requests in, and [Run].
package httpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// CloseWithin is how long requests have when a server ends: an interrupted
	// command keeps time for the rest of its second.
	CloseWithin = 400 * time.Millisecond

	// answerWithin is how long before that they are told to come to an end, so
	// that who asked has an answer.
	answerWithin = CloseWithin / 2

	// readHeaderWithin bounds a handshake, too: on a machine that is busy with
	// something else a client may need seconds for its part of it.
	readHeaderWithin = 15 * time.Second
	idleAtMost       = 2 * time.Minute
	maxHeaderBytes   = 16 << 10
)

// Limits are how long a request may take to be read, and its answer to be
// written. Handlers extend them for what takes longer.
type Limits struct{ Read, Write time.Duration }

// ErrEnding is why the context of a request ended when the server does.
var ErrEnding = errors.New("this server is shutting down")

// Run serves on l until ctx ends, and closes l. ending is called before it
// waits for requests, for those that would not end by themselves; nil for none.
// What then still runs is told by its context, with [ErrEnding], while it can
// still answer.
func Run(ctx context.Context, l net.Listener, h http.Handler, limits Limits, log *slog.Logger, ending func()) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	server := &http.Server{
		BaseContext:       func(net.Listener) context.Context { return base },
		Handler:           h,
		ReadHeaderTimeout: readHeaderWithin,
		ReadTimeout:       limits.Read,
		WriteTimeout:      limits.Write,
		IdleTimeout:       idleAtMost,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", l.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		if ending != nil {
			ending()
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseWithin)
		defer cancel()
		telling := time.AfterFunc(CloseWithin-answerWithin, func() { cut(ErrEnding) })
		defer telling.Stop()
		if err := server.Shutdown(closing); err != nil {
			return server.Close() // whoever still reads an answer loses it
		}
		return nil
	})
	return group.Wait()
}
