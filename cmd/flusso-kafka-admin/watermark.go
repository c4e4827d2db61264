package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

func newWatermark(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watermark",
		Short: "Show what the source may confirm, and which lane holds it",
		Long: `Show the watermark: the position that every sink has acked, which the source may
confirm; which lane holds it, since when, by how much, and why a lane does not
count. It does not wait for a retired lane. No engine needs to run. Exit code 1
says that a lane does not count that should, or that it is not known.

States of a floor: acked, nothing-acked, group-missing, other-incarnation,
unverified, lane-recreated, retired, unknown: docs/operating.md.

JSON: docs/json.md; one line for each report with --watch.`,
		Example: `  $ flusso-kafka-admin watermark --pipeline demo
  watermark    493959, held by archive, 229170 positions behind the first lane, its first unacked
               item is 3.2 s old
  incarnation  demo-1-3f11f80d (read from the newest header, in the lane of archive)

  sink     floor  through  offset
  archive  acked   493959    4265
  search   acked   723129    5996`,
		Args: noArgs,
	}
	t := addTarget(cmd, s)
	show := &showing{incarnation: incarnationFlag(cmd)}
	show.addWatch(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.show(cmd.Context(), show, answer{
			options: status.Options{LanesOnly: true},
			json: func(v view) any {
				return struct {
					Pipeline string `json:"pipeline"`
					status.Watermark
				}{v.Pipeline, v.Watermark}
			},
			text:  writeWatermark,
			found: markProblems,
		})
	}
	cmd.AddCommand(newWatermarkExplain(t))
	return cmd
}

// markProblems says why lanes do not count that should, and what could not be
// looked up.
func markProblems(v view) []string {
	w := v.Watermark
	what := saidIn(v.Report, failedLookup)
	for _, f := range w.Floors {
		if f.State == flusso.FloorAcked || f.State == flusso.FloorRetired || f.State == flusso.FloorUnknown {
			continue // the last is among those already
		}
		p := fmt.Sprintf("floor of %s: %s", f.Sink, f.State)
		if f.Detail != "" {
			p += ": " + f.Detail
		}
		what = append(what, p)
	}
	return worst(what)
}

// markLine says in one line where the watermark is and who holds it.
func markLine(w status.Watermark) string {
	switch {
	case w.Error != "":
		return "unknown: " + w.Error
	case len(w.Holders) == 0:
		return "none: every lane is retired"
	case flusso.Position(w.Position) == flusso.NoPosition:
		return "none: " + some(w.Holders, mostHolders) + " acked nothing that counts"
	}
	line := flusso.Position(w.Position).String()
	caught := w.HoldsForSeconds != nil && *w.HoldsForSeconds == 0
	if w.Behind == "0" && caught {
		return line + ", every lane is at it and nothing waits"
	}
	line += ", held by " + some(w.Holders, mostHolders)
	switch w.Behind {
	case "0":
	case "1":
		line += ", 1 position behind the first lane"
	default:
		line += ", " + w.Behind + " positions behind the first lane"
	}
	if w.HoldsForSeconds != nil && !caught {
		its := "its"
		if len(w.Holders) > 1 {
			its = "their"
		}
		line += ", " + its + " first unacked item is " + tied(status.Age(*w.HoldsForSeconds)) + " old"
	}
	return line
}

// mostHolders is how many lanes are named in a sentence.
const mostHolders = 5

// some names the first few.
func some(names []string, most int) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func writeWatermark(p *page, v view) error {
	w := v.Watermark
	if err := paragraph(p, p.bold("watermark    "), markLine(w)); err != nil {
		return err
	}
	if err := paragraph(p, p.bold("incarnation  "), incarnationLine(w)); err != nil {
		return err
	}
	p.WriteString("\n")
	tab := &table{right: []bool{false, false, true, true}}
	tab.add("sink", "floor", "through", "offset")
	for _, f := range w.Floors {
		tab.add(f.Sink, p.floorState(f.State), flusso.Position(f.Through).String(), flusso.Offset(f.Offset).String())
	}
	tab.headings(p.palette)
	if err := tab.writeTo(p); err != nil {
		return err
	}
	for _, f := range w.Floors {
		if f.Detail == "" {
			continue
		}
		if err := paragraph(p, "  "+cut(f.Sink, 30)+": ", f.Detail); err != nil {
			return err
		}
	}
	return p.below(v, failedLookup)
}

// failedLookup says that something could not be looked up.
func failedLookup(f status.Finding) bool {
	return f.Code == status.CodeLookup && f.Severity != status.Note
}

// below writes what was found below a table.
func (p *page) below(v view, counts func(status.Finding) bool) error {
	for _, f := range v.Findings {
		if !counts(f) {
			continue
		}
		if err := paragraph(p, "  "+p.severity(f.Severity, cut(cmp.Or(f.Sink, string(f.Severity)), 30))+": ", f.Text); err != nil {
			return err
		}
	}
	return nil
}

func (p *page) floorState(s flusso.FloorState) string {
	switch s {
	case flusso.FloorAcked:
		return p.good(string(s))
	case flusso.FloorNothing, flusso.FloorOther:
		return p.warn(string(s))
	case flusso.FloorRetired:
		return p.faint(string(s))
	case flusso.FloorMissing, flusso.FloorUnverified, flusso.FloorRecreated, flusso.FloorUnknown:
		return p.bad(string(s))
	}
	return string(s)
}

// ago says when something was, for a sentence.
func ago(t, now time.Time) string { return tied(since(t, now)) + " ago" }
