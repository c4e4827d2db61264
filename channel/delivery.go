package channel

import (
	"context"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

type state uint8

const (
	outstanding state = iota
	acked
	withdrawn
)

// delivery is a received item and its handle.
type delivery[T any] struct {
	by       *consumer[T]
	sequence uint64
	item     T
	state    state // guarded by pipeline.mu
}

func (d *delivery[T]) Item() T { return d.item }

// Ack records the ack; see [flusso.Delivery]. It never waits, so it does not
// look at ctx: a sink that is shutting down can still record what it applied.
func (d *delivery[T]) Ack(context.Context) error {
	d.by.s.p.mu.Lock()
	defer d.by.s.p.mu.Unlock()
	if err := d.ackable(); err != nil {
		return err
	}
	d.ack()
	return nil
}

// ackable returns why the delivery cannot be acked. With the lock held.
func (d *delivery[T]) ackable() error {
	switch {
	case d.by.cause != nil:
		return fmt.Errorf("ack item %d: %w", d.sequence, d.by.cause)
	case d.state == withdrawn:
		return fmt.Errorf("ack item %d of the %s: %w", d.sequence, d.by.log.name, flusso.ErrWithdrawn)
	}
	return nil
}

func (d *delivery[T]) ack() {
	if d.state == outstanding {
		d.state = acked
		d.by.log.advance()
	}
}

// Nack withdraws this item and every later one; see [flusso.Delivery].
func (d *delivery[T]) Nack(context.Context) error {
	d.by.s.p.mu.Lock()
	defer d.by.s.p.mu.Unlock()
	switch {
	case d.by.cause != nil:
		return fmt.Errorf("nack item %d: %w", d.sequence, d.by.cause)
	case d.state == withdrawn:
		return fmt.Errorf("nack item %d of the %s: %w", d.sequence, d.by.log.name, flusso.ErrWithdrawn)
	case d.state == acked:
		return fmt.Errorf("nack item %d of the %s: %w", d.sequence, d.by.log.name, flusso.ErrAcked)
	}
	d.by.log.rewind(int(d.sequence - d.by.log.floor))
	return nil
}
