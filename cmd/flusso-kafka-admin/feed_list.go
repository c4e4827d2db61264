package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/status"
)

func newFeedList(t *feedTarget) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the feeds of a cluster",
		Long: `List the feeds that a cluster shows topics of, one line for each: its commits, its
streams without commit, and who holds it. Exit code 1 says that a feed could not
be looked at; it keeps its line.

"deleting" and "half deleted" in place of its keys say that a deletion was not
finished: "feed delete" goes on with it.

JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin feed list
  feed    keys         commits  unsealed     active  holder
  hourly  by sequence        1  1 stream  0.7 s ago  nobody`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.run(cmd.Context(), t.feedList)
		},
	}
}

// listedFeed is a feed as feed list answers it.
type listedFeed struct {
	Feed  string         `json:"feed"`
	Known *describedFeed `json:"known"` // null where it could not be looked at
	Error string         `json:"error,omitempty"`
}

func (t *feedTarget) feedList(ctx context.Context, c *feedCluster) error {
	names, err := c.List(ctx)
	if err != nil {
		return err
	}
	all := make([]listedFeed, len(names))
	var what []string
	for i, name := range names {
		all[i].Feed = name
		d, err := c.Describe(ctx, name)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			all[i].Error = err.Error()
			what = append(what, err.Error())
			continue
		}
		all[i].Known = describe(d)
	}
	if t.format == "json" {
		if err := writeJSON(t.out, struct {
			Feeds []listedFeed `json:"feeds"`
		}{all}); err != nil {
			return err
		}
		return found(what)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(t.out, t.hinted("no feed: create one with `flusso-kafka-admin feed create FEED --bucket URL --yes`"))
		return err
	}
	tab := &table{right: []bool{false, false, true, true, true, false}}
	tab.add("feed", "keys", "commits", "unsealed", "active", "holder")
	for _, f := range all {
		if f.Known == nil {
			tab.add(f.Feed, "unknown", "-", "-", "-", "-")
			continue
		}
		d := f.Known
		holder, active := "nobody", d.At
		if d.Held {
			holder = d.Holder.Name
		}
		if d.AppendedAt != nil && d.AppendedAt.After(active) {
			active = *d.AppendedAt
		}
		tab.add(f.Feed, keysCell(d), fmt.Sprint(d.Commits), status.Count(uint64(len(d.Streams)), "stream"), age(time.Since(active))+" ago", holder)
	}
	tab.headings(t.palette())
	if err := tab.writeTo(t.out); err != nil {
		return err
	}
	return found(what)
}

func keysCell(d *describedFeed) string {
	switch {
	case d.HalfDeleted:
		return "half deleted"
	case d.Deleting:
		return "deleting"
	case !d.Settings.Keyed:
		return "no"
	}
	return "by " + d.Settings.Latest
}
