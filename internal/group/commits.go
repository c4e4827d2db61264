package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// How soon a commit follows the one before, at least, unless somebody waits for
// it: at full speed a commit for each answer would be most of what the
// coordinator does. While the log holds more than was read, all that a commit
// shows is how far there is to go, and each takes the broker as much as a
// megabyte to read.
const (
	commitEvery       = 10 * time.Millisecond
	commitEveryBehind = 100 * time.Millisecond
)

// commits sends one commit at a time for as long as the consumer lives; acks
// recorded meanwhile share the next one. The first after a pause goes at once.
func (c *Consumer[T, M]) commits() {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-c.dirty:
		case <-c.done:
			return
		case <-c.life.Done():
			return
		}
		select {
		case <-next.C:
		case <-c.caught:
		case <-c.hurry:
		case <-c.done:
			return
		case <-c.life.Done():
			return
		}
		next.Reset(c.pace())
		for retry := 0; c.commitOnce(c.life) != nil; retry++ {
			// Refused for a passing reason: nothing is lost, the next commit
			// carries it. What ended the attach ends this too.
			if !c.sleep(min(10*time.Millisecond<<min(retry, 6), 500*time.Millisecond)) {
				return
			}
		}
	}
}

func (c *Consumer[T, M]) pace() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.behind {
		return commitEveryBehind
	}
	return commitEvery
}

func (c *Consumer[T, M]) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.done:
	case <-c.life.Done():
	}
	return false
}

// takeTurn makes the caller the only one who commits, until it gives the turn
// back.
func (c *Consumer[T, M]) takeTurn(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Consumer[T, M]) giveTurn() { <-c.turn }

// commitOnce commits the floor if acks are recorded that are not durable. It
// returns nil when there was nothing to do, or nobody to do it for.
func (c *Consumer[T, M]) commitOnce(ctx context.Context) error {
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	defer c.giveTurn()

	c.mu.Lock()
	m, epoch, acks := c.member, c.epoch, c.acks
	if !c.attached || c.durable >= acks {
		c.mu.Unlock()
		return nil
	}
	floor, mark := c.ledger.Floor()
	above := c.ledger.Above(nil)
	c.mu.Unlock()

	commit := c.reader.Commit(floor, mark, above)
	err := c.send(ctx, m, commit)
	defer c.leaveSealed()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.owns(m, epoch) {
		c.durable = max(c.durable, acks)
		c.floor = commit.Offset
		c.failing = 0
		c.notify()
	}
	return err
}

// send commits for the lane's own partition. Called with the turn.
func (c *Consumer[T, M]) send(ctx context.Context, m *member, commit Commit) error {
	c.mu.Lock()
	c.highest = max(c.highest, commit.Offset)
	c.mu.Unlock()
	began := time.Now()
	err := c.sendAll(ctx, m, []topicCommit{{c.cfg.Topic, m.topicID, commit}})
	if err == nil {
		if f := c.cfg.Hooks.Committed; f != nil {
			f(commit.Offset, time.Since(began))
		}
	}
	return err
}

// sendAll sends one commit and judges its answer. Called with the turn.
func (c *Consumer[T, M]) sendAll(ctx context.Context, m *member, commits []topicCommit) error {
	// A request given up after it was written has an unknown outcome and costs
	// the membership: so ctx is never one that a caller can end on a whim.
	within, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err := m.commit(within, m.who(), commits)
	if err == nil {
		return nil
	}
	if f := c.cfg.Hooks.Refused; f != nil {
		f(err)
	}
	var unknown *UnknownCommitError
	switch {
	case errors.As(err, &unknown):
		m.end(err)
		return err
	case errors.Is(err, kerr.RebalanceInProgress):
		return err // the client is about to be told, and tries a last time
	}
	switch kafkaerr.Classify(err) {
	case kafkaerr.Retriable, kafkaerr.Unreachable, kafkaerr.Timeout:
	case kafkaerr.Gap, kafkaerr.Recreated, kafkaerr.Missing:
		m.end(c.broken(ctx, err))
	default:
		m.end(err)
	}
	return err
}

// Identity returns who this consumer is in its group, for a transactional
// commit of its offsets. It fails while the partition is not ours.
func (c *Consumer[T, M]) Identity() (Identity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return Identity{}, c.err
	case !c.attached:
		return Identity{}, fmt.Errorf("group %s: %w", c.cfg.Group, errNotAttached)
	}
	return c.member.who(), nil
}

// MirrorCommit is an offset of another topic, committed in this group.
type MirrorCommit struct {
	Topic   string
	TopicID [16]byte
	Commit
}

// CommitOthers commits offsets of other topics in this group, under this
// member's identity, in turn with the consumer's own. When ctx ends first they
// may still be committed.
func (c *Consumer[T, M]) CommitOthers(ctx context.Context, commits []MirrorCommit) error {
	if len(commits) == 0 {
		return nil
	}
	all := make([]topicCommit, len(commits))
	for i, mc := range commits {
		all[i] = topicCommit{mc.Topic, mc.TopicID, mc.Commit}
	}
	result := make(chan error, 1)
	c.mu.Lock()
	if c.err != nil || c.stopping {
		defer c.mu.Unlock()
		return c.endCause()
	}
	c.background.Go(func() { result <- c.commitOthers(all) })
	c.mu.Unlock()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("commit to group %s: %w", c.cfg.Group, context.Cause(ctx))
	}
}

func (c *Consumer[T, M]) commitOthers(all []topicCommit) error {
	if err := c.takeTurn(c.life); err != nil {
		return err
	}
	defer c.giveTurn()
	c.mu.Lock()
	m, attached := c.member, c.attached
	c.mu.Unlock()
	if !attached {
		return fmt.Errorf("group %s: %w", c.cfg.Group, errNotAttached)
	}
	return c.sendAll(c.life, m, all)
}

// TopicID returns the identity of the topic, as it was when the consumer
// attached.
func (c *Consumer[T, M]) TopicID() [16]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.member.topicID
}

// Floor returns the contiguous acked floor of the attach, with its mark;
// unknown while the partition is not ours.
func (c *Consumer[T, M]) Floor() (flusso.Offset, M) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Floor()
}
