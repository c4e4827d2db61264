package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/flusso/flusso-kafka/internal/status"
)

// maxColumns is the width that text answers keep to.
const maxColumns = 100

// minColumns is how narrow they become on a screen that is narrower.
const minColumns = 60

// widthOf is how wide lines may be that are written to w.
func widthOf(w io.Writer) int {
	if p, ok := w.(*page); ok {
		return p.width()
	}
	return maxColumns
}

// writeJSON writes an answer as indented JSON. Its fields are only ever added to.
func writeJSON(w io.Writer, answer any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(answer)
}

// answers is where a command answers. What cannot be written there has nothing
// to do with the cluster, and is told apart from what has.
type answers struct{ io.Writer }

// Write implements [io.Writer].
func (a answers) Write(b []byte) (int, error) {
	n, err := a.Writer.Write(b)
	if err != nil {
		err = &unwrittenError{err}
	}
	return n, err
}

// unwrittenError says that an answer could not be written, on a disk that is
// full for example. It hides its cause, which would look like a broken connection.
type unwrittenError struct{ cause error }

func (e *unwrittenError) Error() string { return "the answer could not be written: " + e.cause.Error() }

// finding is an error that says what was found, after the answer was given.
type finding struct{ what []string }

func (f finding) Error() string { return strings.Join(f.what, "; ") }

// found returns nil where there is nothing.
func found(what []string) error {
	if len(what) == 0 {
		return nil
	}
	return finding{what}
}

// table is rows of cells; the first row is the heading. The first column is
// aligned left, the others as right says.
type table struct {
	right []bool
	rows  [][]string
	// spare are columns that are left out, in this order, where there is no
	// room for all and a name: the JSON has them.
	spare []int
}

// headings shows the first row as such, on a terminal.
func (t *table) headings(p palette) {
	for i, cell := range t.rows[0] {
		t.rows[0][i] = p.bold(cell)
	}
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// How far the first column shrinks for the others, and for those that can be
// spared.
const (
	minFirst  = 6
	goodFirst = 16
)

// writeTo writes the table in at most [widthOf] columns; the first one, a
// name, is cut where that needs it.
func (t *table) writeTo(w io.Writer) error {
	widths, most := make([]int, len(t.right)), widthOf(w)
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	total := 2 * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	out := make(map[int]bool)
	for _, i := range t.spare {
		if total-widths[0]+min(widths[0], goodFirst) <= most {
			break
		}
		out[i] = true
		total -= widths[i] + 2
	}
	if over := total - most; over > 0 {
		widths[0] = max(minFirst, widths[0]-over)
	}
	for _, row := range t.rows {
		var b strings.Builder
		for i, cell := range row {
			if out[i] {
				continue
			}
			if i > 0 {
				b.WriteString("  ")
			}
			cell = cut(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-ansi.StringWidth(cell))
			if t.right[i] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		if _, err := fmt.Fprintln(w, cut(strings.TrimRight(b.String(), " "), most)); err != nil {
			return err
		}
	}
	return nil
}

// cut shortens s to so many columns; colours do not count.
func cut(s string, columns int) string { return ansi.Truncate(s, columns, "…") }

// plain is what others wrote, without what a terminal would act on.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// paragraph writes text in lines of at most [widthOf], the first after label,
// the others indented as far. A label that takes more than half of that has a
// line of its own; a word that is (a name can't be broken) stands further left.
func paragraph(w io.Writer, label, text string) error {
	width, most := ansi.StringWidth(label), widthOf(w)
	line := label
	empty := true
	var lines []string
	if width > most/2 {
		lines, width = append(lines, strings.TrimRight(label, " ")), 2
		line = strings.Repeat(" ", width)
	}
	text = hint.ReplaceAllStringFunc(text, tied) // a command that is broken can't be pasted
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == '\n' }) {
		word = strings.ReplaceAll(word, noBreak, " ")
		if !empty && ansi.StringWidth(line)+1+ansi.StringWidth(word) > most {
			lines = append(lines, line)
			line, empty = strings.Repeat(" ", max(0, min(width, most-ansi.StringWidth(word)))), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	_, err := fmt.Fprintln(w, strings.Join(append(lines, line), "\n"))
	return err
}

// noBreak is a space at which paragraph does not break a line.
const noBreak = "\u00a0"

// tied keeps a number and its unit on one line of a paragraph.
func tied(s string) string { return strings.ReplaceAll(s, " ", noBreak) }

// Positions and offsets in JSON.
type (
	position = status.Position
	offset   = status.Offset
)

// age shows a duration in the unit that suits it.
func age(d time.Duration) string { return status.Age(d.Seconds()) }

// size shows bytes in the unit that suits them.
func size(n uint64) string { return status.Size(n) }
