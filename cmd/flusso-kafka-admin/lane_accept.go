package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/offsets"
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

The offset is where its group stands, or the log start where that is gone, or
--to. From then on the watermark counts the items below as acked: seed the sink
again with "request send", or know that it does without them.

JSON: {"pipeline", "sink", "priorOffset", "offset", "priorThrough", "through",
"committed", "members"}. Members are those that keep it from being committed.`,
		Example: `  $ flusso-kafka-admin lane accept search --dry-run
  group shop.sink.search: offset 8 → 8, acked through none → 40 (dry run, nothing committed)
  $ flusso-kafka-admin lane accept search --yes
  group shop.sink.search: offset 8 → 8, acked through none → 40 (committed)`,

		ValidArgsFunction: completeSinks(t),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("name one sink: see %s --help", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := act.check("this gives up what the sink never acked"); err != nil {
				return err
			}
			if cmd.Flags().Changed("to") && to < 0 {
				return usageError{fmt.Errorf("--to %d: give an offset of the lane", to)}
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				return t.laneAccept(ctx, c, args[0], flusso.Offset(to), act.dry)
			})
		},
	}
	cmd.Flags().Int64Var(&to, "to", int64(flusso.NoOffset), "`offset` to go on at (default: where the group stands)")
	act = addAction(cmd)
	return cmd
}

func (t *target) laneAccept(ctx context.Context, c *cluster, sink string, to flusso.Offset, dry bool) error {
	if err := flusso.CheckSink(sink, sinksOf(c.lanes)); err != nil {
		return err
	}
	lane, err := c.pipeline.Lane(sink)
	if err != nil {
		return err
	}
	plan, err := c.store.PlanAccept(ctx, lane, to)
	if err != nil {
		return err
	}
	// A dry run shows the plan and what would refuse it.
	var refused *offsets.GroupActiveError
	if !dry {
		err = c.store.Apply(ctx, plan)
	} else if err = c.store.Memberless(ctx, lane); errors.As(err, &refused) {
		err = nil
	}
	if err != nil {
		return err
	}
	members := []string{}
	if refused != nil {
		members = refused.Members
	}
	if t.format == "json" {
		err = writeJSON(t.out, struct {
			Pipeline     string   `json:"pipeline"`
			Sink         string   `json:"sink"`
			PriorOffset  offset   `json:"priorOffset"`
			Offset       offset   `json:"offset"`
			PriorThrough position `json:"priorThrough"`
			Through      position `json:"through"`
			Committed    bool     `json:"committed"`
			Members      []string `json:"members"`
		}{c.pipeline.String(), sink, offset(plan.Before.Offset), offset(plan.Offset), position(plan.Acked), position(plan.Meta.Through), !dry, members})
	} else {
		outcome := "committed"
		switch {
		case refused != nil:
			outcome = "dry run, nothing committed; refused while the group has members: " + strings.Join(members, ", ")
		case dry:
			outcome = "dry run, nothing committed"
		}
		err = paragraph(t.out, "", fmt.Sprintf("group %s: offset %s → %s, acked through %s → %s (%s)",
			lane.Group(), plan.Before.Offset, plan.Offset, plan.Acked, plan.Meta.Through, outcome))
	}
	if err == nil && refused != nil {
		err = refused
	}
	return err
}
