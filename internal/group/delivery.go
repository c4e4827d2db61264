package group

import (
	"context"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/ledger"
)

// Delivery is one received item and its handle.
type Delivery[T any, M comparable] struct {
	c    *Consumer[T, M]
	h    ledger.Handle
	item T
}

// Item implements [flusso.Delivery].
func (d *Delivery[T, M]) Item() T { return d.item }

// Ack implements [flusso.Delivery]. It records and never waits, so ctx is not
// looked at: a context that ended says nothing about the item.
func (d *Delivery[T, M]) Ack(context.Context) error {
	c := d.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.stopping && d.h.State() == ledger.Outstanding {
		return c.refused("ack", c.endCause())
	}
	before := d.h.State()
	moved, err := c.ledger.Ack(&d.h)
	if err != nil {
		return c.refused("ack", err)
	}
	if before != ledger.Outstanding {
		return nil
	}
	c.freed()
	c.widen()
	if moved || c.keepAcked {
		c.acks++
		signal(c.dirty)
	}
	if f := c.cfg.Hooks.Acked; f != nil {
		f()
	}
	return nil
}

// Nack implements [flusso.Delivery].
func (d *Delivery[T, M]) Nack(context.Context) error {
	c := d.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.stopping && d.h.State() == ledger.Outstanding {
		return c.refused("nack", c.endCause())
	}
	before, err := c.ledger.Nack(&d.h)
	if err != nil {
		return c.refused("nack", err)
	}
	c.readAgain(before)
	if f := c.cfg.Hooks.Nacked; f != nil {
		f()
	}
	return nil
}

// endCause is what ends a consumer that is stopping. Called with mu.
func (c *Consumer[T, M]) endCause() error {
	if c.err != nil {
		return c.err
	}
	return c.stopped
}

func (c *Consumer[T, M]) refused(what string, err error) error {
	return fmt.Errorf("%s a delivery of topic %s, group %s: %w", what, c.cfg.Topic, c.cfg.Group, err)
}

var _ flusso.Delivery[int] = (*Delivery[int, int])(nil)

type handle = ledger.Handle

const outstanding = ledger.Outstanding
