package flusso_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	flusso "github.com/flusso/flusso-kafka"
)

func TestCheckNames(t *testing.T) {
	name := func(s string) error { return flusso.CheckName("sink", s) }
	for _, tt := range []struct {
		what  string
		check func(string) error
		good  []string
		bad   map[string]string // name: what the reason says
	}{
		{
			"name", name,
			[]string{"a", "orders-2", "_x_", "0", strings.Repeat("a", flusso.MaxName)},
			map[string]string{
				"": "empty", "A": `'A'`, "a.b": `'.'`, "a b": `' '`, "ä": `'ä'`, "a/b": `'/'`, "\xff": "character",
				strings.Repeat("a", flusso.MaxName+1): "101 bytes long, at most 100",
			},
		},
		{
			"incarnation", flusso.CheckIncarnation,
			[]string{"a", "PG-7001.slot_a:3", strings.Repeat("x", flusso.MaxIncarnation)},
			map[string]string{
				"": "empty", "a b": `' '`, "ä": `'ä'`, "a/b": `'/'`, "a,b": `','`, "a\n": "character",
				strings.Repeat("x", flusso.MaxIncarnation+1): "65 bytes long, at most 64",
			},
		},
		{
			"index", flusso.CheckIndex,
			[]string{"a", "Ünïcödé and spaces", "a.b", "�", strings.Repeat("x", flusso.MaxIndex)},
			map[string]string{
				"": "empty", "a/b": "slash", "a\x00": "control", "a\u0085": "control", "a\xffb": "byte 1 is not UTF-8",
				strings.Repeat("x", flusso.MaxIndex+1): "256 bytes long, at most 255",
			},
		},
		{
			"document id", flusso.CheckID,
			[]string{"1", "a=b&c", "☃", strings.Repeat("x", flusso.MaxID)},
			map[string]string{
				"": "empty", "/": "slash", "a\tb": "control", "\x7f": "control", "\xc3": "byte 0 is not UTF-8",
				strings.Repeat("x", flusso.MaxID+1): "513 bytes long, at most 512",
			},
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			for _, s := range tt.good {
				if err := tt.check(s); err != nil {
					t.Errorf("%q: got %v, want it accepted", s, err)
				}
			}
			for s, reason := range tt.bad {
				var e *flusso.NameError
				if err := tt.check(s); !errors.As(err, &e) || e.Name != s || !strings.Contains(e.Reason, reason) {
					t.Errorf("%q: got %v, want a name error that says %q", s, err, reason)
				}
			}
		})
	}
}

func upsert(id string, at flusso.Position) flusso.Envelope {
	return flusso.Envelope{Index: "orders", ID: id, Op: flusso.Upsert, Document: []byte("{}"), Position: at}
}

func TestCheckItem(t *testing.T) {
	deleted := flusso.Envelope{Index: "orders", ID: "1", Op: flusso.Delete, Position: 9}
	with := func(at flusso.Position, change func(*flusso.Envelope)) *flusso.Batch {
		e := upsert("1", at)
		change(&e)
		return &flusso.Batch{Position: at, Envelopes: []flusso.Envelope{e}}
	}
	for what, item := range map[string]flusso.LaneItem{
		"an empty live batch":       &flusso.Batch{Position: 1},
		"an empty part of one":      &flusso.Batch{Position: 1, More: true},
		"the largest position":      &flusso.Batch{Position: 1<<64 - 1},
		"an upsert and a delete":    &flusso.Batch{Position: 9, Envelopes: []flusso.Envelope{upsert("1", 8), deleted}},
		"the same document twice":   &flusso.Batch{Position: 9, Envelopes: []flusso.Envelope{upsert("1", 8), upsert("1", 9)}},
		"rows":                      &flusso.Batch{Envelopes: []flusso.Envelope{upsert("1", 0)}},
		"rows of some changes":      &flusso.Batch{Envelopes: []flusso.Envelope{upsert("1", 0)}, Changes: 3},
		"a marker":                  &flusso.SnapshotComplete{Indexes: []string{"orders"}},
		"a marker of several":       &flusso.SnapshotComplete{Indexes: []string{"orders", "items"}},
		"a delete in a snapshot":    &flusso.Batch{Envelopes: []flusso.Envelope{{Index: "orders", ID: "1", Op: flusso.Delete}}},
		"envelopes out of position": &flusso.Batch{Position: 9, Envelopes: []flusso.Envelope{upsert("1", 9), upsert("2", 3)}},
	} {
		if err := flusso.CheckItem(item); err != nil {
			t.Errorf("%s: got %v, want it accepted", what, err)
		}
	}
	for what, tt := range map[string]struct {
		item flusso.LaneItem
		want string
	}{
		"nothing":                {nil, "neither a batch nor a snapshot marker"},
		"a nil batch":            {(*flusso.Batch)(nil), "nil batch"},
		"a nil marker":           {(*flusso.SnapshotComplete)(nil), "nil snapshot marker"},
		"a marker of nothing":    {&flusso.SnapshotComplete{}, "no index named"},
		"neither rows nor place": {&flusso.Batch{}, "no position and no envelopes"},
		"rows with more":         {&flusso.Batch{More: true, Envelopes: []flusso.Envelope{upsert("1", 0)}}, "more is for live batches"},
		"no document":            {with(9, func(e *flusso.Envelope) { e.Document = nil }), "an upsert without a document"},
		"an empty document":      {with(9, func(e *flusso.Envelope) { e.Document = []byte{} }), "an upsert without a document"},
		"a delete with document": {with(9, func(e *flusso.Envelope) { e.Op = flusso.Delete }), "a delete with a document"},
		"a delete with empty":    {with(9, func(e *flusso.Envelope) { e.Op, e.Document = flusso.Delete, []byte{} }), "a delete with a document"},
		"no operation":           {with(9, func(e *flusso.Envelope) { e.Op = 0 }), "unknown operation Op(0)"},
		"another operation":      {with(9, func(e *flusso.Envelope) { e.Op = 3 }), "unknown operation Op(3)"},
		"a later envelope":       {with(9, func(e *flusso.Envelope) { e.Position = 10 }), "its position 10 is above the batch's"},
		"a placeless envelope":   {with(9, func(e *flusso.Envelope) { e.Position = 0 }), "no position in a live batch"},
		"a row with a position":  {with(0, func(e *flusso.Envelope) { e.Position = 3 }), "its position 3 is above the batch's"},
	} {
		var e *flusso.InvalidError
		if err := flusso.CheckItem(tt.item); !errors.As(err, &e) || e.Reason != tt.want && !strings.Contains(e.Reason, tt.want) {
			t.Errorf("%s: got %v, want an invalid item: %s", what, err, tt.want)
		}
	}
	for what, item := range map[string]flusso.LaneItem{
		"index of an envelope": with(9, func(e *flusso.Envelope) { e.Index = "a/b" }),
		"id of an envelope":    with(9, func(e *flusso.Envelope) { e.ID = "" }),
		"index of a marker":    &flusso.SnapshotComplete{Indexes: []string{"orders", ""}},
	} {
		var e *flusso.NameError
		if err := flusso.CheckItem(item); !errors.As(err, &e) {
			t.Errorf("%s: got %v, want a name error", what, err)
		}
	}
	third := &flusso.Batch{Position: 40, Envelopes: []flusso.Envelope{upsert("1", 40), upsert("2", 40), upsert("", 40)}}
	if err := flusso.CheckItem(third); err == nil || !strings.Contains(err.Error(), "batch at position 40, envelope 2: ") {
		t.Errorf("got %v, want the batch and the envelope named", err)
	}
}

func TestCheckRequest(t *testing.T) {
	sinks := []string{"audit", "search"}
	if err := flusso.CheckRequest(&flusso.Backfill{Sink: "audit", Indexes: []string{"a", "b"}}, sinks); err != nil {
		t.Errorf("got %v, want it accepted", err)
	}
	var invalid *flusso.InvalidError
	var unknown *flusso.UnknownSinkError
	var name *flusso.NameError
	for what, tt := range map[string]struct {
		r  flusso.Request
		as any
	}{
		"nothing":         {nil, &invalid},
		"a nil backfill":  {(*flusso.Backfill)(nil), &invalid},
		"of no index":     {&flusso.Backfill{Sink: "audit"}, &invalid},
		"of a bad index":  {&flusso.Backfill{Sink: "audit", Indexes: []string{"a/b"}}, &name},
		"an unknown sink": {&flusso.Backfill{Sink: "serach", Indexes: []string{"a"}}, &unknown},
	} {
		if err := flusso.CheckRequest(tt.r, sinks); !errors.As(err, tt.as) {
			t.Errorf("%s: got %v, want a %T", what, err, tt.as)
		}
	}
	unknown.Known[0] = "changed"
	if sinks[0] != "audit" {
		t.Error("the error shares the stream's sinks")
	}
}

// What is accepted keeps keys parsable: index and id are each other's rest
// around the first slash, and nothing in them breaks a line.
func FuzzCheckText(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "\xff", "�", "\x00", "☃", strings.Repeat("é", 256)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		indexErr, idErr := flusso.CheckIndex(s), flusso.CheckID(s)
		if indexErr == nil && idErr != nil {
			t.Errorf("%q is an index but no id: %v", s, idErr)
		}
		good := s != "" && len(s) <= flusso.MaxID && utf8.ValidString(s) &&
			!strings.ContainsFunc(s, func(r rune) bool { return r == '/' || unicode.IsControl(r) })
		if (idErr == nil) != good {
			t.Errorf("id %q: got %v, want accepted: %v", s, idErr, good)
		}
		var e *flusso.NameError
		if idErr != nil && (!errors.As(idErr, &e) || len(e.Error()) > 600) {
			t.Errorf("id of %d bytes: the error is a %T of %d bytes", len(s), idErr, len(idErr.Error()))
		}
	})
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"", "a", "A", "a.b", "orders_2-x", "\xff", strings.Repeat("a", 101)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		const letters = "abcdefghijklmnopqrstuvwxyz0123456789_-"
		good := s != "" && len(s) <= 100 && strings.Trim(s, letters) == "" // nothing but these
		for i := range len(s) {
			good = good && strings.IndexByte(letters, s[i]) >= 0
		}
		if err := flusso.CheckName("sink", s); (err == nil) != good {
			t.Errorf("%q: got %v, want accepted: %v", s, err, good)
		}
		if flusso.CheckName("sink", s) == nil && len(s) <= flusso.MaxIncarnation && flusso.CheckIncarnation(s) != nil {
			t.Errorf("%q is a name and no incarnation", s)
		}
	})
}

func TestChecks_AllocateNothing(t *testing.T) {
	b := &flusso.Batch{Position: 9}
	for range 100 {
		b.Envelopes = append(b.Envelopes, upsert("1", 9))
	}
	marker := &flusso.SnapshotComplete{Indexes: []string{"orders", "customers"}}
	sinks := []string{"audit", "search"}
	for _, tt := range []struct {
		name string
		run  func() error
	}{
		{"a batch", func() error { return flusso.CheckItem(b) }},
		{"a marker", func() error { return flusso.CheckItem(marker) }},
		{"a sink", func() error { return flusso.CheckSink("search", sinks) }},
		{"a name", func() error { return flusso.CheckName("sink", "search") }},
		{"a document id", func() error { return flusso.CheckID("order-ä-17") }},
		{"an index", func() error { return flusso.CheckIndex("orders") }},
		{"an incarnation", func() error { return flusso.CheckIncarnation("pg-7301:flusso") }},
	} {
		if got := testing.AllocsPerRun(20, func() {
			if err := tt.run(); err != nil {
				t.Fatal(err)
			}
		}); got > 0 {
			t.Errorf("%.0f allocations to check %s, want none", got, tt.name)
		}
	}
}

func BenchmarkCheckItem(b *testing.B) {
	batch := &flusso.Batch{Position: 9}
	for range 100 {
		batch.Envelopes = append(batch.Envelopes, upsert("order-000017", 9))
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := flusso.CheckItem(batch); err != nil {
			b.Fatal(err)
		}
	}
}
