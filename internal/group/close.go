package group

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// lose notes acks that ended with their attach. Called with mu.
func (c *Consumer[T, M]) lose(floor flusso.Offset) {
	c.lost, c.lostTo = c.notCommitted(), floor
	if c.keepAcked {
		c.lostTo = math.MaxInt64 // acks above the floor are lost as well, and no floor tells when they are not
	}
}

// stillLost reports whether acks were lost whose items have not been acked
// again. Called with mu.
func (c *Consumer[T, M]) stillLost() bool {
	if c.lost == nil {
		return false
	}
	floor, _ := c.ledger.Floor()
	return !c.attached || floor < c.lostTo
}

// Flush implements [flusso.Consumer]. When acks recorded before it ended with
// their attach it fails once, with [flusso.ErrWithdrawn]: their items come
// again.
func (c *Consumer[T, M]) Flush(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	epoch, target := c.epoch, c.acks
	floor, _ := c.ledger.Floor()
	open := c.durable < target
	for {
		switch {
		case c.err != nil && c.told != nil && c.durable >= c.acks:
			return nil // it ended behind them
		case c.err != nil:
			return c.err
		case c.stillLost():
			err := c.lost
			c.lost = nil
			return err
		case c.owed >= 0: // wait for what the next attach reads
		case c.epoch == epoch && c.durable >= target:
			c.lost = nil // or it would still be: what was lost was acked again
			return nil
		case c.epoch != epoch && (!open || !c.keepAcked && c.floor >= floor):
			return nil // also where an attach after it found them committed
		case c.epoch != epoch && c.settled == epoch+2: // one for the end, one for the next begin
			return nil // ... and the commit whose reply was lost had been made
		case c.epoch != epoch:
			return c.notCommitted() // another Flush took the loss
		}
		changed := c.changed
		c.mu.Unlock()
		signal(c.dirty)
		signal(c.hurry)
		select {
		case <-changed:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			return fmt.Errorf("flush acks to group %s: %w", c.cfg.Group, context.Cause(ctx))
		}
	}
}

// Close implements [flusso.Consumer].
func (c *Consumer[T, M]) Close(ctx context.Context) error {
	return c.end(ctx, flusso.ErrClosed, true)
}

// Supersede ends the consumer for one that attaches in the same process: its
// acks fail at once, those recorded are committed first as far as ctx allows,
// and the lane is left without a rebalance where the mode allows.
func (c *Consumer[T, M]) Supersede(ctx context.Context) error {
	return c.end(ctx, flusso.ErrSuperseded, c.cfg.Mode == Standby)
}

// end makes the recorded acks durable, detaches and waits for all goroutines.
func (c *Consumer[T, M]) end(ctx context.Context, cause error, leave bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	first := !c.stopping
	if first {
		c.stopping, c.stopped = true, cause
	}
	m := c.member
	c.notify()
	c.mu.Unlock()

	var err error
	if first {
		// Everything that asks a broker ends a little before ctx does, so that
		// the rest can still be waited for.
		soft, cancel := shorter(ctx)
		err = c.lastCommits(soft)
		c.fail(cause)
		if m != nil {
			m.end(cause)
			m.close(soft, leave)
		}
		cancel()
		c.stop()
	}
	joined := make(chan struct{})
	go func() {
		c.background.Wait()
		close(joined)
	}()
	select {
	case <-joined:
	case <-ctx.Done():
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("close the consumer of topic %s in group %s: %w", c.cfg.Topic, c.cfg.Group, err)
	}
	return nil
}

// shorter returns a context that ends a fifth before ctx does, half a second
// at most.
func shorter(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(left/5, 500*time.Millisecond)))
}

// lastCommits commits what is recorded, or says what was not.
func (c *Consumer[T, M]) lastCommits(ctx context.Context) error {
	for {
		c.mu.Lock()
		over := c.err != nil || !c.attached || c.durable >= c.acks
		open, lost := c.acks-c.durable, c.lost
		if c.owed >= 0 && lost == nil {
			lost = fmt.Errorf("it is not known whether the acks up to offset %s were committed, else their items come again: %w", c.owed, c.gone)
		}
		c.mu.Unlock()
		if over {
			return lost
		}
		if err := c.commitOnce(ctx); err != nil || ctx.Err() != nil {
			return fmt.Errorf("%d recorded acks were not committed, their items come again: %w", open, errors.Join(err, context.Cause(ctx)))
		}
	}
}
