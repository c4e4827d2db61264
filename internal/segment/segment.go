package segment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// segment is entries on their way through one transaction.
type segment struct {
	turn    int // the segments of a session count from 0
	client  *kgo.Client
	entries []Entry
	errs    []error       // by entry: rejected alone
	flushed chan struct{} // closed when all is acknowledged, or the segment failed
	done    chan struct{} // closed when nothing works on the segment any more

	// Written by the former; read by the committer after it was handed over.
	records  int
	parts    *parts // nil where nothing is prepared; cleared by the flush
	touched  bool   // group offsets were sent: the broker may know of the transaction though nothing is produced
	producer int64  // the producer id and epoch that every record must carry
	epoch    int16

	mu      sync.Mutex
	err     error               // the first reason not to commit
	unacked map[partition]int64 // records without an answer
	topics  map[string]struct{}
	last    partition // cache of the entry below: records come in runs
	lastN   int64
}

type partition struct {
	topic string
	index int32
}

func (p partition) String() string { return fmt.Sprintf("topic %s partition %d", p.topic, p.index) }

// fail notes the first reason not to commit.
func (g *segment) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
}

func (g *segment) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// countLocked adds n to the unanswered records of a partition.
func (g *segment) countLocked(topic string, index int32, n int64) {
	p := partition{topic, index}
	if p != g.last {
		g.settleLocked()
		g.last = p
		g.topics[topic] = struct{}{}
	}
	g.lastN += n
}

func (g *segment) settleLocked() {
	if g.lastN == 0 {
		return
	}
	if left := g.unacked[g.last] + g.lastN; left != 0 {
		g.unacked[g.last] = left
	} else {
		delete(g.unacked, g.last)
	}
	g.lastN = 0
}

// sent counts records before they are produced.
func (g *segment) sent(rs []*kgo.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range rs {
		g.countLocked(r.Topic, r.Partition, 1)
		g.parts.add(r)
	}
	g.records += len(rs)
}

// acked is the promise of every record.
func (g *segment) acked(r *kgo.Record, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.countLocked(r.Topic, r.Partition, -1)
	if g.err != nil {
		return
	}
	p := partition{r.Topic, r.Partition}
	switch {
	case err != nil:
		g.err = kafkaerr.Wrap("produce to "+p.String(), err, kafkaerr.OnTopic("Write", r.Topic))
	case r.ProducerID != g.producer || r.ProducerEpoch != g.epoch:
		// kgo takes "fenced" for "forgotten" when the log start has passed its
		// last record, fetches a new epoch and sends the rest of the segment
		// under that: what it sent before is aborted.
		g.err = fmt.Errorf("produce to %s: %w", p, ErrReinitialized)
	}
}

// waiting names the partitions that have not answered.
func (g *segment) waiting() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settleLocked()
	names := make([]string, 0, len(g.unacked))
	for p := range maps.Keys(g.unacked) {
		names = append(names, p.String())
	}
	slices.Sort(names)
	const shown = 5
	if n := len(names); n > shown {
		names = append(names[:shown], fmt.Sprintf("%d more", n-shown))
	}
	return strings.Join(names, ", ")
}

// form runs until the session ends: it takes entries from the queue as soon as
// they may go, and hands their records to the clients, one segment after the
// other. It is one segment ahead: while one is acknowledged the next is encoded
// and compressed.
func (s *Session) form() {
	defer close(s.formed)
	before := make(chan struct{}) // closed when the segment before was acknowledged, or failed
	close(before)
	for turn, beforeThat := 0, before; ; turn++ {
		if !s.wait(beforeThat) {
			return
		}
		select {
		case s.slots <- struct{}{}: // the id's segment before is resolved
		case <-s.life.Done():
			return
		}
		entries := s.take()
		if entries == nil {
			return
		}
		g := &segment{
			turn: turn, client: s.clients[turn%IDs], entries: entries, flushed: make(chan struct{}), done: make(chan struct{}),
			errs: make([]error, len(entries)), unacked: make(map[partition]int64), topics: make(map[string]struct{}),
			parts: s.parts[turn%IDs],
		}
		s.encode(g, before)
		go s.flush(g, before)
		s.formed <- g // as many places as slots; the committer waits for the flush
		before, beforeThat = g.flushed, before
	}
}

// wait waits for c, and is false when the session ended before.
func (s *Session) wait(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-s.life.Done():
		return false
	}
}

// take waits until a segment may go and returns its entries, or nil when the
// session has ended or was closed and drained.
func (s *Session) take() []Entry {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		if s.end != nil || s.closing && len(s.queue) == 0 {
			s.mu.Unlock()
			return nil
		}
		var wait time.Duration
		if len(s.queue) > 0 {
			wait = time.Until(s.queue[0].at.Add(s.cfg.MaxAge))
			// Idle: go at once. Otherwise gather, unless nothing else can come.
			if s.inFlight == 0 || s.fullLocked() || wait <= 0 || s.closing || len(s.drains) > 0 {
				entries := s.cutLocked()
				s.mu.Unlock()
				return entries
			}
		}
		s.mu.Unlock()
		var aged <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			aged = timer.C
		}
		select {
		case <-s.wake:
		case <-aged:
		case <-s.life.Done():
		}
	}
}

// fullLocked reports whether the next segment can't grow: also when what comes
// next waits for room in the window, and would not fit into the segment either.
func (s *Session) fullLocked() bool {
	return s.queueBytes >= s.cfg.MaxBytes || len(s.waiters) > 0 && s.queueBytes+s.waiters[0].entry.Bytes > s.cfg.MaxBytes
}

// cutLocked takes the entries of the next segment: as many as fit, at least one.
func (s *Session) cutLocked() []Entry {
	n, size := 0, 0
	for n < len(s.queue) && (n == 0 || size+s.queue[n].Bytes <= s.cfg.MaxBytes) {
		size += s.queue[n].Bytes
		n++
	}
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = s.queue[i].Entry
		s.queue[i] = queued{}
	}
	s.queue = s.queue[n:]
	s.queueBytes -= size
	s.inFlight++
	return entries
}

// encode begins the segment's transaction and hands its records to the client,
// which keeps them until the flush.
func (s *Session) encode(g *segment, before <-chan struct{}) {
	// Offsets go to the broker at once. The transaction ages from then on, and
	// neither it nor their time may go by for the segment before.
	if slices.ContainsFunc(g.entries, func(e Entry) bool { return e.Offsets != nil }) && !s.wait(before) {
		g.fail(context.Cause(s.life))
		return
	}
	ctx, cancel := context.WithTimeout(s.life, s.cfg.TransactionTimeout)
	defer cancel()
	op := "begin transaction " + s.cfg.id(g.turn)
	if err := s.begin(g, op); err != nil {
		g.fail(kafkaerr.Wrap(op, err))
		return
	}
	var err error
	if g.producer, g.epoch, err = g.client.ProducerID(ctx); err != nil {
		g.fail(kafkaerr.Wrap(op, err))
		return
	}
	for i, e := range g.entries {
		if g.failure() != nil {
			return
		}
		s.encodeEntry(ctx, g, i, e)
	}
}

// flush sends the segment's records and returns when the broker acknowledged
// them all, or the segment failed. None is sent before those of the segment
// before are acknowledged: were they sent again, they would come behind.
func (s *Session) flush(g *segment, before <-chan struct{}) {
	defer close(g.done)
	defer g.parts.clear()
	defer s.prepare(g, before)()
	s.send(g, before)
	if err := g.failure(); err != nil {
		s.fail(Rejected, err)
	}
	close(g.flushed)
}

func (s *Session) send(g *segment, before <-chan struct{}) {
	if g.failure() != nil {
		return
	}
	if !s.wait(before) {
		g.fail(context.Cause(s.life))
		return
	}
	ctx, cancel := context.WithCancelCause(s.life)
	defer cancel(nil)
	late := time.AfterFunc(s.cfg.TransactionTimeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	if !s.known(ctx, g) || g.client.Flush(ctx) != nil {
		g.fail(s.late(ctx, g))
	}
}

// nowhere is a partition that no topic has: a record for it fails in the client.
const nowhere = math.MaxInt32

// known waits until the client has for good what it will produce to, and is false
// when ctx has ended.
//
// kgo 1.22.3 hands the records that waited for a topic's first metadata to the
// topic's partitions before it stores those where Flush and EndTransaction look
// for them. A Flush in between leaves the records where they are, and when the
// acknowledgement is faster than the store, EndTransaction finds no partition: it
// sends nothing, or an abort, and returns nil for a commit. The store happens
// under the lock that a record for an unknown topic has to take. A first record,
// which fails, waits for the metadata; when a second one has failed, which came
// behind it, the partitions are there.
func (s *Session) known(ctx context.Context, g *segment) bool {
	known := s.topics[g.turn%IDs]
	g.mu.Lock()
	topics := slices.Collect(maps.Keys(g.topics))
	g.mu.Unlock()
	for _, topic := range topics {
		if _, ok := known[topic]; ok {
			continue
		}
		for range 2 {
			if g.failure() != nil {
				return true // such as a topic that is not there
			}
			failed := make(chan struct{})
			g.client.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: nowhere}, func(*kgo.Record, error) { close(failed) })
			select {
			case <-failed:
			case <-ctx.Done():
				return false
			}
		}
		known[topic] = struct{}{}
	}
	return true
}

// begin begins the transaction. That is a local matter, but after an upgrade of
// the cluster kgo asks for a new producer epoch here, without a context.
func (s *Session) begin(g *segment, op string) error {
	late := time.AfterFunc(CommitTimeout, func() {
		s.fail(Rejected, fmt.Errorf("%s: not answered within %s: %w", op, CommitTimeout, context.DeadlineExceeded))
		s.kill()
	})
	defer late.Stop()
	return g.client.BeginTransaction()
}

// late says why a segment was given up on before it was acknowledged.
func (s *Session) late(ctx context.Context, g *segment) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, context.DeadlineExceeded) {
		return cause // the session has ended
	}
	return kafkaerr.Wrap(fmt.Sprintf("produce segment under %s: %s not acknowledged within the transaction timeout of %s",
		s.cfg.id(g.turn), g.waiting(), s.cfg.TransactionTimeout), cause)
}

// encodeEntry produces one entry of the segment, after its group offsets.
func (s *Session) encodeEntry(ctx context.Context, g *segment, i int, e Entry) {
	alone := func(err error) error {
		return &Error{Lease: s.cfg.Lease, Outcome: Rejected, Cause: err}
	}
	if e.Offsets != nil {
		refused, err := s.commitOffsets(ctx, g, e.Offsets)
		switch {
		case err != nil:
			g.fail(err)
			return
		case refused != nil:
			g.errs[i] = alone(refused)
			return
		}
	}
	rs, err := e.Encode()
	if e.Offsets != nil && (err != nil || len(rs) == 0) {
		// The offsets are in the transaction already: only without it are they out.
		if err == nil {
			err = ErrNoRecords
		}
		g.fail(fmt.Errorf("offsets of group %s without their entry: %w", e.Offsets.Group, err))
		return
	}
	if err != nil {
		g.errs[i] = alone(err)
		return
	}
	g.sent(rs)
	acked := g.acked // bound once: it is one allocation
	for _, r := range rs {
		g.client.Produce(context.Background(), r, acked)
	}
}
