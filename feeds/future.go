package feeds

import "context"

// Future is the pending outcome of [Session.AppendAsync]. It may be waited for
// by any number of goroutines.
type Future struct {
	done chan struct{}
	at   Range
	err  error
}

func newFuture() *Future { return &Future{done: make(chan struct{})} }

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
		return f.at, f.err
	default:
	}
	select {
	case <-f.done:
		return f.at, f.err
	case <-ctx.Done():
		return Range{}, context.Cause(ctx)
	}
}
