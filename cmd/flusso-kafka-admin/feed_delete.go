package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/status"
)

func newFeedDelete(t *feedTarget) *cobra.Command {
	var (
		take *taking
		act  *action
	)
	cmd := &cobra.Command{
		Use:   "delete FEED",
		Short: "Delete a feed with all its commits",
		Long: `Delete a feed: all its commits and what waits for one, its objects in the bucket,
its topics. It may be repeated after an error. Nothing brings it back.

JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin feed delete hourly --dry-run
  feed hourly: 2 commits, 0 streams without one → gone (dry run, nothing deleted)`,
		Args:              oneFeed,
		ValidArgsFunction: completeFeeds(t, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := act.check("this deletes a feed with all that is in it"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *feedCluster) error {
				return t.feedDelete(ctx, c, args[0], take, act.dry)
			})
		},
	}
	take = addTakeover(cmd)
	act = addAction(cmd)
	return cmd
}

func (t *feedTarget) feedDelete(ctx context.Context, c *feedCluster, feed string, take *taking, dry bool) error {
	a := struct {
		Feed    string         `json:"feed"`
		Prior   *describedFeed `json:"prior"` // null where a deletion before left only topics
		Fenced  string         `json:"fenced,omitempty"`
		Deleted bool           `json:"deleted"`
	}{Feed: feed, Deleted: !dry}
	d, err := c.Describe(ctx, feed)
	switch {
	case errors.Is(err, feeds.ErrNoFeed) && !dry: // its topics may be left
	case err != nil:
		return err
	default:
		a.Prior, a.Fenced = describe(d), take.says(d, dry)
	}
	if !dry {
		if err := take.check(d); err != nil {
			return err
		}
		if err := c.Delete(ctx, feed); err != nil {
			return err
		}
	}
	if t.format == "json" {
		return writeJSON(t.out, a)
	}
	prior, outcome := "half deleted", "deleted"
	if a.Prior != nil {
		prior = fmt.Sprintf("%s, %s without one", status.Count(d.Commits, "commit"), status.Count(uint64(len(d.Streams)), "stream"))
	}
	if dry {
		outcome = "dry run, nothing deleted"
	}
	if err := paragraph(t.out, "", fmt.Sprintf("feed %s: %s → gone (%s)", feed, prior, outcome)); err != nil || a.Fenced == "" {
		return err
	}
	return paragraph(t.out, "", a.Fenced)
}
