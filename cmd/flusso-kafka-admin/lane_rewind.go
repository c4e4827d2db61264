package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/offsets"
)

func newLaneRewind(t *target) *cobra.Command {
	var (
		to  rewindTo
		act *action
	)
	cmd := &cobra.Command{
		Use:   "rewind SINK",
		Short: "Let a lane deliver again what was acked",
		Long: `Move the group of a sink back, so that what it has acked comes again: for a
store that was restored from a backup, or lost what it had applied. The place is
the end of a whole item, found exactly: --to-position P leaves the lane acked
through P, --to-offset goes to the item that holds it, --to-time to the first
item that was handed to the writer then or later.

It never goes forward over what was not acked: "lane accept" gives that up. What
was confirmed to the source stays confirmed, and the lane holds what comes again.
A lane is trimmed behind what was acked; --to-earliest is as far as it goes.

Exit code 1: nothing was committed, since the group has members (also with
--dry-run), was moved meanwhile, or the place is not retained any more.`,
		Example: `  $ flusso-kafka-admin lane rewind search --to-position 20 --dry-run
  group shop.sink.search: offset 8 → 4, acked through 40 → 20 (dry run, nothing committed)
  comes again: 2 items, 4 envelopes, 52 B
  watermark: 40 → 20, held by search, for who reads it for the first time; whoever has seen 40 stays
  there until the lane has passed it, and that stays safe: the lane holds what it has not acked`,
		Args:              oneSink,
		ValidArgsFunction: completeSinks(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := to.target(cmd)
			if err != nil {
				return err
			}
			if err := act.check("the sink gets again what it has acked"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				lane, err := laneOf(c, args[0])
				if err != nil {
					return err
				}
				plan, err := c.store.PlanRewind(ctx, lane, target)
				if err != nil {
					return err
				}
				return t.move(ctx, c, plan, act.dry, nil)
			})
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&to.position, "to-position", 0, "let the lane be acked through that `position`")
	flags.Int64Var(&to.offset, "to-offset", 0, "begin with the item that ends at that `offset` or above")
	flags.StringVar(&to.time, "to-time", "", "begin with the first item built at that `time` or later, or age (2h)")
	flags.BoolVar(&to.earliest, "to-earliest", false, "begin with the oldest whole item that is retained")
	act = addAction(cmd)
	return cmd
}

// rewindTo says where to, by one of the flags.
type rewindTo struct {
	position uint64
	offset   int64
	time     string
	earliest bool
}

func (r *rewindTo) target(cmd *cobra.Command) (offsets.Target, error) {
	if err := exclusive(cmd, "to-position", "to-offset", "to-time", "to-earliest"); err != nil {
		return offsets.Target{}, err
	}
	given := cmd.Flags().Changed
	switch {
	case given("to-position"):
		if r.position == 0 {
			return offsets.Target{}, usageError{errors.New("--to-position 0: positions begin at 1; --to-earliest goes to the oldest item")}
		}
		return offsets.ToPosition(flusso.Position(r.position)), nil
	case given("to-offset"):
		if r.offset < 0 {
			return offsets.Target{}, usageError{fmt.Errorf("--to-offset %d: give an offset of the lane", r.offset)}
		}
		return offsets.ToOffset(flusso.Offset(r.offset)), nil
	case given("to-time"):
		at, err := moment("--to-time", r.time, time.Now())
		return offsets.ToTime(at), err
	case r.earliest:
		return offsets.ToEarliest(), nil
	}
	return offsets.Target{}, usageError{errors.New("say where to: --to-position, --to-offset, --to-time or --to-earliest")}
}
