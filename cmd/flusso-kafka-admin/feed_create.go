package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
)

// creation is what a new feed is created with.
type creation struct {
	feeds.CreateOptions

	bucket string // as it was given
}

// addCreation registers its flags.
func addCreation(cmd *cobra.Command) *creation {
	c := &creation{}
	flags := cmd.Flags()
	flags.BoolVar(&c.Keyed, "keyed", false, "records of the new feed may have keys")
	flags.StringVar(&c.Latest, "latest", feeds.LatestSequence, "`rule` for the latest record of a key: sequence or version")
	flags.StringVar(&c.bucket, "bucket", "", "`URL` of the bucket for its commits, or a folder (default: DIR/bucket of --embedded DIR)")
	flags.Uint64Var(&c.MaxUnsealedBytes, "max-unsealed-bytes", feeds.DefaultMaxUnsealedBytes, "`bytes` that may wait for their commit")
	_ = cmd.RegisterFlagCompletionFunc("latest", cobra.FixedCompletions([]string{feeds.LatestSequence, feeds.LatestVersion}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// check refuses what can't be, before a broker is asked. Without a bucket it
// is that of the embedded broker.
func (c *creation) check(t *feedTarget) error {
	switch {
	case c.Latest != feeds.LatestSequence && c.Latest != feeds.LatestVersion:
		return usageError{fmt.Errorf("--latest %q: sequence or version", c.Latest)}
	case c.Latest == feeds.LatestVersion && !c.Keyed:
		return usageError{errors.New("--latest version is for feeds with keys: add --keyed")}
	case c.MaxUnsealedBytes == 0:
		return usageError{errors.New("--max-unsealed-bytes 0: give a positive number")}
	case c.bucket == "" && t.dir == "":
		return usageError{errors.New("no bucket named: give --bucket, a folder or the URL of a store: s3://NAME?region=…, gs://NAME, azblob://NAME")}
	case c.bucket == "":
		return nil
	}
	u, err := url.Parse(c.bucket)
	if err != nil {
		return usageError{fmt.Errorf("--bucket %q is no URL and no folder", c.bucket)}
	}
	if u.User != nil {
		return usageError{errors.New("--bucket: its URL goes on record for everybody to read, leave user and password out: they come from the environment")}
	}
	c.Bucket = c.bucket
	if !strings.Contains(c.bucket, "://") {
		dir, err := filepath.Abs(c.bucket)
		if err != nil {
			return fmt.Errorf("--bucket %s: %w", c.bucket, err)
		}
		c.Bucket = folderURL(dir)
	}
	return nil
}

// options are what a cluster creates the feed with.
func (c *creation) options(on *feedCluster) feeds.CreateOptions {
	o := c.CreateOptions
	if o.Bucket == "" {
		o.Bucket = on.bucket
	}
	return o
}

func newFeedCreate(t *feedTarget) *cobra.Command {
	var (
		c   *creation
		act *action
	)
	cmd := &cobra.Command{
		Use:   "create FEED",
		Short: "Create a feed",
		Long: `Create a feed: its two topics, its marker in the bucket, and the first event of its
log. What is chosen here never changes. --bucket is a folder, or the URL of a
store that everybody reaches who writes or reads the feed: s3://NAME?region=…
(any S3-compatible store by &endpoint=…), gs://NAME, azblob://NAME, with
credentials from the environment as those stores define it.

Exit code 1: there is such a feed, or it could not be created; it may be repeated.
JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin feed create hourly --keyed --bucket /srv/feeds --yes
  feed hourly: none → with keys, latest by sequence, commits in file:///srv/feeds (created)`,
		Args:              oneFeed,
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := act.check("this creates a feed"); err != nil {
				return err
			}
			if err := t.settle(); err != nil {
				return err
			}
			if err := c.check(t); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, on *feedCluster) error {
				return t.feedCreate(ctx, on, args[0], c.options(on), act.dry)
			})
		},
	}
	c = addCreation(cmd)
	act = addAction(cmd)
	return cmd
}

func (t *feedTarget) feedCreate(ctx context.Context, c *feedCluster, feed string, o feeds.CreateOptions, dry bool) error {
	settings := feeds.Settings{Keyed: o.Keyed, Latest: o.Latest, Bucket: o.Bucket, MaxUnsealedBytes: o.MaxUnsealedBytes}
	if dry {
		d, err := c.Describe(ctx, feed)
		switch {
		case err == nil && d.Deleting:
			err = &feeds.DeletingError{Feed: feed, Half: d.Half}
		case err == nil:
			err = &feeds.ExistsError{Feed: feed}
		}
		if !errors.Is(err, feeds.ErrNoFeed) {
			return err
		}
	} else {
		var err error
		if settings, err = c.Create(ctx, feed, o); err != nil {
			return err
		}
	}
	if t.format == "json" {
		return writeJSON(t.out, struct {
			Feed     string       `json:"feed"`
			Settings feedSettings `json:"settings"`
			Created  bool         `json:"created"`
		}{feed, settingsOf(settings), !dry})
	}
	return paragraph(t.out, "", createdText(feed, settings, dry))
}

func createdText(feed string, s feeds.Settings, dry bool) string {
	keys := "without keys"
	if s.Keyed {
		keys = "with keys, latest by " + s.Latest
	}
	outcome := "created"
	if dry {
		outcome = "dry run, nothing created"
	}
	return fmt.Sprintf("feed %s: none → %s, commits in %s (%s)", feed, keys, s.Bucket, outcome)
}
