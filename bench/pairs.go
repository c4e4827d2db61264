package bench

import (
	"context"
	"fmt"
	"runtime"
)

// Sample is one measure of one side.
type Sample struct {
	// Moved is what the measure moved. Both sides of a pair must have moved
	// the same, or they are not compared.
	Moved Moved
	// Values are what was measured, by names of the row's own: "MB/s", "p99".
	Values map[string]float64
}

// Moved counts records, and the bytes of their keys and values.
type Moved struct{ Records, Bytes int64 }

// Side does one measure.
type Side func(ctx context.Context) (Sample, error)

// Pairs are the samples of two sides, of which those with the same index were
// measured one right after the other.
type Pairs struct{ Ours, Beside []Sample }

// Interleave measures both sides in turn, A B B A A B B A, so that what drifts
// meets both alike. Warm-ups are measured before and thrown away.
func Interleave(ctx context.Context, warmups, pairs int, ours, beside Side) (Pairs, error) {
	var p Pairs
	for i := range warmups + pairs {
		samples, sides := [2]Sample{}, [2]Side{ours, beside}
		for turn := range sides {
			at := (i + turn) % 2
			// What one side leaves to collect is not the other's to pay.
			runtime.GC()
			s, err := sides[at](ctx)
			if err != nil {
				return p, fmt.Errorf("pair %d of %d, %s: %w", i+1-warmups, pairs, [2]string{"ours", "beside"}[at], err)
			}
			samples[at] = s
		}
		if samples[0].Moved != samples[1].Moved {
			return p, fmt.Errorf("pair %d of %d: ours moved %+v, the side beside it %+v: they must move the same", i+1-warmups, pairs, samples[0].Moved, samples[1].Moved)
		}
		if i >= warmups {
			p.Ours, p.Beside = append(p.Ours, samples[0]), append(p.Beside, samples[1])
		}
	}
	return p, nil
}

// Values returns what was measured under a name, of both sides.
func (p Pairs) Values(name string) (ours, beside []float64) {
	for i := range p.Ours {
		ours, beside = append(ours, p.Ours[i].Values[name]), append(beside, p.Beside[i].Values[name])
	}
	return ours, beside
}

// Ratio is a line of ours divided by beside, pair by pair.
func (p Pairs) Ratio(what, beside, name, unit string, target Target) Line {
	a, b := p.Values(name)
	return compare(what, beside, unit, "×", a, b, target, func(a, b float64) float64 { return a / b })
}

// Difference is a line of ours minus beside, pair by pair, in the line's unit.
func (p Pairs) Difference(what, beside, name, unit string, target Target) Line {
	a, b := p.Values(name)
	return compare(what, beside, unit, unit+" more", a, b, target, func(a, b float64) float64 { return a - b })
}

func compare(what, beside, unit, by string, a, b []float64, target Target, how func(a, b float64) float64) Line {
	each := make([]float64, len(a))
	for i := range a {
		each[i] = how(a[i], b[i])
	}
	raw, compared := SpreadOf(b), SpreadOf(each)
	return Line{
		What: what, Beside: beside, Unit: unit, Ours: SpreadOf(a), Raw: &raw,
		Compared: &compared, By: by, Target: target, Verdict: target.verdict(compared.Median),
	}
}
