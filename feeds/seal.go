package feeds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// MaxMessage is the most bytes of a seal's message: an event carries those of
// all streams that are sealed and not committed, in JSON, where a byte may take
// six.
const MaxMessage = 16 << 10

// Seal ends the stream with a message and returns its commit [E12]. Appends
// that were accepted before are drained first; later ones are refused. When it
// fails behind that, the stream stays sealed, nothing of it is lost, and the
// seal is finished by calling Seal again, by the next holder or by
// [Client.Repair]. It is idempotent: after a commit it returns the same one.
//
// Errors: those of [Session.Append] where the stream could not be sealed;
// [*flusso.InvalidError] and [*flusso.LimitError] for the message; a
// [*SealError] where it is sealed and has no commit yet.
func (s *Session) Seal(ctx context.Context, message string) (Commit, error) {
	c, err := s.sealOnce(ctx, message)
	s.client.metrics.sealed(s.Feed(), err)
	return c, err
}

func (s *Session) sealOnce(ctx context.Context, message string) (Commit, error) {
	if err := CheckMessage(s.Feed(), message); err != nil {
		return Commit{}, err
	}
	select {
	case s.sealing <- struct{}{}:
		defer func() { <-s.sealing }()
	case <-ctx.Done():
		return Commit{}, context.Cause(ctx)
	}
	if s.commit != nil {
		return *s.commit, nil
	}
	reached(stepDrain)
	if err := s.mark(ctx, message); err != nil {
		return Commit{}, err
	}
	stop := s.showLife()
	c, err := s.finish(ctx)
	stop()
	if err != nil {
		return Commit{}, &SealError{Feed: s.Feed(), Stream: s.stream, Cause: err}
	}
	c.Warning = s.trim(ctx)
	s.commit = &c
	s.settledNow()
	return c, nil
}

// SealError says that a stream is sealed and has no commit yet: what is left
// to do can be done again.
type SealError struct {
	Feed   string
	Stream uint64
	Cause  error
}

func (e *SealError) Error() string {
	return fmt.Sprintf("stream %d of feed %s is sealed but not committed: seal it again, or `flusso-kafka-admin feed repair %s --yes`: %v",
		e.Stream, e.Feed, e.Feed, e.Cause)
}

// Unwrap returns the cause.
func (e *SealError) Unwrap() error { return e.Cause }

// CheckMessage refuses the message of a seal, or of a discard, that [Session.Seal]
// and [Client.Discard] would refuse: so that nothing is appended before. It is a
// [*flusso.InvalidError] or a [*flusso.LimitError].
func CheckMessage(feed, message string) error {
	what := "message of a seal of feed " + feed
	if !utf8.ValidString(message) {
		return &flusso.InvalidError{What: what, Reason: "not UTF-8"}
	}
	if len(message) > MaxMessage {
		return &flusso.LimitError{What: what, Limit: "size in bytes", Value: int64(len(message)), Max: MaxMessage}
	}
	return nil
}

// mark is step 1: the stream is sealed on record, behind every append that was
// accepted. Segments commit in order, so the event is durable only if all of
// them are.
func (s *Session) mark(ctx context.Context, message string) error {
	p, err := s.submitMark(ctx, message)
	if err != nil {
		return err
	}
	if err = p.wait(ctx); err == nil {
		reached(stepSealed)
		return nil
	}
	if s.alive() { // given up waiting: what becomes of the event nobody knows here
		return errors.Join(&SealError{Feed: s.Feed(), Stream: s.stream, Cause: err}, flusso.ErrUnknownOutcome)
	}
	return s.outcome(ctx, err)
}

// submitMark hands the event over, once: a later call of Seal waits for the same
// one. From then on appends are refused.
func (s *Session) submitMark(ctx context.Context, message string) (*publication, error) {
	if err := s.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer s.passTurn()
	switch {
	case s.tail.marked != nil:
		return s.tail.marked, nil
	case s.tail.seal != nil:
		return nil, s.tail.seal // it was closed
	case !s.alive():
		return nil, s.ended(ctx)
	}
	at := time.Now()
	p, err := s.submit(ctx, s.next(wire.StreamSealed, s.stream, func(e *wire.Event) {
		e.At, e.Message = at, message
		for i := range e.State.Streams {
			if st := &e.State.Streams[i]; st.Number == s.stream {
				st.Step, st.Last, st.Bytes, st.Message = wire.StreamMarked, s.tail.last, s.tail.bytes, message
				st.SealedAt = at.UnixMilli()
			}
		}
	}))
	if err != nil { // nothing was sent
		return nil, s.refusal(ctx, err)
	}
	s.tail.marked, s.tail.at, s.tail.note = p, at, message
	s.tail.seal = fmt.Errorf("stream %d of feed %s: %w", s.stream, s.feed, ErrSealed)
	return p, nil
}

// finish is steps 2 and 3: all of the stream is in the bucket, then its commit
// on record. The caller holds sealing.
func (s *Session) finish(ctx context.Context) (Commit, error) {
	if s.committing == nil {
		if err := s.finishLeft(ctx); err != nil { // commits follow the order of seals
			return Commit{}, s.refusal(ctx, err)
		}
		g, err := s.staged(ctx)
		if err != nil {
			return Commit{}, s.refusal(ctx, err)
		}
		if s.committing, err = s.submitCommit(ctx, g); err != nil {
			return Commit{}, s.refusal(ctx, err)
		}
	}
	if err := s.committing.wait(ctx); err != nil {
		return Commit{}, s.outcome(ctx, err)
	}
	reached(stepCommitted)
	return commitOf(s.committing.event), nil
}

// staged waits until all of the stream is in the bucket.
func (s *Session) staged(ctx context.Context) (*stage, error) {
	g := s.flusher()
	select {
	case <-g.done:
		if g.err != nil { // a call before found out: from the WAL, once more
			g = s.client.newStage(s.feed, s.settings, s.epoch, g.state)
			s.mu.Lock()
			if s.over { // whoever closes no longer waits for what begins now
				s.mu.Unlock()
				return nil, s.ended(ctx)
			}
			s.stage = g
			s.background.Go(func() { g.run(s.life) })
			s.mu.Unlock()
		}
	default:
	}
	g.seal(s.tail.last, s.tail.note, s.tail.at)
	select {
	case <-g.done:
		return g, g.err
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), g.why())
	}
}

func (s *Session) flusher() *stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage
}

// submitCommit is step 3: one event, and the commit is visible, whole [E13].
func (l *lease) submitCommit(ctx context.Context, g *stage) (*publication, error) {
	wal := l.feed.WALTopic()
	ends, err := partition.LookUp(ctx, l.client.client, wal)
	if err != nil {
		return nil, err
	}
	if err := l.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer l.passTurn()
	m := g.manifested
	fc := wire.FeedCommit{
		Number: l.event.State.Commits + 1, Records: m.Records, First: m.First, Last: m.Last, Bytes: m.Bytes,
		Manifest: g.manifest.Name, ManifestHash: g.manifest.SHA256, WAL: int64(ends[wal].High),
	}
	reached(stepManifest)
	return l.submit(ctx, l.next(wire.StreamCommitted, g.state.Number, func(e *wire.Event) {
		e.Message, e.Commit = m.Message, &fc
		e.State.Commits = fc.Number
		e.State.Streams = slices.DeleteFunc(e.State.Streams, func(st wire.StreamState) bool { return st.Number == g.state.Number })
	}))
}

// commitOf is the commit that an event carries.
func commitOf(e wire.Event) Commit {
	return Commit{FeedCommit: *e.Commit, Stream: e.Stream, Message: e.Message, At: e.At, Epoch: e.State.Epoch}
}

// why is what keeps a stage from going on, nil for nothing.
func (g *stage) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.trouble
}

// finishEarlier finishes, in the background, what holders before left half
// sealed, and then keeps house.
func (s *Session) finishEarlier() {
	for pause := s.client.firstPause; ; pause = min(2*pause, longestPause) {
		err := s.finishLeft(s.life)
		if err == nil || s.life.Err() != nil || s.endIfDeleted(s.life) {
			break
		}
		s.client.cfg.Logger.Warn("finish a seal that another holder left: it is tried again", "feed", s.feed, "err", err)
		if sleep(s.life, pause) != nil {
			return
		}
	}
	s.housekeep()
}

// finishLeft commits what others left half sealed.
func (s *Session) finishLeft(ctx context.Context) error {
	select {
	case s.finishing <- struct{}{}:
		defer func() { <-s.finishing }()
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), s.trouble())
	}
	_, err := s.finishSealed(ctx, s.stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = err
	return err
}

// trouble is what keeps streams of the feed from a commit, nil for nothing.
func (s *Session) trouble() error {
	s.mu.Lock()
	blocked, g := s.blocked, s.stage
	s.mu.Unlock()
	if blocked != nil {
		return blocked
	}
	return g.why()
}

// finishSealed commits every stream that is sealed, but one, in the order of
// their seals. Its commits may come beside an error.
func (l *lease) finishSealed(ctx context.Context, but uint64) ([]Commit, error) {
	var done []Commit
	for {
		if err := l.takeTurn(ctx); err != nil {
			return done, err
		}
		st := oldestSeal(l.event.State.Streams, but)
		settings, epoch := l.event.Settings, l.event.State.Epoch
		l.passTurn()
		if st.Number == 0 {
			return done, nil
		}
		g := l.client.newStage(l.feed, settings, epoch, st)
		g.seal(st.Last, st.Message, time.UnixMilli(st.SealedAt))
		g.run(ctx)
		err := g.err
		if err == nil {
			var p *publication
			if p, err = l.submitCommit(ctx, g); err == nil {
				err = p.wait(ctx)
			}
			if err == nil {
				reached(stepCommitted)
				done = append(done, commitOf(p.event))
			}
		}
		if err != nil {
			return done, &SealError{Feed: l.feed.String(), Stream: st.Number, Cause: err}
		}
	}
}

// oldestSeal returns the stream that was sealed first: a session seals one, so
// the epochs of sealed streams are in the order of their seals, which need not
// be that of their numbers.
func oldestSeal(streams []wire.StreamState, but uint64) (oldest wire.StreamState) {
	for _, st := range streams {
		if st.Step == wire.StreamMarked && st.Number != but && (oldest.Number == 0 || st.Epoch < oldest.Epoch) {
			oldest = st
		}
	}
	return oldest
}
