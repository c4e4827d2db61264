package ingest

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	flusso "github.com/flusso/flusso-kafka"
)

func TestDocumentID(t *testing.T) {
	for _, c := range []struct {
		want string
		key  []string
	}{
		{"7", []string{"7"}},
		{"a%2Fb,ü", []string{"a/b", "ü"}},
		{"%00", []string{""}},
		{"a%2Cb", []string{"a,b"}},
		{"a,b", []string{"a", "b"}},
		{"%2500", []string{"%00"}},
		{"%2A", []string{"*"}},
		{"%C2%85", []string{"\u0085"}},
	} {
		key := make([][]byte, len(c.key))
		for i, k := range c.key {
			key[i] = []byte(k)
		}
		if got := documentID(key); got != c.want {
			t.Errorf("documentID(%q) = %q, want %q", c.key, got, c.want)
		}
	}
}

func FuzzDocumentID(f *testing.F) {
	f.Add("a", "b", "a,b", "")
	f.Add("", "", "%00", "\x00")
	f.Add(strings.Repeat("é/", 200), "x", strings.Repeat("é/", 200), "y")
	f.Add("\xff", "~", "*", "\u0085")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		first, second := documentID([][]byte{[]byte(a), []byte(b)}), documentID([][]byte{[]byte(c), []byte(d)})
		for _, id := range []string{first, second} {
			if err := flusso.CheckID(id); err != nil {
				t.Fatalf("%q: %v", id, err)
			}
			if id == EveryID {
				t.Fatal("a row has the id of the mark")
			}
		}
		// Text in Postgres has no zero byte, which is how an empty value is told.
		if strings.ContainsRune(a+b+c+d, 0) {
			return
		}
		if same := a == c && b == d; same != (first == second) {
			t.Fatalf("(%q, %q) and (%q, %q) have ids %q and %q", a, b, c, d, first, second)
		}
	})
}

func FuzzValues(f *testing.F) {
	for _, s := range []string{"{1,2}", "{{a,\"b\"},{NULL,\"\\\"\"}}", "[0:1]={5,6}", "{", "{}", "NaN", "t", `{"a": 1}`, "\xff\x00\u2028", `{a,}`, `{"a"b}`} {
		f.Add(s)
	}
	ts := types{1: {}, 2: {kind: kindNumber}, 3: {kind: kindJSON}, 4: {kind: kindBool}, 5: {kind: kindArray, elem: 1, delim: ','}, 6: {kind: kindArray, elem: 2, delim: ';'}}
	f.Fuzz(func(t *testing.T, text string) {
		for oid := range ts {
			if doc := ts.document([]field{{text, oid, []byte(text)}, {"n", 1, nil}}); !json.Valid(doc) {
				t.Fatalf("type %d: %q gives %s", oid, text, doc)
			}
		}
		var back string
		if err := json.Unmarshal(appendString(nil, []byte(text)), &back); err != nil {
			t.Fatal(err)
		}
		if utf8.ValidString(text) && back != text {
			t.Fatalf("%q came back as %q", text, back)
		}
	})
}

func TestSnapshotSees(t *testing.T) {
	s, err := parseXids("10:20:10,14")
	if err != nil {
		t.Fatal(err)
	}
	for xid, want := range map[uint32]bool{3: true, 9: true, 10: false, 11: true, 14: false, 19: true, 20: false, 21: false} {
		if got := s.sees(xid); got != want {
			t.Errorf("xid %d: %t, want %t", xid, got, want)
		}
	}
	// Over the end of the 32 bits that the feed carries.
	if s, err = parseXids("8589934590:8589934600:8589934595"); err != nil {
		t.Fatal(err)
	}
	for xid, want := range map[uint32]bool{4294967295: true, 4294967293: true, 0: true, 3: false, 4: true, 8: false, 100: false} {
		if got := s.sees(xid); got != want {
			t.Errorf("xid %d around the wrap: %t, want %t", xid, got, want)
		}
	}
	for _, bad := range []string{"", "1:2", "a:2:", "1:b:", "1:2:x"} {
		if _, err := parseXids(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
