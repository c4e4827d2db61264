package wire

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	flusso "github.com/flusso/flusso-kafka"
)

func ms(n int64) time.Time { return time.UnixMilli(n) }

// prior is what a writer knows before an item: the caller's part of a header.
func prior() Header {
	return Header{
		Incarnation: "pg-7301:flusso", Epoch: 4, BuiltAt: ms(1_764_452_184_123), Sequence: 812,
		Totals: Totals{Batches: 812, Envelopes: 20_311, Bytes: 9_124_411, Changes: 30_110},
	}
}

func TestItemRoundTrip(t *testing.T) {
	live := prior()
	live.Through, live.Newest = 1042, 1042
	more := prior()
	more.Through, more.Newest = 1040, 1042
	none := prior()
	tests := []struct {
		name string
		item flusso.LaneItem
		h    Header
	}{
		{"live", &flusso.Batch{Position: 1042, Changes: 2, Envelopes: []flusso.Envelope{
			{Index: "orders", ID: "17", Op: flusso.Upsert, Document: []byte(`{"a":1}`), Position: 1041, BuiltAt: ms(1_764_452_184_001)},
			{Index: "orders", ID: "18", Op: flusso.Delete, Position: 1042, BuiltAt: ms(1_764_452_184_002)},
		}}, live},
		{"more", &flusso.Batch{Position: 1042, More: true, Changes: 2, Envelopes: []flusso.Envelope{
			{Index: "orders", ID: "a:b c", Op: flusso.Delete, Position: 1042, BuiltAt: ms(0)},
		}}, more},
		{"empty", &flusso.Batch{Position: 1042, Changes: 0}, live},
		{"snapshot", &flusso.Batch{Envelopes: []flusso.Envelope{
			{Index: "ö", ID: "é", Op: flusso.Upsert, Document: []byte("x"), BuiltAt: ms(5)},
		}}, none},
		{"complete", &flusso.SnapshotComplete{Indexes: []string{"orders", `a "b" \ c`}}, more},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := flusso.CheckItem(tt.item); err != nil {
				t.Fatal(err)
			}
			want := Fill(tt.h, tt.item)
			if err := want.Check(); err != nil {
				t.Fatal(err)
			}
			records := EncodeItem(nil, "p.lane.s", tt.item, tt.h)
			t.Log(string(records[len(records)-1].Headers[len(records[len(records)-1].Headers)-1].Value))
			got, h, err := DecodeItem(records)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, h); d != "" {
				t.Errorf("header (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.item, got); d != "" {
				t.Errorf("item (-want +got):\n%s", d)
			}
		})
	}
}

func TestMetadataRoundTrip(t *testing.T) {
	m := Metadata{Offset: 17, Through: 3, Sequence: 4, Epoch: 5, TopicID: [16]byte{1, 2}, Incarnation: "a.b"}
	s := FormatMetadata(m)
	t.Log(s)
	got, err := ParseMetadata(s)
	if err != nil || got != m {
		t.Errorf("ParseMetadata(%q) = %+v, %v", s, got, err)
	}
}
