package main

import (
	"github.com/spf13/cobra"
)

func newLane(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lane",
		Short: "Look at a lane, and repair it",
		Long: `Look at the lane of a sink, and repair it. What moves a lane wants its sink to be
stopped, shows what it would do with --dry-run and does it with --yes.`,
		Example: `  $ flusso-kafka-admin lane accept search --dry-run
  group shop.sink.search: offset 8 → 8, acked through none → 40 (dry run, nothing committed)`,
		Args: noArgs,
		RunE: nameOne,
	}
	t := addTarget(cmd, s)
	cmd.AddCommand(
		newLaneAccept(t), newLaneDelete(t), newLaneDescribe(t), newLaneList(t), newLanePeek(t), newLaneReplay(t), newLaneRestore(t),
		newLaneRetire(t), newLaneRewind(t), newLaneSkip(t), newLaneTrim(t),
	)
	return cmd
}
