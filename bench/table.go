package bench

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table renders the lines of reports as a table, in Markdown that is aligned
// for a terminal too, behind what they were measured on.
func Table(reports []Report) string {
	var out strings.Builder
	out.WriteString(measuredOn(reports))
	rows := [][]string{{"row", "what", "beside", "measured", "beside it", "median of pairs", "spread", "to reach", "verdict"}}
	for _, r := range reports {
		for _, l := range r.Lines {
			rows = append(rows, append([]string{r.Row}, l.cells()...))
		}
	}
	markdown(&out, rows)
	return out.String()
}

// Details renders what the table has no room for: notes and curves. Drawings
// are linked below folder.
func Details(reports []Report, folder string) string {
	var out strings.Builder
	for _, r := range reports {
		for _, n := range r.Notes {
			fmt.Fprintf(&out, "- *%s*: %s\n", r.Row, n)
		}
	}
	for _, r := range reports {
		for _, c := range r.Curves {
			fmt.Fprintf(&out, "\n%s\n\n", c.Title)
			markdown(&out, c.cells())
			fmt.Fprintf(&out, "\n![%s](%s/%s.svg)\n", c.Title, folder, c.Name)
		}
	}
	return out.String()
}

// measuredOn says it once where all rows were measured alike.
func measuredOn(reports []Report) string {
	var order []string
	rows := map[string][]string{}
	for _, r := range reports {
		on := fmt.Sprintf("%s; %s; %s", r.Machine, r.Broker, r.Settings)
		if rows[on] == nil {
			order = append(order, on)
		}
		rows[on] = append(rows[on], r.Row)
	}
	var out strings.Builder
	for _, on := range order {
		which := ""
		if len(order) > 1 {
			which = " (" + strings.Join(rows[on], ", ") + ")"
		}
		fmt.Fprintf(&out, "Measured%s on %s.\n", which, on)
	}
	return out.String() + "\n"
}

func (l Line) cells() []string {
	ours, raw, median, spread, unit := l.Found, "", "", "", l.Unit
	if ours == "" {
		ours = number(l.Ours.Median) + " " + l.Unit
	}
	beside := l.Beside
	if beside == "" {
		beside = "–"
	}
	if l.Raw != nil {
		raw = number(l.Raw.Median) + " " + l.Unit
	}
	if l.Compared != nil {
		unit = l.By
		median = number(l.Compared.Median) + " " + l.By
		spread = number(l.Compared.Min) + " – " + number(l.Compared.Max)
	} else if l.Ours.Samples > 1 {
		spread = number(l.Ours.Min) + " – " + number(l.Ours.Max)
	}
	return []string{l.What, beside, strings.TrimSpace(ours), strings.TrimSpace(raw), median, spread, l.Target.text(unit), string(l.Verdict)}
}

// number has three significant digits, none behind the point from 100 on, and
// none of a whole number.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	size := math.Abs(v)
	digits := 0
	switch {
	case size >= 1000:
		return thousands(int64(math.Round(v)))
	case size >= 100 || v == math.Trunc(v):
	case size >= 10:
		digits = 1
	case size >= 0.1:
		digits = 2
	default:
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.*f", digits, v)
}

func thousands(v int64) string {
	text := fmt.Sprint(v)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// markdown writes rows, of which the first is the head, with aligned columns.
func markdown(out *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string) {
		out.WriteByte('|')
		for i, cell := range row {
			fmt.Fprintf(out, " %s%s |", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		out.WriteByte('\n')
	}
	dashes := make([]string, len(widths))
	for i, w := range widths {
		dashes[i] = strings.Repeat("-", w)
	}
	for _, row := range slices.Insert(slices.Clone(rows), 1, dashes) {
		line(row)
	}
}

// The marks in a document between which a text is written.
const (
	begin = "<!-- bench: written by make bench, from here -->"
	end   = "<!-- bench: to here -->"
)

// Splice returns a document with text between its marks.
func Splice(document []byte, text string) ([]byte, error) {
	before, rest, found := bytes.Cut(document, []byte(begin+"\n"))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return nil, fmt.Errorf("the document has no lines %q and %q", begin, end)
	}
	return slices.Concat(before, []byte(begin+"\n\n"+strings.TrimSpace(text)+"\n\n"+end), after), nil
}
