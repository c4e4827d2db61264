package channel

import (
	"context"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

// consumer is the receiving end of a lane.
type consumer[T any] struct {
	s   *Stream
	log *log[T]

	// Guarded by pipeline.mu.
	cause   error         // why it ended; nil while it owns the lane
	arrived chan struct{} // closed when something changed; nil while nobody waits
}

// attach gives the lane a new owner, which takes over at once [B4].
func attach[T any](s *Stream, l *log[T]) (*consumer[T], error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.closed {
		return nil, errStreamClosed
	}
	c := &consumer[T]{s: s, log: l}
	if l.owner != nil {
		l.owner.end(fmt.Errorf("%s: %w", l.name, flusso.ErrSuperseded))
	}
	l.owner = c
	s.consumers[c] = struct{}{}
	return c, nil
}

// end detaches the consumer: what it did not ack comes again for the next.
func (c *consumer[T]) end(cause error) {
	if c.cause != nil {
		return
	}
	c.cause = cause
	delete(c.s.consumers, c)
	c.log.rewind(0)
	c.log.owner = nil
	c.wake()
}

func (c *consumer[T]) wake() {
	if c != nil && c.arrived != nil {
		close(c.arrived)
		c.arrived = nil
	}
}

// Receive returns the next item, waiting for it until ctx ends.
func (c *consumer[T]) Receive(ctx context.Context) (flusso.Delivery[T], error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for {
		d, arrived, err := c.take()
		if err != nil {
			return nil, err
		}
		if d != nil {
			d.item = c.log.clone(d.item)
			return d, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take returns the next delivery, or what to wait for.
func (c *consumer[T]) take() (*delivery[T], <-chan struct{}, error) {
	c.s.p.mu.Lock()
	defer c.s.p.mu.Unlock()
	if c.cause != nil {
		return nil, nil, c.cause
	}
	l := c.log
	if l.next == len(l.slots) {
		if c.arrived == nil {
			c.arrived = make(chan struct{})
		}
		return nil, c.arrived, nil
	}
	slot := &l.slots[l.next]
	slot.out = &delivery[T]{by: c, sequence: l.floor + uint64(l.next), item: slot.item}
	l.next++
	return slot.out, nil, nil
}

// CaughtUp reports whether nothing waits behind the last delivery, in the
// lane or in line for it.
func (c *consumer[T]) CaughtUp(context.Context) (bool, error) {
	c.s.p.mu.Lock()
	defer c.s.p.mu.Unlock()
	if c.cause != nil {
		return false, c.cause
	}
	return c.log.next == len(c.log.slots) && c.log.waiting == 0, nil
}

// Flush returns at once: an ack is as durable as it gets when Ack returns.
func (c *consumer[T]) Flush(context.Context) error {
	c.s.p.mu.Lock()
	defer c.s.p.mu.Unlock()
	return c.cause
}

// Close detaches from the lane. It never waits.
func (c *consumer[T]) Close(context.Context) error {
	c.s.p.mu.Lock()
	defer c.s.p.mu.Unlock()
	c.end(fmt.Errorf("consumer of the %s: %w", c.log.name, flusso.ErrClosed))
	return nil
}
