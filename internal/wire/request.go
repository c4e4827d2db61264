package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

const whatRequest = "request"

// EncodeRequest returns the record that carries a request, for the topic of a
// pipeline's request lane. The request must have passed [flusso.CheckRequest].
func EncodeRequest(topic string, request flusso.Request, sentAt time.Time) *kgo.Record {
	r := &kgo.Record{Topic: topic, Timestamp: sentAt}
	if b, ok := request.(*flusso.Backfill); ok {
		r.Key = []byte(b.Sink)
		v := make([]byte, 0, 64+len(b.Sink)+indexesSize(b.Indexes))
		v = append(v, `{"v":1,"kind":"backfill","sink":"`...)
		v = append(v, b.Sink...)
		v = append(v, `","indexes":`...)
		v = appendIndexes(v, b.Indexes)
		r.Value = append(v, '}')
	}
	return r
}

// DecodeRequest is the inverse of [EncodeRequest]; members it does not know
// are skipped. Errors are [*FormatError] and [*VersionError] with topic and
// offset. That the sink exists is the caller's to check.
func DecodeRequest(r *kgo.Record) (flusso.Request, error) {
	b, err := decodeRequest(r.Value)
	if err != nil {
		return nil, at(err, r.Topic, flusso.Offset(r.Offset))
	}
	if string(r.Key) != b.Sink {
		return nil, malformed(r, whatRequest, "its key is "+strconv.Quote(shorten(string(r.Key)))+", its sink "+strconv.Quote(b.Sink))
	}
	return b, nil
}

func decodeRequest(value []byte) (*flusso.Backfill, error) {
	bad := func(reason string) error {
		return &FormatError{What: whatRequest, Reason: reason, Offset: flusso.NoOffset}
	}
	if reason := notUnicode(value); reason != "" {
		return nil, bad(reason)
	}
	members, err := object(value)
	if err != nil {
		return nil, bad(err.Error())
	}
	if len(members["v"]) == 0 {
		return nil, bad("no version: member v is missing")
	}
	p := pairs{what: whatRequest}
	version, err := p.number("v", members["v"])
	if err != nil {
		return nil, err
	}
	if version != Version {
		return nil, &VersionError{What: whatRequest, Version: version, Offset: flusso.NoOffset}
	}
	text := func(member string) (s string, err error) {
		raw := members[member]
		if len(raw) == 0 || raw[0] != '"' {
			return "", bad("member " + member + " is not a string")
		}
		return s, json.Unmarshal(raw, &s)
	}
	kind, err := text("kind")
	if err != nil {
		return nil, err
	}
	if kind != "backfill" {
		return nil, bad("unknown kind " + strconv.Quote(shorten(kind)))
	}
	b := &flusso.Backfill{}
	if b.Sink, err = text("sink"); err != nil {
		return nil, err
	}
	if err := flusso.CheckName("sink", b.Sink); err != nil {
		return nil, bad(err.Error())
	}
	var names []*string
	if err := json.Unmarshal(members["indexes"], &names); err != nil {
		return nil, bad("member indexes is not an array of strings")
	}
	b.Indexes, err = checkIndexes(names, bad)
	return b, err
}

// object reads a JSON object, by exact names and each once, which
// encoding/json does not insist on.
func object(text []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	bad := &FormatError{What: whatRequest, Offset: flusso.NoOffset, Reason: "not a JSON object"}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, bad
	}
	members := make(map[string]json.RawMessage)
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, bad
		}
		name, _ := t.(string)
		if _, twice := members[name]; twice {
			bad.Reason = "member " + strconv.Quote(shorten(name)) + " is repeated"
			return nil, bad
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, bad
		}
		members[name] = value
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return nil, bad
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		bad.Reason = "something follows the JSON object"
		return nil, bad
	}
	return members, nil
}
