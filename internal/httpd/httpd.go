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

	readHeaderWithin = 5 * time.Second
	idleAtMost       = 2 * time.Minute
	maxHeaderBytes   = 16 << 10
)

// Limits are how long a request may take to be read, and its answer to be
// written. Handlers extend them for what takes longer.
type Limits struct{ Read, Write time.Duration }

// Run serves on l until ctx ends, and closes l. ending is called before it
// waits for requests, for those that would not end by themselves; nil for none.
func Run(ctx context.Context, l net.Listener, h http.Handler, limits Limits, log *slog.Logger, ending func()) error {
	server := &http.Server{
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
		if err := server.Shutdown(closing); err != nil {
			return server.Close() // whoever still reads an answer loses it
		}
		return nil
	})
	return group.Wait()
}
