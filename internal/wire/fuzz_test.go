package wire

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// typed fails unless err is one of the package's errors.
func typed(t *testing.T, err error) {
	t.Helper()
	_, isFormat := errors.AsType[*FormatError](err)
	_, isVersion := errors.AsType[*VersionError](err)
	if !isFormat && !isVersion {
		t.Errorf("untyped error %v", err)
	}
}

func FuzzParseHeader(f *testing.F) {
	v := readVectors(f)
	for _, x := range append(v.Headers, v.BadHeaders...) {
		if len(x.Text) < 1000 {
			f.Add([]byte(x.Text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := ParseHeader(text)
		if err != nil {
			typed(t, err)
			return
		}
		if err := h.Check(); err != nil {
			t.Errorf("what was parsed is not valid: %v", err)
		}
		again, _ := h.AppendText(nil)
		got, err := ParseHeader(again)
		if d := cmp.Diff(h, got); err != nil || d != "" {
			t.Errorf("%q is written as %q: %v\n%s", text, again, err, d)
		}
		if len(again) > len(text) || len(again) > maxHeaderText {
			t.Errorf("%q is written longer, as %q", text, again)
		}
		if len(again) == len(text) && string(again) != string(text) {
			t.Errorf("two forms of one header: %q and %q", text, again)
		}
	})
}

func FuzzParseMetadata(f *testing.F) {
	v := readVectors(f)
	for _, x := range append(v.Metadata, v.BadMetadata...) {
		f.Add(x.Text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMetadata(text)
		if err != nil {
			typed(t, err)
			if !errors.Is(err, ErrForeign) {
				t.Errorf("%v is not an ErrForeign", err)
			}
			return
		}
		again := FormatMetadata(m)
		got, err := ParseMetadata(again)
		if err != nil || got != m {
			t.Errorf("%q is written as %q: %v", text, again, err)
		}
		most := MaxMetadata
		if !m.Retired.IsZero() {
			most = MaxRetiredMetadata
		}
		if len(again) > len(text) || len(again) > most || len(again) == len(text) && again != text {
			t.Errorf("%q is written as %q", text, again)
		}
	})
}

func FuzzParseRequestMetadata(f *testing.F) {
	v := readVectors(f)
	for _, x := range append(v.RequestMetadata, v.BadRequestMetadata...) {
		f.Add(x.Text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseRequestMetadata(text)
		if err != nil {
			typed(t, err)
			if !errors.Is(err, ErrForeign) {
				t.Errorf("%v is not an ErrForeign", err)
			}
			return
		}
		if len(m.Acked) > maxAckedAbove || !slices.IsSorted(m.Acked) {
			t.Errorf("%q names %d offsets, or not in order", text, len(m.Acked))
		}
		again := FormatRequestMetadata(m)
		got, err := ParseRequestMetadata(again)
		if err != nil || got.Offset != m.Offset || got.TopicID != m.TopicID {
			t.Fatalf("%q is written as %q: %v", text, again, err)
		}
		// What does not fit is left out from the end.
		if !slices.Equal(got.Acked, m.Acked[:len(got.Acked)]) || len(got.Acked) < len(m.Acked) && len(text) <= MaxMetadata {
			t.Errorf("%q lost offsets, as %q", text, again)
		}
		if len(again) > MaxMetadata || len(again) == len(text) && again != text {
			t.Errorf("%q is written as %q", text, again)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	v := readVectors(f)
	for _, x := range append(v.Requests, v.BadRequests...) {
		f.Add(bytesOf(x.Key), bytesOf(x.Value))
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := DecodeRequest(&kgo.Record{Topic: "p.requests", Key: key, Value: value})
		if err != nil {
			typed(t, err)
			return
		}
		b := r.(*flusso.Backfill)
		if err := flusso.CheckRequest(r, []string{b.Sink}); err != nil {
			t.Errorf("what was decoded is not valid: %v", err)
		}
		again := EncodeRequest("p.requests", r, time.Now())
		got, err := DecodeRequest(again)
		if d := cmp.Diff(r, got); err != nil || d != "" {
			t.Errorf("%q is written as %q: %v\n%s", value, again.Value, err, d)
		}
	})
}

// FuzzDecodeItem decodes one record or two. flags say which of the parts are
// null or there at all.
func FuzzDecodeItem(f *testing.F) {
	v := readVectors(f)
	for _, x := range append(v.Items, v.BadItems...) {
		if len(x.Records) == 0 || len(x.Records) > 2 {
			continue
		}
		records := x.records()
		var flags uint8
		first, last := &kgo.Record{}, records[len(records)-1]
		if len(records) == 2 {
			first = records[0]
			flags |= 1
		}
		var position, batch, indexes []byte
		for _, h := range append(slices.Clone(first.Headers), last.Headers...) {
			switch h.Key {
			case HeaderPosition:
				position = h.Value
				flags |= 2
			case HeaderBatch:
				batch = h.Value
			case HeaderIndexes:
				indexes = h.Value
				flags |= 4
			}
		}
		for i, b := range [][]byte{first.Key, first.Value, last.Key, last.Value} {
			if b == nil {
				flags |= 8 << i
			}
		}
		f.Add(flags, first.Key, first.Value, last.Key, last.Value, position, batch, indexes, last.Timestamp.UnixMilli())
	}
	f.Fuzz(func(t *testing.T, flags uint8, key1, value1, key2, value2, position, batch, indexes []byte, ms int64) {
		null := func(bit uint8, b []byte) []byte {
			if flags&bit != 0 {
				return nil
			}
			return append([]byte{}, b...)
		}
		first := &kgo.Record{Topic: "p.lane.s", Offset: 4, Key: null(8, key1), Value: null(16, value1), Timestamp: time.UnixMilli(ms)}
		last := &kgo.Record{Topic: "p.lane.s", Offset: 5, Key: null(32, key2), Value: null(64, value2), Timestamp: time.UnixMilli(ms)}
		records := []*kgo.Record{last}
		if flags&1 != 0 {
			records = []*kgo.Record{first, last}
		}
		if flags&2 != 0 {
			records[0].Headers = append(records[0].Headers, kgo.RecordHeader{Key: HeaderPosition, Value: position})
		}
		last.Headers = append(last.Headers, kgo.RecordHeader{Key: HeaderBatch, Value: batch})
		if flags&4 != 0 {
			last.Headers = append(last.Headers, kgo.RecordHeader{Key: HeaderIndexes, Value: indexes})
		}
		item, h, err := DecodeItem(records)
		if err != nil {
			typed(t, err)
			return
		}
		if err := flusso.CheckItem(item); err != nil {
			t.Errorf("what was decoded is not valid: %v", err)
		}
		if d := cmp.Diff(h, Fill(h, item)); d != "" {
			t.Errorf("item and header differ (-header +item):\n%s", d)
		}
		again := EncodeItem(nil, "p.lane.s", item, h)
		got, gotHeader, err := DecodeItem(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(item, got) + cmp.Diff(h, gotHeader); d != "" {
			t.Errorf("round trip (-want +got):\n%s", d)
		}
	})
}
