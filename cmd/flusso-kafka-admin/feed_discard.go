package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newFeedDiscard(t *feedTarget) *cobra.Command {
	var (
		message string
		take    *taking
		act     *action
	)
	cmd := &cobra.Command{
		Use:   "discard FEED STREAM",
		Short: "Drop a stream that has no commit",
		Long: `Drop a stream that has no commit: what was appended to it is gone, though it was
acknowledged. Readers to whom records of it were delivered are told. A stream
that is sealed is better finished: "feed repair".

Exit code 1: there is no such stream without commit.
JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin feed discard hourly 3 --yes
  feed hourly, stream 3: abandoned with 1 record, 6 B → discarded (done)`,
		Args:              feedStream,
		ValidArgsFunction: completeFeeds(t, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkMessage(args[0], message); err != nil {
				return err
			}
			if err := act.check("this drops records that were acknowledged"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *feedCluster) error {
				d, err := c.Describe(ctx, args[0])
				if err != nil {
					return err
				}
				prior, err := streamIn(d, streamOf(args), false)
				if err != nil {
					return err
				}
				a := onStream{Feed: d.Feed, Prior: prior, State: "discarded", PriorEpoch: d.Epoch, Fenced: take.says(d, act.dry), Done: !act.dry}
				if !act.dry {
					if err := take.check(d); err != nil {
						return err
					}
					if err := c.Discard(ctx, d.Feed, prior.Stream, message); err != nil {
						return err
					}
					_, epoch, err := c.Holder(ctx, d.Feed)
					if err != nil {
						return err
					}
					a.Epoch = &epoch
				}
				return t.writeOnStream(a, act.dry)
			})
		},
	}
	cmd.Flags().StringVar(&message, "message", "", "`text` that says why, for the record")
	take = addTakeover(cmd)
	act = addAction(cmd)
	return cmd
}
