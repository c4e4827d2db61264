package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

// A label that is too wide to stand beside its text has a line of its own, and a
// long name is not pushed out of the width by the indentation.
func TestParagraphKeepsToTheWidth(t *testing.T) {
	for _, label := range []int{0, 9, 41, 60, flusso.MaxName} {
		var b strings.Builder
		text := "no consumer is attached to " + strings.Repeat("n", maxColumns-2) + " and the first of two batches that wait for it is an hour old"
		if err := paragraph(&b, strings.Repeat("l", label), text); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		for _, line := range lines {
			if n := ansi.StringWidth(line); n > maxColumns {
				t.Errorf("label of %d: a line of %d columns: %q", label, n, line)
			}
		}
		if len(lines) > 6 {
			t.Errorf("label of %d: %d lines:\n%s", label, len(lines), b.String())
		}
	}
}

// What makes the exit code 1 is one line, however many lanes there are, and so is
// the rest of one kind on the screen.
func TestManyFindingsStayShort(t *testing.T) {
	v := manyLanes(1000)
	for _, l := range v.Lanes {
		v.Findings = append(v.Findings, status.Finding{Severity: status.Failure, Code: status.CodeUnverified, Sink: l.Sink, Text: "set by another tool"})
		v.Watermark.Floors = append(v.Watermark.Floors, status.Floor{Sink: l.Sink, State: flusso.FloorUnverified})
	}
	if got := markProblems(v); len(got) != 2 || got[1] != "and 999 more" {
		t.Errorf("watermark ends with %d sentences: %.300q", len(got), got)
	}
	p := &page{}
	if err := p.findings(v.Report, mostAlike); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(p.String(), "\n"); n > 10 {
		t.Errorf("%d lines of findings", n)
	}
	if want := fmt.Sprintf("and %d more", 1000-mostAlike-mostNamed); !strings.Contains(p.String(), want) {
		t.Errorf("got %s\nwant %q", p, want)
	}
}

// On a low terminal findings leave room for the watermark and the lanes.
func TestStatusFoldsFindings(t *testing.T) {
	v := manyLanes(30)
	for _, l := range v.Lanes[:6] {
		for _, code := range []string{status.CodeNoConsumer, status.CodeOffsetsExpire} {
			v.Findings = append(v.Findings, status.Finding{Severity: status.Failure, Code: code, Sink: l.Sink, Text: "nobody is there", Help: "flusso-kafka-admin lag"})
		}
	}
	p := &page{rows: 24}
	if err := writeStatus(p, v); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(p.String(), "\n"); n > 24 {
		t.Errorf("%d lines on 24 rows:\n%s", n, p)
	}
}

// Positions of another incarnation say nothing about where the watermark goes.
func TestExplain_TheTailOfAnotherIncarnation(t *testing.T) {
	lane := func(sink, incarnation string, tail status.Position) status.Lane {
		return status.Lane{Sink: sink, Tail: tail, Newest: &status.Item{Incarnation: incarnation}}
	}
	floor := func(sink string, state flusso.FloorState, through status.Position) status.Floor {
		return status.Floor{Sink: sink, State: state, Through: through}
	}
	r := &status.Report{
		Lanes: []status.Lane{lane("a", "old", 900), lane("b", "new", 20)},
		Watermark: status.Watermark{
			Incarnation: "new", Holders: []string{"a"},
			Floors: []status.Floor{floor("a", flusso.FloorOther, 0), floor("b", flusso.FloorAcked, 20)},
		},
	}
	if got := explain(r)[0]; got.Sink != "a" || got.Next != 0 || len(got.NextHolders) != 0 {
		t.Errorf("got %s, to %d, held by %q: want nothing known", got.Sink, got.Next, got.NextHolders)
	}
	r.Lanes[0].Newest.Incarnation = "new"
	if got := explain(r)[0]; got.Next != 20 || len(got.NextHolders) != 1 {
		t.Errorf("got to %d, held by %q: want 20, held by b", got.Next, got.NextHolders)
	}
}

// Positions of 20 digits leave a table its last columns: others go.
func TestLagOfLargePositionsKeepsItsRates(t *testing.T) {
	v := manyLanes(1)
	l := &v.Lanes[0]
	l.Sink = strings.Repeat("s", flusso.MaxName)
	l.Acked, l.Tail = 18446744073709551000, 18446744073709551614
	l.Batches, l.Envelopes, l.Bytes, l.Changes = new(uint64(12345678)), new(uint64(123456789)), new(uint64(1<<40)), new(uint64(123456789))
	v.rates = map[string]status.Rate{l.Sink: {Seconds: 1, Delivered: &status.Flow{Batches: 1234}, Published: &status.Flow{Batches: 5678}}}
	p := &page{}
	if err := writeLag(p, v, v.Lanes); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(p.String()) {
		if n := ansi.StringWidth(strings.TrimSuffix(line, "\n")); n > maxColumns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	heading, row, _ := strings.Cut(strings.TrimSuffix(p.String(), "\n"), "\n")
	if !strings.HasSuffix(heading, "published/s") || !strings.HasSuffix(row, " 5678") || !strings.Contains(row, " 18446744073709551000 ") || !strings.HasPrefix(row, strings.Repeat("s", goodFirst-1)) {
		t.Errorf("got\n%s", p)
	}
	if strings.Contains(heading, "changes") {
		t.Errorf("got\n%s\nwant no column of changes", p)
	}

	p = &page{}
	l.Retention = status.Retention{Milliseconds: new(int64(604800000)), RiskSeconds: new(86400.0)}
	if err := p.lanes(v, false); err != nil {
		t.Fatal(err)
	}
	if heading, _, _ := strings.Cut(p.String(), "\n"); !strings.HasSuffix(heading, "kept") {
		t.Errorf("got\n%s", p)
	}
}

func TestMarkLine(t *testing.T) {
	for behind, want := range map[string]string{
		"0": "50, held by search", "1": "50, held by search, 1 position behind the first lane", "20": "50, held by search, 20 positions behind the first lane",
	} {
		if got := markLine(status.Watermark{Position: 50, Holders: []string{"search"}, Behind: behind}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
