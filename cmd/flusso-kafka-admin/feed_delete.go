package main

import (
	"cmp"
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
		opts feeds.DeleteOptions
	)
	cmd := &cobra.Command{
		Use:   "delete FEED",
		Short: "Delete a feed with all its commits",
		Long: `Delete a feed: all its commits and what waits for one, its objects in the bucket,
its topics. Nothing brings it back. After an error it may be repeated, which goes
on where it ended. Without its marker a bucket is not taken for the feed's.
--keep-objects leaves what is in the bucket where it is: for whoever reads the
packs on, and where the bucket is gone for good.

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
				return t.feedDelete(ctx, c, args[0], opts, take, act.dry)
			})
		},
	}
	take = addTakeover(cmd)
	act = addAction(cmd)
	cmd.Flags().BoolVar(&opts.KeepObjects, "keep-objects", false, "leave what is in the bucket where it is")
	return cmd
}

func (t *feedTarget) feedDelete(ctx context.Context, c *feedCluster, feed string, o feeds.DeleteOptions, take *taking, dry bool) error {
	a := struct {
		Feed    string         `json:"feed"`
		Prior   *describedFeed `json:"prior"` // null where a deletion before left only topics
		Fenced  string         `json:"fenced,omitempty"`
		Kept    bool           `json:"kept"` // its objects
		Deleted bool           `json:"deleted"`
	}{Feed: feed, Kept: o.KeepObjects, Deleted: !dry}
	d, err := c.Describe(ctx, feed)
	switch {
	case errors.Is(err, feeds.ErrNoFeed):
		if left, lerr := c.Remains(ctx, feed); lerr != nil || len(left) == 0 {
			return cmp.Or(lerr, err)
		}
	case err != nil:
		return err
	default:
		a.Prior, a.Fenced = describe(d), take.says(d, dry)
	}
	if !dry {
		if err := take.check(d); err != nil {
			return err
		}
		if err := c.Delete(ctx, feed, o); err != nil {
			return t.objectsLeft(feed, err)
		}
	}
	if t.format == "json" {
		return writeJSON(t.out, a)
	}
	prior, outcome := "half deleted", "deleted"
	if a.Prior != nil && !d.Half {
		prior = fmt.Sprintf("%s, %s without one", status.Count(d.Commits, "commit"), status.Count(uint64(len(d.Streams)), "stream"))
	}
	if dry {
		outcome = "dry run, nothing deleted"
	}
	gone := "gone"
	if o.KeepObjects {
		gone = "gone, but for its objects"
		if a.Prior != nil {
			gone += " in " + a.Prior.Settings.Bucket
		}
	}
	if err := paragraph(t.out, "", fmt.Sprintf("feed %s: %s → %s (%s)", feed, prior, gone, outcome)); err != nil || a.Fenced == "" {
		return err
	}
	return paragraph(t.out, "", a.Fenced)
}

// objectsLeft explains that a deletion stopped at the bucket, with what helps.
func (t *feedTarget) objectsLeft(feed string, err error) error {
	var (
		failed *feeds.BucketError
		marker *feeds.MarkerError
	)
	if !errors.As(err, &failed) && !errors.As(err, &marker) {
		return err
	}
	return fmt.Errorf("%w: %s", err, t.hinted("it is not deleted: repeat it when its bucket can be used, or leave its objects there: `"+program+" feed delete %s --keep-objects --yes`", feed))
}
