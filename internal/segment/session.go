package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// Entry is what is committed whole: part of one segment, with all its records.
type Entry struct {
	// Bytes counts towards the limits of segment and window: about what the
	// records will hold. An entry counts as at least [MinEntryBytes].
	Bytes int
	// Encode returns the records, with topic and partition. It is called once,
	// in submit order, by the session, when the entry's segment is formed. An
	// error rejects this entry alone. It must not call the session.
	Encode func() ([]*kgo.Record, error)
	// Offsets, if set, are committed for a group in the same transaction.
	Offsets *GroupOffsets
	// Resolve is called exactly once, in submit order, by the session: nil
	// when the entry is committed, else an [*Error]. It must return soon and
	// must not wait for the session. It is not called when Submit fails.
	Resolve func(error)
}

// Session is the holder of a lease: it accepts entries in order and commits
// them in that order, in segments. Its methods may be called concurrently.
type Session struct {
	cfg       Config
	clients   [IDs]*kgo.Client
	parts     [IDs]*parts        // of the segments of each client; nil where nothing is prepared
	producers [IDs]int64         // producer ids of the clients when they were fenced
	epochs    [IDs]int16         // and their epochs
	base      context.Context    //nolint:containedctx // the life of the clients
	kill      context.CancelFunc // ends it, and whatever the clients do
	groups    groups
	version   int16                    // of transactions in the cluster
	topics    [IDs]map[string]struct{} // what each client has for good; used by one flush at a time

	slots    chan struct{}   // one per segment that is formed and not resolved
	formed   chan *segment   // from former to committer, in order
	wake     chan struct{}   // to the former: something changed
	life     context.Context //nolint:containedctx // ends, with the cause, when the session has ended
	finish   context.CancelCauseFunc
	finished chan struct{} // closed when all goroutines have

	mu         sync.Mutex
	queue      []queued
	queueBytes int
	waiters    []*waiter // blocked submits, in order
	drains     []drain
	unacked    int64  // bytes of entries accepted and not resolved
	accepted   uint64 // entries
	resolved   uint64
	failed     uint64    // entries that the end of the session took with it after Close was called
	inFlight   int       // segments taken from the queue and not resolved
	active     time.Time // last time something was resolved
	asking     bool      // a commit is asked for and not answered
	closing    bool
	end        *Error // why the session has ended
}

type queued struct {
	Entry
	at time.Time
}

// waiter is a submit that waits for the window.
type waiter struct {
	entry    Entry
	ready    chan struct{} // closed when accepted, or dismissed by Close
	accepted bool
}

type drain struct {
	upTo uint64
	done chan struct{}
}

func newSession(cfg Config) *Session {
	base, kill := context.WithCancel(context.Background())
	life, finish := context.WithCancelCause(context.Background())
	s := &Session{
		cfg: cfg, base: base, kill: kill, life: life, finish: finish, active: time.Now(),
		slots: make(chan struct{}, IDs), formed: make(chan *segment, IDs), wake: make(chan struct{}, 1),
		finished: make(chan struct{}),
	}
	for i := range s.topics {
		s.topics[i] = make(map[string]struct{})
	}
	return s
}

func (s *Session) start() {
	go s.form()
	go s.commit()
}

func (s *Session) closeClients() {
	s.kill()
	for _, cl := range s.clients {
		if cl != nil {
			cl.Close()
		}
	}
}

// Submit accepts an entry. It blocks only while the window is full: an entry
// larger than the window waits until it is alone. Concurrent calls are
// accepted in the order in which they came. After the end of the session it
// returns an [*Error] with the session's cause, after Close one that is
// [flusso.ErrClosed]; when ctx ends first its error, and the entry is not
// accepted.
func (s *Session) Submit(ctx context.Context, e Entry) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	e.Bytes = max(e.Bytes, MinEntryBytes)
	s.mu.Lock()
	if s.end == nil && !s.closing && s.accepted == s.resolved && len(s.waiters) == 0 && time.Since(s.active) > MaxIdle {
		s.endLocked(Rejected, ErrIdle)
	}
	if err := s.refusalLocked(); err != nil {
		s.mu.Unlock()
		return err
	}
	if len(s.waiters) == 0 && s.fitsLocked(e) {
		s.acceptLocked(e)
		s.mu.Unlock()
		s.signal()
		return nil
	}
	w := &waiter{entry: e, ready: make(chan struct{})}
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	s.signal() // the segment that gathers may be full by it

	var err error
	select {
	case <-w.ready:
	case <-s.life.Done():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.accepted {
		return nil // also when ctx ended at the same moment: the entry is in
	}
	if i := slices.Index(s.waiters, w); i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
		s.admitLocked() // it may have stood in the way of smaller ones
	}
	if err == nil {
		err = s.refusalLocked()
	}
	return err
}

// refusalLocked returns the error of a submit that comes too late, or nil.
func (s *Session) refusalLocked() error {
	switch {
	case s.end != nil:
		return &Error{Lease: s.cfg.Lease, Outcome: Rejected, Ended: true, Cause: s.end.Cause}
	case s.closing:
		return &Error{Lease: s.cfg.Lease, Outcome: Rejected, Ended: true, Cause: flusso.ErrClosed}
	}
	return nil
}

func (s *Session) fitsLocked(e Entry) bool {
	return s.unacked == 0 || s.unacked+int64(e.Bytes) <= s.cfg.MaxUnackedBytes
}

func (s *Session) acceptLocked(e Entry) {
	s.queue = append(s.queue, queued{e, time.Now()})
	s.queueBytes += e.Bytes
	s.unacked += int64(e.Bytes)
	s.accepted++
}

// admitLocked accepts the blocked submits that fit, in order.
func (s *Session) admitLocked() {
	for len(s.waiters) > 0 && s.end == nil && !s.closing && s.fitsLocked(s.waiters[0].entry) {
		w := s.waiters[0]
		s.waiters = s.waiters[1:]
		s.acceptLocked(w.entry)
		w.accepted = true
		close(w.ready)
		s.signal()
	}
}

// signal tells the former to look again.
func (s *Session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Err returns nil while the session accepts entries, then why it ended: an
// [*Error], whose outcome is that of the segment that ended it.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		return nil
	}
	return s.end
}

// Done is closed when the session has ended, by failure or by Close. Entries
// may still be resolved after it.
func (s *Session) Done() <-chan struct{} { return s.life.Done() }

// End ends the session for a reason that its owner knows better, such as a
// newer holder of the lease. Segments whose commit is asked for are waited
// for, the rest is rejected. Of several reasons the first counts.
func (s *Session) End(cause error) { s.fail(Rejected, cause) }

// fail ends the session; the first call counts.
func (s *Session) fail(o Outcome, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(o, cause)
}

func (s *Session) endLocked(o Outcome, cause error) {
	if s.end != nil {
		return
	}
	s.end = &Error{Lease: s.cfg.Lease, Outcome: o, Ended: true, Cause: cause}
	s.finish(cause)
	s.cfg.Logger.Debug("session ended", "lease", s.cfg.Lease, "outcome", o.String(), "cause", cause)
}

// resolve tells an entry what became of it.
func (s *Session) resolve(e Entry, err error) {
	e.Resolve(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resolved++
	s.unacked -= int64(e.Bytes)
	s.active = time.Now()
	if ended := (*Error)(nil); s.closing && errors.As(err, &ended) && ended.Ended {
		s.failed++
	}
	keep := s.drains[:0]
	for _, d := range s.drains {
		if d.upTo <= s.resolved {
			close(d.done)
		} else {
			keep = append(keep, d)
		}
	}
	s.drains = keep
	s.admitLocked()
}

// Drain returns when every entry accepted before the call is resolved: nil, or
// why the session ended, or ctx's error when that ends first. An entry that
// was rejected alone is not an error of Drain.
func (s *Session) Drain(ctx context.Context) error {
	s.mu.Lock()
	d := drain{upTo: s.accepted, done: make(chan struct{})}
	if s.resolved >= d.upTo {
		close(d.done)
	} else {
		s.drains = append(s.drains, d)
	}
	s.mu.Unlock()
	s.signal()
	select {
	case <-d.done:
		return s.failure()
	case <-ctx.Done():
		return fmt.Errorf("drain session of lease %s: %w", s.cfg.Lease, context.Cause(ctx))
	}
}

// cause returns why the session ended, nil when it did not.
func (s *Session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		return nil
	}
	return s.end.Cause
}

// failure returns why the session ended, nil when it did not or was closed.
func (s *Session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil || errors.Is(s.end.Cause, flusso.ErrClosed) {
		return nil
	}
	return s.end
}

// Close accepts nothing more, commits what was accepted, and closes the
// clients. It returns nil when all of that was committed, or rejected alone,
// and otherwise says what was not. When ctx ends first it gives up on what is still open, aborts
// nothing and waits for nobody: the rest is resolved, and the goroutines end,
// right after. It may be called again.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for _, w := range s.waiters {
		close(w.ready)
	}
	s.waiters = nil
	s.mu.Unlock()
	s.signal()

	select {
	case <-s.finished:
		return s.unpublished()
	default:
	}
	select {
	case <-s.finished:
		return s.unpublished()
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill() // whatever the clients wait for ends now
	open := s.accepted - s.resolved
	cause := fmt.Errorf("close: %d entries of %d bytes were not resolved in time: %w", open, s.unacked, context.Cause(ctx))
	outcome := Rejected
	if s.asking {
		outcome = Unknown // of one segment; the entries behind it are rejected
	}
	s.endLocked(outcome, cause)
	if open == 0 {
		return nil
	}
	return &Error{Lease: s.cfg.Lease, Outcome: outcome, Ended: true, Cause: cause}
}

// unpublished returns what a Close that waited to the end has to tell.
func (s *Session) unpublished() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == 0 {
		return nil
	}
	return &Error{
		Lease: s.cfg.Lease, Outcome: s.end.Outcome, Ended: true,
		Cause: fmt.Errorf("close: %d entries were not published: %w", s.failed, s.end.Cause),
	}
}
