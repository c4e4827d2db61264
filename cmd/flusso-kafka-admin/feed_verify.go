package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
)

func newFeedVerify(t *feedTarget) *cobra.Command {
	return &cobra.Command{
		Use:   "verify FEED",
		Short: "Read all commits of a feed back, and compare",
		Long: `Read all commits of a feed back from the bucket, and compare: manifests and
objects with their hashes, sequences without holes, key indexes with the packs
that they are about. Allow as much --timeout as there is to read.

Exit code 1: something is not as it was written; the other commits are looked at
all the same. JSON is one object on each line, the last one about the log and what
no commit leads to: docs/json.md.`,
		Example: `  $ flusso-kafka-admin feed verify hourly
  commit  stream  records  objects  bytes  result
       1       1        2        3   14 B  fine
       2       2        1        3    7 B  fine`,
		Args:              oneFeed,
		ValidArgsFunction: completeFeeds(t, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.run(cmd.Context(), func(ctx context.Context, c *feedCluster) error {
				return t.verify(ctx, c, args[0])
			})
		},
	}
}

// verifiedCommit is what was found of one commit.
type verifiedCommit struct {
	Commit  uint64 `json:"commit"`
	Stream  uint64 `json:"stream"`
	Records uint64 `json:"records"`
	Objects int    `json:"objects"`
	Bytes   uint64 `json:"bytes"`
	Fine    bool   `json:"fine"`
	Error   string `json:"error,omitempty"`
}

// verifiedFeed is what was found beside the commits.
type verifiedFeed struct {
	Feed      string   `json:"feed"`
	Log       logOrder `json:"log"`
	Leftovers *int     `json:"leftovers"` // objects; null where nobody looked, since there is no commit
}

// logOrder is whether the events of a feed's log follow each other.
type logOrder struct {
	Fine  bool   `json:"fine"`
	Error string `json:"error,omitempty"`
}

func (t *feedTarget) verify(ctx context.Context, c *feedCluster, feed string) error {
	var (
		what []string
		n    int
		log  = logOrder{Fine: true}
	)
	tab := &table{right: []bool{true, true, true, true, true, false}}
	tab.add("commit", "stream", "records", "objects", "bytes", "result")
	for v, err := range c.Verify(ctx, feed) {
		if errors.As(err, new(*feeds.EventError)) { // behind all commits
			log = logOrder{Error: err.Error()}
			what = append(what, log.Error)
			break
		}
		if err != nil {
			return err
		}
		n++
		result := "fine"
		a := verifiedCommit{Commit: v.Commit.Number, Stream: v.Commit.Stream, Records: v.Commit.Records, Objects: v.Objects, Bytes: v.Bytes, Fine: v.Err == nil}
		if v.Err != nil {
			a.Error = v.Err.Error()
			result = "wrong"
			what = append(what, fmt.Sprintf("commit %d of feed %s: %s", a.Commit, feed, a.Error))
		}
		if t.format == "json" {
			if err := writeLine(t.out, a); err != nil {
				return err
			}
		}
		tab.add(fmt.Sprint(a.Commit), fmt.Sprint(a.Stream), fmt.Sprint(a.Records), fmt.Sprint(a.Objects), size(a.Bytes), result)
	}
	switch {
	case t.format == "json":
		beside := verifiedFeed{Feed: feed, Log: log}
		if n > 0 {
			left, err := t.leftovers(ctx, c, feed)
			if err != nil {
				return err
			}
			beside.Leftovers = &left
		}
		if err := writeLine(t.out, beside); err != nil {
			return err
		}
	case n == 0:
		if _, err := fmt.Fprintf(t.out, "feed %s has no commit: nothing to verify\n", feed); err != nil {
			return err
		}
	default:
		tab.headings(t.palette())
		if err := tab.writeTo(t.out); err != nil {
			return err
		}
		if err := t.writeLeftovers(ctx, c, feed); err != nil {
			return err
		}
	}
	return found(what)
}

// leftovers counts the objects that no commit leads to.
func (t *feedTarget) leftovers(ctx context.Context, c *feedCluster, feed string) (n int, err error) {
	for _, err := range c.Leftovers(ctx, feed) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// writeLeftovers tells of them.
func (t *feedTarget) writeLeftovers(ctx context.Context, c *feedCluster, feed string) error {
	n, err := t.leftovers(ctx, c, feed)
	if n == 0 || err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.out, t.hinted("no commit leads to %d more objects of the bucket, which do no harm: the next session removes them, or `flusso-kafka-admin feed repair %s --yes`", n, feed))
	return err
}
