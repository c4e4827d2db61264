package feeds

import "context"

// Future is the pending outcome of [Session.AppendAsync]. It may be waited for
// by any number of goroutines.
type Future struct {
	done chan struct{}
	at   Range
	err  error

	batch Range   // where the batch is going to be
	id    int     // its place among the recent ones
	of    *Future // of the batch that this one repeats; nil for none
}

func newFuture(batch Range) *Future { return &Future{done: make(chan struct{}), batch: batch} }

// resolve is called once.
func (f *Future) resolve(at Range, err error) {
	f.at, f.err = at, err
	close(f.done)
}

// Done is closed when the outcome is known. Futures of a session resolve in
// submit order.
func (f *Future) Done() <-chan struct{} { return f.done }

// Wait returns where the batch is, with the errors of [Session.Append], or
// ctx's error when it ends first; the batch may then still become durable.
func (f *Future) Wait(ctx context.Context) (Range, error) {
	select {
	case <-f.done:
		return f.outcome()
	default:
	}
	select {
	case <-f.done:
		return f.outcome()
	case <-ctx.Done():
		return Range{}, context.Cause(ctx)
	}
}

func (f *Future) outcome() (Range, error) {
	if f.of != nil {
		f = f.of
	}
	return f.at, f.err
}

// Repeated reports whether the batch is one that was submitted before, by its
// id: it was not appended again, and the outcome is that of the first time.
func (f *Future) Repeated() bool { return f.of != nil }
