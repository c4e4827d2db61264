package feeds

import (
	"errors"
	"fmt"
	"strings"

	flusso "github.com/flusso/flusso-kafka"
)

// Sentinels for decisions. Compare with [errors.Is]. A session that lost its
// lease is [flusso.ErrFenced] once the newer holder is on record and
// [flusso.ErrLost] before that; a segment whose outcome is not known is
// [flusso.ErrUnknownOutcome], one that certainly failed [flusso.ErrRejected].
var (
	// ErrNoOpenStream: nothing is unsealed, so there is nothing to resume.
	ErrNoOpenStream = errors.New("the feed has no open stream: open a new one")
	// ErrSealed: the session's stream is sealed and takes no more.
	ErrSealed = errors.New("the stream is sealed")
	// ErrNoFeed: there is no such feed.
	ErrNoFeed = errors.New("no such feed")
	// ErrDeleting: the feed is being deleted.
	ErrDeleting = errors.New("the feed is being deleted")
)

// FencedError tells who took the lease. It is a [flusso.ErrFenced].
type FencedError struct {
	Feed   string
	Epoch  uint64 // our writer epoch
	Newer  uint64 // the newer writer's epoch
	Holder Holder
}

func (e *FencedError) Error() string {
	where := ""
	if e.Holder.Address != "" {
		where = " at " + e.Holder.Address
	}
	return fmt.Sprintf("feed %s: writer epoch %d was fenced by epoch %d of %s%s: another session writes; send appends to it, or resume the feed to take it over",
		e.Feed, e.Epoch, e.Newer, e.Holder.Name, where)
}

// Is reports whether target is [flusso.ErrFenced].
func (e *FencedError) Is(target error) bool { return target == flusso.ErrFenced }

// TakenError says that somebody else took a feed while it was created, deleted
// or repaired, so that nothing more was done. It is a [flusso.ErrFenced].
type TakenError struct {
	Feed   string
	Holder Holder // who; empty where nobody is on record
	Epoch  uint64 // the writer epoch of that; 0 where nobody is on record
	Gone   bool   // and deleted it
	Cause  error
}

func (e *TakenError) Error() string {
	who := "another process"
	if e.Holder.Name != "" {
		who = e.Holder.Name
		if e.Holder.Address != "" {
			who += " at " + e.Holder.Address
		}
		who += fmt.Sprintf(", writer epoch %d,", e.Epoch)
	}
	if e.Gone {
		return fmt.Sprintf("feed %s: %s took it meanwhile, and it is deleted: look with `flusso-kafka-admin feed list`", e.Feed, who)
	}
	return fmt.Sprintf("feed %s: %s took it meanwhile: look with `flusso-kafka-admin feed describe %s`, then repeat this if it is still wanted", e.Feed, who, e.Feed)
}

// Is reports whether target is [flusso.ErrFenced].
func (e *TakenError) Is(target error) bool { return target == flusso.ErrFenced }

// Unwrap returns the cause.
func (e *TakenError) Unwrap() error { return e.Cause }

// LostError says that a session lost its lease or its broker, and nobody else
// is on record as the holder. It is a [flusso.ErrLost].
type LostError struct {
	Feed   string
	Stream uint64
	Epoch  uint64 // our writer epoch
	Cause  error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("feed %s, stream %d: the session of writer epoch %d is lost: look who writes with `flusso-kafka-admin feed describe %s`, then resume the feed: %v",
		e.Feed, e.Stream, e.Epoch, e.Feed, e.Cause)
}

// Is reports whether target is [flusso.ErrLost].
func (e *LostError) Is(target error) bool { return target == flusso.ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// OpenError says that a stream is on record as opened, or resumed, or may be,
// and that there is no session on it: time was over, or the broker gave up. It
// is a [flusso.ErrUnknownOutcome] where it is not known.
type OpenError struct {
	Feed    string
	Stream  uint64 // that it would have been
	Resumed bool   // it was to be resumed, not opened
	Unknown bool   // whether it is on record
	Cause   error
}

func (e *OpenError) Error() string {
	switch {
	case e.Resumed:
		return fmt.Sprintf("feed %s: stream %d has no session, its resumption ended early: resume it again: %v", e.Feed, e.Stream, e.Cause)
	case e.Unknown:
		return fmt.Sprintf("feed %s: it is not known whether stream %d was opened: resume stream %d, and where there is none, open again: %v", e.Feed, e.Stream, e.Stream, e.Cause)
	}
	return fmt.Sprintf("feed %s: stream %d was opened and has no session: resume stream %d: %v", e.Feed, e.Stream, e.Stream, e.Cause)
}

// Is reports whether target is [flusso.ErrUnknownOutcome], where it is.
func (e *OpenError) Is(target error) bool { return target == flusso.ErrUnknownOutcome && e.Unknown }

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Cause }

// AppendError says that a batch that had its sequences was not acknowledged. It
// is a [flusso.ErrUnknownOutcome] where it may be durable all the same, which
// resuming the feed tells, else a [flusso.ErrRejected]. All batches of a
// segment get the same.
type AppendError struct {
	Feed        string
	Stream      uint64
	First, Last uint64 // sequences that it would have had
	Unknown     bool   // the commit was asked for, and not confirmed
	Cause       error  // why the session ended: a *FencedError, a *LostError, or that it was closed
}

func (e *AppendError) Error() string {
	what := "was not appended"
	if e.Unknown {
		what = "may or may not have been appended: resume the feed, which tells its last sequence"
	}
	return fmt.Sprintf("feed %s, stream %d: batch of sequences %d to %d %s: %v", e.Feed, e.Stream, e.First, e.Last, what, e.Cause)
}

// Is reports whether target is what is known of the outcome.
func (e *AppendError) Is(target error) bool {
	return target == flusso.ErrUnknownOutcome && e.Unknown || target == flusso.ErrRejected && !e.Unknown
}

// Unwrap returns the cause.
func (e *AppendError) Unwrap() error { return e.Cause }

// TokenError says that a batch carries another session's fencing token [E7].
type TokenError struct {
	Feed  string
	Token uint64 // what the batch carries
	Epoch uint64 // the session's writer epoch
}

func (e *TokenError) Error() string {
	return fmt.Sprintf("feed %s: fencing token %d is not this session's writer epoch %d: the batch was meant for another session",
		e.Feed, e.Token, e.Epoch)
}

// MatchError says that the stream does not end where the batch expects it [E8].
type MatchError struct {
	Feed   string
	Stream uint64
	Want   uint64 // the batch's MatchSequence
	Last   uint64 // the stream's last sequence, appends in flight included
}

func (e *MatchError) Error() string {
	return fmt.Sprintf("feed %s, stream %d: matchSequence is %d, but the last sequence is %d: read what was appended meanwhile, then append with the actual one",
		e.Feed, e.Stream, e.Want, e.Last)
}

// KeyError says that a record of a keyless feed has a key [E10].
type KeyError struct {
	Feed   string
	Record int // index in its batch
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("feed %s takes no keys: record %d of the batch has one; leave it out, or create a feed with keys", e.Feed, e.Record)
}

// FingerprintError says that a fingerprint is not 32 bytes long [E9].
type FingerprintError struct {
	Feed   string
	Record int // index in its batch
	Length int // bytes
}

func (e *FingerprintError) Error() string {
	return fmt.Sprintf("feed %s: the fingerprint of record %d of the batch is %d bytes long, it has 32: leave it out for the SHA-256 of the payload",
		e.Feed, e.Record, e.Length)
}

// FullError says that the feed holds too much that is not committed, so that
// its WAL can't be trimmed.
type FullError struct {
	Feed     string
	Unsealed uint64 // bytes
	Limit    uint64 // the feed's MaxUnsealedBytes
	Streams  []uint64
	Cause    error // what keeps the oldest of them from a commit; nil when nobody sealed it
}

func (e *FullError) Error() string {
	names := make([]string, len(e.Streams))
	for i, s := range e.Streams {
		names[i] = fmt.Sprint(s)
	}
	cause := "seal or discard them"
	if e.Cause != nil {
		cause = "the oldest can't be committed: " + e.Cause.Error()
	}
	return fmt.Sprintf("feed %s holds %d bytes that are not committed, at most %d (maxUnsealedBytes), in streams %s: %s",
		e.Feed, e.Unsealed, e.Limit, strings.Join(names, ", "), cause)
}

// Unwrap returns the cause.
func (e *FullError) Unwrap() error { return e.Cause }

// StreamsError says that a feed has as many uncommitted streams as it may.
type StreamsError struct {
	Feed    string
	Streams []uint64
}

func (e *StreamsError) Error() string {
	return fmt.Sprintf("feed %s has %d uncommitted streams (%v), the most there may be: repair, resume and seal, or discard some of them",
		e.Feed, len(e.Streams), e.Streams)
}
