package bench

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Curve is values over a variable, as a table and as a drawing.
type Curve struct {
	Name       string   `json:"name"` // of the drawing's file
	Title      string   `json:"title"`
	X          string   `json:"x"` // what is along the axes: "share of peak (%)"
	Y          string   `json:"y"`
	LogX, LogY bool     `json:",omitempty"`
	Series     []Series `json:"series"`
}

// Series is one line of a curve.
type Series struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"` // by X
}

// Point is one value, with the lowest and highest of its samples where there
// were several: see [Spread.Point].
type Point struct {
	X, Y      float64
	Low, High float64 `json:",omitzero"`
}

// Point returns the median at x, with the lowest and highest.
func (s Spread) Point(x float64) Point { return Point{X: x, Y: s.Median, Low: s.Min, High: s.Max} }

// SVG draws the curve. An axis that is logarithmic has no place for what is
// not positive: such points are left out.
func (c Curve) SVG() ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	if c.LogX {
		p.X.Scale = plot.LogScale{}
	}
	p.X.Tick.Marker = c.ticks()
	if c.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	} else {
		p.Y.Min = 0
	}
	for i, s := range c.Series {
		var points bars
		for _, at := range s.Points {
			if (c.LogX && at.X <= 0) || (c.LogY && at.Y <= 0) || math.IsNaN(at.Y) {
				continue
			}
			points = append(points, at)
		}
		if len(points) == 0 {
			return nil, fmt.Errorf("series %q has no point that can be drawn", s.Name)
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("series %q: %w", s.Name, err)
		}
		line.Color, line.Dashes = plotutil.Color(i), plotutil.Dashes(i)
		marks.Color, marks.Shape = plotutil.Color(i), plotutil.Shape(i)
		p.Add(line, marks)
		if points.spread() {
			ends, err := plotter.NewYErrorBars(points)
			if err != nil {
				return nil, fmt.Errorf("series %q: %w", s.Name, err)
			}
			ends.Color = plotutil.Color(i)
			p.Add(ends)
		}
		p.Legend.Add(s.Name, line, marks)
	}
	canvas := vgsvg.New(18*vg.Centimeter, 11*vg.Centimeter)
	all := draw.New(canvas)
	all.SetColor(color.White) // whatever the page behind it has
	all.Fill(all.Path())
	p.Draw(draw.Crop(all, 2*vg.Millimeter, -vg.Centimeter, 2*vg.Millimeter, -2*vg.Millimeter)) // the last label is wider than its tick
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}

// ticks are at what was measured: few and uneven values, as a rule.
func (c Curve) ticks() plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, s := range c.Series {
		for _, p := range s.Points {
			at := plot.Tick{Value: p.X, Label: number(p.X)}
			if (!c.LogX || p.X > 0) && !slices.Contains(ticks, at) {
				ticks = append(ticks, at)
			}
		}
	}
	return ticks
}

// bars are points that can be drawn.
type bars []Point

// Len implements [plotter.XYer].
func (b bars) Len() int { return len(b) }

// XY implements [plotter.XYer].
func (b bars) XY(i int) (x, y float64) { return b[i].X, b[i].Y }

// YError implements [plotter.YErrorer]. A low that is not positive has no place
// on a logarithmic axis, and gets no bar.
func (b bars) YError(i int) (low, high float64) {
	p := b[i]
	if p.Low <= 0 || p.High < p.Y {
		return 0, 0
	}
	return p.Low - p.Y, p.High - p.Y
}

func (b bars) spread() bool {
	return slices.ContainsFunc(b, func(p Point) bool { return p.Low != p.High })
}

// cells is the curve as a table: a row for each X, a column for each series.
func (c Curve) cells() [][]string {
	head := []string{c.X}
	var xs []float64
	for _, s := range c.Series {
		head = append(head, s.Name+", "+c.Y)
		if len(s.Points) > len(xs) {
			xs = xs[:0]
			for _, p := range s.Points {
				xs = append(xs, p.X)
			}
		}
	}
	rows := [][]string{head}
	for _, x := range xs {
		row := []string{number(x)}
		for _, s := range c.Series {
			cell := ""
			for _, p := range s.Points {
				if p.X == x {
					cell = number(p.Y)
					if p.Low != p.High {
						cell += " (" + number(p.Low) + " – " + number(p.High) + ")"
					}
				}
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return rows
}
