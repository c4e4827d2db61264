package watermark_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/watermark"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func acked(sink string, through flusso.Position) flusso.LaneFloor {
	return flusso.LaneFloor{Sink: sink, State: flusso.FloorAcked, Through: through, Offset: 7}
}

func in(sink string, state flusso.FloorState) flusso.LaneFloor {
	return flusso.LaneFloor{Sink: sink, State: state, Offset: flusso.NoOffset}
}

func TestCase02_AckingOneLaneDoesNotConfirmItsSibling(t *testing.T) {
	w := watermark.Min([]flusso.LaneFloor{acked("a", 100), acked("b", 40)}, "pg-1", noon)
	want := flusso.Watermark{
		Position: 40, Incarnation: "pg-1", Holders: []string{"b"}, Since: noon, Behind: 60,
		Floors: []flusso.LaneFloor{acked("a", 100), acked("b", 40)}, ReadAt: noon,
	}
	if diff := cmp.Diff(want, w); diff != "" {
		t.Errorf("lane a at 100, lane b at 40 (-want +got):\n%s", diff)
	}
}

func TestC2_Min(t *testing.T) {
	for _, tt := range []struct {
		name    string
		floors  []flusso.LaneFloor
		want    flusso.Position
		holders []string
		behind  flusso.Position
	}{
		{"no lanes", nil, 0, nil, 0},
		{"one lane", []flusso.LaneFloor{acked("a", 9)}, 9, []string{"a"}, 0},
		{"all equal", []flusso.LaneFloor{acked("b", 9), acked("a", 9)}, 9, []string{"a", "b"}, 0},
		{"one has none", []flusso.LaneFloor{acked("b", 9), in("a", flusso.FloorNothing)}, 0, []string{"a"}, 9},
		{"two have none for two reasons", []flusso.LaneFloor{
			in("c", flusso.FloorMissing), acked("b", 9), in("a", flusso.FloorOther),
		}, 0, []string{"a", "c"}, 9},
		{"acked through none", []flusso.LaneFloor{acked("a", 0), acked("b", 3)}, 0, []string{"a"}, 3},
		{
			"a through beside another state does not count",
			[]flusso.LaneFloor{{Sink: "a", State: flusso.FloorUnverified, Through: 50}, acked("b", 60)},
			0,
			[]string{"a"},
			60,
		},
		{"a retired lane is not waited for", []flusso.LaneFloor{acked("b", 9), in("a", flusso.FloorRetired)}, 9, []string{"b"}, 0},
		{"nor does its through count", []flusso.LaneFloor{
			acked("b", 9), acked("c", 11), {Sink: "a", State: flusso.FloorRetired, Through: 40},
		}, 9, []string{"b"}, 2},
		{"beside one that has none", []flusso.LaneFloor{in("b", flusso.FloorMissing), in("a", flusso.FloorRetired)}, 0, []string{"b"}, 0},
		{"all are retired", []flusso.LaneFloor{in("b", flusso.FloorRetired), in("a", flusso.FloorRetired)}, 0, nil, 0},
		{"the zero floor", []flusso.LaneFloor{{Sink: "a"}}, 0, []string{"a"}, 0},
		{"a sink twice counts at its lower", []flusso.LaneFloor{acked("a", 5), acked("a", 3)}, 3, []string{"a"}, 2},
		{"the largest positions", []flusso.LaneFloor{acked("a", 1<<64-1), acked("b", 1<<64-2)}, 1<<64 - 2, []string{"b"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.floors)
			w := watermark.Min(tt.floors, "pg-1", noon)
			if w.Position != tt.want || w.Behind != tt.behind || !slices.Equal(w.Holders, tt.holders) {
				t.Errorf("got position %s, holders %v, behind %d; want %s, %v, %d",
					w.Position, w.Holders, w.Behind, tt.want, tt.holders, tt.behind)
			}
			if diff := cmp.Diff(before, tt.floors); diff != "" {
				t.Errorf("the caller's floors changed:\n%s", diff)
			}
			for _, f := range w.Floors {
				if f.State != flusso.FloorAcked && f.Through != flusso.NoPosition {
					t.Errorf("floor %+v has a through", f)
				}
			}
		})
	}
}

// dumbMin says the same as Min in the slowest and plainest way: try every
// position downwards until one is acked by every lane that
// is not retired.
func dumbMin(floors []flusso.LaneFloor) flusso.Position {
	for p := flusso.Position(20); p > 0; p-- {
		ok := false
		for _, f := range floors {
			ok = ok || f.State != flusso.FloorRetired
		}
		for _, f := range floors {
			if f.State == flusso.FloorRetired {
				continue
			}
			if f.State != flusso.FloorAcked || f.Through < p {
				ok = false
			}
		}
		if ok {
			return p
		}
	}
	return flusso.NoPosition
}

func dumbHolders(floors []flusso.LaneFloor, p flusso.Position) []string {
	set := map[string]bool{}
	for _, f := range floors {
		if f.State == flusso.FloorRetired {
			continue
		}
		none := f.State != flusso.FloorAcked || f.Through == 0
		if p == 0 && none || p != 0 && f.Through == p {
			set[f.Sink] = true
		}
	}
	var out []string
	for s := range set {
		out = append(out, s)
	}
	sort.Strings(out)
	return out
}

var states = []flusso.FloorState{
	flusso.FloorAcked, flusso.FloorAcked, flusso.FloorAcked, flusso.FloorAcked, flusso.FloorNothing, flusso.FloorMissing,
	flusso.FloorOther, flusso.FloorUnverified, flusso.FloorRecreated, flusso.FloorUnknown, flusso.FloorRetired,
	flusso.FloorRetired,
}

// floorsFrom makes floors of bytes: two for each, state and through.
func floorsFrom(data []byte) []flusso.LaneFloor {
	var out []flusso.LaneFloor
	for i := 0; i+1 < len(data) && i < 40; i += 2 {
		out = append(out, flusso.LaneFloor{
			Sink:    fmt.Sprintf("s%02d", (i*7)%40),
			State:   states[int(data[i])%len(states)],
			Through: flusso.Position(data[i+1] % 21),
		})
	}
	return out
}

func FuzzMinAgainstTheDumbOne(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 5, 0, 4})
	f.Add([]byte{0, 5, 4, 9})
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		data := make([]byte, 2*rng.IntN(8))
		for i := range data {
			data[i] = byte(rng.IntN(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		floors := floorsFrom(data)
		w := watermark.Min(floors, "i", noon)
		if want := dumbMin(floors); w.Position != want {
			t.Fatalf("%+v: got %s, want %s", floors, w.Position, want)
		}
		if want := dumbHolders(floors, w.Position); !slices.Equal(w.Holders, want) {
			t.Fatalf("%+v: holders %v, want %v", floors, w.Holders, want)
		}
		if !slices.IsSortedFunc(w.Floors, func(a, b flusso.LaneFloor) int {
			switch {
			case a.Sink < b.Sink:
				return -1
			case a.Sink > b.Sink:
				return 1
			}
			return 0
		}) {
			t.Fatalf("floors are not sorted: %+v", w.Floors)
		}
		without := slices.DeleteFunc(slices.Clone(floors), func(f flusso.LaneFloor) bool { return f.State == flusso.FloorRetired })
		if v := watermark.Min(without, "i", noon); v.Position != w.Position || v.Behind != w.Behind || !slices.Equal(v.Holders, w.Holders) {
			t.Fatalf("%+v: got %+v, and %+v without the retired lanes", floors, w, v)
		}
		if len(w.Floors) != len(floors) {
			t.Fatalf("%d floors, want %d", len(w.Floors), len(floors))
		}
	})
}
