package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newLaneRestore(t *target) *cobra.Command {
	var (
		accept bool
		act    *action
	)
	cmd := &cobra.Command{
		Use:   "restore SINK",
		Short: "Take a retired lane back into the watermark",
		Long: `Let the watermark wait for a retired lane again, from where its sink had acked it
on; a sink may attach again. What was confirmed meanwhile stays confirmed: the
lane holds what its sink did not ack, since the engine went on publishing to it.

Where it did not, because its stream was built without the sink for a while, the
positions are named that the lane does not hold. It is restored then only with
--accept-missing, and the sink has to be seeded again with "request send".

Exit code 1: nothing was committed, since the group has members (also with
--dry-run), was moved meanwhile, the lane is not retired, or misses positions.`,
		Example: `  $ flusso-kafka-admin lane restore search --dry-run
  group shop.sink.search: offset 8 → 8, acked through 40 → 40 (dry run, nothing committed)
  lane of search: retired → acked
  watermark: 50 → 40, held by search, for who reads it for the first time; whoever has seen 50 stays
  there until the lane has passed it, and that stays safe: the lane holds what it has not acked`,
		Args:              oneSink,
		ValidArgsFunction: completeSinks(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := act.check("the watermark waits for the lane again"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				lane, err := laneOf(c, args[0])
				if err != nil {
					return err
				}
				plan, err := c.store.PlanRestore(ctx, lane)
				if err != nil {
					return err
				}
				missed, err := c.missed(ctx, lane)
				if err != nil {
					return err
				}
				refused := missed != nil && !accept
				if refused && !act.dry {
					return missingError{lane.Sink, missed}
				}
				if err := t.move(ctx, c, plan, act.dry, missed); err != nil || !refused {
					return err
				}
				return missingError{lane.Sink, missed}
			})
		},
	}
	cmd.Flags().BoolVar(&accept, "accept-missing", false, "restore it although it does not hold what it was not given meanwhile")
	act = addAction(cmd)
	return cmd
}

// missingError refuses to restore a lane that does not hold all that its sink
// needs.
type missingError struct {
	sink   string
	missed *missingAnswer
}

func (e missingError) Error() string {
	return fmt.Sprintf("lane of sink %q: %s; to restore it all the same, add --accept-missing", e.sink, e.missed.text(e.sink))
}
