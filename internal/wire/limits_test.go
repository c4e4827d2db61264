package wire

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
)

// TestCase18_MetadataFits: the longest metadata is within its limit.
func TestCase18_MetadataFits(t *testing.T) {
	var id [16]byte
	for i := range id {
		id[i] = 255
	}
	m := Metadata{
		Offset: math.MaxInt64, Through: math.MaxUint64, Sequence: math.MaxUint64, Epoch: math.MaxUint64,
		TopicID: id, Incarnation: strings.Repeat("z", flusso.MaxIncarnation),
	}
	s := FormatMetadata(m)
	if len(s) > MaxMetadata {
		t.Errorf("%d bytes, at most %d: %s", len(s), MaxMetadata, s)
	}
	t.Logf("longest metadata: %d bytes", len(s))
	if got, err := ParseMetadata(s); err != nil || got != m {
		t.Errorf("got %+v, %v", got, err)
	}
	r := RequestMetadata{Offset: math.MaxInt64 / 2, TopicID: id}
	for i := range flusso.Offset(maxAckedAbove) {
		r.Acked = append(r.Acked, r.Offset+2*i+1)
	}
	s = FormatRequestMetadata(r)
	if len(s) > MaxMetadata || len(s) < MaxMetadata-5 {
		t.Errorf("%d bytes, want just up to %d: %s", len(s), MaxMetadata, s)
	}
}

// TestD1_RequestMetadataLeavesOut: what is listed was acked, whatever fits.
func TestD1_RequestMetadataLeavesOut(t *testing.T) {
	tests := []struct {
		name  string
		floor flusso.Offset
		acked []flusso.Offset
		want  []flusso.Offset
	}{
		{"none", 5, nil, nil},
		{"unsorted, repeated", 5, []flusso.Offset{9, 7, 9, 8}, []flusso.Offset{7, 8, 9}},
		{"at and below the floor", 5, []flusso.Offset{5, 4, -1, 7}, []flusso.Offset{7}},
		{"at the end of offsets", math.MaxInt64, []flusso.Offset{math.MaxInt64, 4}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := ParseRequestMetadata(FormatRequestMetadata(RequestMetadata{Offset: tt.floor, Acked: tt.acked}))
			if err != nil || m.Offset != tt.floor || !slices.Equal(m.Acked, tt.want) {
				t.Errorf("got %+v, %v, want %v", m, err, tt.want)
			}
		})
	}
	// A run longer than can be listed is cut, not dropped.
	long := RequestMetadata{Offset: 1}
	for i := range flusso.Offset(2 * maxAckedAbove) {
		long.Acked = append(long.Acked, 10+i)
	}
	m, err := ParseRequestMetadata(FormatRequestMetadata(long))
	if err != nil || !slices.Equal(m.Acked, long.Acked[:maxAckedAbove]) {
		t.Errorf("%d offsets are left of a long run, %v", len(m.Acked), err)
	}
}

func TestF2_HeaderSize(t *testing.T) {
	name := func(n int) string { return strings.Repeat("i", n) }
	// 65 names of 249 bytes: 65·(249+2) + 64 + 2 = 16,381 bytes; two more fit.
	var fits []string
	for range 65 {
		fits = append(fits, name(249))
	}
	fits[0] = name(252)
	over := slices.Clone(fits)
	over[1] = name(250)
	quoted := slices.Clone(fits)
	quoted[1] = strings.Repeat("i", 248) + `"`
	if n := len(appendIndexes(nil, fits)); n != MaxHeader {
		t.Fatalf("%d bytes, want %d", n, MaxHeader)
	}
	if err := Check("audit", &flusso.SnapshotComplete{Indexes: fits}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	for _, indexes := range [][]string{over, quoted} {
		err := Check("audit", &flusso.SnapshotComplete{Indexes: indexes})
		limit, ok := errors.AsType[*flusso.LimitError](err)
		if !ok || limit.Value != MaxHeader+1 || limit.Max != MaxHeader || !strings.Contains(err.Error(), "audit") || !strings.Contains(err.Error(), HeaderIndexes) {
			t.Errorf("above the limit: %v", err)
		}
	}
	if err := Check("audit", &flusso.Batch{Position: 1}); err != nil {
		t.Error(err)
	}
	item := &flusso.SnapshotComplete{Indexes: fits}
	records := EncodeItem(nil, "p.lane.s", item, prior())
	if _, _, err := DecodeItem(records); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

// wireSize returns the size of r as the only record of a batch.
func wireSize(r *kgo.Record) int {
	k := kmsg.Record{Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	k.Length = 1 << 27 // the longest varint
	k.TimestampDelta64 = 1 << 40
	k.OffsetDelta = 1 << 20
	return 61 + len(k.AppendTo(nil))
}

// TestSizeBoundsRecords compares the bound with what is encoded.
func TestSizeBoundsRecords(t *testing.T) {
	big := make([]byte, 1<<20)
	longest := prior()
	longest.Incarnation = strings.Repeat("z", flusso.MaxIncarnation)
	longest.Through, longest.Newest, longest.Epoch, longest.Sequence = math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64
	longest.BuiltAt = ms(math.MaxInt64)
	longest.Totals = Totals{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64}
	env := func(doc []byte, position flusso.Position) flusso.Envelope {
		e := flusso.Envelope{Index: strings.Repeat("i", 255), ID: strings.Repeat("d", 512), Op: flusso.Upsert, Document: doc, Position: position}
		if doc == nil {
			e.Op = flusso.Delete
		}
		return e
	}
	for name, item := range map[string]flusso.LaneItem{
		"empty":      &flusso.Batch{Position: math.MaxUint64, Changes: math.MaxUint64},
		"big first":  &flusso.Batch{Position: math.MaxUint64, Changes: math.MaxUint64, Envelopes: []flusso.Envelope{env(big, math.MaxUint64-1), env(nil, 1)}},
		"big last":   &flusso.Batch{Position: math.MaxUint64, Changes: math.MaxUint64, Envelopes: []flusso.Envelope{env(nil, 1), env(big, math.MaxUint64-1)}},
		"snapshot":   &flusso.Batch{Envelopes: []flusso.Envelope{env(big, 0)}},
		"marker":     &flusso.SnapshotComplete{Indexes: []string{strings.Repeat(`"`, 255), "b"}},
		"small":      &flusso.Batch{Position: 1, Envelopes: []flusso.Envelope{env([]byte("x"), 1)}},
		"unfinished": &flusso.Batch{Position: math.MaxUint64, More: true},
	} {
		t.Run(name, func(t *testing.T) {
			bytes, largest := Size(item)
			var gotBytes uint64
			got := 0
			for _, r := range EncodeItem(nil, "p.lane.s", item, longest) {
				gotBytes += uint64(len(r.Key) + len(r.Value))
				got = max(got, wireSize(r))
			}
			if bytes != gotBytes {
				t.Errorf("%d bytes of keys and values, want %d", bytes, gotBytes)
			}
			if largest < got || largest > got+maxHeaderText+300 {
				t.Errorf("largest record is bounded by %d, is %d", largest, got)
			}
		})
	}
}
