package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/status"
)

func newLag(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lag",
		Short: "Show how far each sink is behind, exactly",
		Long: `Show how far each sink is behind: batches, envelopes, bytes and source changes
that it has not acked, and the age of the first of them. The numbers come from
the running totals in the lanes' headers and are exact whatever the backlog; no
engine needs to run. A number that is not known is shown as -, never as 0, and
the exit code is then 1.

--lag shows the lanes that match: '>0', 'envelopes>=100', 'bytes>10MiB',
'seconds>60', 'seconds>5min'; without a word, batches count. A lane whose lag is
not known matches always. Operators: > >= < <= = !=.

Where large numbers or long names do not leave room for every column, changes,
bytes, envelopes and tail go first; the JSON has them.

JSON: docs/json.md; one line for each report with --watch.`,
		Example: `  $ flusso-kafka-admin lag --lag '>0' --sort age --pipeline demo
  sink      acked    tail  batches  envelopes      bytes  changes    age
  archive  493959  720519      399       1506  143.3 KiB     1608  3.1 s`,
		Args: noArgs,
	}
	t := addTarget(cmd, s)
	show := &showing{}
	show.addWatch(cmd)
	filter := cmd.Flags().String("lag", "", "show lanes whose lag matches `condition`, as in '>0'")
	order := cmd.Flags().String("sort", "sink", "sink, or lag, age, bytes: the most first")
	completeFlag(cmd, "lag", completeNothing)
	completeFlag(cmd, "sort", cobra.FixedCompletions(lagOrders, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		match, err := parseCondition(*filter)
		if err != nil {
			return usageError{fmt.Errorf("--lag %q: %w", *filter, err)}
		}
		if !slices.Contains(lagOrders, *order) {
			return usageError{fmt.Errorf("--sort %q: one of %s", *order, strings.Join(lagOrders, ", "))}
		}
		lanes := func(v view) []status.Lane {
			out := []status.Lane{}
			for _, l := range v.Lanes {
				if match.holds(l) {
					out = append(out, l)
				}
			}
			sortLanes(out, *order)
			return out
		}
		return t.show(cmd.Context(), show, answer{
			options: status.Options{LanesOnly: true},
			json: func(v view) any {
				return struct {
					Pipeline string                 `json:"pipeline"`
					Lanes    []status.Lane          `json:"lanes"`
					Rates    map[string]status.Rate `json:"rates,omitempty"`
				}{v.Pipeline, lanes(v), v.rates}
			},
			text:  func(p *page, v view) error { return writeLag(p, v, lanes(v)) },
			found: func(v view) []string { return foundIn(v.Report, unknownLag) },
		})
	}
	return cmd
}

// unknownLag reports whether a finding makes a lane's lag a matter of doubt.
func unknownLag(f status.Finding) bool {
	switch f.Code {
	case status.CodeGap, status.CodeGroupMissing, status.CodeLaneMissing, status.CodeRecreated, status.CodeUnverified, status.CodeLookup:
		return f.Severity != status.Note
	}
	return false
}

func writeLag(p *page, v view, lanes []status.Lane) error {
	const tail, envelopes, bytes, changes = 2, 4, 5, 6
	tab := &table{
		right: []bool{false, true, true, true, true, true, true, true, true, true},
		spare: []int{changes, bytes, envelopes, tail},
	}
	tab.add("sink", "acked", "tail", "batches", "envelopes", "bytes", "changes", "age")
	if v.rates == nil {
		tab.right = tab.right[:8]
	} else {
		tab.rows[0] = append(tab.rows[0], "acked/s", "published/s")
	}
	for _, l := range lanes {
		c := lagCells(l)
		cells := []string{l.Sink, c.acked, c.tail, c.batches, c.envelopes, c.bytes, c.changes, c.age}
		if v.rates != nil {
			r := rateCells(v.rates[l.Sink])
			cells = append(cells, r[0], r[3])
		}
		tab.add(cells...)
	}
	if len(lanes) == 0 {
		if _, err := fmt.Fprintf(p, "none of %s matches\n", status.Count(uint64(len(v.Lanes)), "lane")); err != nil {
			return err
		}
	} else {
		tab.headings(p.palette)
		if err := tab.writeTo(p); err != nil {
			return err
		}
	}
	return p.below(v, unknownLag)
}

var lagOrders = []string{"sink", "lag", "age", "bytes"}

// sortLanes sorts lanes by sink, or by what waits: what is not known first,
// then the most.
func sortLanes(lanes []status.Lane, order string) {
	waits := map[string]func(status.Lane) float64{
		"lag":   func(l status.Lane) float64 { return float64(*l.Batches) },
		"age":   func(l status.Lane) float64 { return *l.Seconds },
		"bytes": func(l status.Lane) float64 { return float64(*l.Bytes) },
	}[order]
	slices.SortStableFunc(lanes, func(a, b status.Lane) int {
		switch {
		case waits == nil:
		case a.Known && b.Known:
			if c := cmp.Compare(waits(b), waits(a)); c != 0 {
				return c
			}
		case a.Known != b.Known:
			if b.Known {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Sink, b.Sink)
	})
}
