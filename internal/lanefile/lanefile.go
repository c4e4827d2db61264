// Package lanefile is the file in which an item that was skipped in a lane is
// kept, so that it can be published back. docs/lane-file.md specifies it.
//
// The type to know is [Saved]: [Create] writes it durably and [Parse] reads it.
package lanefile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
)

const (
	format  = "flusso-lane-item"
	version = 1
)

// Saved is one item as it was taken out of a lane.
type Saved struct {
	Pipeline string
	Sink     string
	Topic    string
	TopicID  [16]byte
	SavedAt  time.Time // milliseconds count
	// Foreign is how many of the records, the first ones, lay before the item
	// and are none of its.
	Foreign int
	// Records are those of the item, in order; of each, Key, Value, Headers,
	// Timestamp and Offset.
	Records []*kgo.Record
}

// First returns the offset of the first record.
func (s *Saved) First() flusso.Offset { return flusso.Offset(s.Records[0].Offset) }

// At returns the offset of the item's last record.
func (s *Saved) At() flusso.Offset { return flusso.Offset(s.Records[len(s.Records)-1].Offset) }

// Item decodes the item. Errors are those of [wire.DecodeItem]: an item that
// was malformed in its lane is so here.
func (s *Saved) Item() (flusso.LaneItem, wire.Header, error) {
	return wire.DecodeItem(s.Records[s.Foreign:])
}

// Error says that a file is not what docs/lane-file.md describes.
type Error struct {
	Line   int // 0 for the file as a whole
	Reason string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "not a file of a skipped item: " + e.Reason
	}
	return "not a file of a skipped item: line " + strconv.Itoa(e.Line) + ": " + e.Reason
}

// ErrIncomplete says that the end of a file is missing, or was changed.
var ErrIncomplete = errors.New("incomplete or damaged")

// head is the first line.
type head struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Pipeline string `json:"pipeline"`
	Sink     string `json:"sink"`
	Topic    string `json:"topic"`
	TopicID  string `json:"topicId"`
	First    int64  `json:"firstOffset"`
	Offset   int64  `json:"offset"`
	Records  int    `json:"records"`
	Foreign  int    `json:"foreign,omitempty"`
	SavedAt  string `json:"savedAt"`
}

// line is a record.
type line struct {
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"` // ms since 1970
	Key       []byte   `json:"key"`       // base64, or null
	Value     []byte   `json:"value"`     // base64, or null
	Headers   []header `json:"headers,omitempty"`
}

type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// tail is the last line.
type tail struct {
	SHA256 string `json:"sha256"`
}

var topicIDs = base64.RawURLEncoding.Strict()

// Write writes a saved item.
func Write(w io.Writer, s *Saved) error {
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(head{
		Format: format, Version: version, Pipeline: s.Pipeline, Sink: s.Sink, Topic: s.Topic,
		TopicID: topicIDs.EncodeToString(s.TopicID[:]), First: int64(s.First()), Offset: int64(s.At()),
		Records: len(s.Records), Foreign: s.Foreign, SavedAt: s.SavedAt.UTC().Format(timeFormat),
	}); err != nil {
		return err
	}
	for _, r := range s.Records {
		l := line{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			l.Headers = append(l.Headers, header{h.Key, h.Value})
		}
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(tail{hexOf(sum)})
}

const timeFormat = "2006-01-02T15:04:05.000Z"

func hexOf(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

// Parse reads what [Write] wrote. Errors are [*Error], and [ErrIncomplete] for
// a file whose checksum is missing or another. Members that it does not know
// are ignored.
func Parse(data []byte) (*Saved, error) {
	body, err := verify(data)
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
	var h head
	if err := json.Unmarshal(lines[0], &h); err != nil {
		return nil, &Error{Line: 1, Reason: err.Error()}
	}
	switch {
	case h.Format != format:
		return nil, &Error{Line: 1, Reason: fmt.Sprintf("format %q, not %q", h.Format, format)}
	case h.Version != version:
		return nil, &Error{Line: 1, Reason: fmt.Sprintf("version %d, this program reads version %d: upgrade it to what wrote this", h.Version, version)}
	case h.Records < 1 || h.Records != len(lines)-1:
		return nil, &Error{Line: 1, Reason: fmt.Sprintf("announces %d records, and %d follow", h.Records, len(lines)-1)}
	case h.Foreign < 0 || h.Foreign >= h.Records:
		return nil, &Error{Line: 1, Reason: fmt.Sprintf("%d foreign records of %d", h.Foreign, h.Records)}
	}
	s := &Saved{Pipeline: h.Pipeline, Sink: h.Sink, Topic: h.Topic, Foreign: h.Foreign}
	if err := s.identify(h); err != nil {
		return nil, &Error{Line: 1, Reason: err.Error()}
	}
	for i, text := range lines[1:] {
		r, err := record(text, h.Topic)
		if err == nil && i > 0 && r.Offset <= s.Records[i-1].Offset {
			err = fmt.Errorf("offset %d follows %d", r.Offset, s.Records[i-1].Offset)
		}
		if err != nil {
			return nil, &Error{Line: i + 2, Reason: err.Error()}
		}
		s.Records = append(s.Records, r)
	}
	if int64(s.First()) != h.First || int64(s.At()) != h.Offset {
		return nil, &Error{Line: 1, Reason: fmt.Sprintf("offsets %d to %d, and those of the records are %s to %s", h.First, h.Offset, s.First(), s.At())}
	}
	return s, nil
}

// verify returns what the checksum of the last line covers.
func verify(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, &Error{Reason: "it is empty"}
	}
	if !bytes.HasPrefix(data, []byte("{")) {
		return nil, &Error{Line: 1, Reason: "no JSON object"}
	}
	if data[len(data)-1] != '\n' {
		return nil, fmt.Errorf("%w: %w", &Error{Reason: "its last line is cut"}, ErrIncomplete)
	}
	at := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
	var t tail
	if err := json.Unmarshal(data[at:], &t); err != nil || t.SHA256 == "" || at == 0 {
		return nil, fmt.Errorf("%w: %w", &Error{Reason: "it does not end in a checksum"}, ErrIncomplete)
	}
	sum := sha256.New()
	sum.Write(data[:at])
	if got := hexOf(sum); got != t.SHA256 {
		return nil, fmt.Errorf("%w: %w", &Error{Reason: fmt.Sprintf("its checksum is %s, and that of its content %s", t.SHA256, got)}, ErrIncomplete)
	}
	return data[:at], nil
}

// identify takes over what says which lane it is of.
func (s *Saved) identify(h head) error {
	for kind, name := range map[string]string{"pipeline": s.Pipeline, "sink": s.Sink} {
		if err := flusso.CheckName(kind, name); err != nil {
			return err
		}
	}
	id, err := topicIDs.DecodeString(h.TopicID)
	if err != nil || len(id) != len(s.TopicID) {
		return fmt.Errorf("%q is no topic ID", h.TopicID)
	}
	copy(s.TopicID[:], id)
	s.SavedAt, err = time.Parse(time.RFC3339, h.SavedAt)
	s.SavedAt = s.SavedAt.UTC().Truncate(time.Millisecond)
	return err
}

func record(text []byte, topic string) (*kgo.Record, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, err
	}
	if l.Offset < 0 {
		return nil, fmt.Errorf("offset %d", l.Offset)
	}
	r := &kgo.Record{Topic: topic, Offset: l.Offset, Timestamp: time.UnixMilli(l.Timestamp), Key: l.Key, Value: l.Value, LeaderEpoch: -1}
	for _, h := range l.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r, nil
}
