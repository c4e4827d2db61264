package group

import (
	"context"
	"errors"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

// attach implements events.
func (c *Consumer[T, M]) attach(ctx context.Context, m *member, committed Committed) (flusso.Offset, int32, func() error, error) {
	if c.cfg.Mode == Takeover {
		c.mu.Lock()
		known := c.highest
		c.mu.Unlock()
		if known >= 0 && committed.Offset > known {
			return 0, 0, nil, fmt.Errorf("group %s: offset %s was committed by another consumer, %s is the highest of ours: %w",
				c.cfg.Group, committed.Offset, known, flusso.ErrSuperseded)
		}
	}
	start, err := c.reader.Attach(ctx, committed)
	if err != nil {
		return 0, 0, nil, err
	}
	return start.Offset, start.LeaderEpoch, func() error { return c.begin(m, committed, start) }, nil
}

// begin starts an attach epoch.
func (c *Consumer[T, M]) begin(m *member, committed Committed, start Start[T, M]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if c.told != nil {
		return c.told
	}
	if c.stopping || c.member != m {
		return flusso.ErrClosed
	}
	c.epoch++
	c.attached = true
	c.ledger.Attach(start.Floor, start.Mark, again(errRebalance))
	c.again, c.reading, c.astray = start.Again, &reading[T, M]{Reading: start.Reading, seek: c.astray}, false
	c.next, c.pending, c.sealed, c.behind = start.Offset, 0, nil, false
	c.window = c.cfg.Budget
	c.acks, c.durable = 0, 0
	if start.Commit {
		c.acks = 1
		signal(c.dirty)
	}
	if c.owed > committed.Offset {
		c.lose(c.owed)
	} else if c.owed >= 0 {
		c.settled = c.epoch
	}
	c.owed = flusso.NoOffset
	c.floor, c.highest = committed.Offset, max(c.highest, committed.Offset)
	c.notify()
	c.cfg.Logger.Debug("attached", "topic", c.cfg.Topic, "group", c.cfg.Group, "committed", committed.Offset, "start", start.Offset)
	if f := c.cfg.Hooks.Attached; f != nil {
		f(start.Offset)
	}
	return nil
}

// again is what ends deliveries that come again to this consumer.
func again(cause error) error {
	return fmt.Errorf("the consumer attached again (%w): %w", cause, flusso.ErrWithdrawn)
}

// detach implements events.
func (c *Consumer[T, M]) detach(m *member, cause error, last bool) {
	if last {
		ctx, cancel := context.WithTimeout(c.life, lastCommit)
		_ = c.commitOnce(ctx) // what it could not commit comes again
		cancel()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.member != m || !c.attached {
		return
	}
	if !last && !c.passes(cause) {
		c.failLocked(c.final(cause))
		return
	}
	c.attached, c.reading = false, nil
	c.epoch++
	c.gone = again(cause)
	if c.acks > c.durable {
		if _, ok := errors.AsType[*UnknownCommitError](cause); ok {
			c.owed, _ = c.ledger.Floor() // the next attach tells
		} else {
			floor, _ := c.ledger.Floor()
			c.lose(floor)
		}
	}
	c.ledger.End(c.gone)
	c.notify()
}

func (c *Consumer[T, M]) notCommitted() error {
	return fmt.Errorf("acks recorded before were not committed, their items come again: %w", c.gone)
}
