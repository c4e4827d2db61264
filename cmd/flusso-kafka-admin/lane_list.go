package main

import (
	"cmp"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

func newLaneList(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the lanes, with their offsets and topic ids",
		Long: `List the lanes of a pipeline, one line for each: its state, where its log starts
and ends, which offset its group committed, and the id of its topic. A lane that
is not there or cannot be looked at keeps its line. No engine needs to run. Exit
code 1 says that a lane's numbers are not known, or that there is a gap.

JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin lane list --pipeline demo
  sink     state      start offset  acked offset  tail offset  batches  topic id
  archive  behind                0          4265         6039      420  Y-lgItR3KPsTA4wx3xbV0A
  search   caught-up             0          6038         6038        0  RtMsyzD11znNlVDMuE9Enw`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.show(cmd.Context(), &showing{}, answer{
			options: status.Options{LanesOnly: true},
			json: func(v view) any {
				return struct {
					Pipeline string        `json:"pipeline"`
					Lanes    []status.Lane `json:"lanes"`
				}{v.Pipeline, v.Lanes}
			},
			text:  writeLanes,
			found: func(v view) []string { return foundIn(v.Report, unknownLag) },
		})
	}
	return cmd
}

func writeLanes(p *page, v view) error {
	tab := &table{right: []bool{false, false, true, true, true, true, false}}
	tab.add("sink", "state", "start offset", "acked offset", "tail offset", "batches", "topic id")
	for _, l := range v.Lanes {
		tab.add(l.Sink, p.state(l, v.Report), offsetCell(l.StartOffset), offsetCell(l.AckedOffset), offsetCell(l.TailOffset),
			lagCells(l).batches, cmp.Or(l.TopicID, "-"))
	}
	tab.headings(p.palette)
	if err := tab.writeTo(p); err != nil {
		return err
	}
	return p.below(v, unknownLag)
}

func offsetCell(o status.Offset) string {
	if o < 0 {
		return "-"
	}
	return flusso.Offset(o).String()
}
