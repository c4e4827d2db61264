package flusso

import (
	"context"
	"sync"
)

// Future is the pending outcome of a submitted item. It may be waited for by
// any number of goroutines.
type Future struct {
	done    chan struct{}
	receipt Receipt
	err     error
}

// NewFuture returns a future and the function that resolves it. Adapters call
// it; of several calls to resolve the first counts.
func NewFuture() (f *Future, resolve func(Receipt, error)) {
	f = &Future{done: make(chan struct{})}
	var once sync.Once
	return f, func(r Receipt, err error) {
		once.Do(func() {
			f.receipt, f.err = r, err
			close(f.done)
		})
	}
}

// Done is closed when the outcome is known.
func (f *Future) Done() <-chan struct{} { return f.done }

// Wait returns the outcome, with the errors of [Producer.Publish], or ctx's
// error when it ends first; the item may then still be published.
func (f *Future) Wait(ctx context.Context) (Receipt, error) {
	select {
	case <-f.done:
		return f.receipt, f.err
	default:
	}
	select {
	case <-f.done:
		return f.receipt, f.err
	case <-ctx.Done():
		return Receipt{}, context.Cause(ctx)
	}
}
