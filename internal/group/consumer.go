package group

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
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

// pollAll polls a member until it ended.
func (c *Consumer[T, M]) pollAll(m *member) {
	for {
		c.seek(m)
		c.mu.Lock()
		waiting := c.ledger.Waiting()
		full := waiting > 0 && waiting+c.pending >= c.window || c.sealed != nil
		records := pollRecords
		if waiting+c.pending < c.window/2 {
			records = 0 // all there are: the client fetches on as soon as nothing is left of its fetch
		}
		c.mu.Unlock()
		select {
		case <-m.ended:
			return
		default:
		}
		if full {
			select {
			case <-c.room:
			case <-m.ended:
				return
			}
			continue
		}
		m.pollOnce(records, func(fs kgo.Fetches) { c.take(m, fs) })
	}
}

// take files what was polled. Errors come first: nothing polled with them or
// after them is delivered.
func (c *Consumer[T, M]) take(m *member, fs kgo.Fetches) {
	var cause error
	fs.EachError(func(_ string, _ int32, err error) {
		if cause == nil && !ignored(err) {
			cause = err
		}
	})
	if cause != nil {
		cause = c.broken(c.life, kafkaerr.Wrap("read topic "+c.cfg.Topic, cause, kafkaerr.OnTopic("Read", c.cfg.Topic)))
		m.end(cause)
		return
	}
	c.mu.Lock()
	r := c.reading
	ours := r != nil && !r.seek && c.reads(m, r)
	c.mu.Unlock()
	if !ours {
		return
	}
	err := c.file(m, r, fs)
	if err == nil {
		return
	}
	if errors.Is(err, ErrRewritten) {
		err = c.broken(c.life, err)
	}
	// What was read before is good: it is delivered and can be acked, and only
	// then comes the error.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reads(m, r) {
		c.sealed = err
		c.notify()
	}
}

// readAgain has everything behind the item of a mark read once more. Called
// with mu.
func (c *Consumer[T, M]) readAgain(behind M) {
	if c.told != nil {
		return // nothing is delivered any more
	}
	c.reading = &reading[T, M]{Reading: c.again(behind), seek: true}
	c.next, c.pending, c.sealed = c.reading.Offset, 0, nil
	c.window = min(leastWindow, c.cfg.Budget)
	c.member.wake()
	signal(c.room)
}

// widen lets more be read ahead after an ack: a sink that returns the same item
// all the time has no use for what lies behind it, which would be read each
// time. Called with mu.
func (c *Consumer[T, M]) widen() {
	if c.window < c.cfg.Budget {
		c.window = min(2*c.window, c.cfg.Budget)
		signal(c.room)
	}
}

// seek sends the client to where it must read, when it is elsewhere, and tells
// it how much to fetch at a time.
func (c *Consumer[T, M]) seek(m *member) {
	c.mu.Lock()
	r, size := c.reading, partitionBytes(c.window)
	needed := r != nil && r.seek
	c.mu.Unlock()
	if size != m.fetches {
		m.fetches = size
		m.cl.UpdateFetchMaxBytes(size, size)
	}
	if !needed {
		return
	}
	m.seek(func() (flusso.Offset, int32, bool) {
		c.mu.Lock()
		r = c.reading
		ok := r != nil && r.seek && c.reads(m, r)
		if ok {
			r.seek = false
		}
		c.mu.Unlock()
		if !ok {
			return 0, 0, false
		}
		if f := c.cfg.seeking; f != nil {
			f()
		}
		return r.Offset, r.LeaderEpoch, true
	}, func() {
		// An attach that began meanwhile may be looking where to begin, and the
		// client takes what it was told last.
		c.mu.Lock()
		defer c.mu.Unlock()
		c.astray = c.astray || c.reading != r
	})
}

// file hands records to the reader, up to the first that can't be read.
func (c *Consumer[T, M]) file(m *member, from *reading[T, M], fs kgo.Fetches) error {
	owned, same := true, true
	add := func(it Item[T, M]) { // one for all records: it is most of what would be allocated
		c.mu.Lock()
		defer c.mu.Unlock()
		switch owned = c.reads(m, from); {
		case !owned:
		case it.Acked:
			same = c.ledger.AddAcked(it.Mark, it.End)
		default:
			same = c.ledger.Add(it.Item, it.Mark, it.End, it.Size)
			signal(c.ready)
		}
	}
	var (
		err     error
		next    = flusso.NoOffset
		pending int64
	)
	for it := fs.RecordIter(); !it.Done() && owned; {
		r := it.Next()
		offset := flusso.Offset(r.Offset) // the record is the reader's from here on
		var held int64
		if held, err = from.Read(r, add); err == nil && !same {
			err = fmt.Errorf("topic %s, offset %s: %w", c.cfg.Topic, offset, ErrRewritten)
		}
		if err != nil {
			break
		}
		next, pending = offset+1, held
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reads(m, from) {
		return nil
	}
	if next != flusso.NoOffset {
		c.next, c.pending = next, pending
		before := c.behind
		if c.behind = next < stable(fs); before && !c.behind {
			signal(c.caught)
		}
	}
	return err
}

// stable returns up to where the log could be read when it was.
func stable(fs kgo.Fetches) flusso.Offset {
	end := flusso.NoOffset
	fs.EachPartition(func(p kgo.FetchTopicPartition) { end = max(end, flusso.Offset(p.LastStableOffset)) })
	return end
}

// owns reports whether an attach is still the current one. Called with mu.
func (c *Consumer[T, M]) owns(m *member, epoch uint64) bool {
	return c.attached && c.member == m && c.epoch == epoch
}

// reads reports whether this is still what is read. Called with mu.
func (c *Consumer[T, M]) reads(m *member, r *reading[T, M]) bool {
	return c.attached && c.member == m && c.reading == r
}

// ignored are errors that a poll reports but that decide nothing: the end of
// the membership is told elsewhere, the rest passes.
func ignored(err error) bool {
	var session *kgo.ErrGroupSession
	if errors.As(err, &session) || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, context.Canceled) {
		return true
	}
	switch kafkaerr.Classify(err) {
	case kafkaerr.Retriable, kafkaerr.Unreachable, kafkaerr.Timeout:
		return true
	}
	return false
}

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
