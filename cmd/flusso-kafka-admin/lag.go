package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
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

JSON: {"pipeline", "lanes": [{"sink", "known", "acked", "tail", "batches",
"envelopes", "bytes", "changes", "seconds", "gap": {"from", "to", "items"},
"error"}]}. Positions ("acked", "tail") are strings of digits, or null for none;
counts are null when they are not known; "items" of a gap is null likewise.`,
		Args: noArgs,
	}
	t := addTarget(cmd, s)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.run(cmd.Context(), t.lag)
	}
	return cmd
}

// laneLag is a lane's lag as it is answered.
type laneLag struct {
	Sink      string   `json:"sink"`
	Known     bool     `json:"known"`
	Acked     position `json:"acked"`
	Tail      position `json:"tail"`
	Batches   *uint64  `json:"batches"`
	Envelopes *uint64  `json:"envelopes"`
	Bytes     *uint64  `json:"bytes"`
	Changes   *uint64  `json:"changes"`
	Seconds   *float64 `json:"seconds"`
	Gap       *laneGap `json:"gap,omitempty"`
	Error     string   `json:"error,omitempty"`
}

type laneGap struct {
	From  offset  `json:"from"`
	To    offset  `json:"to"`
	Items *uint64 `json:"items"` // null when it is not known
}

func newLaneLag(sink string, l offsets.Lag) laneLag {
	out := laneLag{Sink: sink, Known: l.Known && l.Err == nil}
	if l.Err != nil {
		out.Error = l.Err.Error()
		return out
	}
	out.Acked, out.Tail = position(l.Through), position(l.NewestTo)
	if out.Known {
		seconds := l.Age.Seconds()
		out.Batches, out.Envelopes, out.Bytes, out.Changes, out.Seconds = &l.Batches, &l.Envelopes, &l.Bytes, &l.Changes, &seconds
	}
	if l.Gap != nil {
		out.Gap = &laneGap{From: offset(l.Gap.From), To: offset(l.Gap.To)}
		if l.Gap.Known {
			out.Gap.Items = &l.Gap.Items
		}
	}
	return out
}

// problem says what is wrong with a lane's lag itself; empty for nothing.
func problem(l topics.Lane, lag offsets.Lag) string {
	switch {
	case lag.Err != nil:
		return lag.Err.Error()
	case !lag.Known:
		return fmt.Sprintf("nothing is committed by group %s: it never attached, or expired; %d batches wait in the log at most", l.Group(), lag.Retained.Batches)
	case lag.Gap != nil && (!lag.Gap.Known || lag.Gap.Items > 0):
		lost := "an unknown number of items"
		if lag.Gap.Known {
			lost = fmt.Sprintf("%d items", lag.Gap.Items)
		}
		return fmt.Sprintf("gap: offsets %s to %s are gone with %s that were not acked: stop the sink, accept the gap (lane accept %s), then seed the sink again (request send %s)",
			lag.Gap.From, lag.Gap.To, lost, l.Sink, l.Sink)
	}
	return ""
}

func (t *target) lag(ctx context.Context, c *cluster) error {
	lags, err := c.store.Lag(ctx, c.lanes)
	if err != nil && len(lags) == 0 {
		return fmt.Errorf("look up the lag of pipeline %s: %w", c.pipeline, err)
	}
	answer := struct {
		Pipeline string    `json:"pipeline"`
		Lanes    []laneLag `json:"lanes"`
	}{Pipeline: c.pipeline.String()}
	tab := &table{right: []bool{false, true, true, true, true, true, true, true}}
	tab.add("sink", "acked", "tail", "batches", "envelopes", "bytes", "changes", "age")
	var details [][2]string
	var what []string
	for _, l := range c.lanes {
		lag := lags[l]
		answer.Lanes = append(answer.Lanes, newLaneLag(l.Sink, lag))
		tab.add(append([]string{l.Sink}, lagCells(lag)...)...)
		if p := problem(l, lag); p != "" {
			details = append(details, [2]string{l.Sink, p})
			what = append(what, "lane of "+l.Sink+": "+p)
		}
	}
	if t.format == "json" {
		err = writeJSON(t.out, answer)
	} else {
		err = writeTable(t, tab, details)
	}
	if err != nil {
		return err
	}
	return found(what)
}

// lagCells are acked, tail, batches, envelopes, bytes, changes and age.
func lagCells(l offsets.Lag) []string {
	if l.Err != nil {
		return []string{"error", "-", "-", "-", "-", "-", "-"}
	}
	cells := []string{l.Through.String(), l.NewestTo.String()}
	if !l.Known {
		return append([]string{"unknown", cells[1]}, "-", "-", "-", "-", "-")
	}
	return append(cells, fmt.Sprint(l.Batches), fmt.Sprint(l.Envelopes), size(l.Bytes), fmt.Sprint(l.Changes), age(l.Age))
}

// writeTable writes a table and below it what is to be said of single rows.
func writeTable(t *target, tab *table, details [][2]string) error {
	if err := tab.writeTo(t.out); err != nil {
		return err
	}
	for _, d := range details {
		if err := paragraph(t.out, "  "+cut(d[0], 30)+": ", d[1]); err != nil {
			return err
		}
	}
	return nil
}
