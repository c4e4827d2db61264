package watermark_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/watermark"
)

var errDown = errors.New("coordinator not available")

// line is a watermark as a person reads it, times as minutes after noon.
func line(w flusso.Watermark) string {
	minutes := func(at time.Time) string {
		if at.IsZero() {
			return "never"
		}
		return fmt.Sprintf("+%d", int(at.Sub(noon).Minutes()))
	}
	s := fmt.Sprintf("at %s held by %s, behind %d, since %s, read %s",
		w.Position, strings.Join(w.Holders, ","), w.Behind, minutes(w.Since), minutes(w.ReadAt))
	if w.Stale {
		s += ", stale"
	}
	for _, f := range w.Floors {
		if f.Detail != "" {
			s += "\n    " + f.Sink + " " + f.Through.String() + " (" + string(f.State) + "): " + f.Detail
		}
	}
	return s
}

func TestC7_TranscriptOfATracker(t *testing.T) {
	tr := watermark.NewTracker("pg-1", []string{"b", "a"}, 10*time.Minute)
	minute := 0
	var got []string
	observe := func(err error, floors ...flusso.LaneFloor) {
		now := noon.Add(time.Duration(minute) * time.Minute)
		next := strings.Join(tr.Next(now), ",")
		got = append(got, fmt.Sprintf("ask %s: %s", next, line(tr.Observe(floors, err, now))))
		minute++
	}
	got = append(got, line(tr.Last()))
	observe(errDown)
	observe(nil, acked("a", 10))
	observe(nil, acked("a", 10), in("b", flusso.FloorNothing))
	observe(nil, acked("b", 30))
	observe(nil, acked("a", 20))
	observe(nil, acked("a", 20))
	observe(errDown)
	observe(nil, flusso.LaneFloor{Sink: "a", State: flusso.FloorUnknown, Detail: "offset fetch: coordinator loading"})
	observe(nil, acked("a", 5))
	observe(nil, acked("a", 15))
	observe(nil, in("a", flusso.FloorMissing))
	observe(nil, acked("a", 40))
	minute = 30
	observe(nil, acked("a", 40), acked("b", 40))
	observe(nil, acked("stranger", 1), acked("a", 41), acked("b", 42))

	want := []string{
		"at none held by a,b, behind 0, since never, read never\n    a none (unknown): not read yet\n    b none (unknown): not read yet",
		"ask a,b: at none held by a,b, behind 0, since +0, read never, stale\n    a none (unknown): not read yet\n    b none (unknown): not read yet",
		"ask a,b: at none held by b, behind 10, since +0, read +1\n    b none (unknown): not read yet",
		"ask a,b: at none held by b, behind 10, since +0, read +2",
		"ask b: at 10 held by a, behind 20, since +3, read +3",
		"ask a: at 20 held by a, behind 10, since +4, read +4",
		"ask a: at 20 held by a, behind 10, since +4, read +5",
		"ask a: at 20 held by a, behind 10, since +4, read +5, stale",
		"ask a: at 20 held by a, behind 10, since +4, read +5, stale\n    a 20 (acked): as last read: offset fetch: coordinator loading",
		"ask a: at 20 held by a, behind 10, since +4, read +8\n    a 5 (acked): went back from 20 to 5; what it acked stays acked: the watermark stays at 20 until the lane has passed it",
		"ask a: at 20 held by a, behind 10, since +4, read +9\n    a 15 (acked): went back from 20 to 15; what it acked stays acked: the watermark stays at 20 until the lane has passed it",
		"ask a: at 20 held by a, behind 10, since +4, read +10\n    a none (group-missing): went back from 20 to none; what it acked stays acked: the watermark stays at 20 until the lane has passed it",
		"ask a: at 30 held by b, behind 10, since +11, read +11",
		"ask a,b: at 40 held by a,b, behind 0, since +30, read +30",
		"ask a,b: at 41 held by a, behind 1, since +31, read +31",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
	}
}

func TestCase21_AnOlderFloorDoesNotTakeTheWatermarkBack(t *testing.T) {
	tr := watermark.NewTracker("pg-1", []string{"a", "b"}, 0)
	tr.Observe([]flusso.LaneFloor{acked("a", 50), acked("b", 60)}, nil, noon)
	w := tr.Observe([]flusso.LaneFloor{acked("a", 20), acked("b", 60)}, nil, noon.Add(time.Minute))
	if w.Position != 50 {
		t.Errorf("after an older floor: got %s, want 50", w.Position)
	}
	if !w.Since.Equal(noon) {
		t.Errorf("since %s, want %s", w.Since, noon)
	}
	if !strings.Contains(w.Floors[0].Detail, "went back from 50 to 20") {
		t.Errorf("detail %q does not say that the floor went back", w.Floors[0].Detail)
	}
}

func TestC5_RefreshAsksForTheHoldersAlone(t *testing.T) {
	floors := map[string]flusso.Position{"a": 10, "b": 20, "c": 30}
	var asked [][]string
	fetch := func(sinks []string) ([]flusso.LaneFloor, error) {
		asked = append(asked, sinks)
		var out []flusso.LaneFloor
		for _, s := range sinks {
			out = append(out, acked(s, floors[s]))
		}
		return out, nil
	}
	tr := watermark.NewTracker("pg-1", []string{"a", "b", "c"}, time.Hour)
	for _, step := range []struct {
		a, b flusso.Position
		want flusso.Position
	}{{10, 20, 10}, {15, 25, 15}, {40, 28, 28}, {40, 29, 29}} {
		floors["a"], floors["b"] = step.a, step.b
		w, err := tr.Refresh(noon, fetch)
		if err != nil || w.Position != step.want {
			t.Fatalf("refresh with a at %s, b at %s: got %s, %v, want %s", step.a, step.b, w.Position, err, step.want)
		}
	}
	want := [][]string{
		{"a", "b", "c"},
		{"a"},
		{"a"},
		{"a", "b", "c"}, // a passed what was known of b, so the new minimum is looked up
		{"b"},
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

// A retired lane is passed, is looked at with each refresh, and counts again
// from the look on that finds it restored.
func TestC7_TranscriptOfARetiredLane(t *testing.T) {
	tr := watermark.NewTracker("pg-1", []string{"a", "b"}, time.Hour)
	minute := 0
	var got []string
	observe := func(floors ...flusso.LaneFloor) {
		now := noon.Add(time.Duration(minute) * time.Minute)
		next := strings.Join(tr.Next(now), ",")
		got = append(got, fmt.Sprintf("ask %s: %s", next, line(tr.Observe(floors, nil, now))))
		minute++
	}
	retired := func(sink string) flusso.LaneFloor {
		return flusso.LaneFloor{Sink: sink, State: flusso.FloorRetired, Offset: 7, Detail: "by ana: moved"}
	}
	observe(acked("a", 40), acked("b", 90))
	observe(retired("a"))
	observe(acked("b", 95), retired("a"))
	observe(acked("b", 96), flusso.LaneFloor{Sink: "a", State: flusso.FloorUnknown, Detail: "no answer"})
	observe(retired("a"))
	observe(acked("b", 97), retired("a"))
	observe(acked("b", 98), acked("a", 40))
	observe(acked("a", 60))
	observe(acked("a", 98))
	observe(retired("a"), retired("b"))
	observe(retired("a"), retired("b"))
	want := []string{
		"ask a,b: at 40 held by a, behind 50, since +0, read +0",
		"ask a: at 90 held by b, behind 0, since +1, read +1\n    a none (retired): by ana: moved",
		"ask b,a: at 95 held by b, behind 0, since +2, read +2\n    a none (retired): by ana: moved",
		"ask b,a: at 95 held by a, behind 1, since +2, read +2, stale\n    a none (unknown): retired when last read: no answer",
		"ask a: at 96 held by b, behind 0, since +4, read +4\n    a none (retired): by ana: moved",
		"ask b,a: at 97 held by b, behind 0, since +5, read +5\n    a none (retired): by ana: moved",
		"ask b,a: at 97 held by a, behind 1, since +5, read +6\n    a 40 (acked): counts again, behind what was confirmed without it, and that stays confirmed: the watermark stays at 97 until the lane has passed it",
		"ask a: at 97 held by a, behind 1, since +5, read +7\n    a 60 (acked): counts again, behind what was confirmed without it, and that stays confirmed: the watermark stays at 97 until the lane has passed it",
		"ask a: at 98 held by a,b, behind 0, since +8, read +8",
		"ask a,b: at 98 held by , behind 0, since +8, read +9\n    a none (retired): by ana: moved\n    b none (retired): by ana: moved",
		"ask a,b: at 98 held by , behind 0, since +8, read +10\n    a none (retired): by ana: moved\n    b none (retired): by ana: moved",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
	}
}

func TestC7_AFailedRefreshLeavesTheLastValue(t *testing.T) {
	tr := watermark.NewTracker("pg-1", []string{"a"}, time.Hour)
	tr.Observe([]flusso.LaneFloor{acked("a", 10)}, nil, noon)
	w, err := tr.Refresh(noon.Add(time.Second), func([]string) ([]flusso.LaneFloor, error) { return nil, errDown })
	if !errors.Is(err, errDown) || !w.Stale || w.Position != 10 || !w.ReadAt.Equal(noon) {
		t.Errorf("got %+v, %v; want position 10, stale, read at noon and the cause", w, err)
	}
	if last := tr.Last(); !cmp.Equal(last, w) {
		t.Errorf("Last differs from what was returned:\n%s", cmp.Diff(w, last))
	}
}

func TestTracker_OwnsItsValue(t *testing.T) {
	tr := watermark.NewTracker("pg-1", []string{"a", "b"}, 0)
	w := tr.Observe([]flusso.LaneFloor{acked("a", 1), acked("b", 1)}, nil, noon)
	w.Floors[0].Through, w.Holders[0] = 99, "x"
	if got := tr.Last(); got.Floors[0].Through != 1 || got.Holders[0] != "a" {
		t.Errorf("the caller's change reached the tracker: %+v", got)
	}
}

// A random history of lanes that move forward, get rewound, are retired and
// restored, and can't be read,
// beside a plain record of all that was ever acked.
func TestC3_TrackerNeverPassesWhatEveryLaneAcked(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		sinks := []string{"a", "b", "c", "d"}[:1+rng.IntN(4)]
		tr := watermark.NewTracker("i", sinks, time.Duration(rng.IntN(3))*time.Minute)
		committed := map[string]flusso.Position{}
		ever := map[string]flusso.Position{}
		retired := map[string]bool{}
		last := flusso.NoPosition
		now := noon
		for step := range 60 {
			now = now.Add(time.Duration(rng.IntN(90)) * time.Second)
			s := sinks[rng.IntN(len(sinks))]
			if rng.IntN(10) == 0 {
				committed[s] = flusso.Position(rng.IntN(int(committed[s]) + 1)) // an operator rewinds it
			} else {
				committed[s] += flusso.Position(rng.IntN(5))
			}
			ever[s] = max(ever[s], committed[s])
			if rng.IntN(6) == 0 {
				retired[s] = !retired[s]
			}
			down := rng.IntN(8) == 0
			partial := rng.IntN(8) == 0
			w, err := tr.Refresh(now, func(ask []string) ([]flusso.LaneFloor, error) {
				if down {
					return nil, errDown
				}
				var out []flusso.LaneFloor
				for i, sink := range ask {
					switch {
					case partial && i == 0:
						out = append(out, in(sink, flusso.FloorUnknown))
					case retired[sink]:
						out = append(out, in(sink, flusso.FloorRetired))
					case committed[sink] == 0:
						out = append(out, in(sink, flusso.FloorNothing))
					default:
						out = append(out, acked(sink, committed[sink]))
					}
				}
				return out, nil
			})
			if (err != nil) != down || w.Stale != (down || partial) {
				t.Fatalf("seed %d step %d: err %v, stale %v; down %v, partial %v", seed, step, err, w.Stale, down, partial)
			}
			// Of the lanes that count; one that was retired since it was last
			// read may still.
			var acked, exact []flusso.Position
			for i, sink := range sinks {
				if !retired[sink] || w.Floors[i].State != flusso.FloorRetired {
					acked = append(acked, ever[sink])
				}
				if !retired[sink] {
					exact = append(exact, committed[sink])
				}
			}
			if len(acked) == 0 { // all retired at once: the last to be looked at still counted until then
				acked = []flusso.Position{slices.Max(slices.Collect(maps.Values(ever)))}
			}
			if w.Position > last && w.Position > slices.Min(acked) {
				t.Fatalf("seed %d step %d: watermark %s, and the lanes that count acked %v", seed, step, w.Position, acked)
			}
			if w.Position < last {
				t.Fatalf("seed %d step %d: went back from %s to %s", seed, step, last, w.Position)
			}
			if !w.Stale && len(exact) > 0 && w.Position < slices.Min(exact) {
				t.Fatalf("seed %d step %d: %s is late, the lanes that count are committed at %v", seed, step, w.Position, exact)
			}
			if len(w.Holders) == 0 && len(exact) > 0 && !w.Stale || !slices.IsSorted(w.Holders) {
				t.Fatalf("seed %d step %d: holders %v", seed, step, w.Holders)
			}
			last = w.Position
		}
	}
}

func BenchmarkMin(b *testing.B) {
	for _, n := range []int{10, 1000} {
		floors := make([]flusso.LaneFloor, n)
		for i := range floors {
			floors[i] = acked(fmt.Sprintf("sink-%04d", i), flusso.Position(1000+i))
		}
		b.Run(fmt.Sprintf("lanes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				watermark.Min(floors, "i", noon)
			}
		})
	}
}

func BenchmarkTracker(b *testing.B) {
	const n = 1000
	sinks := make([]string, n)
	all := make([]flusso.LaneFloor, n)
	for i := range sinks {
		sinks[i] = fmt.Sprintf("sink-%04d", i)
		all[i] = acked(sinks[i], flusso.Position(1000+i))
	}
	tr := watermark.NewTracker("i", sinks, time.Hour)
	tr.Next(noon)
	tr.Observe(all, nil, noon)
	b.Run("lanes=1000/holder", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tr.Next(noon)
			tr.Observe(all[:1], nil, noon)
		}
	})
}

// The ceilings are what the paths take today: a thousand lanes cost some
// slices, and nothing for each lane.
func TestAllocations(t *testing.T) {
	const n = 1000
	sinks := make([]string, n)
	floors := make([]flusso.LaneFloor, n)
	for i := range sinks {
		sinks[i] = fmt.Sprintf("sink-%04d", i)
		floors[i] = acked(sinks[i], 1000)
	}
	tr := watermark.NewTracker("i", sinks, 0)
	refresh := func() {
		if w, err := tr.Refresh(noon, func([]string) ([]flusso.LaneFloor, error) { return floors, nil }); err != nil || w.Position != 1000 {
			t.Fatalf("got %s, %v", w.Position, err)
		}
	}
	for _, tt := range []struct {
		name string
		max  float64
		run  func()
	}{
		{"refresh", 5, refresh},
		{"Min", 2, func() { watermark.Min(floors, "i", noon) }},
		{"Last", 2, func() { tr.Last() }},
	} {
		if got := testing.AllocsPerRun(100, tt.run); got > tt.max {
			t.Errorf("%s of %d lanes: %v allocations, at most %v", tt.name, n, got, tt.max)
		}
	}
}
