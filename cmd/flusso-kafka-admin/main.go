// Command flusso-kafka-admin looks after pipelines on Kafka: what state they
// are in, how far each sink is behind, what the source may confirm, which
// backfills wait. `flusso-kafka-admin demo` runs a whole pipeline in one
// process with nothing installed.
//
// Standard output is the answer, standard error the rest. Exit code 0 says
// that all is well, 1 that something was found or failed, 2 that the command
// was not understood.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
)

// grace is how long a command has to wind up after an interrupt.
const grace = 900 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), interrupts()...)
	code := make(chan int, 1)
	windUp := &winding{}
	go func() {
		code <- run(ctx, os.Args[1:], streams{
			in: os.Stdin, out: os.Stdout, err: os.Stderr, called: os.Args[0], getenv: os.Getenv, configDir: os.UserConfigDir,
			columns: columns(os.Stdout), errColumns: columns(os.Stderr), windUp: windUp,
			size: func() (int, int) {
				columns, rows, err := term.GetSize(int(os.Stdout.Fd()))
				if err != nil {
					return 0, 0
				}
				return columns, rows
			},
		})
	}()
	select {
	case c := <-code:
		stop()
		os.Exit(c)
	case <-ctx.Done():
	}
	stop() // from now on a second interrupt ends the process at once
	select {
	case c := <-code:
		os.Exit(c)
	case <-time.After(windUp.get()):
		fmt.Fprintln(os.Stderr, "flusso-kafka-admin: interrupted, and did not wind up in time")
		os.Exit(exitFailed)
	}
}

// interrupts are the signals that a command winds up after. A terminal that
// goes away is one, but for what nohup runs.
func interrupts() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// columns returns the width of a terminal, 0 when f is not one.
func columns(f *os.File) int {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return 0
	}
	width, _, err := term.GetSize(fd)
	if err != nil {
		return 0
	}
	if width <= 0 {
		return maxColumns // it does not know itself
	}
	return width
}
