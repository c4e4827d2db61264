package wire

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// TestCase18_RetiredMetadataFits: the longest retirement is within its limit,
// and of what the broker takes by default it is a quarter.
func TestCase18_RetiredMetadataFits(t *testing.T) {
	m := Metadata{
		Offset: math.MaxInt64, Through: math.MaxUint64, Sequence: math.MaxUint64, Epoch: math.MaxUint64,
		TopicID: [16]byte{255}, Incarnation: strings.Repeat("z", flusso.MaxIncarnation),
		Retired: Retirement{
			At: time.UnixMilli(maxRetiredAt).UTC(),
			By: strings.Repeat("☃", MaxRetiredBy/3) + "%", Why: strings.Repeat("é", MaxRetiredWhy/2),
		},
	}
	if err := m.Retired.Check(); err != nil {
		t.Fatal(err)
	}
	s := FormatMetadata(m)
	if len(s) > MaxRetiredMetadata {
		t.Errorf("%d bytes, at most %d: %s", len(s), MaxRetiredMetadata, s)
	}
	if got, err := ParseMetadata(s); err != nil || got != m {
		t.Errorf("got %+v, %v, want %+v", got, err, m)
	}
	m.Retired = Retirement{}
	if s := FormatMetadata(m); strings.Contains(s, "ret") || len(s) > MaxMetadata {
		t.Errorf("without a retirement: %s", s)
	}
}

func TestF2_RetirementIsChecked(t *testing.T) {
	fine := Retirement{At: time.UnixMilli(1).UTC(), By: "ana@ops-1", Why: "moved, 100 %"}
	for _, tt := range []struct {
		name   string
		change func(*Retirement)
		limit  bool
		says   string
	}{
		{"no time", func(r *Retirement) { r.At = time.Time{} }, false, "after 1970"},
		{"nobody", func(r *Retirement) { r.By = "" }, false, "who retires the lane: it is empty"},
		{"no reason", func(r *Retirement) { r.Why = "" }, false, "why the lane is retired: it is empty"},
		{"a line break", func(r *Retirement) { r.Why = "a\nb" }, false, "U+000A"},
		{"not UTF-8", func(r *Retirement) { r.By = "\xff" }, false, "not UTF-8"},
		{"a long name", func(r *Retirement) { r.By = strings.Repeat("x", MaxRetiredBy+1) }, true, "is 65, the limit is 64"},
		{"a long reason", func(r *Retirement) { r.Why = strings.Repeat("é", MaxRetiredWhy/2+1) }, true, "is 202, the limit is 200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := fine
			tt.change(&r)
			err := r.Check()
			limit, invalid := (*flusso.LimitError)(nil), (*flusso.InvalidError)(nil)
			if errors.As(err, &limit) != tt.limit || errors.As(err, &invalid) == tt.limit {
				t.Fatalf("got %T %v", err, err)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q does not say %q", err, tt.says)
			}
		})
	}
	if err := fine.Check(); err != nil {
		t.Error(err)
	}
}
