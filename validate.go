package flusso

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on names, in bytes.
const (
	MaxName        = 100 // pipeline and sink
	MaxIndex       = 255
	MaxID          = 512
	MaxIncarnation = 64
)

// CheckName accepts a pipeline or sink name: 1 to [MaxName] characters of
// [a-z0-9_-]. kind goes into the [*NameError].
func CheckName(kind, name string) error {
	if name == "" {
		return &NameError{kind, name, "empty"}
	}
	if len(name) > MaxName {
		return &NameError{kind, name, fmt.Sprintf("%d bytes long, at most %d", len(name), MaxName)}
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-' {
			return &NameError{kind, name, fmt.Sprintf("character %q: use a-z, 0-9, _ and -", r)}
		}
	}
	return nil
}

// CheckIncarnation accepts a source incarnation: 1 to [MaxIncarnation]
// characters of [A-Za-z0-9_.:-].
func CheckIncarnation(name string) error {
	const kind = "incarnation"
	if name == "" {
		return &NameError{kind, name, "empty: name the source and its change feed, for Postgres system identifier and slot"}
	}
	if len(name) > MaxIncarnation {
		return &NameError{kind, name, fmt.Sprintf("%d bytes long, at most %d", len(name), MaxIncarnation)}
	}
	for _, r := range name {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.:-", r)
		if !ok {
			return &NameError{kind, name, fmt.Sprintf("character %q: use A-Z, a-z, 0-9 and _ . : -", r)}
		}
	}
	return nil
}

// CheckIndex accepts an index name: 1 to [MaxIndex] bytes of UTF-8 without
// slash and control characters.
func CheckIndex(name string) error { return checkText("index", name, MaxIndex) }

// CheckID accepts a document id: 1 to [MaxID] bytes of UTF-8 without slash
// and control characters. Escape what else a key may hold.
func CheckID(id string) error { return checkText("document id", id, MaxID) }

func checkText(kind, s string, limit int) error {
	if s == "" {
		return &NameError{kind, s, "empty"}
	}
	if len(s) > limit {
		return &NameError{kind, s, fmt.Sprintf("%d bytes long, at most %d", len(s), limit)}
	}
	plain := 0 // bytes that need no decoding, as almost all do
	for plain < len(s) && s[plain] >= ' ' && s[plain] < 0x7f && s[plain] != '/' {
		plain++
	}
	if plain == len(s) {
		return nil
	}
	for i, r := range s {
		switch {
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return &NameError{kind, s, fmt.Sprintf("byte %d is not UTF-8", i)}
			}
		case r == '/':
			return &NameError{kind, s, "contains a slash, which separates index and id"}
		case unicode.IsControl(r):
			return &NameError{kind, s, fmt.Sprintf("contains the control character %q", r)}
		}
	}
	return nil
}

// CheckItem accepts what may be published to a lane. It checks shape and
// names; positions against the lane and sizes are the adapter's.
func CheckItem(item LaneItem) error {
	switch it := item.(type) {
	case *Batch:
		if it == nil {
			return &InvalidError{"lane item", "nil batch"}
		}
		return it.check()
	case *SnapshotComplete:
		if it == nil {
			return &InvalidError{"lane item", "nil snapshot marker"}
		}
		return checkIndexes("snapshot marker", it.Indexes)
	default:
		return &InvalidError{"lane item", "neither a batch nor a snapshot marker"}
	}
}

// CheckRequest accepts what may be published to the request lane of a stream
// with the given sinks.
func CheckRequest(r Request, sinks []string) error {
	b, ok := r.(*Backfill)
	if !ok || b == nil {
		return &InvalidError{"request", "not a backfill"}
	}
	if err := CheckSink(b.Sink, sinks); err != nil {
		return err
	}
	return checkIndexes("backfill for sink "+b.Sink, b.Indexes)
}

// CheckSink returns an [*UnknownSinkError] unless sinks contains sink.
func CheckSink(sink string, sinks []string) error {
	if slices.Contains(sinks, sink) {
		return nil
	}
	return &UnknownSinkError{Sink: sink, Known: append([]string(nil), sinks...)}
}

func checkIndexes(what string, indexes []string) error {
	if len(indexes) == 0 {
		return &InvalidError{what, "no index named"}
	}
	for _, ix := range indexes {
		if err := CheckIndex(ix); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

func (b *Batch) check() error {
	what := func() string {
		if b.Live() {
			return "batch at position " + b.Position.String()
		}
		return "snapshot batch"
	}
	if b.More && !b.Live() {
		return &InvalidError{what(), "more is for live batches"}
	}
	if !b.Live() && len(b.Envelopes) == 0 {
		return &InvalidError{what(), "no position and no envelopes: a snapshot batch has rows, a live batch a position"}
	}
	for i := range b.Envelopes {
		if err := b.checkEnvelope(&b.Envelopes[i]); err != nil {
			return fmt.Errorf("%s, envelope %d: %w", what(), i, err)
		}
	}
	return nil
}

func (b *Batch) checkEnvelope(e *Envelope) error {
	if err := CheckIndex(e.Index); err != nil {
		return err
	}
	if err := CheckID(e.ID); err != nil {
		return err
	}
	what := func() string { return "envelope " + e.Index + "/" + e.ID } // not built for every envelope
	switch {
	case e.Op == Upsert && len(e.Document) == 0:
		return &InvalidError{what(), "an upsert without a document"}
	case e.Op == Delete && e.Document != nil:
		return &InvalidError{what(), "a delete with a document"}
	case e.Op != Upsert && e.Op != Delete:
		return &InvalidError{what(), "unknown operation " + e.Op.String()}
	case e.Position > b.Position:
		return &InvalidError{what(), fmt.Sprintf("its position %s is above the batch's", e.Position)}
	case b.Live() && e.Position == NoPosition:
		return &InvalidError{what(), "no position in a live batch"}
	}
	return nil
}
