package bench

import "fmt"

// Line is one line of the table. Build it by [Pairs.Ratio], [Pairs.Difference],
// [Value] or [Check].
type Line struct {
	What     string  `json:"what"`
	Beside   string  `json:"beside,omitempty"` // what it is compared with
	Unit     string  `json:"unit,omitempty"`
	Ours     Spread  `json:"ours"`
	Raw      *Spread `json:"raw,omitempty"`      // the same of what is beside it
	Compared *Spread `json:"compared,omitempty"` // of the pairs
	By       string  `json:"by,omitempty"`       // unit of Compared: "×" or "ms more"
	Found    string  `json:"found,omitempty"`    // of a [Check]
	Target   Target  `json:"target"`
	Verdict  Verdict `json:"verdict"`
}

// Value is a line of samples that nothing is beside. The target is of their median.
func Value(what, unit string, samples []float64, target Target) Line {
	s := SpreadOf(samples)
	return Line{What: what, Unit: unit, Ours: s, Target: target, Verdict: target.verdict(s.Median)}
}

// Check is a line of something counted that is as it must be or is not:
// "requests", "4 of 4 coordinators".
func Check(what, found, target string, ok bool) Line {
	l := Line{What: what, Found: found, Target: Target{Text: target}, Verdict: Missed}
	if ok {
		l.Verdict = Reached
	}
	return l
}

// Verdict says whether a line reached its target.
type Verdict string

// The verdicts. What has no target is only printed.
const (
	Reached Verdict = "reached"
	Missed  Verdict = "missed"
	Shown   Verdict = "printed"
)

// Target is what a line is to reach.
type Target struct {
	Min  *float64 `json:"min,omitempty"`
	Max  *float64 `json:"max,omitempty"`
	Text string   `json:"text,omitempty"` // in place of the bounds
}

// AtLeast is a target that is reached from value on.
func AtLeast(value float64) Target { return Target{Min: &value} }

// AtMost is a target that is reached up to value.
func AtMost(value float64) Target { return Target{Max: &value} }

// Printed is no target.
func Printed() Target { return Target{} }

func (t Target) verdict(value float64) Verdict {
	switch {
	case t.Min == nil && t.Max == nil:
		return Shown
	case t.Min != nil && !(value >= *t.Min), t.Max != nil && !(value <= *t.Max): // NaN reaches nothing
		return Missed
	}
	return Reached
}

func (t Target) text(unit string) string {
	switch {
	case t.Text != "":
		return t.Text
	case t.Min != nil:
		return fmt.Sprintf("≥ %g %s", *t.Min, unit)
	case t.Max != nil:
		return fmt.Sprintf("≤ %g %s", *t.Max, unit)
	}
	return "–"
}
