package channel

import (
	"context"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

// ends hands out the two ends of a lane.
type ends[T any] struct {
	s       *Stream
	log     *log[T]
	written bool // the lane has a writer session
	plan    planner[T]
	size    func(T) int64
}

// planner checks an item and turns it into an entry of the line, with the
// lock held. After it the item counts as accepted.
type planner[T any] func(by *origin, item T) (*entry, error)

func (e *ends[T]) Producer(ctx context.Context) (flusso.Producer[T], error) {
	return open(ctx, e.s, e.written, e.plan, e.size)
}

func (e *ends[T]) Consumer(ctx context.Context) (flusso.Consumer[T], error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c, err := attach(e.s, e.log)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// origin is the untyped part of a producer. Guarded by pipeline.mu.
type origin struct {
	s       *Stream
	session *session // nil on the request lane
	found   []tail   // what each lane held, or had in line, when it was opened
	pending int      // entries in line
	bytes   int64    // of the entries in line
	heldAt  uint64   // the pump in which an earlier entry of it is held up
	ended   error    // nothing more is accepted
}

// lost returns why what is in line will not be published.
func (o *origin) lost() error {
	if o.session != nil && o.session.cause != nil {
		return o.session.cause
	}
	return o.s.gaveUp
}

// producer is the publishing end of a lane or of all of them.
type producer[T any] struct {
	origin
	plan planner[T]
	size func(T) int64
	turn chan struct{} // held by the one that may be accepted next
}

func open[T any](
	ctx context.Context, s *Stream, written bool, plan planner[T], size func(T) int64,
) (flusso.Producer[T], error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.closed {
		return nil, errStreamClosed
	}
	p := &producer[T]{origin: origin{s: s}, plan: plan, size: size, turn: make(chan struct{}, 1)}
	if written {
		p.session = s.p.lease(s)
		p.found = make([]tail, len(s.p.lanes))
		for i, l := range s.p.lanes {
			p.found[i] = l.planned.in(s.incarnation)
		}
	}
	s.producers[p] = struct{}{}
	return p, nil
}

// Publish returns when the item is in its lanes.
func (p *producer[T]) Publish(ctx context.Context, item T) (flusso.Receipt, error) {
	f, err := p.Submit(ctx, item)
	if err != nil {
		return flusso.Receipt{}, err
	}
	return f.Wait(ctx)
}

// Submit returns when the item is in line. It waits while more than
// [Config.MaxUnackedBytes] of this producer are.
func (p *producer[T]) Submit(ctx context.Context, item T) (*flusso.Future, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	size := p.size(item)

	p.s.p.mu.Lock()
	defer p.s.p.mu.Unlock()
	err := p.s.p.await(ctx, func() bool {
		return p.refusal() != nil || p.bytes == 0 || p.bytes+size <= p.s.p.maxBytes
	})
	if err != nil {
		return nil, err
	}
	if err := p.refusal(); err != nil {
		return nil, err
	}
	e, err := p.plan(&p.origin, item)
	if err != nil {
		return nil, err
	}
	f, resolve := flusso.NewFuture()
	e.by, e.bytes, e.resolve = &p.origin, size, resolve
	p.s.p.enqueue(e)
	return f, nil
}

func (p *producer[T]) refusal() error {
	if p.session != nil && p.session.cause != nil {
		return p.session.cause
	}
	return p.ended
}

// end stops accepting.
func (p *producer[T]) end(cause error) {
	if p.ended == nil {
		p.ended = cause
	}
}

// Close waits until everything it accepted is resolved, or ctx ends: the rest
// stays in line and a later call waits for it again.
func (p *producer[T]) Close(ctx context.Context) error {
	p.s.p.mu.Lock()
	defer p.s.p.mu.Unlock()
	p.end(fmt.Errorf("producer: %w", flusso.ErrClosed))
	delete(p.s.producers, p)
	p.s.p.announce()
	if err := p.s.p.await(ctx, func() bool { return p.pending == 0 }); err != nil {
		return fmt.Errorf("close producer: %d accepted items are still in line for a full lane: %w", p.pending, err)
	}
	return nil
}
