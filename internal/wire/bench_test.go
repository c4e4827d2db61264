package wire

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// batchOf is a live batch of n documents of 512 bytes, every other envelope
// at a position of its own.
func batchOf(n int) (*flusso.Batch, Header) {
	doc := make([]byte, 512)
	b := &flusso.Batch{Position: 1_000_000, Changes: uint64(n)}
	for i := range n {
		b.Envelopes = append(b.Envelopes, flusso.Envelope{
			Index: "orders", ID: fmt.Sprintf("%08d", i), Op: flusso.Upsert, Document: doc,
			Position: flusso.Position(1_000_000 - i%2), BuiltAt: ms(1_764_452_184_001),
		})
	}
	h := prior()
	h.Through, h.Newest = b.Position, b.Position
	return b, h
}

// TestAllocations holds the hot path to its allocations: encoding takes a slab
// of records, one of record headers and one of text; decoding an item, its
// envelopes, its names (twice: bytes and string) and its incarnation.
func TestAllocations(t *testing.T) {
	b, h := batchOf(100)
	full := Fill(h, b)
	text, _ := full.AppendText(nil)
	buffer := make([]byte, 0, maxHeaderText)
	dst := make([]*kgo.Record, 0, 100)
	records := EncodeItem(nil, "p.lane.s", b, h)
	metadata := Metadata{Offset: 9, Through: 1, Sequence: 2, Epoch: 3, TopicID: [16]byte{1}, Incarnation: "pg-7301:flusso"}
	formatted := FormatMetadata(metadata)
	version := uint64(7)
	feed := make([]Record, 100)
	for i := range feed {
		feed[i] = Record{Key: []byte("k"), Payload: []byte("hello"), Version: &version}
	}
	end := Append{Stream: 3, Epoch: 7, First: 1, Last: 100, Bytes: 600, At: ms(1_764_452_184_001)}
	endText, _ := end.AppendText(nil)
	wal := EncodeBatch(nil, "p.feed.wal", feed, end)
	for _, tt := range []struct {
		name string
		max  float64
		run  func()
	}{
		{"AppendText", 0, func() { _, _ = full.AppendText(buffer) }},
		{"Check", 0, func() { _ = full.Check() }},
		{"ParseHeader", 1, func() { _, _ = ParseHeader(text) }},
		{"HeaderOf a record inside an item", 0, func() { _, _, _ = HeaderOf(records[0]) }},
		{"EncodeItem of 100 envelopes", 3, func() { _ = EncodeItem(dst, "p.lane.s", b, h) }},
		{"DecodeItem of 100 envelopes", 5, func() { _, _, _ = DecodeItem(records) }},
		{"Size", 0, func() { _, _ = Size(b) }},
		{"FormatMetadata", 1, func() { _ = FormatMetadata(metadata) }},
		{"AppendText of an append", 0, func() { _, _ = end.AppendText(buffer) }},
		{"ParseAppend", 0, func() { _, _ = ParseAppend(endText) }},
		{"AppendOf a record inside a batch", 0, func() { _, _, _ = AppendOf(wal[0]) }},
		{"DecodeBatch of 100 records with versions", 101, func() { _, _, _ = DecodeBatch(wal) }},
		{"ParseMetadata", 2, func() { _, _ = ParseMetadata(formatted) }},
	} {
		if got := testing.AllocsPerRun(100, tt.run); got > tt.max {
			t.Errorf("%s: %v allocations, at most %v", tt.name, got, tt.max)
		}
	}
}

func BenchmarkAppendText(b *testing.B) {
	item, h := batchOf(1)
	h = Fill(h, item)
	buffer := make([]byte, 0, maxHeaderText)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = h.AppendText(buffer)
	}
}

func BenchmarkParseHeader(b *testing.B) {
	item, h := batchOf(1)
	h = Fill(h, item)
	text, _ := h.AppendText(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseHeader(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeItem(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			item, h := batchOf(n)
			dst := make([]*kgo.Record, 0, n)
			b.ReportAllocs()
			for b.Loop() {
				_ = EncodeItem(dst, "p.lane.s", item, h)
			}
		})
	}
}

func BenchmarkDecodeItem(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			item, h := batchOf(n)
			records := EncodeItem(nil, "p.lane.s", item, h)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := DecodeItem(records); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMetadata(b *testing.B) {
	s := FormatMetadata(Metadata{Offset: 9, Through: 1, Sequence: 2, Epoch: 3, TopicID: [16]byte{1}, Incarnation: "pg-7301:flusso"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMetadata(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseAppend(b *testing.B) {
	end := Append{Stream: 3, Epoch: 7, First: 1, Last: 100, Bytes: 600, At: ms(1_764_452_184_001)}
	text, _ := end.AppendText(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseAppend(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	v := readFeedVectors(b)
	for _, x := range v.Events {
		if x.Name != "committed" {
			continue
		}
		r := &kgo.Record{Key: x.Key, Value: x.Value}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeEvent(r); err != nil {
				b.Fatal(err)
			}
		}
	}
}
