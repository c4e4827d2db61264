package feeds

import (
	"fmt"
	"time"

	"github.com/flusso/flusso-kafka/internal/wire"
)

// EventError says that an event of a feed's log can't follow the one before it:
// something else wrote into the log, or a holder that was fenced.
type EventError struct {
	Feed   string
	Number int // of the event, from 1 on
	Kind   string
	At     time.Time
	Reason string
}

func (e *EventError) Error() string {
	return fmt.Sprintf("the log of feed %s: event %d, %s of %s, cannot follow the one before it: %s", e.Feed, e.Number, e.Kind, e.At.UTC().Format(time.RFC3339), e.Reason)
}

// succession checks the events of a log in their order. What a single event
// must be package wire checks.
type succession struct {
	feed   string
	number int
	before wire.Event
}

// next takes the next event.
func (s *succession) next(e wire.Event) error {
	s.number++
	before := s.before
	s.before = e
	reason := ""
	switch {
	case s.number == 1 && e.Kind != wire.FeedCreated:
		reason = "the first event is created"
	case s.number > 1 && e.Kind == wire.FeedCreated:
		reason = "a feed is created once"
	case s.number > 1:
		reason = follows(before, e)
	}
	if reason == "" {
		return nil
	}
	return &EventError{Feed: s.feed, Number: s.number, Kind: string(e.Kind), At: e.At, Reason: reason}
}

// follows returns why e can't follow a, or "".
func follows(a, e wire.Event) string {
	number := func(what string, have, want uint64) string {
		if have == want {
			return ""
		}
		return fmt.Sprintf("%s is %d, %d belongs there", what, have, want)
	}
	epoch, newest, commits := a.State.Epoch, a.State.Newest, a.State.Commits
	takes := e.Kind == wire.StreamOpened || e.Kind == wire.StreamResumed || e.Kind == wire.LeaseTaken
	if takes {
		epoch++
	}
	if e.Kind == wire.StreamOpened {
		newest++
	}
	if e.Kind == wire.StreamCommitted {
		commits++
	}
	switch {
	case e.Settings != a.Settings:
		return "the settings changed"
	case a.State.Deleted && (!e.State.Deleted || e.Kind != wire.LeaseTaken && e.Kind != wire.FeedDeleting):
		return "the feed is being deleted"
	case e.State.Deleted && !a.State.Deleted && e.Kind != wire.FeedDeleting:
		return "a feed is deleted by an event of its own"
	case !takes && *e.State.Holder != *a.State.Holder:
		return "another holder, which did not take the lease"
	case e.Kind == wire.StreamOpened && e.Stream != newest:
		return number("the stream that was opened", e.Stream, newest)
	}
	for _, reason := range []string{
		number("the writer epoch", e.State.Epoch, epoch), number("the newest stream", e.State.Newest, newest), number("the newest commit", e.State.Commits, commits),
	} {
		if reason != "" {
			return reason
		}
	}
	if e.Kind == wire.FeedDeleting || a.State.Deleted {
		return ""
	}
	return streamsFollow(a, e)
}

// streamsFollow looks at the streams that had no commit before the event, or
// have none behind it.
func streamsFollow(a, e wire.Event) string {
	behind := make(map[uint64]wire.StreamState)
	for _, st := range e.State.Streams {
		behind[st.Number] = st
	}
	known := false
	for _, st := range a.State.Streams {
		known = known || st.Number == e.Stream
		now, there := behind[st.Number]
		delete(behind, st.Number)
		settles := st.Number == e.Stream && (e.Kind == wire.StreamCommitted || e.Kind == wire.StreamDiscarded)
		reason := ""
		switch {
		case settles && there:
			reason = "it is settled, and among those that are not"
		case settles && e.Kind == wire.StreamCommitted:
			reason = commitFollows(a, st, e)
		case !settles && !there:
			reason = "it is gone"
		case !settles:
			reason = stepFollows(st, now, e)
		}
		if reason != "" {
			return fmt.Sprintf("stream %d: %s", st.Number, reason)
		}
	}
	if e.Kind == wire.StreamOpened {
		st, there := behind[e.Stream]
		delete(behind, e.Stream)
		if !there || st.Step != wire.StreamOpen || st.Last != 0 || st.Bytes != 0 || st.Epoch != e.State.Epoch {
			return fmt.Sprintf("stream %d was opened, and is not open and empty", e.Stream)
		}
		known = true
	}
	for number := range behind {
		return fmt.Sprintf("stream %d comes from nowhere", number)
	}
	if e.Stream != 0 && !known {
		return fmt.Sprintf("there was no stream %d without a commit", e.Stream)
	}
	return ""
}

// commitFollows checks a commit of a stream.
func commitFollows(a wire.Event, st wire.StreamState, e wire.Event) string {
	switch {
	case st.Step != wire.StreamMarked:
		return fmt.Sprintf("it is committed and was %s, not sealed", st.Step)
	case oldestSeal(a.State.Streams, 0).Number != st.Number:
		return fmt.Sprintf("it is committed before stream %d, which was sealed earlier", oldestSeal(a.State.Streams, 0).Number)
	case e.Commit.Last != st.Last || e.Commit.Bytes != st.Bytes || e.Message != st.Message:
		return fmt.Sprintf("it was sealed with %d records and %d bytes, and is committed with %d and %d, or the message differs", st.Last, st.Bytes, e.Commit.Last, e.Commit.Bytes)
	}
	return ""
}

// stepFollows checks what an event makes of a stream that stays without commit.
func stepFollows(st, now wire.StreamState, e wire.Event) string {
	about := st.Number == e.Stream
	step := st.Step // that belongs there
	switch {
	case about && e.Kind == wire.StreamResumed:
		step = wire.StreamOpen
		if st.Step == wire.StreamMarked {
			return "it is resumed and was sealed"
		}
	case st.Step == wire.StreamOpen && (e.Kind == wire.StreamOpened || e.Kind == wire.StreamResumed || e.Kind == wire.LeaseTaken):
		step = wire.StreamAbandoned // by whoever took the lease
	case about && (e.Kind == wire.StreamReleased || e.Kind == wire.StreamSealed):
		switch {
		case e.Kind == wire.StreamReleased && st.Step == wire.StreamMarked:
			// Whoever was sealing it does not go on.
		case st.Step != wire.StreamOpen:
			return fmt.Sprintf("it is %s and was %s, not open", e.Kind, st.Step)
		case e.Kind == wire.StreamSealed:
			step = wire.StreamMarked
		default:
			step = wire.StreamAbandoned
		}
	}
	epoch := st.Epoch
	if about && e.Kind == wire.StreamResumed {
		epoch = e.State.Epoch
	}
	switch {
	case now.Step != step:
		return fmt.Sprintf("it was %s and is %s, %s belongs there", st.Step, now.Step, step)
	case now.From != st.From:
		return fmt.Sprintf("it began at WAL offset %d, and begins at %d", st.From, now.From)
	case now.Epoch != epoch:
		return fmt.Sprintf("its writer epoch is %d, %d belongs there", now.Epoch, epoch)
	case now.Last < st.Last || now.Bytes < st.Bytes:
		return fmt.Sprintf("it ended at sequence %d, and ends at %d", st.Last, now.Last)
	case st.Step != wire.StreamOpen && (now.Last != st.Last || now.Bytes != st.Bytes || now.Message != st.Message || now.SealedAt != st.SealedAt):
		return "nobody appended to it or sealed it, and it changed"
	}
	return ""
}
