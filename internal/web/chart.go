package web

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

// axis places positions: the newest one of all lanes at the right end, older
// ones to the left by the logarithm of their distance to it. So a lane that is
// close and one that is far behind are both seen, and the place of a position
// depends on nothing but the distance and the decade of the farthest one.
type axis struct {
	Newest string
	Mark   string // the place of the watermark; empty for none
	Anchor string // how a text at Mark is aligned to stay within
	Ticks  []tick

	newest uint64
	reach  float64 // distance at the left end
}

type tick struct {
	X, Label, Anchor string
	Minor            bool // left out where there is little room
}

// bar is a lane on the axis.
type bar struct {
	// Kind is span (items wait), done (none do), open (how far it is acked is
	// not known) or empty.
	Kind        string
	From, Width string
	To          string
	Text        string // the same in words
	// FloorLabel stands at the floor; empty where it is told by TailLabel.
	FloorLabel, TailLabel string
}

// apart is the place from which a floor is too close to the right end for a
// label of its own.
const apart = 50

const (
	leastReach = 1000
	// margin keeps ends from being cut, in percent.
	margin = 2.0
)

func newAxis(r *status.Report) axis {
	var a axis
	for _, l := range r.Lanes {
		a.newest = max(a.newest, uint64(l.Tail), acked(l))
	}
	a.newest = max(a.newest, uint64(r.Watermark.Position))
	oldest := a.newest
	for _, l := range r.Lanes {
		for _, p := range []uint64{uint64(l.Tail), acked(l)} {
			if p > 0 {
				oldest = min(oldest, p)
			}
		}
	}
	mark := uint64(r.Watermark.Position)
	if mark > 0 {
		oldest = min(oldest, mark)
	}
	a.reach = leastReach
	for a.reach < float64(a.newest-oldest) {
		a.reach *= 10
	}
	a.Newest = grouped(status.Position(a.newest))
	if mark > 0 && r.Watermark.Error == "" {
		x := a.place(mark)
		a.Mark, a.Anchor = percent(x), anchor(x)
	}
	a.ticks()
	return a
}

// acked is a lane's floor in the positions of the watermark's incarnation, 0
// where it has none: another incarnation counts on its own.
func acked(l status.Lane) uint64 {
	if l.State == status.LaneState(flusso.FloorOther) {
		return 0
	}
	return uint64(l.Acked)
}

// place returns where a position is, in percent.
func (a *axis) place(p uint64) float64 {
	behind := 0.0
	if p < a.newest {
		behind = float64(a.newest - p)
	}
	return a.at(behind)
}

func (a *axis) at(behind float64) float64 {
	share := math.Log1p(behind) / math.Log1p(a.reach)
	return margin + (100-2*margin)*(1-min(share, 1))
}

func (a *axis) ticks() {
	decades := int(math.Round(math.Log10(a.reach)))
	every := (decades + 3) / 4
	for d, n := decades, 0; d > 0; d, n = d-every, n+1 {
		x := a.at(math.Pow10(d))
		t := tick{X: percent(x), Label: "−" + short(d), Anchor: anchor(x), Minor: n%2 == 1}
		a.Ticks = append(a.Ticks, t)
	}
}

// short is a power of ten as people say it.
func short(decade int) string {
	units := []string{"", "k", "M", "G", "T", "P", "E"}
	return "1" + strings.Repeat("0", decade%3) + units[min(decade/3, len(units)-1)]
}

func anchor(x float64) string {
	switch {
	case x < 15:
		return "start"
	case x > 85:
		return "end"
	}
	return "middle"
}

func (a *axis) bar(l status.Lane) bar {
	floor, tail := acked(l), uint64(l.Tail)
	end := a.place(tail)
	switch {
	case tail == 0:
		return bar{Kind: "empty", Text: "the lane holds no item", TailLabel: "no item"}
	case floor == 0 || l.State == status.Errored:
		return bar{
			Kind: "open", From: percent(margin), Width: percent(end - margin), To: percent(end),
			Text:      "acked floor none or not known, tail " + group(tail),
			TailLabel: "acked none or not known, tail " + group(tail),
		}
	case floor >= tail:
		return bar{
			Kind: "done", From: percent(end), Width: "0%", To: percent(end),
			Text: "acked through its tail, " + group(tail), TailLabel: "acked " + group(tail),
		}
	}
	from := a.place(floor)
	b := bar{
		Kind: "span", From: percent(from), Width: percent(max(end-from, 0)), To: percent(end),
		Text:       fmt.Sprintf("acked %s, tail %s: %s positions wait", group(floor), group(tail), group(tail-floor)),
		FloorLabel: "acked " + group(floor), TailLabel: "tail " + group(tail),
	}
	if from > apart {
		b.FloorLabel, b.TailLabel = "", b.FloorLabel+", "+b.TailLabel
	}
	return b
}

// drawing is a curve as SVG paths in a box of 100 by 20.
type drawing struct {
	Line, Area string
	Peak       string
	Text       string // in words
}

// The least full scale of a curve: a lane that flickers between none and a few
// is at rest, and looks so.
const (
	leastBatches = 20
	leastSeconds = 5
)

func draw(points []point, least float64, amount func(float64) string) drawing {
	peak, now, known := 0.0, math.NaN(), false
	for _, p := range points {
		if !math.IsNaN(p.Value) {
			peak, known = max(peak, p.Value), true
		}
		now = p.Value
	}
	if !known {
		return drawing{Text: "nothing known over the last 10 minutes"}
	}
	var line, area strings.Builder
	scale := max(peak, least)
	for i := 0; i < len(points); {
		if math.IsNaN(points[i].Value) {
			i++
			continue
		}
		first := points[i].At * 100
		last := first
		fmt.Fprintf(&area, "M%s 20", digits(first))
		command := byte('M')
		for ; i < len(points) && !math.IsNaN(points[i].Value); i++ {
			last = points[i].At * 100
			at := digits(last) + " " + digits(19-17*points[i].Value/scale)
			line.WriteByte(command)
			line.WriteString(at)
			area.WriteByte('L')
			area.WriteString(at)
			command = 'L'
		}
		if last == first {
			line.WriteString("h.5") // a point alone would not be seen
		}
		fmt.Fprintf(&area, "L%s 20z", digits(last))
	}
	text := "at most " + amount(peak)
	if !math.IsNaN(now) {
		text = "now " + amount(now) + ", " + text
	}
	d := drawing{Line: line.String(), Area: area.String(), Text: text + " over the last 10 minutes"}
	if peak > 0 {
		d.Peak = amount(peak)
	}
	return d
}

func digits(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }

func whole(v float64) string { return group(uint64(v)) }

func ago(v float64) string { return age(seconds(v)) }
