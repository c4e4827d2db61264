package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func newLaneDelete(t *target) *cobra.Command {
	var act *action
	cmd := &cobra.Command{
		Use:   "delete SINK",
		Short: "Delete a retired lane with all that is in it",
		Long: `Delete the topic of a retired lane, and then the group of its sink. What the sink
has not acked is given up for good, and said. The watermark does not wait for a
retired lane, so it does not change.

Build the stream without the sink first: while the ingest engine still publishes
to the lane nothing is deleted. A run that got half way, to a group without a
topic, can be repeated.

Exit code 1: nothing was deleted, since the lane is not retired, its group has
members (also with --dry-run), it was restored meanwhile, or it is still written.`,
		Example: `  $ flusso-kafka-admin lane delete search --yes
  topic shop.lane.search and group shop.sink.search: 5 items, 10 envelopes, 130 B (deleted)
  retired by root@vm at 2026-11-30T01:03:45Z: moved to a new cluster
  given up: 1 item that the sink never acked, 26 B, with the positions above 40 and up to 50
  watermark: does not wait for the lane, and does not change`,
		Args:              oneSink,
		ValidArgsFunction: completeSinks(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := act.check("this deletes the lane with all that is in it"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				lane, err := c.pipeline.Lane(args[0])
				if err != nil {
					return err
				}
				return t.laneDelete(ctx, c, lane, act.dry)
			})
		},
	}
	act = addAction(cmd)
	return cmd
}

// deleteAnswer is what is said of a lane that goes.
type deleteAnswer struct {
	Pipeline string         `json:"pipeline"`
	Sink     string         `json:"sink"`
	Topic    string         `json:"topic"`
	TopicID  string         `json:"topicId,omitempty"` // empty when the topic was gone already
	Group    string         `json:"group"`
	Retired  *retiredAnswer `json:"retired,omitempty"`
	Retained itemCount      `json:"retained"`
	GivenUp  struct {
		itemCount

		Above position `json:"above"`
		UpTo  position `json:"upTo"`
	} `json:"givenUp"`
	Deleted bool     `json:"deleted"`
	Members []string `json:"members"`
}

func (t *target) laneDelete(ctx context.Context, c *cluster, lane topics.Lane, dry bool) error {
	plan, err := c.store.PlanDelete(ctx, lane, c.lanes)
	if err != nil {
		return err
	}
	var refused *offsets.GroupActiveError
	if err := c.store.StillRetired(ctx, plan); !dry || !errors.As(err, &refused) {
		if err != nil {
			return err
		}
	}
	if !dry {
		if err := topics.New(c.Client.Client).DeleteLane(ctx, lane, plan.TopicID); err != nil {
			return err
		}
	}
	a := deleteAnswer{
		Pipeline: c.pipeline.String(), Sink: lane.Sink, Topic: lane.Topic(), Group: lane.Group(),
		Retained: itemCount{plan.Retained.Batches, plan.Retained.Envelopes, plan.Retained.Bytes},
		Deleted:  !dry, Members: []string{},
	}
	a.GivenUp.itemCount = itemCount{plan.GivenUp.Batches, plan.GivenUp.Envelopes, plan.GivenUp.Bytes}
	if plan.Newest > plan.Acked && plan.GivenUp.Batches > 0 {
		a.GivenUp.Above, a.GivenUp.UpTo = position(plan.Acked), position(plan.Newest)
	}
	if plan.TopicID != [16]byte{} {
		a.TopicID = topics.IDString(plan.TopicID)
		a.Retired = &retiredAnswer{plan.Retired.By, plan.Retired.At, plan.Retired.Why}
	}
	if refused != nil {
		a.Members = refused.Members
	}
	if t.format == "json" {
		err = writeJSON(t.out, a)
	} else {
		err = a.write(t, plan, dry)
	}
	if err == nil && refused != nil {
		err = refused
	}
	return err
}

func (a deleteAnswer) write(t *target, plan offsets.Deletion, dry bool) error {
	outcome := "deleted"
	switch {
	case len(a.Members) > 0:
		outcome = "dry run, nothing deleted; refused while the group has members: " + strings.Join(a.Members, ", ")
	case dry:
		outcome = "dry run, nothing deleted"
	}
	if a.TopicID == "" {
		return paragraph(t.out, "", fmt.Sprintf("group %s: its topic %s was gone already (%s)", a.Group, a.Topic, outcome))
	}
	lines := []string{
		fmt.Sprintf("topic %s and group %s: %s, %s, %s (%s)", a.Topic, a.Group,
			status.Count(a.Retained.Items, "item"), status.Count(a.Retained.Envelopes, "envelope"), tied(size(a.Retained.Bytes)), outcome),
		fmt.Sprintf("retired by %s at %s: %s", plan.Retired.By, plan.Retired.At.Format("2006-01-02T15:04:05Z07:00"), plan.Retired.Why),
	}
	if a.GivenUp.Items > 0 {
		text := fmt.Sprintf("given up: %s that the sink never acked, %s", status.Count(a.GivenUp.Items, "item"), tied(size(a.GivenUp.Bytes)))
		if a.GivenUp.UpTo != 0 {
			text += fmt.Sprintf(", with the positions above %s and up to %s", plan.Acked, plan.Newest)
		}
		lines = append(lines, text)
	}
	lines = append(lines, "watermark: does not wait for the lane, and does not change")
	for _, line := range lines {
		if err := paragraph(t.out, "", line); err != nil {
			return err
		}
	}
	return nil
}
