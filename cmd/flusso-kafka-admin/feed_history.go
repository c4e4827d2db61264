package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
)

func newFeedHistory(t *feedTarget) *cobra.Command {
	return &cobra.Command{
		Use:   "history FEED",
		Short: "List the commits of a feed, in their order",
		Long: `List the commits of a feed, the oldest first: a commit is a stream that was sealed,
with its message. The bucket is not asked.

JSON is one object on each line: docs/json.md.`,
		Example: `  $ flusso-kafka-admin feed history hourly
  commit  stream  records  bytes  sealed                message
       1       1        2   14 B  2026-11-30T02:01:52Z  hourly poll
       2       2        1    7 B  2026-11-30T02:01:54Z  late news`,
		Args:              oneFeed,
		ValidArgsFunction: completeFeeds(t, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.run(cmd.Context(), func(ctx context.Context, c *feedCluster) error {
				return t.history(ctx, c, args[0])
			})
		},
	}
}

// feedCommit is a commit as JSON has it.
type feedCommit struct {
	Commit       uint64    `json:"commit"`
	Stream       uint64    `json:"stream"`
	First        *uint64   `json:"first"` // sequences; null for an empty stream
	Last         *uint64   `json:"last"`
	Records      uint64    `json:"records"`
	Bytes        uint64    `json:"bytes"`
	Message      string    `json:"message"`
	At           time.Time `json:"at"`
	Epoch        uint64    `json:"epoch"`
	Manifest     string    `json:"manifest"`
	ManifestHash string    `json:"manifestHash"`
	Warning      string    `json:"warning,omitempty"`
}

func commitJSON(c feeds.Commit) *feedCommit {
	out := &feedCommit{
		Commit: c.Number, Stream: c.Stream, Records: c.Records, Bytes: c.Bytes, Message: c.Message, At: c.At.UTC(), Epoch: c.Epoch,
		Manifest: c.Manifest, ManifestHash: c.ManifestHash,
	}
	if c.Records > 0 {
		out.First, out.Last = &c.First, &c.Last
	}
	if c.Warning != nil {
		out.Warning = c.Warning.Error()
	}
	return out
}

func (t *feedTarget) history(ctx context.Context, c *feedCluster, feed string) error {
	tab := &table{right: []bool{true, true, true, true, false, false}}
	tab.add("commit", "stream", "records", "bytes", "sealed", "message")
	for commit, err := range c.History(ctx, feed) {
		if err != nil {
			return err
		}
		if t.format == "json" {
			if err := writeLine(t.out, commitJSON(commit)); err != nil {
				return err
			}
			continue
		}
		tab.add(fmt.Sprint(commit.Number), fmt.Sprint(commit.Stream), fmt.Sprint(commit.Records), size(commit.Bytes),
			commit.At.UTC().Format(time.RFC3339), messageCell(commit.Message))
	}
	if t.format == "json" {
		return nil
	}
	if len(tab.rows) == 1 {
		_, err := fmt.Fprintln(t.out, t.hinted("feed %s has no commit: `flusso-kafka-admin append %s --from -` makes one", feed, feed))
		return err
	}
	tab.headings(t.palette())
	return tab.writeTo(t.out)
}
