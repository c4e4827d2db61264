package feedtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// How long a test waits. The bounds are the sums of what the code allows each
// wait, so that whatever takes longer hangs.
const (
	// ending is that of one call of package feeds on a feed that works. The
	// longest, taking the lease, waits 2 s for what was committed, 10 s for each
	// of four ids, 30 s for open transactions, and for its own event 10 s until it
	// is produced, 45 s until it is committed.
	ending = 3 * time.Minute
	// silence is that of a process. A word of its script has [patience]; where the
	// session is lost meanwhile, what was appended is told as much later as a
	// segment takes, with 3 s for the abort of each of the three behind it, and 10 s
	// for the look at who took the lease.
	silence = 2 * time.Minute
	// fighting is that of processes that take the lease from each other: dozens of
	// sessions, of which most begin within a second or two.
	fighting = 4 * time.Minute
)

// errDeadline is the cause of a context that ended with its deadline.
var errDeadline = fmt.Errorf("the deadline of the test: %w", context.DeadlineExceeded)

// deadline is closed when this process has run for a time. While it is stopped,
// or its machine sleeps, nothing is counted: nobody could have done anything
// meanwhile. stop ends the count.
func deadline(after time.Duration) (passed <-chan struct{}, stop func()) {
	const tick = 100 * time.Millisecond
	ticker := time.NewTicker(tick)
	out, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer ticker.Stop()
		for range after / tick {
			select {
			case <-ticker.C: // those that nobody took are not kept
			case <-ended:
				return
			}
		}
		close(out)
	}()
	return out, func() { close(ended) }
}

// Close closes a client, or a session, at the end of a test. Where that takes
// longer than any of its waits may the test fails with what every goroutine did.
func Close(t testing.TB, closing func(context.Context) error) error {
	t.Helper()
	return within(context.Background(), t, "closing", ending, closing)
}

// within does something that has to end in a time, which is counted as deadline
// does. Where it does not the test fails with what every goroutine did then.
func within(ctx context.Context, t testing.TB, what string, after time.Duration, do func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	passed, stop := deadline(after)
	defer stop()
	stacks := make(chan string, 1)
	go func() {
		defer close(stacks)
		select {
		case <-passed:
			stacks <- goroutines()
			cancel(errDeadline)
		case <-ctx.Done():
		}
	}()
	err := do(ctx)
	cancel(nil)
	if at, late := <-stacks; late {
		t.Errorf("%s did not end within %s; it was here:\n%s", what, after, at)
		err = errors.Join(err, errDeadline)
	}
	return err
}

// goroutines tells what every goroutine of this process does.
func goroutines() string {
	for size := 1 << 20; ; size *= 2 {
		text := make([]byte, size)
		if n := runtime.Stack(text, true); n < size {
			return string(text[:n])
		}
	}
}
