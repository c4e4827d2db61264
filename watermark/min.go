package watermark

import (
	"cmp"
	"slices"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// Min returns the watermark of floors: the lowest through of all that count,
// and [flusso.NoPosition] while any of them has none or there is no lane that
// counts. Lanes in state [flusso.FloorRetired] don't. Only a floor in state
// [flusso.FloorAcked] has a through [C2]; whatever another state carries is
// cleared in the result.
//
// Holders are the sinks at the minimum: those that have none, where there are
// any. Since is readAt, as for a reader that looks for the first time. floors
// is not changed and not kept.
func Min(floors []flusso.LaneFloor, incarnation string, readAt time.Time) flusso.Watermark {
	return minimum(sorted(floors), incarnation, readAt)
}

// minimum is Min of floors that are sorted and proven, which it keeps.
func minimum(floors []flusso.LaneFloor, incarnation string, readAt time.Time) flusso.Watermark {
	w := flusso.Watermark{
		Incarnation: incarnation,
		Since:       readAt,
		ReadAt:      readAt,
		Floors:      floors,
	}
	w.Position, w.Holders = lowest(w.Floors)
	w.Behind = behind(w.Floors, w.Position)
	return w
}

// sorted returns a copy of floors, proven and in order of sink.
func sorted(floors []flusso.LaneFloor) []flusso.LaneFloor {
	out := slices.Clone(floors)
	for i := range out {
		out[i] = proven(out[i])
	}
	slices.SortStableFunc(out, func(a, b flusso.LaneFloor) int { return cmp.Compare(a.Sink, b.Sink) })
	return out
}

// proven is a floor with the through of everything that is not acked cleared.
func proven(f flusso.LaneFloor) flusso.LaneFloor {
	if f.State != flusso.FloorAcked {
		f.Through = flusso.NoPosition
	}
	return f
}

// counts reports whether the watermark waits for a lane.
func counts(f flusso.LaneFloor) bool { return f.State != flusso.FloorRetired }

// lowest returns the minimum of sorted floors and who holds it. NoPosition is
// the lowest value there is, so a lane without a through needs no case of its
// own.
func lowest(floors []flusso.LaneFloor) (flusso.Position, []string) {
	low, n := flusso.NoPosition, 0
	for i := range floors {
		switch f := &floors[i]; {
		case !counts(*f):
		case n == 0 || f.Through < low:
			low, n = f.Through, 1
		case f.Through == low:
			n++
		}
	}
	if n == 0 {
		return low, nil
	}
	holders := make([]string, 0, n)
	for i := range floors {
		if f := &floors[i]; counts(*f) && f.Through == low {
			holders = append(holders, f.Sink)
		}
	}
	return low, slices.Compact(holders)
}

// behind returns how far the highest floor is ahead of position. A retired
// lane has no through, and so is never the highest.
func behind(floors []flusso.LaneFloor, position flusso.Position) flusso.Position {
	high := position // where every floor went back behind what was confirmed
	for _, f := range floors {
		high = max(high, f.Through)
	}
	return high - position
}
