package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flusso/flusso-kafka/internal/status"
)

// writes keeps each write by itself.
type writes struct {
	all []string
	err error
}

func (w *writes) Write(b []byte) (int, error) {
	w.all = append(w.all, string(b))
	return len(b), w.err
}

func TestScreenRedrawsInPlace(t *testing.T) {
	w := &writes{}
	s := &screen{out: w, size: func() (int, int) { return 20, 6 }}
	rows := 0
	columns := 0
	page := func(text string) func(int, int) string {
		return func(c, n int) string { columns, rows = c, n; return text }
	}
	if err := s.draw(page("one\n"+strings.Repeat("wide", 10)+"\n"), "below"); err != nil {
		t.Fatal(err)
	}
	if err := s.draw(page(strings.Repeat("line\n", 30)), "below"); err != nil {
		t.Fatal(err)
	}
	if rows != 5 || columns != 20 {
		t.Errorf("a page is made for %d rows of %d columns, want 5 of 20: the last is for what stands below", rows, columns)
	}
	if err := errors.Join(s.close(), s.close()); err != nil {
		t.Fatal(err)
	}
	if len(w.all) != 3 {
		t.Fatalf("got %d writes, want one for each page and one at the end: %q", len(w.all), w.all)
	}
	first, second, last := w.all[0], w.all[1], w.all[2]
	if !strings.HasPrefix(first, ansi.SetModeAltScreenSaveCursor+ansi.HideCursor+ansi.CursorHomePosition) || !strings.HasSuffix(first, ansi.EraseScreenBelow) {
		t.Errorf("got %q", first)
	}
	if !strings.HasPrefix(second, ansi.CursorHomePosition) || strings.Contains(second, ansi.EraseEntireScreen) {
		t.Errorf("got %q, want it from home, and never a cleared screen", second)
	}
	if last != ansi.ShowCursor+ansi.ResetModeAltScreenSaveCursor {
		t.Errorf("got %q", last)
	}
	for i, frame := range w.all[:2] {
		lines := strings.Split(strings.TrimSuffix(frame, ansi.EraseScreenBelow), "\r\n")
		if len(lines) > 6 {
			t.Errorf("page %d has %d lines on 6 rows", i, len(lines))
		}
		for _, line := range lines {
			if n := ansi.StringWidth(line); n > 20 {
				t.Errorf("page %d: a line of %d columns: %q", i, n, line)
			}
			if !strings.HasSuffix(line, ansi.EraseLineRight) {
				t.Errorf("page %d: the rest of the line before stays: %q", i, line)
			}
		}
		if got := ansi.Strip(lines[len(lines)-1]); got != "below" {
			t.Errorf("page %d ends in %q", i, got)
		}
	}
	if !strings.Contains(second, "… 26 more") {
		t.Errorf("got %q, want it to tell what is cut", second)
	}
	w.err = errors.New("gone")
	if err := s.draw(page(""), ""); !errors.Is(err, w.err) {
		t.Errorf("got %v", err)
	}
}

// manyLanes is a report on so many lanes, of which the last is behind.
func manyLanes(n int) view {
	r := &status.Report{Pipeline: "shop"}
	for i := range n {
		l := status.Lane{
			Sink: fmt.Sprintf("s%02d", i), State: status.CaughtUp, Known: true, Consumer: status.Attached,
			Batches: new(uint64(0)), Envelopes: new(uint64(0)), Bytes: new(uint64(0)), Changes: new(uint64(0)), Seconds: new(0.0),
		}
		if i == n-1 {
			l.State, l.Batches, l.Seconds = status.Behind, new(uint64(3)), new(1.0)
		}
		r.Lanes = append(r.Lanes, l)
	}
	return view{Report: r}
}

// Lanes that are fine share a line where the terminal is too low, and only there.
func TestStatusFitsItsRows(t *testing.T) {
	for rows, folded := range map[int]bool{0: false, 24: true, 100: false} {
		p := &page{rows: rows}
		if err := writeStatus(p, manyLanes(30)); err != nil {
			t.Fatal(err)
		}
		text := p.String()
		if got := strings.Contains(text, "29 more are fine: s00, s01"); got != folded {
			t.Errorf("%d rows: folded is %t, want %t:\n%s", rows, got, folded, text)
		}
		if !strings.Contains(text, "\ns29 ") {
			t.Errorf("%d rows: the lane that is behind is not there:\n%s", rows, text)
		}
		if n := strings.Count(text, "\n"); folded && n > rows {
			t.Errorf("%d lines on %d rows", n, rows)
		}
	}
}

// On a screen that is narrower, text goes on below and nothing of it is cut.
func TestStatusFitsItsColumns(t *testing.T) {
	for columns, most := range map[int]int{0: maxColumns, 200: maxColumns, 80: 80, 10: minColumns} {
		v := manyLanes(2)
		v.Findings = []status.Finding{{Severity: status.Failure, Code: status.CodeNoConsumer, Sink: "s01", Text: strings.Repeat("nobody is there ", 20) + "at all"}}
		p := &page{columns: columns}
		if err := writeStatus(p, v); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for line := range strings.Lines(p.String()) {
			widest = max(widest, ansi.StringWidth(strings.TrimSuffix(line, "\n")))
		}
		if widest > most || widest < most-len("nobody is") || !strings.Contains(strings.Join(strings.Fields(p.String()), " "), "at all") || strings.Contains(p.String(), "…") {
			t.Errorf("%d columns: a line of %d, want at most %d, and nothing cut:\n%s", columns, widest, most, p)
		}
	}
}

// Many findings of one kind share a line, too.
func TestFindingsOfOneKindShareALine(t *testing.T) {
	v := manyLanes(30)
	for _, l := range v.Lanes {
		v.Findings = append(v.Findings, status.Finding{Severity: status.Failure, Code: status.CodeNoConsumer, Sink: l.Sink, Text: "nobody is there"})
	}
	p := &page{}
	if err := writeStatus(p, v); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(p.String(), "nobody is there"); n != mostAlike {
		t.Errorf("%d findings in full, want %d:\n%s", n, mostAlike, p)
	}
	if !strings.Contains(p.String(), "and 25 more of no-consumer: s05, s06") {
		t.Errorf("got:\n%s", p)
	}
}

// Colours are for terminals whose user did not forbid them.
func TestPalette(t *testing.T) {
	for _, c := range []struct {
		columns int
		noColor string
		want    bool
	}{{100, "", true}, {0, "", false}, {100, "1", false}} {
		s := streams{columns: c.columns, getenv: func(name string) string {
			if name == "NO_COLOR" {
				return c.noColor
			}
			return ""
		}}
		if got := s.palette().bad("x") != "x"; got != c.want {
			t.Errorf("%d columns, NO_COLOR=%q: coloured is %t", c.columns, c.noColor, got)
		}
	}
}

// A table keeps its columns with colours in it.
func TestTableAlignsColours(t *testing.T) {
	write := func(p palette) string {
		tab := &table{right: []bool{false, false, true}}
		tab.add("sink", "state", "n")
		tab.add("a", p.bad("gap"), "1")
		tab.add("longer", p.good("caught-up"), "1000")
		tab.headings(p)
		var b strings.Builder
		if err := tab.writeTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	plain, coloured := write(palette{}), write(palette{true})
	if coloured == plain || ansi.Strip(coloured) != plain {
		t.Errorf("got %q, without colours %q", coloured, plain)
	}
}

// frames interrupts after so many pages that were drawn over the one before.
type frames struct {
	all  bytes.Buffer
	left int
	stop func()
}

func (f *frames) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(ansi.CursorHomePosition)) {
		if f.left--; f.left == 0 {
			f.stop()
		}
	}
	return f.all.Write(b)
}

// onTerminal runs a command on a terminal of 100 × 30, interrupts it after so
// many pages, and keeps what it wrote: terminal N ARG...
func onTerminal(ts *testscript.TestScript, neg bool, args []string) {
	pages, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out := &frames{left: pages, stop: cancel}
	var stderr strings.Builder
	code := run(ctx, args[1:], streams{
		out: out, err: &stderr, getenv: ts.Getenv, columns: 100, size: func() (int, int) { return 100, 30 },
	})
	ts.Check(os.WriteFile(ts.MkAbs("terminal.out"), out.all.Bytes(), 0o600))
	if out.left > 0 || (code == exitFine) == neg {
		ts.Fatalf("exit code %d, %d pages were missing: %s", code, out.left, stderr.String())
	}
}
