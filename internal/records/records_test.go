package records_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flusso/flusso-kafka/internal/records"
)

// all reads an input to its end, or to the error that ends it.
func all(format records.Format, separator, input string) ([]records.Record, error) {
	r := records.NewReader(strings.NewReader(input), format, separator)
	var out []records.Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, rec)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200_000) // more than is read at once
	for name, tt := range map[string]struct {
		separator, input string
		want             []records.Record
	}{
		"nothing":            {"", "", nil},
		"without an end":     {"", "a\nb", []records.Record{{Payload: []byte("a")}, {Payload: []byte("b")}}},
		"empty ones":         {"", "\n\r\n", []records.Record{{Payload: []byte{}}, {Payload: []byte{}}}},
		"an = is a value":    {"", "a=b\n", []records.Record{{Payload: []byte("a=b")}}},
		"keys":               {"=", "a=b=c\n=d\ne\n", []records.Record{{Key: []byte("a"), Payload: []byte("b=c")}, {Key: []byte{}, Payload: []byte("d")}, {Payload: []byte("e")}}},
		"a long separator":   {"::", "a:b::c\n", []records.Record{{Key: []byte("a:b"), Payload: []byte("c")}}},
		"bytes as they are":  {"", "\xff\x00\n", []records.Record{{Payload: []byte("\xff\x00")}}},
		"longer than a page": {"", long + "\nb\n", []records.Record{{Payload: []byte(long)}, {Payload: []byte("b")}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := all(records.Lines, tt.separator, tt.input)
			if err != nil || !cmp.Equal(got, tt.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestJSONLines(t *testing.T) {
	fingerprint := bytes.Repeat([]byte{0xab}, 32)
	got, err := all(records.JSONL, "", `{"key":"k","value":"hé","version":18446744073709551615}

{"keyBase64":"/w==","valueBase64":"","version":"7","tombstone":true}
{"value":"\ufffd","fingerprint":"`+strings.Repeat("ab", 32)+`","key":null}
{"key":"","tombstone":true,"stream":3,"sequence":9,"commit":null,"appendedAt":"2026-01-31T12:00:00Z"}`)
	want := []records.Record{
		{Key: []byte("k"), Payload: []byte("hé"), Version: new(uint64(1<<64 - 1))},
		{Key: []byte{0xff}, Payload: []byte{}, Version: new(uint64(7)), Tombstone: true},
		{Payload: []byte("\ufffd"), Fingerprint: fingerprint},
		{Key: []byte{}, Payload: []byte{}, Tombstone: true},
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
}

func TestBadInputNamesItsPlace(t *testing.T) {
	good := "\x00\x00\x00\x02\x00v"
	for name, tt := range map[string]struct {
		format records.Format
		input  string
		before int // records before the bad one
		want   string
	}{
		"no JSON":              {records.JSONL, "{\"value\":\"a\"}\nhello\n", 1, "line 2: it is no JSON object: invalid character 'h'"},
		"an array":             {records.JSONL, "[]\n", 0, "line 1: it is no JSON object, or is cut off"},
		"cut off":              {records.JSONL, "\n{\"value\":\"a", 0, "line 2: it is no JSON object, or is cut off"},
		"two on a line":        {records.JSONL, `{"value":"a"}{"value":"b"}`, 0, "line 1: something follows the object"},
		"no UTF-8":             {records.JSONL, "{\"value\":\"\xff\"}", 0, "line 1: it is not UTF-8: give bytes that are no text as keyBase64"},
		"half a surrogate":     {records.JSONL, `{"value":"\ud800"}`, 0, "line 1: value: half a surrogate pair"},
		"a typing error":       {records.JSONL, `{"vlaue":"a"}`, 0, "line 1: vlaue: unknown: known are key, value"},
		"wrong case":           {records.JSONL, `{"Value":"a"}`, 0, "line 1: Value: unknown"},
		"twice":                {records.JSONL, `{"value":"a","value":"b"}`, 0, `line 1: member "value" is there twice`},
		"two values":           {records.JSONL, `{"value":"a","valueBase64":""}`, 0, "line 1: both value and valueBase64"},
		"no value":             {records.JSONL, `{"key":"a"}`, 0, "line 1: no value"},
		"a number for a value": {records.JSONL, `{"value":1}`, 0, "line 1: value: a string"},
		"base64":               {records.JSONL, `{"valueBase64":"a"}`, 0, "line 1: valueBase64: base64"},
		"a version below 0":    {records.JSONL, `{"value":"","version":-1}`, 0, "line 1: version: a whole number"},
		"a fraction":           {records.JSONL, `{"value":"","version":1.5}`, 0, "line 1: version: a whole number"},
		"a fingerprint":        {records.JSONL, `{"value":"","fingerprint":"abcd"}`, 0, "line 1: fingerprint: 64 hex digits"},
		"a tombstone":          {records.JSONL, `{"value":"","tombstone":"yes"}`, 0, "line 1: tombstone: true or false"},
		"a discarded stream":   {records.JSONL, `{"stream":3,"discarded":true}`, 0, "line 1: discarded: that a stream was discarded is no record"},
		"half a length":        {records.Binary, good + "\x00\x00", 1, "record 2 at byte 6: the input ends 2 bytes into its length"},
		"half a frame":         {records.Binary, good + good[:5], 1, "record 2 at byte 6: the input ends after 1 of its 2 bytes"},
		"no length":            {records.Binary, "\x00\x00\x00\x00", 0, "record 1 at byte 0: its length is 0 bytes"},
		"text":                 {records.Binary, "hello world", 0, "record 1 at byte 0: its length is 1751477356 bytes, 1 to 134217728 may be"},
		"an unknown mark":      {records.Binary, "\x00\x00\x00\x01\x10", 0, "record 1 at byte 0: marks 0x10 are not known"},
		"a key that is cut":    {records.Binary, "\x00\x00\x00\x06\x01\x00\x00\x00\x02k", 0, "record 1 at byte 0: its length is too small"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := all(tt.format, "", tt.input)
			var bad *records.Error
			if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), tt.want) || len(got) != tt.before {
				t.Errorf("%d records, then %v, want %d, then %s", len(got), err, tt.before, tt.want)
			}
		})
	}
}

// Whatever a record holds, it comes back from frames and from JSON lines.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("k"), true, []byte("v"), uint64(7), true, false, []byte{})
	f.Add([]byte{0xff}, true, []byte{0}, uint64(1<<63), true, true, bytes.Repeat([]byte{1}, 32))
	f.Add([]byte{}, true, []byte("\ufffd"), uint64(0), false, true, []byte{})
	f.Add([]byte{}, false, []byte("\n"), uint64(0), false, false, []byte{})
	f.Fuzz(func(t *testing.T, key []byte, keyed bool, payload []byte, version uint64, versioned, tombstone bool, fingerprint []byte) {
		want := records.Record{Payload: append([]byte{}, payload...), Tombstone: tombstone}
		if keyed {
			want.Key = append([]byte{}, key...)
		}
		if versioned {
			want.Version = &version
		}
		if len(fingerprint) == 32 {
			want.Fingerprint = fingerprint
		}
		line, err := json.Marshal(records.TextOf(&want))
		if err != nil {
			t.Fatal(err)
		}
		for format, input := range map[records.Format][]byte{records.Binary: records.AppendFrame(nil, &want), records.JSONL: line} {
			got, err := all(format, "", string(input)+string(input)) // frames have no end of their own
			if format == records.JSONL {
				got, err = all(format, "", string(input)+"\n"+string(input)+"\n")
			}
			if format == records.Binary {
				if whole, again := records.Frames([]byte(string(input) + string(input))); again != nil || !cmp.Equal(whole, got) {
					t.Fatalf("frames in memory are %+v, %v; one by one %+v", whole, again, got)
				}
			}
			if err != nil || len(got) != 2 || !cmp.Equal(got[0], want) || !cmp.Equal(got[1], want) {
				t.Fatalf("%s: %+v came back as %+v, %v", format, want, got, err)
			}
		}
	})
}

// No input makes a reader panic, or read for ever.
func FuzzReader(f *testing.F) {
	f.Add("\x00\x00\x00\x02\x00v")
	f.Add(`{"value":"a"}`)
	f.Fuzz(func(t *testing.T, input string) {
		for _, format := range []records.Format{records.Lines, records.JSONL, records.Binary} {
			got, err := all(format, "=", input)
			var bad *records.Error
			if err != nil && !errors.As(err, &bad) {
				t.Fatal(err)
			}
			if format == records.Binary {
				whole, again := records.Frames([]byte(input))
				if !cmp.Equal(whole, got) || fmt.Sprint(again) != fmt.Sprint(err) {
					t.Fatalf("frames in memory are %+v, %v; one by one %+v, %v", whole, again, got, err)
				}
			}
			if len(got) > len(input) {
				t.Fatalf("%d records from %d bytes", len(got), len(input))
			}
		}
	})
}
