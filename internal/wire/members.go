package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"
)

// member is where a member of a JSON object goes: a pointer, or a function
// that returns what is wrong with it.
type member struct {
	name string
	to   any
}

// readMembers reads a JSON object and returns what is wrong with it, or "". It
// insists on what encoding/json does not: exact names, each once, and numbers
// in their plain form. A null is as good as no member; members that are not
// asked for are skipped.
func readMembers(text []byte, of []member) string {
	all, err := object(text)
	if err != nil {
		return reasonOf(err)
	}
	return takeMembers(all, of)
}

func takeMembers(all map[string]json.RawMessage, of []member) string {
	for _, m := range of {
		raw := all[m.name]
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		if reason := readMember(raw, m.to); reason != "" {
			return "member " + m.name + ": " + reason
		}
	}
	return ""
}

func readMember(raw json.RawMessage, to any) string {
	switch to := to.(type) {
	case func(json.RawMessage) string:
		return to(raw)
	case *uint64:
		n, reason := plainNumber(raw)
		*to = n
		return reason
	case *int64:
		n, reason := plainNumber(raw)
		if n > math.MaxInt64 {
			return "a number above the limit"
		}
		*to = int64(n)
		return reason
	}
	if text, ok := to.(*string); ok && len(raw) > 1 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		*text = string(raw[1 : len(raw)-1])
		return ""
	}
	if err := json.Unmarshal(raw, to); err != nil { // strings and truth values: exact
		return "not of its type"
	}
	return ""
}

func plainNumber(raw json.RawMessage) (uint64, string) {
	var p pairs
	n, err := p.number("", raw)
	if err != nil {
		return 0, strconv.Quote(shorten(string(raw))) + " is not a whole number in plain form"
	}
	return n, ""
}

func reasonOf(err error) string {
	if f, ok := errors.AsType[*FormatError](err); ok {
		return f.Reason
	}
	return err.Error()
}

// read takes the members of an event over.
func (e *Event) read(all map[string]json.RawMessage) string {
	var ms int64
	timed := false
	reason := takeMembers(all, []member{
		{"at", func(raw json.RawMessage) string { timed = true; return readMember(raw, &ms) }},
		{"kind", (*string)(&e.Kind)},
		{"stream", &e.Stream},
		{"message", &e.Message},
		{"commit", func(raw json.RawMessage) string { e.Commit = &FeedCommit{}; return e.Commit.read(raw) }},
		{"wal", &e.WAL},
		{"settings", e.Settings.read},
		{"state", e.State.read},
	})
	if reason == "" && !timed {
		reason = "no time: member at is missing"
	}
	e.At = time.UnixMilli(ms)
	return reason
}

func (s *FeedSettings) read(raw json.RawMessage) string {
	return readMembers(raw, []member{
		{"id", &s.ID},
		{"keyed", &s.Keyed},
		{"latest", &s.Latest},
		{"bucket", &s.Bucket},
		{"maxUnsealedBytes", &s.MaxUnsealedBytes},
	})
}

func (s *FeedState) read(raw json.RawMessage) string {
	s.Streams = []StreamState{}
	return readMembers(raw, []member{
		{"epoch", &s.Epoch},
		{"holder", func(raw json.RawMessage) string {
			s.Holder = &FeedHolder{}
			return readMembers(raw, []member{{"name", &s.Holder.Name}, {"address", &s.Holder.Address}})
		}},
		{"streams", s.readStreams},
		{"newest", &s.Newest},
		{"commits", &s.Commits},
		{"deleted", &s.Deleted},
	})
}

func (s *FeedState) readStreams(raw json.RawMessage) string {
	var streams []json.RawMessage
	if err := json.Unmarshal(raw, &streams); err != nil {
		return "not an array"
	}
	s.Streams = make([]StreamState, len(streams))
	for i, text := range streams {
		st := &s.Streams[i]
		reason := readMembers(text, []member{
			{"number", &st.Number},
			{"step", (*string)(&st.Step)},
			{"from", &st.From},
			{"epoch", &st.Epoch},
			{"last", &st.Last},
			{"bytes", &st.Bytes},
			{"message", &st.Message},
			{"sealedAt", &st.SealedAt},
		})
		if reason != "" {
			return "element " + strconv.Itoa(i) + ": " + reason
		}
	}
	return ""
}

func (c *FeedCommit) read(raw json.RawMessage) string {
	return readMembers(raw, []member{
		{"number", &c.Number},
		{"records", &c.Records},
		{"first", &c.First},
		{"last", &c.Last},
		{"bytes", &c.Bytes},
		{"manifest", &c.Manifest},
		{"manifestHash", &c.ManifestHash},
		{"wal", &c.WAL},
	})
}
