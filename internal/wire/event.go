package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// EventKind says what happened to a feed.
type EventKind string

// The kinds of event in a feed's log.
const (
	FeedCreated     EventKind = "created"   // the feed exists
	StreamOpened    EventKind = "opened"    // a session opened a new stream
	StreamResumed   EventKind = "resumed"   // a session took over a stream that was left open
	LeaseTaken      EventKind = "taken"     // an administrator holds the lease, for repair or discard
	LeaseKept       EventKind = "kept"      // an idle session keeps its transactional ids from expiring
	StreamReleased  EventKind = "released"  // a session ended in order: the stream is left open, and nobody appends to it
	StreamSealed    EventKind = "sealed"    // no further append; step 1 of a seal
	StreamCommitted EventKind = "committed" // the commit is visible; step 3 of a seal
	StreamDiscarded EventKind = "discarded" // dropped without a commit
	FeedDeleting    EventKind = "deleting"  // everything of it is being removed
)

// Event is a record of a feed's log. Every event carries the feed's state
// after it, so that one record answers what an opener has to know.
type Event struct {
	Kind     EventKind    `json:"kind"`
	At       time.Time    `json:"-"`                 // milliseconds; member "at"
	Stream   uint64       `json:"stream,omitempty"`  // the stream it is about
	Message  string       `json:"message,omitempty"` // of a seal or a discard
	Commit   *FeedCommit  `json:"commit,omitempty"`  // of StreamCommitted
	WAL      int64        `json:"wal,omitempty"`     // of StreamDiscarded: WAL offset, the stream lies below
	Settings FeedSettings `json:"settings"`
	State    FeedState    `json:"state"`
}

// FeedSettings are chosen when a feed is created and never change.
type FeedSettings struct {
	ID     string `json:"id"`     // random; ties the bucket to the feed
	Keyed  bool   `json:"keyed"`  // whether records may have keys
	Latest string `json:"latest"` // what the newest record of a key is: "sequence" or "version"
	Bucket string `json:"bucket"` // URL without credentials
	// MaxUnsealedBytes bounds what the WAL may hold that is not committed.
	MaxUnsealedBytes uint64 `json:"maxUnsealedBytes"`
}

// The two rules for the newest record of a key.
const (
	LatestSequence = "sequence" // the later position wins, the version is only stored
	LatestVersion  = "version"  // the highest version wins, ties by the later position
)

// FeedState is a feed after an event.
type FeedState struct {
	Epoch   uint64        `json:"epoch"`             // writer epoch of the lease's holder; 0 before the first
	Holder  *FeedHolder   `json:"holder"`            // null before the first
	Streams []StreamState `json:"streams"`           // every stream without commit, by number
	Newest  uint64        `json:"newest"`            // number of the newest stream; 0 for none
	Commits uint64        `json:"commits"`           // number of the newest commit; 0 for none
	Deleted bool          `json:"deleted,omitempty"` // it is being deleted: nothing may be opened
}

// FeedHolder is who holds the writer lease.
type FeedHolder struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // where a gateway can send writes to; empty for none
}

// StreamStep is how far a stream is on its way to a commit.
type StreamStep string

// The steps of a stream that has no commit.
const (
	StreamOpen      StreamStep = "open"      // appends may land
	StreamAbandoned StreamStep = "abandoned" // left open, and nobody appends to it: it is resumed or discarded
	StreamMarked    StreamStep = "sealed"    // sealed, not committed yet
)

// StreamState is a stream that has no commit.
type StreamState struct {
	Number  uint64     `json:"number"`
	Step    StreamStep `json:"step"`
	From    int64      `json:"from"`              // WAL offset: nothing of it lies below
	Epoch   uint64     `json:"epoch"`             // writer epoch that opened, resumed or sealed it last
	Last    uint64     `json:"last"`              // last sequence: as of that epoch's start while open, else for good
	Bytes   uint64     `json:"bytes"`             // keys and payloads up to Last
	Message string     `json:"message,omitempty"` // of a sealed stream
	// SealedAt is when it was sealed, in ms since 1970; 0 while it is not.
	SealedAt int64 `json:"sealedAt,omitempty"`
}

// FeedCommit is a sealed stream that became part of the feed's history.
type FeedCommit struct {
	Number       uint64 `json:"number"` // 1 and up, without holes
	Records      uint64 `json:"records"`
	First        uint64 `json:"first"` // sequences; 0 for an empty stream
	Last         uint64 `json:"last"`
	Bytes        uint64 `json:"bytes"`        // keys and payloads
	Manifest     string `json:"manifest"`     // its path in the bucket
	ManifestHash string `json:"manifestHash"` // SHA-256 in hex
	WAL          int64  `json:"wal"`          // WAL offset: the stream lies below
}

const whatEvent = "event of a feed"

// eventText is an event as it is written.
type eventText struct {
	V  uint64 `json:"v"`
	At int64  `json:"at"` // ms since 1970
	Event
}

// EncodeEvent returns the record that carries an event, for partition 0 of a
// feed's log. The event must be consistent: see [DecodeEvent].
func EncodeEvent(topic string, e Event) (*kgo.Record, error) {
	if e.State.Streams == nil {
		e.State.Streams = []StreamState{}
	}
	if reason := e.inconsistency(); reason != "" {
		return nil, &FormatError{What: whatEvent, Reason: reason, Offset: flusso.NoOffset}
	}
	var value bytes.Buffer
	text := json.NewEncoder(&value)
	text.SetEscapeHTML(false)
	if err := text.Encode(eventText{V: Version, At: e.At.UnixMilli(), Event: e}); err != nil {
		return nil, fmt.Errorf("encode an %s: %w", whatEvent, err)
	}
	return &kgo.Record{Topic: topic, Key: []byte(e.Kind), Value: bytes.TrimRight(value.Bytes(), "\n"), Timestamp: e.At}, nil
}

// DecodeEvent is the inverse of [EncodeEvent]; members it does not know are
// skipped. Errors are [*FormatError] and [*VersionError] with topic and offset.
func DecodeEvent(r *kgo.Record) (Event, error) {
	if reason := notUnicode(r.Value); reason != "" {
		return Event{}, malformed(r, whatEvent, reason)
	}
	all, err := object(r.Value)
	if err != nil {
		return Event{}, malformed(r, whatEvent, reasonOf(err))
	}
	p := pairs{what: whatEvent}
	v, err := p.number("v", all["v"])
	if err != nil {
		return Event{}, at(err, r.Topic, flusso.Offset(r.Offset))
	}
	if v != Version {
		return Event{}, at(&VersionError{What: whatEvent, Version: v}, r.Topic, flusso.Offset(r.Offset))
	}
	var e Event
	if reason := e.read(all); reason != "" {
		return Event{}, malformed(r, whatEvent, reason)
	}
	if reason := e.inconsistency(); reason != "" {
		return Event{}, malformed(r, whatEvent, reason)
	}
	if string(r.Key) != string(e.Kind) {
		return Event{}, malformed(r, whatEvent, "its key is "+strconv.Quote(shorten(string(r.Key)))+", its kind "+strconv.Quote(string(e.Kind)))
	}
	return e, nil
}

// inconsistency returns what is wrong with the members, or "".
func (e *Event) inconsistency() string {
	switch e.Kind {
	case FeedCreated, LeaseTaken, LeaseKept, FeedDeleting:
		if e.Stream != 0 {
			return "event " + string(e.Kind) + " is about no stream, it names " + strconv.FormatUint(e.Stream, 10)
		}
	case StreamOpened, StreamResumed, StreamReleased, StreamSealed, StreamCommitted, StreamDiscarded:
		if e.Stream == 0 || e.Stream > e.State.Newest {
			return "stream " + strconv.FormatUint(e.Stream, 10) + " of " + strconv.FormatUint(e.State.Newest, 10)
		}
	default:
		return "unknown kind " + strconv.Quote(shorten(string(e.Kind)))
	}
	switch {
	case (e.Kind == StreamCommitted) != (e.Commit != nil):
		return "a commit belongs to every event committed and to nothing else"
	case e.WAL < 0 || e.WAL > MaxSequence || e.WAL > 0 && e.Kind != StreamDiscarded:
		return "a WAL offset above the limit, or on an event that is not discarded"
	case e.At.UnixMilli() < 0 || e.At.UnixMilli() > MaxSequence:
		return "at is before 1970 or above the limit"
	case e.Settings.ID == "" || e.Settings.Bucket == "":
		return "settings without id or bucket"
	case e.Settings.Latest != LatestSequence && e.Settings.Latest != LatestVersion:
		return "unknown rule for the latest record " + strconv.Quote(shorten(e.Settings.Latest))
	case e.Settings.MaxUnsealedBytes > MaxSequence:
		return "maxUnsealedBytes is above the limit"
	}
	if reason := e.State.inconsistency(); reason != "" {
		return reason
	}
	if e.Commit == nil {
		return ""
	}
	return e.Commit.inconsistency(e)
}

func (s *FeedState) inconsistency() string {
	switch {
	case s.Epoch == 0 || s.Holder == nil || s.Holder.Name == "":
		return "no holder of the lease"
	case max(s.Epoch, s.Newest, s.Commits) > MaxSequence:
		return "an epoch, stream or commit number above the limit"
	case s.Commits+uint64(len(s.Streams)) > s.Newest:
		return strconv.FormatUint(s.Commits, 10) + " commits and " + strconv.Itoa(len(s.Streams)) + " streams without one, of " + strconv.FormatUint(s.Newest, 10) + " streams"
	}
	open, before := 0, uint64(0)
	for _, st := range s.Streams {
		switch {
		case st.Number <= before || st.Number > s.Newest:
			return "uncommitted streams are not in order, or above the newest"
		case st.Step != StreamOpen && st.Step != StreamAbandoned && st.Step != StreamMarked:
			return "unknown step " + strconv.Quote(shorten(string(st.Step)))
		case st.From < 0 || st.From > MaxSequence || st.Epoch == 0 || st.Epoch > s.Epoch:
			return "stream " + strconv.FormatUint(st.Number, 10) + " without a place in the WAL or an epoch"
		case st.SealedAt < 0 || st.SealedAt > MaxSequence || st.SealedAt > 0 && st.Step != StreamMarked:
			return "stream " + strconv.FormatUint(st.Number, 10) + " has a time of its seal above the limit, or is not sealed"
		case max(st.Last, st.Bytes) > MaxSequence:
			return "stream " + strconv.FormatUint(st.Number, 10) + " has a sequence or bytes above the limit"
		}
		before = st.Number
		if st.Step == StreamOpen {
			open++
		}
	}
	if open > 1 {
		return strconv.Itoa(open) + " streams are open, at most one may be"
	}
	return ""
}

// inconsistency returns what is wrong with the commit that e carries, or "".
func (c *FeedCommit) inconsistency(e *Event) string {
	switch {
	case c.Number == 0 || c.Number != e.State.Commits:
		return "commit " + strconv.FormatUint(c.Number, 10) + " is not the newest, " + strconv.FormatUint(e.State.Commits, 10)
	case slices.ContainsFunc(e.State.Streams, func(st StreamState) bool { return st.Number == e.Stream }):
		return "stream " + strconv.FormatUint(e.Stream, 10) + " has a commit, and is among those without"
	case c.Last != c.Records || c.Last > MaxSequence || c.First != min(1, c.Last):
		return strconv.FormatUint(c.Records, 10) + " records from " + strconv.FormatUint(c.First, 10) + " to " + strconv.FormatUint(c.Last, 10)
	case c.Bytes > MaxSequence || c.WAL < 0 || c.WAL > MaxSequence:
		return "bytes or WAL offset of the commit above the limit"
	case c.Manifest == "" || !isHash(c.ManifestHash):
		return "a commit without a manifest, or without its SHA-256 in lower case hex"
	}
	return ""
}

func isHash(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return len(s) == 2*sha256.Size
}
