package feeds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// Session appends to one open stream of a feed, as the holder of its writer
// lease. It ends at the first segment that is not committed, and is never
// revived: resume the feed. Its methods may be called concurrently.
type Session struct {
	*lease

	settings Settings
	epoch    uint64
	stream   uint64
	left     []wire.StreamState // the other streams without commit, as of the opening
	largest  int64              // limit of a record on the wire
	tail     tail               // belongs to the holder of the turn
	last     atomic.Uint64      // tail.last, for whoever does not hold it
	recent   recent             // the same

	background sync.WaitGroup
	life       context.Context //nolint:containedctx // of what runs in the background: until the session ends
	end        context.CancelFunc
	done       chan struct{} // closed when cause is set

	sealing    chan struct{} // held by the one call of Seal that works
	committing *publication  // belongs to the holder of sealing; the commit's event, once it was handed over
	commit     *Commit       // the same; when the stream is committed
	finishing  chan struct{} // held by whoever finishes what others left half sealed
	settledOne chan struct{} // a stream was committed

	mu      sync.Mutex
	over    bool
	cause   error       // why it ended: a *FencedError, a *LostError, or that it was closed
	looked  time.Time   // when the log was asked last who holds the lease
	pending []func()    // futures of what was not committed: they wait for the cause
	acked   wire.Append // the newest batch that was acknowledged
	behind  time.Time   // since when the flusher has had something to do
	others  uint64      // bytes of the other streams without commit, as of the newest append
	stage   *stage      // replaced by the holder of sealing
	blocked error       // why what others left half sealed is not committed yet
}

// tail is where a stream ends, appends in flight included.
type tail struct {
	last   uint64       // sequence
	bytes  uint64       // keys and payloads
	seal   error        // why nothing more is taken: it was sealed or closed
	marked *publication // the event that seals the stream, once it was handed over
	at     time.Time    // of the seal
	note   string       // message of the seal
	half   bool         // more than half of what may wait for a commit does
}

// start begins a session on a stream for which the lease has published its
// event.
func (c *Client) start(l *lease, number uint64) (*Session, error) {
	s := &Session{
		lease: l, settings: l.event.Settings, epoch: l.event.State.Epoch, stream: number,
		largest: int64(largest(l.topics[l.feed.WALTopic()])),
		done:    make(chan struct{}), sealing: make(chan struct{}, 1), finishing: make(chan struct{}, 1), settledOne: make(chan struct{}, 1),
	}
	s.life, s.end = context.WithCancel(context.Background())
	for _, st := range l.event.State.Streams {
		if st.Number == number {
			s.tail = tail{last: st.Last, bytes: st.Bytes}
			s.last.Store(st.Last)
			s.acked = wire.Append{Last: st.Last, Bytes: st.Bytes}
			s.recent.recalled = st.Last == 0
			s.stage = c.newStage(l.feed, s.settings, s.epoch, st)
			s.stage.over = s.endIfDeleted
		} else {
			s.left = append(s.left, st)
			s.others += st.Bytes
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		s.end()
		return nil, fmt.Errorf("feed client: %w", flusso.ErrClosed)
	}
	c.open[s] = struct{}{}
	s.behind = time.Now()
	c.metrics.begin(s.Feed())
	s.background.Go(s.findCause)
	s.background.Go(func() { s.keep(keepEvery) })
	stage := s.stage
	s.background.Go(func() { stage.run(s.life) })
	s.background.Go(s.finishEarlier)
	c.working.Go(s.background.Wait)
	c.cfg.Logger.Info("feed session open", "feed", s.feed, "stream", number, "epoch", s.epoch, "last", s.tail.last)
	return s, nil
}

// Feed returns the name of the session's feed.
func (s *Session) Feed() string { return s.feed.String() }

// Stream returns the number of the session's stream.
func (s *Session) Stream() uint64 { return s.stream }

// Epoch returns the session's writer epoch, its fencing token [E7].
func (s *Session) Epoch() uint64 { return s.epoch }

// Settings returns the settings of the session's feed.
func (s *Session) Settings() Settings { return s.settings }

// Last returns the last sequence of the session's stream, appends in flight
// included: the MatchSequence of the next batch. It waits for nobody: an append
// that waits for the window has no sequence yet, and may give up.
func (s *Session) Last(ctx context.Context) (uint64, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return s.last.Load(), nil
}

// Done is closed when the session has ended, and [Session.Err] says why.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session has ended, nil while it has not.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// Left is a stream of the feed that has no commit and is not the session's.
type Left struct {
	Stream uint64
	Sealed bool   // its seal was not finished; otherwise it was left open
	Last   uint64 // sequence
	Bytes  uint64 // keys and payloads
}

// Left returns the other streams that had no commit when the session opened:
// left open, to be resumed or discarded, or half sealed.
func (s *Session) Left() []Left {
	out := make([]Left, len(s.left))
	for i, st := range s.left {
		out[i] = Left{Stream: st.Number, Sealed: st.Step == wire.StreamMarked, Last: st.Last, Bytes: st.Bytes}
	}
	return out
}

// Append appends a batch and returns its range when it is durable [E2]. When
// ctx ends first the batch may still become durable; [Client.Resume] tells.
//
// Errors, of which each says that nothing was appended: [ErrSealed],
// [flusso.ErrClosed]; [flusso.ErrFenced] ([*FencedError]) and
// [flusso.ErrLost], for good; [*flusso.InvalidError], [*flusso.LimitError],
// [*KeyError], [*FingerprintError], [*TokenError], [*MatchError], [*IDError]
// and [*FullError], after which the session goes on; [flusso.ErrRejected]. With
// [flusso.ErrUnknownOutcome] it cannot be told whether the batch is durable.
func (s *Session) Append(ctx context.Context, b Batch) (Range, error) {
	f, err := s.AppendAsync(ctx, b)
	if err != nil {
		return Range{}, err
	}
	return f.Wait(ctx)
}

// AppendAsync submits a batch: it has its sequences when the call returns, and
// the future tells when it is durable [E3]. It blocks while the unacked
// payload would exceed Config.MaxUnackedBytes; one batch larger than the window
// goes alone. Batches are appended in the order in which calls are accepted:
// other appends, and [Session.Seal], wait behind one that waits for the window.
// The records belong to the session until the future resolves. Errors are
// those of Append that can be told at once, and the batch then took no
// sequence.
func (s *Session) AppendAsync(ctx context.Context, b Batch) (*Future, error) {
	waits := s.client.metrics.waits.WithLabelValues(s.Feed())
	came := time.Now()
	err := s.takeTurn(ctx)
	waits.Add(time.Since(came).Seconds()) // behind one that waits for the window
	if err != nil {
		return nil, err
	}
	defer s.passTurn()
	if f, err := s.repeated(ctx, b); f != nil || err != nil {
		return f, err
	}
	bytes, err := s.admit(ctx, b)
	if err != nil {
		return nil, err
	}
	a := wire.Append{
		Stream: s.stream, Epoch: s.epoch, First: s.tail.last + 1, Last: s.tail.last + uint64(len(b.Records)),
		Bytes: s.tail.bytes + bytes, At: time.Now(), BatchID: b.ID,
	}
	at := Range{Stream: a.Stream, First: a.First, Last: a.Last, Records: a.Records()}
	f := newFuture(at)
	began := time.Now()
	err = s.seg.Submit(ctx, segment.Entry{
		Bytes: max(int(bytes), leastRecord*len(b.Records)),
		Encode: func() ([]*kgo.Record, error) {
			return wire.EncodeBatch(make([]*kgo.Record, 0, len(b.Records)), s.feed.WALTopic(), b.Records, a), nil
		},
		Resolve: func(err error) {
			if err == nil {
				s.advance(a)
				s.client.metrics.acked(s.Feed(), a.Records(), bytes, time.Since(began))
			} else {
				s.client.metrics.failed(s.Feed(), errors.Is(err, flusso.ErrUnknownOutcome))
			}
			s.resolve(f, at, err)
		},
	})
	waits.Add(time.Since(began).Seconds())
	if err != nil {
		return nil, s.refusal(ctx, err)
	}
	s.tail.last, s.tail.bytes = a.Last, a.Bytes
	s.last.Store(a.Last)
	if b.ID != "" {
		s.recent.add(b.ID, f)
	}
	return f, nil
}

// leastRecord is what a record counts at least in segment and window, so that
// those that hold next to nothing are bounded too.
const leastRecord = 64

// resolve tells a future its outcome. What was not committed waits for the
// cause, which takes a look at the log.
func (s *Session) resolve(f *Future, at Range, err error) {
	if err == nil {
		f.resolve(at, nil)
		return
	}
	unknown := errors.Is(err, flusso.ErrUnknownOutcome)
	finish := func() {
		f.resolve(Range{}, &AppendError{Feed: s.Feed(), Stream: at.Stream, First: at.First, Last: at.Last, Unknown: unknown, Cause: s.cause})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		finish()
		return
	}
	s.pending = append(s.pending, finish)
}

// refusal is the error of what was not submitted, as err says: when the session
// has ended, why.
func (s *Session) refusal(ctx context.Context, err error) error {
	if ctx.Err() != nil || s.alive() {
		return err
	}
	return s.ended(ctx)
}

// outcome is the error of what was submitted and not committed.
func (s *Session) outcome(ctx context.Context, err error) error {
	if s.alive() {
		return err
	}
	known := flusso.ErrRejected
	if errors.Is(err, flusso.ErrUnknownOutcome) {
		known = flusso.ErrUnknownOutcome
	}
	return fmt.Errorf("%w: %w", known, s.ended(ctx))
}

// lookEvery is how often a lost session asks who holds the lease, at most.
const lookEvery = time.Second

// ended says why the session has ended. A session that is lost looks again:
// whoever took the lease may have come on record meanwhile [E14].
func (s *Session) ended(ctx context.Context) error {
	select {
	case <-s.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	cause := s.cause
	again := errors.Is(cause, flusso.ErrLost) && time.Since(s.looked) >= lookEvery
	if again {
		s.looked = time.Now()
	}
	s.mu.Unlock()
	if !again {
		return cause
	}
	ctx, cancel := context.WithTimeout(ctx, causeTimeout)
	defer cancel()
	if fenced := s.newer(ctx); fenced != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cause, cause = fenced, fenced
	}
	return cause
}

func (s *Session) alive() bool {
	select {
	case <-s.seg.Done():
		return false
	default:
		return true
	}
}

// causeTimeout bounds the look at the log that tells a fenced session from a
// lost one.
const causeTimeout = 5 * time.Second

// findCause waits for the session's end and finds out why: fenced, by a holder
// that is on record, or lost. Only a newer event tells the two apart, since a
// timed out transaction gets the same answers as a fenced one [E14].
func (s *Session) findCause() {
	<-s.seg.Done()
	s.end()
	cause := s.seg.Err()
	if errors.Is(cause, flusso.ErrClosed) {
		cause = fmt.Errorf("session on stream %d of feed %s: %w", s.stream, s.feed, flusso.ErrClosed)
	} else {
		cause = s.judge(cause)
	}
	s.client.metrics.ended(s.Feed(), cause)
	s.client.mu.Lock()
	delete(s.client.open, s)
	s.client.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cause, s.over, s.looked = cause, true, time.Now()
	close(s.done)
	for _, finish := range s.pending {
		finish()
	}
	s.pending = nil
}

func (s *Session) judge(cause error) error {
	// Closed first: its clients are never used again, whatever comes.
	closing, cancel := context.WithTimeout(context.Background(), causeTimeout)
	defer cancel()
	if err := s.seg.Close(closing); err != nil {
		s.client.cfg.Logger.Debug("closed an ended feed session", "feed", s.feed, "epoch", s.epoch, "err", err)
	}
	if e := (*segment.Error)(nil); errors.As(cause, &e) {
		cause = e.Cause // what became of a segment concerns its entries alone
	}
	s.client.cfg.Logger.Warn("feed session ended", "feed", s.feed, "stream", s.stream, "epoch", s.epoch, "err", cause)
	ctx, cancel := context.WithTimeout(context.Background(), causeTimeout)
	defer cancel()
	if known := s.newer(ctx); known != nil {
		return known
	}
	if errors.Is(cause, ErrNoFeed) {
		return s.deleted()
	}
	return &LostError{Feed: s.Feed(), Stream: s.stream, Epoch: s.epoch, Cause: cause}
}

// deleted is why a session ends whose feed is gone.
func (s *Session) deleted() error {
	return fmt.Errorf("session on stream %d of feed %s: the feed was deleted: %w", s.stream, s.feed, ErrNoFeed)
}

// newer returns who took the lease, or that the feed was deleted; nil where
// nobody is on record, or it can't be told.
func (s *Session) newer(ctx context.Context) error {
	e, err := s.client.state(ctx, s.feed)
	if errors.Is(err, ErrNoFeed) || err == nil && e.Settings.ID != s.settings.ID {
		return s.deleted()
	}
	if err != nil || e.State.Epoch <= s.epoch {
		return nil //nolint:nilerr // not to be told is an answer
	}
	return &FencedError{Feed: s.Feed(), Epoch: s.epoch, Newer: e.State.Epoch, Holder: *e.State.Holder}
}

// keepEvery is how often an idle session writes under each of its ids: well
// within the day after which [segment.Session] calls them expired.
const (
	keepEvery  = 12 * time.Hour
	keepAtMost = time.Minute
)

// keep writes a keepalive under all four ids every so often.
func (s *Session) keep(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.seg.Done():
			return
		}
		if err := s.keepNow(); err != nil {
			s.client.cfg.Logger.Warn("keep the lease of an idle feed session", "feed", s.feed, "err", err)
		}
	}
}

func (s *Session) keepNow() error {
	ctx, cancel := context.WithTimeout(context.Background(), keepAtMost)
	defer cancel()
	for range segment.IDs {
		if err := s.keepOne(ctx); err != nil {
			return err
		}
	}
	return nil
}

// leave puts on record that the stream was left open, or sealed without a
// commit, and nobody works on it, so that the next one need not ask whether its
// holder is still at work.
func (s *Session) leave(ctx context.Context) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.passTurn()
	if !s.alive() {
		return nil // lost, or closed before
	}
	if s.tail.seal != nil {
		if own := func(st wire.StreamState) bool { return st.Number == s.stream && st.Step == wire.StreamMarked }; !slices.ContainsFunc(s.event.State.Streams, own) {
			return nil // committed, or left: the record says so already
		}
		if err := s.leaveSealed(ctx, s.stream); err != nil && s.alive() {
			return err
		}
		return nil
	}
	s.tail.seal = fmt.Errorf("session on stream %d of feed %s: %w", s.stream, s.feed, flusso.ErrClosed)
	err := s.write(ctx, wire.StreamReleased, s.stream, func(e *wire.Event) {
		for i := range e.State.Streams {
			if st := &e.State.Streams[i]; st.Number == s.stream {
				st.Step, st.Last, st.Bytes = wire.StreamAbandoned, s.tail.last, s.tail.bytes
			}
		}
	})
	if err != nil && !s.alive() {
		return nil // what was not durable fails its future: closing has nothing to add
	}
	return err
}

// Close ends the session without sealing: what was accepted is drained, and
// the stream stays open and can be resumed. It returns what was not durable
// when ctx ended. It may be called again.
func (s *Session) Close(ctx context.Context) error {
	return errors.Join(s.leave(ctx), s.seg.Close(ctx), await(ctx, &s.background))
}
