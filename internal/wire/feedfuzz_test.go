package wire

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func FuzzParseAppend(f *testing.F) {
	v := readFeedVectors(f)
	for _, x := range append(v.Appends, v.BadAppends...) {
		if len(x.Text) < 1000 {
			f.Add([]byte(x.Text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := ParseAppend(text)
		if err != nil {
			typed(t, err)
			return
		}
		if a.Records() == 0 || a.Records() > MaxSequence {
			t.Errorf("%q has %d records", text, a.Records())
		}
		again, _ := a.AppendText(nil)
		got, err := ParseAppend(again)
		if d := cmp.Diff(a, got); err != nil || d != "" {
			t.Errorf("%q is written as %q: %v\n%s", text, again, err, d)
		}
		if len(again) > len(text) || len(again) == len(text) && string(again) != string(text) {
			t.Errorf("two forms of one header: %q and %q", text, again)
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	v := readFeedVectors(f)
	for _, x := range append(v.Events, v.BadEvents...) {
		f.Add([]byte(x.Key), []byte(x.Value))
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		e, err := DecodeEvent(&kgo.Record{Topic: logTopic, Key: key, Value: value})
		if err != nil {
			typed(t, err)
			return
		}
		again, err := EncodeEvent(logTopic, e)
		if err != nil {
			t.Fatalf("what was decoded cannot be written: %v", err)
		}
		got, err := DecodeEvent(again)
		if d := cmp.Diff(e, got); err != nil || d != "" {
			t.Errorf("%q is written as %q: %v\n%s", value, again.Value, err, d)
		}
	})
}

// FuzzDecodeBatch decodes one record or two. flags say which parts are null,
// or there at all.
func FuzzDecodeBatch(f *testing.F) {
	v := readFeedVectors(f)
	for _, x := range append(v.Batches, v.BadBatches...) {
		if len(x.Records) == 0 || len(x.Records) > 2 {
			continue
		}
		records := x.records(f)
		first, last := records[0], records[len(records)-1]
		var flags uint8
		if len(records) == 2 {
			flags |= 1
		}
		var parts [4][]byte
		for i, name := range []string{HeaderAppend, HeaderVersion, HeaderTombstone, HeaderFingerprint} {
			for _, h := range append(slices.Clone(first.Headers), last.Headers...) {
				if h.Key == name {
					parts[i] = h.Value
					flags |= 1 << i
				}
			}
		}
		for i, b := range [][]byte{first.Key, first.Value} {
			if b == nil {
				flags |= 16 << i
			}
		}
		f.Add(flags, first.Key, first.Value, parts[0], parts[1], parts[2], parts[3])
	}
	f.Fuzz(func(t *testing.T, flags uint8, key, value, end, version, tombstone, fingerprint []byte) {
		null := func(bit uint8, b []byte) []byte {
			if flags&bit != 0 {
				return nil
			}
			return append([]byte{}, b...)
		}
		records := []*kgo.Record{{Topic: walTopic, Offset: 4, Key: null(16, key), Value: null(32, value)}}
		for i, part := range [][]byte{nil, version, tombstone, fingerprint} {
			if i > 0 && flags&(1<<i) != 0 {
				records[0].Headers = append(records[0].Headers, kgo.RecordHeader{
					Key: []string{"", HeaderVersion, HeaderTombstone, HeaderFingerprint}[i], Value: part,
				})
			}
		}
		if flags&1 != 0 {
			records = append(records, &kgo.Record{Topic: walTopic, Offset: 5, Value: []byte("last")})
		}
		last := records[len(records)-1]
		last.Headers = append(last.Headers, kgo.RecordHeader{Key: HeaderAppend, Value: end})
		batch, a, err := DecodeBatch(records)
		if err != nil {
			typed(t, err)
			return
		}
		got, gotAppend, err := DecodeBatch(EncodeBatch(nil, walTopic, batch, a))
		if d := cmp.Diff(batch, got) + cmp.Diff(a, gotAppend); err != nil || d != "" {
			t.Errorf("round trip: %v (-want +got):\n%s", err, d)
		}
	})
}

// TestEveryMemberOfAnEventIsRead: the types say what is written, and another
// list what is read.
func TestEveryMemberOfAnEventIsRead(t *testing.T) {
	e := Event{
		Kind: StreamCommitted, At: time.UnixMilli(7), Stream: 1, Message: "m",
		Commit:   &FeedCommit{1, 2, 1, 2, 5, "manifest", fmt.Sprintf("%064d", 6), 7},
		Settings: FeedSettings{"id", true, LatestVersion, "file:///b", 8},
		State: FeedState{
			Epoch: 9, Holder: &FeedHolder{"n", "a"}, Newest: 4, Commits: 1, Deleted: true,
			Streams: []StreamState{{2, StreamMarked, 3, 4, 5, 6, "m", 7}},
		},
	}
	e.State.Commits, e.Commit.Number = 1, 1
	discarded := e
	discarded.Kind, discarded.Commit, discarded.WAL = StreamDiscarded, nil, 12
	seen := map[string]bool{}
	for _, want := range []Event{e, discarded} {
		note(seen, "event", reflect.ValueOf(want))
		r, err := EncodeEvent(logTopic, want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeEvent(r)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
	}
	for field, set := range seen {
		if !set {
			t.Errorf("this test leaves %s empty, so that nothing tells whether it is read", field)
		}
	}
}

// note notes of every field below v whether it was set once.
func note(seen map[string]bool, path string, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			note(seen, path, v.Elem())
		}
	case v.Kind() == reflect.Slice && v.Len() > 0:
		note(seen, path, v.Index(0))
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			note(seen, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	default:
		seen[path] = seen[path] || !v.IsZero()
	}
}
