package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// join checks group and topic and makes a new member. own is the member id we
// had before, "" at first: whoever else holds the lane by now keeps it.
func (c *Consumer[T, M]) join(ctx context.Context, own string) (*member, error) {
	holder, err := checkGroup(ctx, c.cfg.Lookup, &c.cfg)
	if err != nil {
		return nil, err
	}
	if own != "" && holder != "" && holder != own {
		return nil, fmt.Errorf("attach to group %s: member %s has it: %w", c.cfg.Group, holder, flusso.ErrSuperseded)
	}
	id, err := checkTopic(ctx, c.cfg.Lookup, c.cfg.Topic, c.cfg.TopicID)
	switch {
	case err != nil && own == "" && kafkaerr.Classify(err) == kafkaerr.Missing:
		return nil, err // it was never there
	case err != nil:
		return nil, c.broken(ctx, err)
	}
	m := newMember(&c.cfg, id, c)
	c.mu.Lock()
	c.member = m // before it opens: it may attach at once
	c.mu.Unlock()
	if err := m.open(); err != nil {
		return nil, err
	}
	return m, nil
}

// broken lets the reader name what can't be read on; passing errors stay.
func (c *Consumer[T, M]) broken(ctx context.Context, err error) error {
	switch class := kafkaerr.Classify(err); {
	case class == kafkaerr.Gap, class == kafkaerr.Recreated, class == kafkaerr.Missing, errors.Is(err, ErrRewritten):
		c.mu.Lock()
		next := c.next
		_, mark := c.ledger.Floor()
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, brokenTimeout)
		defer cancel()
		return c.reader.Broken(ctx, next, mark, err)
	}
	return err
}

// run owns the members: it polls the one it has and makes another when it
// ended for a passing reason. What [Consumer.end] ends it also closes.
func (c *Consumer[T, M]) run(m *member) {
	var own string // the last member id that we know of: a member that never attached has none
	for {
		c.pollAll(m)
		cause := m.endedBy()
		id := m.who().MemberID
		if id != "" {
			own = id
		}
		if c.isStopping() {
			return
		}
		if !c.passes(cause) {
			c.fail(cause)
			// Out of the group, so that an operator can move its offsets; but
			// never where the name is somebody else's by now.
			m.close(c.life, !errors.Is(c.ended(), flusso.ErrSuperseded))
			return
		}
		// A static member is replaced by the next one at once; a dynamic one
		// would be waited for.
		m.close(c.life, c.cfg.Mode == Standby)
		if m = c.rejoin(own, id == ""); m == nil {
			return
		}
		if c.isStopping() {
			m.close(c.life, false)
			return
		}
	}
}

// rejoin makes another member. nameless says that the last one may have joined
// without learning its member id: whoever holds the lane may then be that one.
// It sends no heartbeat, so that it is gone soon; somebody else is not.
func (c *Consumer[T, M]) rejoin(own string, nameless bool) *member {
	began := time.Now()
	for c.pause() {
		ctx, cancel := context.WithTimeout(c.life, sessionTimeout)
		m, err := c.join(ctx, own)
		cancel()
		doubtful := nameless && errors.Is(err, flusso.ErrSuperseded) && time.Since(began) < goneAfter
		switch {
		case err == nil:
			if c.cfg.Mode == Takeover {
				// What was checked does not stay true: a member that could not
				// join since must not do so much later, over whoever has the
				// lane then. (One in standby waits without a name.)
				time.AfterFunc(sessionTimeout, func() {
					if m.who().MemberID == "" {
						m.end(kafkaerr.Wrap("attach again to group "+c.cfg.Group, context.DeadlineExceeded))
					}
				})
			}
			return m
		case !doubtful && !c.passes(err):
			c.fail(err)
			return nil
		}
		c.cfg.Logger.Warn("attaching again", "topic", c.cfg.Topic, "group", c.cfg.Group, "err", err)
	}
	return nil
}

func (c *Consumer[T, M]) isStopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// ended returns what ended the consumer, nil while it lives.
func (c *Consumer[T, M]) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// pause waits before the next attach, longer each time that none came to a
// commit. It returns false when the consumer ends instead.
func (c *Consumer[T, M]) pause() bool {
	const first, longest = 50 * time.Millisecond, 5 * time.Second
	c.mu.Lock()
	d := min(first<<min(c.failing, 10), longest)
	c.failing++
	stopping := c.stopping
	c.mu.Unlock()
	if stopping {
		return false
	}
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.life.Done():
	case <-c.done:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.stopping && c.err == nil && c.life.Err() == nil
}

// passes reports whether a new attach can help.
func (c *Consumer[T, M]) passes(err error) bool {
	var (
		unknown *UnknownCommitError
		refused *RefusedError
	)
	class := kafkaerr.Classify(err)
	switch {
	case errors.Is(err, flusso.ErrSuperseded), errors.Is(err, flusso.ErrClosed):
		return false
	case errors.As(err, &unknown):
		return true
	case errors.As(err, &refused) && class == kafkaerr.Other:
		return true // such as UNKNOWN_SERVER_ERROR
	}
	switch class {
	case kafkaerr.Superseded:
		// Another member has our name: the newest attach wins. The other codes
		// also say that a session timed out, and then nobody else need be there.
		return !errors.Is(err, kerr.FencedInstanceID)
	case kafkaerr.Retriable, kafkaerr.Unreachable, kafkaerr.Timeout:
		return true
	}
	return false
}

// fail ends the consumer for good. What was not acked comes again, to whoever
// attaches next.
func (c *Consumer[T, M]) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(c.final(cause))
}

// final makes an error that ends the consumer say so.
func (c *Consumer[T, M]) final(cause error) error {
	if kafkaerr.Classify(cause) == kafkaerr.Superseded && !errors.Is(cause, flusso.ErrSuperseded) {
		return fmt.Errorf("%w (topic %s, group %s): %w", flusso.ErrSuperseded, c.cfg.Topic, c.cfg.Group, cause)
	}
	return cause
}

func (c *Consumer[T, M]) failLocked(cause error) {
	if c.err != nil {
		return
	}
	c.err = cause
	c.attached = false
	c.ledger.End(cause)
	close(c.done)
	c.notify()
	if f := c.cfg.Hooks.Ended; f != nil && c.told == nil {
		f(cause)
	}
}

// notify wakes whoever waits for a change. Called with mu.
func (c *Consumer[T, M]) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
	signal(c.ready)
	signal(c.room)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
