package wire

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// num is a number as vectors hold it: a decimal string.
type num uint64

func (n *num) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	u, err := strconv.ParseUint(s, 10, 64)
	if i, neg := strconv.ParseInt(s, 10, 64); err != nil && neg == nil {
		u, err = uint64(i), nil
	}
	*n = num(u)
	return err
}

type vectorFields struct {
	Kind            string `json:"kind"`
	Position        num    `json:"position"`
	More            bool   `json:"more"`
	Through         num    `json:"through"`
	Newest          num    `json:"newest"`
	Records         num    `json:"records"`
	Envelopes       num    `json:"envelopes"`
	Changes         num    `json:"changes"`
	Incarnation     string `json:"incarnation"`
	Epoch           num    `json:"epoch"`
	BuiltAt         num    `json:"built_at"`
	Sequence        num    `json:"sequence"`
	TotalBatches    num    `json:"total_batches"`
	TotalEnvelopes  num    `json:"total_envelopes"`
	TotalBytes      num    `json:"total_bytes"`
	TotalChanges    num    `json:"total_changes"`
	Offset          num    `json:"offset"`
	TopicID         string `json:"topic_id"`
	AckedAboveFloor []num  `json:"acked"`
	RetiredAt       num    `json:"retired_at"`
	RetiredBy       string `json:"retired_by"`
	RetiredWhy      string `json:"retired_why"`
}

var kinds = map[string]Kind{"live": Live, "snapshot": Snapshot, "complete": Complete}

func (f *vectorFields) header() Header {
	return Header{
		Kind: kinds[f.Kind], Position: flusso.Position(f.Position), More: f.More,
		Through: flusso.Position(f.Through), Newest: flusso.Position(f.Newest),
		Records: uint32(f.Records), Envelopes: uint32(f.Envelopes), Changes: uint64(f.Changes),
		Incarnation: f.Incarnation, Epoch: uint64(f.Epoch), BuiltAt: time.UnixMilli(int64(f.BuiltAt)), Sequence: uint64(f.Sequence),
		Totals: Totals{uint64(f.TotalBatches), uint64(f.TotalEnvelopes), uint64(f.TotalBytes), uint64(f.TotalChanges)},
	}
}

func (f *vectorFields) topicID(t *testing.T) (id [16]byte) {
	t.Helper()
	b, err := hex.DecodeString(f.TopicID)
	if err != nil {
		t.Fatal(err)
	}
	copy(id[:], b)
	return id
}

func (f *vectorFields) metadata(t *testing.T) Metadata {
	return Metadata{
		Offset: flusso.Offset(f.Offset), Through: flusso.Position(f.Through), Sequence: uint64(f.Sequence),
		Epoch: uint64(f.Epoch), TopicID: f.topicID(t), Incarnation: f.Incarnation, Retired: f.retirement(),
	}
}

func (f *vectorFields) retirement() Retirement {
	if f.RetiredAt == 0 {
		return Retirement{}
	}
	return Retirement{At: time.UnixMilli(int64(f.RetiredAt)).UTC(), By: f.RetiredBy, Why: f.RetiredWhy}
}

func (f *vectorFields) requestMetadata(t *testing.T) RequestMetadata {
	m := RequestMetadata{Offset: flusso.Offset(f.Offset), TopicID: f.topicID(t)}
	for _, o := range f.AckedAboveFloor {
		m.Acked = append(m.Acked, flusso.Offset(o))
	}
	return m
}

type textVector struct {
	Name     string       `json:"name"`
	Text     string       `json:"text"`
	Fields   vectorFields `json:"fields"`
	ReadOnly bool         `json:"read_only"`
	Version  *num         `json:"version"`
}

type requestVector struct {
	Name     string   `json:"name"`
	Key      *string  `json:"key"`
	Value    *string  `json:"value"`
	Sink     string   `json:"sink"`
	Indexes  []string `json:"indexes"`
	ReadOnly bool     `json:"read_only"`
	Version  *num     `json:"version"`
}

type itemVector struct {
	Name    string `json:"name"`
	Records []struct {
		Key       *string      `json:"key"`
		Value     *string      `json:"value"`
		Timestamp num          `json:"timestamp"`
		Headers   [][2]*string `json:"headers"`
	} `json:"records"`
	Item struct {
		Kind      string   `json:"kind"`
		Indexes   []string `json:"indexes"`
		Envelopes []struct {
			Index    string  `json:"index"`
			ID       string  `json:"id"`
			Op       string  `json:"op"`
			Document *string `json:"document"`
			Position num     `json:"position"`
			BuiltAt  num     `json:"built_at"`
		} `json:"envelopes"`
	} `json:"item"`
	ReadOnly bool `json:"read_only"`
}

type sequenceVector struct {
	Name    string   `json:"name"`
	Headers []string `json:"headers"`
}

type vectorFile struct {
	Headers            []textVector     `json:"headers"`
	BadHeaders         []textVector     `json:"bad_headers"`
	Metadata           []textVector     `json:"metadata"`
	BadMetadata        []textVector     `json:"bad_metadata"`
	RequestMetadata    []textVector     `json:"request_metadata"`
	BadRequestMetadata []textVector     `json:"bad_request_metadata"`
	Requests           []requestVector  `json:"requests"`
	BadRequests        []requestVector  `json:"bad_requests"`
	Items              []itemVector     `json:"items"`
	BadItems           []itemVector     `json:"bad_items"`
	Sequences          []sequenceVector `json:"sequences"`
	BadSequences       []sequenceVector `json:"bad_sequences"`
}

const vectorPath = "testdata/vectors.json"

func readVectors(t testing.TB) *vectorFile {
	t.Helper()
	b, err := os.ReadFile(vectorPath)
	if err != nil {
		t.Fatal(err)
	}
	var v vectorFile
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

func bytesOf(s *string) []byte {
	if s == nil {
		return nil
	}
	return append([]byte{}, *s...)
}

const vectorTopic = "orders.lane.audit"

func (v *itemVector) records() []*kgo.Record {
	var records []*kgo.Record
	for i, r := range v.Records {
		k := &kgo.Record{Topic: vectorTopic, Key: bytesOf(r.Key), Value: bytesOf(r.Value), Timestamp: time.UnixMilli(int64(r.Timestamp)), Offset: int64(7 + i)}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: *h[0], Value: bytesOf(h[1])})
		}
		records = append(records, k)
	}
	return records
}

func (v *itemVector) item(h Header) flusso.LaneItem {
	if v.Item.Kind == "complete" {
		return &flusso.SnapshotComplete{Indexes: v.Item.Indexes}
	}
	b := &flusso.Batch{Position: h.Position, More: h.More, Changes: h.Changes}
	for _, e := range v.Item.Envelopes {
		op := flusso.Upsert
		if e.Op == "delete" {
			op = flusso.Delete
		}
		b.Envelopes = append(b.Envelopes, flusso.Envelope{
			Index: e.Index, ID: e.ID, Op: op, Document: bytesOf(e.Document),
			Position: flusso.Position(e.Position), BuiltAt: time.UnixMilli(int64(e.BuiltAt)),
		})
	}
	return b
}

// plainRecord is what the format says about a record.
type plainRecord struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte
	Timestamp  time.Time
	Headers    []kgo.RecordHeader
}

func plain(records []*kgo.Record) []plainRecord {
	var out []plainRecord
	for _, r := range records {
		out = append(out, plainRecord{r.Topic, r.Partition, r.Offset, r.Key, r.Value, r.Timestamp, r.Headers})
	}
	return out
}

// refused checks that err is typed, and names the version where the vector does.
func refused(t *testing.T, name string, version *num, err error) {
	t.Helper()
	f, isFormat := errors.AsType[*FormatError](err)
	v, isVersion := errors.AsType[*VersionError](err)
	switch {
	case err == nil:
		t.Errorf("%s: accepted", name)
	case isFormat == isVersion:
		t.Errorf("%s: error %v is neither a FormatError nor a VersionError", name, err)
	case version != nil && (!isVersion || v.Version != uint64(*version)):
		t.Errorf("%s: got %v, want unknown version %d", name, err, *version)
	case isFormat && f.Reason == "":
		t.Errorf("%s: no reason in %v", name, err)
	}
}

// TestF5_VectorsBothWays parses and formats what a writer writes, parses what
// only others write, and refuses the rest.
func TestF5_VectorsBothWays(t *testing.T) {
	v := readVectors(t)
	for _, x := range v.Headers {
		got, err := ParseHeader([]byte(x.Text))
		if d := cmp.Diff(x.Fields.header(), got); err != nil || d != "" {
			t.Errorf("header %s: %v (-want +got):\n%s", x.Name, err, d)
		}
		h := x.Fields.header()
		if text, _ := h.AppendText(nil); !x.ReadOnly && string(text) != x.Text {
			t.Errorf("header %s is written as\n%s, want\n%s", x.Name, text, x.Text)
		}
	}
	for _, x := range v.BadHeaders {
		_, err := ParseHeader([]byte(x.Text))
		refused(t, "header "+x.Name, x.Version, err)
	}
	for _, x := range v.Metadata {
		got, err := ParseMetadata(x.Text)
		if want := x.Fields.metadata(t); err != nil || got != want {
			t.Errorf("metadata %s: got %+v, %v, want %+v", x.Name, got, err, want)
		}
		if text := FormatMetadata(x.Fields.metadata(t)); !x.ReadOnly && text != x.Text {
			t.Errorf("metadata %s is written as\n%s, want\n%s", x.Name, text, x.Text)
		}
	}
	for _, x := range v.BadMetadata {
		_, err := ParseMetadata(x.Text)
		refused(t, "metadata "+x.Name, x.Version, err)
		if !errors.Is(err, ErrForeign) {
			t.Errorf("metadata %s: %v is not an ErrForeign", x.Name, err)
		}
	}
	for _, x := range v.RequestMetadata {
		want := x.Fields.requestMetadata(t)
		got, err := ParseRequestMetadata(x.Text)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("request metadata %s: %v (-want +got):\n%s", x.Name, err, d)
		}
		if text := FormatRequestMetadata(want); !x.ReadOnly && text != x.Text {
			t.Errorf("request metadata %s is written as\n%s, want\n%s", x.Name, text, x.Text)
		}
	}
	for _, x := range v.BadRequestMetadata {
		_, err := ParseRequestMetadata(x.Text)
		refused(t, "request metadata "+x.Name, x.Version, err)
		if !errors.Is(err, ErrForeign) {
			t.Errorf("request metadata %s: %v is not an ErrForeign", x.Name, err)
		}
	}
}

func TestF5_RequestVectorsBothWays(t *testing.T) {
	v := readVectors(t)
	sent := time.UnixMilli(1_764_452_184_123)
	for _, x := range v.Requests {
		want := &flusso.Backfill{Sink: x.Sink, Indexes: x.Indexes}
		got, err := DecodeRequest(&kgo.Record{Key: bytesOf(x.Key), Value: bytesOf(x.Value)})
		if d := cmp.Diff(flusso.Request(want), got); err != nil || d != "" {
			t.Errorf("request %s: %v (-want +got):\n%s", x.Name, err, d)
		}
		r := EncodeRequest("orders.requests", want, sent)
		if !x.ReadOnly && (string(r.Value) != *x.Value || string(r.Key) != *x.Key || !r.Timestamp.Equal(sent) || r.Topic != "orders.requests") {
			t.Errorf("request %s is written as %+v", x.Name, r)
		}
	}
	for _, x := range v.BadRequests {
		_, err := DecodeRequest(&kgo.Record{Topic: "orders.requests", Offset: 3, Key: bytesOf(x.Key), Value: bytesOf(x.Value)})
		refused(t, "request "+x.Name, x.Version, err)
		located(t, x.Name, err, "orders.requests")
	}
}

// located checks that a typed error names topic and offset.
func located(t *testing.T, name string, err error, topic string) {
	t.Helper()
	if f, ok := errors.AsType[*FormatError](err); ok && (f.Topic != topic || f.Offset < 0) {
		t.Errorf("%s: error %v does not name topic and offset", name, err)
	}
	if v, ok := errors.AsType[*VersionError](err); ok && (v.Topic != topic || v.Offset < 0) {
		t.Errorf("%s: error %v does not name topic and offset", name, err)
	}
}

func TestF5_ItemVectorsBothWays(t *testing.T) {
	v := readVectors(t)
	for _, x := range v.Items {
		records := x.records()
		got, h, err := DecodeItem(records)
		if err != nil {
			t.Errorf("item %s: %v", x.Name, err)
			continue
		}
		if d := cmp.Diff(x.item(h), got); d != "" {
			t.Errorf("item %s (-want +got):\n%s", x.Name, d)
		}
		if err := flusso.CheckItem(got); err != nil {
			t.Errorf("item %s: %v", x.Name, err)
		}
		if x.ReadOnly {
			continue
		}
		written := EncodeItem(nil, vectorTopic, got, h)
		for i, r := range written {
			r.Offset = int64(7 + i)
		}
		if d := cmp.Diff(plain(records), plain(written)); d != "" {
			t.Errorf("item %s is written otherwise (-want +got):\n%s", x.Name, d)
		}
	}
	for _, x := range v.BadItems {
		_, _, err := DecodeItem(x.records())
		var none *num
		refused(t, "item "+x.Name, none, err)
		if len(x.Records) > 0 {
			located(t, "item "+x.Name, err, vectorTopic)
		}
	}
}

func TestF5_SequenceVectors(t *testing.T) {
	v := readVectors(t)
	follow := func(s sequenceVector) error {
		var before *Header
		for _, text := range s.Headers {
			h, err := ParseHeader([]byte(text))
			if err != nil {
				t.Fatalf("sequence %s: %v", s.Name, err)
			}
			if before != nil {
				if err := h.Follows(before); err != nil {
					return err
				}
			}
			before = &h
		}
		return nil
	}
	for _, s := range v.Sequences {
		if err := follow(s); err != nil {
			t.Errorf("sequence %s: %v", s.Name, err)
		}
	}
	for _, s := range v.BadSequences {
		var none *num
		refused(t, "sequence "+s.Name, none, follow(s))
	}
}
