package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func newLaneTrim(t *target) *cobra.Command {
	var (
		to  int64
		act *action
	)
	cmd := &cobra.Command{
		Use:   "trim SINK",
		Short: "Delete what a sink has acked from its lane",
		Long: `Delete the start of a lane, as the ingest engine does by itself after a while: all
below the header of the last item that its sink has acked for certain, or below
--to-offset, and never beyond. That one header stays; the floor is translated
with it. What is deleted cannot be delivered again by "lane rewind".

It takes nothing from a sink that runs, nor from the watermark, so the group may
have members. The topic's ID is compared, for a topic that was created anew.

Exit code 1: nothing was deleted, since the offset lies beyond what was acked, or
nothing says for certain what was.`,
		Example: `  $ flusso-kafka-admin lane trim search --dry-run
  topic shop.lane.search: log start 0 → 7, 3 items and 78 B freed, acked up to offset 8 (dry run,
  nothing deleted)
  watermark: does not change`,
		Args:              oneSink,
		ValidArgsFunction: completeSinks(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("to-offset") && to < 0 {
				return usageError{fmt.Errorf("--to-offset %d: give an offset of the lane", to)}
			}
			if err := act.check("this deletes what was acked"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				lane, err := laneOf(c, args[0])
				if err != nil {
					return err
				}
				return t.laneTrim(ctx, c, lane, flusso.Offset(to), act.dry)
			})
		},
	}
	cmd.Flags().Int64Var(&to, "to-offset", int64(flusso.NoOffset), "keep the item that ends at that `offset` and the one before it (default: what was acked)")
	act = addAction(cmd)
	return cmd
}

func (t *target) laneTrim(ctx context.Context, c *cluster, lane topics.Lane, to flusso.Offset, dry bool) error {
	plan, err := c.store.PlanTrim(ctx, lane, to)
	if err != nil {
		return err
	}
	start := plan.UpTo
	if !dry && plan.UpTo > plan.Start {
		if err := c.store.StillAcked(ctx, plan); err != nil {
			return err
		}
		if start, err = topics.New(c.Client.Client).Trim(ctx, lane, plan.TopicID, plan.UpTo); err != nil {
			return err
		}
	}
	if t.format == "json" {
		return writeJSON(t.out, struct {
			Pipeline    string `json:"pipeline"`
			Sink        string `json:"sink"`
			Topic       string `json:"topic"`
			PriorStart  offset `json:"priorStartOffset"`
			Start       offset `json:"startOffset"`
			AckedOffset offset `json:"ackedOffset"`
			Items       uint64 `json:"items"`
			Bytes       uint64 `json:"bytes"`
			Trimmed     bool   `json:"trimmed"`
		}{
			c.pipeline.String(), lane.Sink, lane.Topic(), offset(plan.Start), offset(start), offset(plan.Floor),
			plan.Items, plan.Bytes, !dry && plan.UpTo > plan.Start,
		})
	}
	if err := paragraph(t.out, "", trimText(plan, start, dry)); err != nil {
		return err
	}
	return paragraph(t.out, "", "watermark: does not change")
}

func trimText(plan offsets.Trim, start flusso.Offset, dry bool) string {
	if plan.UpTo == plan.Start {
		return fmt.Sprintf("topic %s: log start stays at %s: everything below the last acked item is gone already", plan.Lane.Topic(), plan.Start)
	}
	outcome := "trimmed"
	if dry {
		outcome = "dry run, nothing deleted"
	}
	return fmt.Sprintf("topic %s: log start %s → %s, %s and %s freed, acked up to offset %s (%s)",
		plan.Lane.Topic(), plan.Start, start, status.Count(plan.Items, "item"), tied(size(plan.Bytes)), plan.Floor, outcome)
}
