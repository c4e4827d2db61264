package wire

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// blob is a key, a value or a record header as vectors hold it: null, text, or
// bytes in hex.
type blob []byte

func (b *blob) UnmarshalJSON(text []byte) error {
	var s *string
	if err := json.Unmarshal(text, &s); err == nil {
		*b = bytesOf(s)
		return nil
	}
	var raw struct {
		Hex string `json:"hex"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	decoded, err := hex.DecodeString(raw.Hex)
	*b = append([]byte{}, decoded...)
	return err
}

type appendFields struct {
	Stream num    `json:"stream"`
	Epoch  num    `json:"epoch"`
	First  num    `json:"first"`
	Last   num    `json:"last"`
	Bytes  num    `json:"bytes"`
	At     num    `json:"at"`
	ID     string `json:"id"`
}

func (f *appendFields) append() Append {
	return Append{
		Stream: uint64(f.Stream), Epoch: uint64(f.Epoch), First: uint64(f.First), Last: uint64(f.Last),
		Bytes: uint64(f.Bytes), At: time.UnixMilli(int64(f.At)), BatchID: f.ID,
	}
}

type appendVector struct {
	Name     string       `json:"name"`
	Text     string       `json:"text"`
	Fields   appendFields `json:"fields"`
	ReadOnly bool         `json:"read_only"`
	Version  *num         `json:"version"`
}

type batchVector struct {
	Name    string `json:"name"`
	Records []struct {
		Key       blob              `json:"key"`
		Value     blob              `json:"value"`
		Timestamp num               `json:"timestamp"`
		Headers   []json.RawMessage `json:"headers"` // pairs of name and value
	} `json:"records"`
	Fields appendFields `json:"fields"`
	Batch  []struct {
		Key         blob   `json:"key"`
		Payload     blob   `json:"payload"`
		Version     string `json:"version"`
		Tombstone   bool   `json:"tombstone"`
		Fingerprint string `json:"fingerprint"`
	} `json:"batch"`
	ReadOnly bool `json:"read_only"`
}

type eventVector struct {
	Name     string `json:"name"`
	Key      blob   `json:"key"`
	Value    blob   `json:"value"`
	Written  string `json:"written"`
	ReadOnly bool   `json:"read_only"`
	Version  *num   `json:"version"`
}

type feedVectorFile struct {
	Appends    []appendVector `json:"appends"`
	BadAppends []appendVector `json:"bad_appends"`
	Batches    []batchVector  `json:"batches"`
	BadBatches []batchVector  `json:"bad_batches"`
	Events     []eventVector  `json:"events"`
	BadEvents  []eventVector  `json:"bad_events"`
}

func readFeedVectors(t testing.TB) *feedVectorFile {
	t.Helper()
	b, err := os.ReadFile("testdata/feed-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v feedVectorFile
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

const (
	walTopic = "orders.feed.wal"
	logTopic = "orders.feed.log"
)

func (v *batchVector) records(t testing.TB) []*kgo.Record {
	t.Helper()
	var records []*kgo.Record
	for i, r := range v.Records {
		k := &kgo.Record{Topic: walTopic, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(int64(r.Timestamp)), Offset: int64(7 + i)}
		for _, raw := range r.Headers {
			var name string
			var value blob
			if err := json.Unmarshal(raw, &[2]any{&name, &value}); err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: name, Value: value})
		}
		records = append(records, k)
	}
	return records
}

func (v *batchVector) batch(t *testing.T) []Record {
	t.Helper()
	var batch []Record
	for _, b := range v.Batch {
		r := Record{Key: b.Key, Payload: b.Payload, Tombstone: b.Tombstone}
		if b.Version != "" {
			n, err := strconv.ParseUint(b.Version, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			r.Version = &n
		}
		if b.Fingerprint != "" {
			var err error
			if r.Fingerprint, err = hex.DecodeString(b.Fingerprint); err != nil {
				t.Fatal(err)
			}
		}
		batch = append(batch, r)
	}
	return batch
}

func TestF5_AppendVectorsBothWays(t *testing.T) {
	v := readFeedVectors(t)
	for _, x := range v.Appends {
		want := x.Fields.append()
		got, err := ParseAppend([]byte(x.Text))
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("append %s: %v (-want +got):\n%s", x.Name, err, d)
		}
		if text, _ := want.AppendText(nil); !x.ReadOnly && string(text) != x.Text {
			t.Errorf("append %s is written as\n%s, want\n%s", x.Name, text, x.Text)
		}
	}
	for _, x := range v.BadAppends {
		_, err := ParseAppend([]byte(x.Text))
		refused(t, "append "+x.Name, x.Version, err)
	}
}

func TestF5_BatchVectorsBothWays(t *testing.T) {
	v := readFeedVectors(t)
	for _, x := range v.Batches {
		records, want := x.records(t), x.batch(t)
		got, a, err := DecodeBatch(records)
		if err != nil {
			t.Errorf("batch %s: %v", x.Name, err)
			continue
		}
		if d := cmp.Diff(want, got) + cmp.Diff(x.Fields.append(), a); d != "" {
			t.Errorf("batch %s (-want +got):\n%s", x.Name, d)
		}
		if x.ReadOnly {
			continue
		}
		written := EncodeBatch(nil, walTopic, want, a)
		for i, r := range written {
			r.Offset = int64(7 + i)
		}
		if d := cmp.Diff(plain(records), plain(written)); d != "" {
			t.Errorf("batch %s is written otherwise (-want +got):\n%s", x.Name, d)
		}
	}
	for _, x := range v.BadBatches {
		_, _, err := DecodeBatch(x.records(t))
		var none *num
		refused(t, "batch "+x.Name, none, err)
		if len(x.Records) > 0 {
			located(t, "batch "+x.Name, err, walTopic)
		}
	}
}

func TestF5_EventVectorsBothWays(t *testing.T) {
	v := readFeedVectors(t)
	kinds := map[EventKind]bool{}
	for _, x := range v.Events {
		r := &kgo.Record{Topic: logTopic, Offset: 3, Key: x.Key, Value: x.Value}
		e, err := DecodeEvent(r)
		if err != nil {
			t.Errorf("event %s: %v", x.Name, err)
			continue
		}
		kinds[e.Kind] = true
		want := string(x.Value)
		if x.ReadOnly {
			want = x.Written
		}
		w, err := EncodeEvent(logTopic, e)
		if err != nil {
			t.Errorf("event %s: %v", x.Name, err)
			continue
		}
		if string(w.Value) != want || string(w.Key) != string(x.Key) || !w.Timestamp.Equal(e.At) || w.Topic != logTopic {
			t.Errorf("event %s is written as\n%s, want\n%s", x.Name, w.Value, want)
		}
		again, err := DecodeEvent(w)
		if d := cmp.Diff(e, again); err != nil || d != "" {
			t.Errorf("event %s, written: %v (-want +got):\n%s", x.Name, err, d)
		}
	}
	for _, kind := range eventKinds {
		if !kinds[kind] {
			t.Errorf("no vector of kind %s", kind)
		}
	}
	for _, x := range v.BadEvents {
		_, err := DecodeEvent(&kgo.Record{Topic: logTopic, Offset: 3, Key: x.Key, Value: x.Value})
		refused(t, "event "+x.Name, x.Version, err)
		located(t, "event "+x.Name, err, logTopic)
	}
}

var eventKinds = []EventKind{
	FeedCreated, StreamOpened, StreamResumed, LeaseTaken, LeaseKept, StreamReleased,
	StreamSealed, StreamCommitted, StreamDiscarded, FeedDeleting,
}
