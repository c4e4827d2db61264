package group

import (
	"context"
	"errors"
	"fmt"
	"sync"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/ledger"
)

// Consumer receives the items of one topic. It implements
// [flusso.Consumer]; its methods may be called concurrently but for Receive.
//
// It survives what passes: rebalances, coordinators that move, commits whose
// reply is lost. Each time it attaches again, deliveries not acked durably end
// and come again. It ends for good when it is superseded, when what it should
// read next is gone, and when it is closed.
type Consumer[T any, M comparable] struct {
	cfg       Config
	keepAcked bool
	reader    Reader[T, M]

	life       context.Context //nolint:containedctx // bounds the consumer's goroutines, ended by stop
	stop       context.CancelFunc
	background sync.WaitGroup
	done       chan struct{} // closed when the consumer has ended, with err set

	turn chan struct{} // held while committing: one commit in flight

	ready chan struct{} // an item waits, or something ended
	room  chan struct{} // the prefetch budget has room
	dirty chan struct{} // there is something to commit
	hurry chan struct{} // somebody waits for it

	caught chan struct{} // all that the log holds is read

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when the state of commits or of the attach changes
	err      error         // what ended the consumer
	stopping bool          // no new attach
	stopped  error         // what for: what acks fail with meanwhile
	ledger   *ledger.Ledger[T, M]
	member   *member
	epoch    uint64 // of the attach; counts all
	attached bool
	again    func(behind M) Reading[T, M]
	reading  *reading[T, M]
	astray   bool          // the client may have been sent elsewhere than the next attach says
	next     flusso.Offset // first offset not read yet
	pending  int64         // size of the item that is not whole yet
	window   int64         // how much may wait: the budget, and less behind a nack
	behind   bool          // the log holds more than was read, as the last fetch had it

	sealed  error         // what comes behind the items read so far: nothing more can be
	told    error         // sealed, once Receive has returned it: it does so from then on
	acks    uint64        // acks recorded in this attach that a commit can make durable
	durable uint64        // how many of them are
	floor   flusso.Offset // committed, as far as we know
	highest flusso.Offset // highest offset that we know of or tried to commit: more is somebody else's
	lost    error         // acks that ended with their attach, for the next Flush
	lostTo  flusso.Offset // the floor they made; acked again up to there, they are lost no more
	gone    error         // what ended the last attach
	settled uint64        // the epoch whose attach found an owed floor committed
	owed    flusso.Offset // the floor whose commit is unknown until the next attach, NoOffset for none
	failing int           // attaches that ended without a commit
}

// reading is what is read in one go. Its address tells it from others.
type reading[T any, M comparable] struct {
	Reading[T, M]
	seek bool // the client is elsewhere yet: what it returns is of the reading before
}

// Attach joins the group and, in takeover mode, returns when the partition is
// ours; in standby mode it returns at once and Receive waits for it.
//
// keepAcked is for items whose order does not matter: a nack leaves later
// acked ones acked, and acks above the floor are committed too.
//
// Errors: [*MixedModeError]; those of the reader's Attach; what the brokers
// answered, wrapped; ctx's.
func Attach[T any, M comparable](ctx context.Context, cfg Config, keepAcked bool, reader Reader[T, M]) (*Consumer[T, M], error) {
	cfg.prepare()
	c := &Consumer[T, M]{
		cfg: cfg, keepAcked: keepAcked, reader: reader,
		done:    make(chan struct{}),
		turn:    make(chan struct{}, 1),
		ready:   make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
		dirty:   make(chan struct{}, 1),
		hurry:   make(chan struct{}, 1),
		caught:  make(chan struct{}, 1),
		changed: make(chan struct{}),
		ledger:  ledger.New[T, M](keepAcked),
		window:  cfg.Budget,
		next:    flusso.NoOffset, floor: flusso.NoOffset, highest: flusso.NoOffset, owed: flusso.NoOffset,
	}
	c.life, c.stop = context.WithCancel(context.Background())
	m, err := c.join(ctx, "")
	if err != nil {
		c.stop()
		return nil, err
	}
	c.background.Go(func() { c.run(m) })
	c.background.Go(c.commits)
	if cfg.Mode == Standby {
		return c, nil
	}
	if err := c.awaitAttach(ctx); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		return nil, errors.Join(err, c.end(closing, err, true))
	}
	return c, nil
}

// awaitAttach waits until the partition is ours.
func (c *Consumer[T, M]) awaitAttach(ctx context.Context) error {
	for {
		c.mu.Lock()
		err, attached, changed := c.err, c.attached, c.changed
		c.mu.Unlock()
		switch {
		case err != nil:
			return err
		case attached:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("attach to topic %s in group %s: %w", c.cfg.Topic, c.cfg.Group, context.Cause(ctx))
		}
	}
}

// Receive implements [flusso.Consumer].
func (c *Consumer[T, M]) Receive(ctx context.Context) (flusso.Delivery[T], error) {
	d, err := c.ReceiveMarked(ctx)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// ReceiveMarked is Receive with the concrete delivery.
func (c *Consumer[T, M]) ReceiveMarked(ctx context.Context) (*Delivery[T, M], error) {
	for {
		c.mu.Lock()
		if err := c.over(); err != nil {
			c.mu.Unlock()
			c.leaveSealed()
			return nil, err
		}
		if c.ledger.Ready() && c.fits() {
			d := &Delivery[T, M]{c: c}
			full := c.ledger.Waiting()+c.pending >= c.window
			d.item, _, _ = c.ledger.Next(&d.h)
			c.mu.Unlock()
			if full {
				signal(c.room)
			}
			if f := c.cfg.Hooks.Received; f != nil {
				f()
			}
			return d, nil
		}
		c.mu.Unlock()
		select {
		case <-c.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// fits reports whether the next item may be delivered. Called with mu.
func (c *Consumer[T, M]) fits() bool {
	out, next := c.ledger.Size()
	return c.cfg.Outstanding <= 0 || out == 0 || next <= c.cfg.Outstanding
}

// freed lets a Receive go on that waits for room among the outstanding.
func (c *Consumer[T, M]) freed() {
	if c.cfg.Outstanding > 0 {
		signal(c.ready)
	}
}

// over returns what Receive returns from now on, nil while it may deliver.
// Called with mu.
func (c *Consumer[T, M]) over() error {
	switch {
	case c.told != nil:
		return c.told
	case c.err != nil || c.sealed == nil || c.ledger.Ready():
		return c.err
	}
	c.told = c.sealed
	if f := c.cfg.Hooks.Ended; f != nil {
		f(c.told)
	}
	return c.told
}

// leaveSealed ends a consumer that has said why it delivers nothing more, as
// soon as what it delivered is acked durably: an operator can only move the
// offsets of a group without members.
func (c *Consumer[T, M]) leaveSealed() {
	c.mu.Lock()
	m, told := c.member, c.told
	idle := c.err == nil && told != nil && c.attached && c.durable >= c.acks && c.ledger.Outstanding() == 0
	c.mu.Unlock()
	if idle {
		m.end(told)
	}
}

// CaughtUp implements [flusso.Consumer].
func (c *Consumer[T, M]) CaughtUp(ctx context.Context) (bool, error) {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return false, err
	}
	high, err := ListOffset(ctx, c.cfg.Lookup, c.cfg.Topic, Latest)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false, c.err
	}
	if c.sealed != nil && !c.ledger.Ready() {
		return false, c.sealed
	}
	return c.attached && !c.ledger.Ready() && c.pending == 0 && c.next >= high, nil
}
