package group

import (
	"context"
	"errors"
	"sync"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Pending is a commit that a transaction makes in our place. While it is
// pending no plain commit is sent: it would win over the transaction's.
// [Pending.Resolve] or [Pending.Abandon] must be called.
type Pending[T any, M comparable] struct {
	Commit // what the transaction must commit

	c          *Consumer[T, M]
	m          *member
	epoch      uint64
	acks       uint64
	deliveries []*Delivery[T, M]
	once       sync.Once // gives the turn back
}

// Prepare computes what to commit so that the deliveries are acked, and holds
// back plain commits. It waits for the one in flight and for a pending one
// before it. It fails with what ended one of the deliveries.
func (c *Consumer[T, M]) Prepare(ctx context.Context, deliveries []*Delivery[T, M]) (*Pending[T, M], error) {
	if err := c.takeTurn(ctx); err != nil {
		return nil, err
	}
	p, err := c.prepare(deliveries)
	if err != nil {
		c.giveTurn()
		return nil, err
	}
	return p, nil
}

func (c *Consumer[T, M]) prepare(deliveries []*Delivery[T, M]) (*Pending[T, M], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil || c.stopping:
		return nil, c.refused("ack", c.endCause())
	case !c.attached:
		return nil, c.refused("ack", c.gone)
	}
	handles := make([]*handle, len(deliveries))
	for i, d := range deliveries {
		if d.c != c {
			return nil, d.c.foreign()
		}
		handles[i] = &d.h
	}
	floor, mark, above, err := c.ledger.Preview(handles)
	if err != nil {
		return nil, c.refused("ack", err)
	}
	p := &Pending[T, M]{c: c, m: c.member, epoch: c.epoch, acks: c.acks, deliveries: deliveries}
	p.Commit = c.reader.Commit(floor, mark, above)
	c.highest = max(c.highest, p.Offset)
	return p, nil
}

// foreign is why a delivery of this consumer can't be acked by another.
func (c *Consumer[T, M]) foreign() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.endCause(); err != nil {
		return c.refused("ack", err)
	}
	return &flusso.InvalidError{What: "ack", Reason: "the delivery is of another consumer"}
}

// Identity returns who the transaction's commit must name: that of the attach
// that the deliveries belong to. It fails when that is over.
func (p *Pending[T, M]) Identity() (Identity, error) {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.owns(p.m, p.epoch) {
		return Identity{}, c.refused("ack", errors.Join(c.gone, c.err))
	}
	return p.m.who(), nil
}

// TopicID returns the identity of the topic that the offset belongs to.
func (p *Pending[T, M]) TopicID() [16]byte { return p.m.topicID }

// Resolve tells what became of the transaction: nil when it committed. Where
// that is unknown the consumer attaches again and reads the offset back.
func (p *Pending[T, M]) Resolve(err error) {
	c := p.c
	defer p.once.Do(c.giveTurn)
	if err != nil {
		switch {
		case errors.Is(err, flusso.ErrUnknownOutcome):
			p.m.end(&UnknownCommitError{c.cfg.Group, p.Offset, err})
		case kafkaerr.Classify(err) == kafkaerr.Superseded:
			p.m.end(err)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.owns(p.m, p.epoch) {
		return // the attach after it read the offset back
	}
	alone := c.acks == p.acks
	for _, d := range p.deliveries {
		before := d.h.State()
		if _, err := c.ledger.Ack(&d.h); err == nil && before == outstanding {
			c.acks++
		}
	}
	c.freed()
	c.widen()
	c.floor = p.Offset
	if alone {
		c.durable = c.acks
	} else {
		c.durable = max(c.durable, p.acks)
		signal(c.dirty)
	}
	c.failing = 0
	c.notify()
}

// Abandon gives up the transaction's commit: it was never sent.
func (p *Pending[T, M]) Abandon() { p.once.Do(p.c.giveTurn) }
