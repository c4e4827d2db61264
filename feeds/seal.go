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

// MaxMessage is the most bytes of a seal's message.
const MaxMessage = 64 << 10

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
	if err := checkMessage(s.Feed(), message); err != nil {
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
	if err := s.mark(ctx, message); err != nil {
		return Commit{}, err
	}
	c, err := s.finish(ctx)
	if err != nil {
		return Commit{}, &SealError{Feed: s.Feed(), Stream: s.stream, Cause: err}
	}
	c.Warning = s.trim(ctx)
	s.commit = &c
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
	return fmt.Sprintf("stream %d of feed %s is sealed but not committed: seal it again, or `flusso-kafka-admin feed repair %s`: %v",
		e.Stream, e.Feed, e.Feed, e.Cause)
}

// Unwrap returns the cause.
func (e *SealError) Unwrap() error { return e.Cause }

func checkMessage(feed, message string) error {
	what := "message of a seal of feed " + feed
	if !utf8.ValidString(message) {
		return &flusso.InvalidError{What: what, Reason: "not UTF-8"}
	}
	if len(message) > MaxMessage {
		return &flusso.LimitError{What: what, Limit: "message size", Value: int64(len(message)), Max: MaxMessage, Setting: "nothing (the format fixes it)"}
	}
	return nil
}

// mark is step 1: the stream is sealed on record, behind every append that was
// accepted. Segments commit in order, so the event is durable only if all of
// them are.
func (s *Session) mark(ctx context.Context, message string) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.pass()
	if s.tail.seal != nil {
		return nil // by a call before, which failed later on
	}
	if !s.alive() {
		return s.explain(ctx, s.seg.Err())
	}
	s.tail.seal = fmt.Errorf("stream %d of feed %s: %w", s.stream, s.feed, ErrSealed)
	s.tail.at, s.tail.note = time.Now(), message
	err := s.write(ctx, wire.StreamSealed, s.stream, func(e *wire.Event) {
		e.At, e.Message = s.tail.at, message
		for i := range e.State.Streams {
			if st := &e.State.Streams[i]; st.Number == s.stream {
				st.Step, st.Last, st.Bytes, st.Message = wire.StreamMarked, s.tail.last, s.tail.bytes, message
			}
		}
	})
	if err == nil {
		return nil
	}
	if s.alive() { // given up waiting: what becomes of the event nobody knows here
		return errors.Join(&SealError{Feed: s.Feed(), Stream: s.stream, Cause: err}, flusso.ErrUnknownOutcome)
	}
	return s.explain(ctx, err)
}

// finish is steps 2 and 3: all of the stream is in the bucket, then its commit
// on record. The caller holds sealing.
func (s *Session) finish(ctx context.Context) (Commit, error) {
	select {
	case <-s.earlier: // commits follow the order of seals
	case <-s.settled:
		return Commit{}, s.cause
	case <-ctx.Done():
		return Commit{}, context.Cause(ctx)
	}
	if s.blocked != nil {
		return Commit{}, s.blocked
	}
	select {
	case <-s.stage.done:
		if s.stage.err != nil { // a call before found out: from the WAL, once more
			s.stage = s.client.newStage(s.feed, s.settings, s.epoch, s.stateOf(s.stream))
			s.background.Go(func() { s.stage.run(s.life) })
		}
	default:
	}
	s.stage.seal(s.tail.last, s.tail.note, s.tail.at)
	select {
	case <-s.stage.done:
	case <-ctx.Done():
		return Commit{}, errors.Join(context.Cause(ctx), s.stage.why())
	}
	if s.stage.err != nil {
		if !s.alive() {
			return Commit{}, s.explain(ctx, s.stage.err)
		}
		return Commit{}, s.stage.err
	}
	c, err := s.publishCommit(ctx, s.stage)
	if err != nil && !s.alive() {
		err = s.explain(ctx, err)
	}
	return c, err
}

// stateOf is a stream as the newest event has it.
func (l *lease) stateOf(stream uint64) wire.StreamState {
	for _, st := range l.event.State.Streams {
		if st.Number == stream {
			return st
		}
	}
	return wire.StreamState{}
}

// publishCommit is step 3: one event, and the commit is visible, whole [E13].
func (l *lease) publishCommit(ctx context.Context, g *stage) (Commit, error) {
	wal := l.feed.WALTopic()
	ends, err := partition.LookUp(ctx, l.client.client, wal)
	if err != nil {
		return Commit{}, err
	}
	if err := l.take(ctx); err != nil {
		return Commit{}, err
	}
	defer l.pass()
	m := g.manifested
	fc := wire.FeedCommit{
		Number: l.event.State.Commits + 1, Records: m.Records, First: m.First, Last: m.Last, Bytes: m.Bytes,
		Manifest: g.manifest.Name, ManifestHash: g.manifest.SHA256, WAL: int64(ends[wal].High),
	}
	err = l.write(ctx, wire.StreamCommitted, g.stream, func(e *wire.Event) {
		e.Message, e.Commit = m.Message, &fc
		e.State.Commits = fc.Number
		e.State.Streams = slices.DeleteFunc(e.State.Streams, func(st wire.StreamState) bool { return st.Number == g.stream })
	})
	if err != nil {
		return Commit{}, err
	}
	return commitOf(l.event), nil
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
// sealed.
func (s *Session) finishEarlier() {
	defer close(s.earlier)
	if _, err := s.finishSealed(s.life); err != nil && s.life.Err() == nil {
		s.blocked = err
		s.client.cfg.Logger.Warn("finish a seal that another holder left", "feed", s.feed, "err", err)
	}
}

// finishSealed commits every stream that is sealed, in the order of their
// seals, which is that of their numbers.
func (l *lease) finishSealed(ctx context.Context) ([]Commit, error) {
	var done []Commit
	for _, st := range l.event.State.Streams {
		if st.Step != wire.StreamMarked {
			continue
		}
		g := l.client.newStage(l.feed, l.event.Settings, l.event.State.Epoch, st)
		g.seal(st.Last, st.Message, l.event.At)
		g.run(ctx)
		err := g.err
		if err == nil {
			var c Commit
			if c, err = l.publishCommit(ctx, g); err == nil {
				done = append(done, c)
			}
		}
		if err != nil {
			return done, &SealError{Feed: l.feed.String(), Stream: st.Number, Cause: err}
		}
	}
	return done, nil
}
