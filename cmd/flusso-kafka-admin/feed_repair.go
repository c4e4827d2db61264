package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/status"
)

func newFeedRepair(t *feedTarget) *cobra.Command {
	var (
		take *taking
		act  *action
	)
	cmd := &cobra.Command{
		Use:   "repair FEED",
		Short: "Finish every seal that was left half done",
		Long: `Finish every seal that was left half done, from whatever step it reached, and free
what the WAL no longer needs. It may be run twice. A stream that is open stays,
to be resumed or discarded.

Exit code 1: a seal could not be finished; the commits that were made are shown.
JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin feed repair hourly --dry-run
  feed hourly: 2 → 2 commits, of 0 sealed streams that waited (dry run, nothing done)`,
		Args:              oneFeed,
		ValidArgsFunction: completeFeeds(t, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := act.check("this takes the feed's lease, and finishes its seals"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *feedCluster) error {
				return t.repair(ctx, c, args[0], take, act.dry)
			})
		},
	}
	addPackBytes(cmd, &t.packBytes)
	take = addTakeover(cmd)
	act = addAction(cmd)
	return cmd
}

func (t *feedTarget) repair(ctx context.Context, c *feedCluster, feed string, take *taking, dry bool) error {
	d, err := c.Describe(ctx, feed)
	if err != nil {
		return err
	}
	a := struct {
		Feed         string           `json:"feed"`
		PriorCommits uint64           `json:"priorCommits"`
		Sealed       []unsealedStream `json:"sealed"` // streams that wait for their commit
		Commits      []*feedCommit    `json:"commits"`
		PriorEpoch   uint64           `json:"priorEpoch"`
		Fenced       string           `json:"fenced,omitempty"`
		Repaired     bool             `json:"repaired"`
	}{Feed: feed, PriorCommits: d.Commits, Sealed: []unsealedStream{}, Commits: []*feedCommit{}, PriorEpoch: d.Epoch}
	for _, s := range describe(d).Streams {
		if s.State == "sealed" {
			a.Sealed = append(a.Sealed, s)
		}
	}
	if len(a.Sealed) > 0 { // otherwise nobody's lease is taken
		a.Fenced = take.says(d, dry)
	}
	var failed error
	if !dry {
		if err := take.check(d); err != nil {
			return err
		}
		var done []feeds.Commit
		done, failed = c.Repair(ctx, feed)
		for _, commit := range done {
			a.Commits = append(a.Commits, commitJSON(commit))
		}
		if failed != nil && len(done) == 0 {
			return failed
		}
		a.Repaired = failed == nil
	}
	if t.format == "json" {
		return errors.Join(failed, writeJSON(t.out, a))
	}
	now, outcome := d.Commits+uint64(len(a.Commits)), "repaired"
	switch {
	case dry:
		now, outcome = d.Commits+uint64(len(a.Sealed)), "dry run, nothing done"
	case failed != nil:
		outcome = "not all of it"
	}
	text := fmt.Sprintf("feed %s: %d → %d commits, of %s that waited (%s)", feed, d.Commits, now, status.Count(uint64(len(a.Sealed)), "sealed stream"), outcome)
	err = paragraph(t.out, "", text)
	if err == nil && a.Fenced != "" {
		err = paragraph(t.out, "", a.Fenced)
	}
	return errors.Join(failed, err)
}
