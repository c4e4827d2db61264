package kafka

import (
	"context"
	"sync/atomic"

	flusso "github.com/flusso/flusso-kafka"
)

// producer is a publishing end on a writer session. wrap turns what its user
// publishes into a commit.
type producer[T any] struct {
	session *session
	wrap    func(T) flusso.Commit

	*submitter
	closed atomic.Bool
}

var (
	_ flusso.Producer[flusso.Commit]   = (*producer[flusso.Commit])(nil)
	_ flusso.Producer[flusso.LaneItem] = (*producer[flusso.LaneItem])(nil)
)

// Publish implements [flusso.Producer].
func (p *producer[T]) Publish(ctx context.Context, item T) (flusso.Receipt, error) {
	f, err := p.Submit(ctx, item)
	if err != nil {
		return flusso.Receipt{}, err
	}
	return f.Wait(ctx)
}

// Submit implements [flusso.Producer].
func (p *producer[T]) Submit(ctx context.Context, item T) (*flusso.Future, error) {
	if p.closed.Load() {
		return nil, flusso.ErrClosed
	}
	return p.session.submit(ctx, p.submitter, p.wrap(item))
}

// Close implements [flusso.Producer].
func (p *producer[T]) Close(ctx context.Context) error {
	p.closed.Store(true)
	last := p.last.Load()
	if last == nil {
		return nil
	}
	select {
	case <-last.Done():
		return nil // what became of it is the future's to say
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
