package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
)

func newLaneAccept(t *target) *cobra.Command {
	var (
		to  int64
		act *action
	)
	cmd := &cobra.Command{
		Use:   "accept SINK",
		Short: "Let a lane go on behind items that were never acked",
		Long: `Let a lane go on behind items that its sink never acked: after a gap, or after
somebody moved its group forward. The sink must be stopped; one that was killed
leaves its group after its session timeout, 10 s. While the group has members
nothing is committed, and the exit code is 1, with --dry-run too.

The offset is where its group stands, or the nearest that the log has, or --to.
Where the topic was recreated or its log truncated, nothing that is there is given
up: it comes, maybe again. From then on the watermark counts the items below as
acked: seed the sink again with "request send", or know that it does without them.`,
		Example: `  $ flusso-kafka-admin lane accept search --to 10 --dry-run
  group shop.sink.search: offset 8 → 10, acked through 40 → 50 (dry run, nothing committed)
  given up: 1 item, with the positions above 40 and up to 50
  watermark: 40 → 50, held by audit, search`,
		ValidArgsFunction: completeSinks(t),
		Args:              oneSink,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := act.check("this gives up what the sink never acked"); err != nil {
				return err
			}
			if cmd.Flags().Changed("to") && to < 0 {
				return usageError{fmt.Errorf("--to %d: give an offset of the lane", to)}
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				lane, err := laneOf(c, args[0])
				if err != nil {
					return err
				}
				plan, err := c.store.PlanAccept(ctx, lane, flusso.Offset(to))
				if err != nil {
					return err
				}
				return t.move(ctx, c, plan, act.dry, nil)
			})
		},
	}
	cmd.Flags().Int64Var(&to, "to", int64(flusso.NoOffset), "`offset` to go on at (default: where the group stands)")
	act = addAction(cmd)
	return cmd
}
