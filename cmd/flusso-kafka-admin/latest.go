package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
)

func newLatest(s streams) *cobra.Command {
	var (
		t       *feedTarget
		output  string
		encoded bool
	)
	cmd := &cobra.Command{
		Use:   "latest FEED KEY",
		Short: "Show the newest record of a key",
		Long: `Show the newest record of a key, by the feed's rule (the later position, or the
higher version), over its commits and what is not sealed yet. A key whose newest
record is a tombstone is deleted; one that never was is absent.

Exit code 1: the key is absent. JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin latest hourly k1
  1/1  commit 1  k1  hello`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError{fmt.Errorf("name a feed and a key: see %s --help", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, t.format); err != nil {
				return err
			}
			key := []byte(args[1])
			if encoded {
				var err error
				if key, err = base64.StdEncoding.DecodeString(args[1]); err != nil {
					return usageError{fmt.Errorf("--key-base64: %q is no base64", args[1])}
				}
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *feedCluster) error {
				item, there, err := c.Latest(ctx, args[0], key)
				if errors.As(err, new(*feeds.KeyError)) {
					return fmt.Errorf("feed %s has no keys: `flusso-kafka-admin read %s` shows its records", args[0], args[0])
				}
				if err != nil {
					return err
				}
				return t.writeLatest(args[0], args[1], output, item, there)
			})
		},
	}
	t = addFeedTarget(cmd, s)
	cmd.ValidArgsFunction = completeFeeds(t, false)
	cmd.Flags().BoolVar(&encoded, "key-base64", false, "KEY is base64, for one that is no text")
	addOutput(cmd, &output)
	return cmd
}

// latestAnswer is what latest answers.
type latestAnswer struct {
	Feed   string    `json:"feed"`
	Key    string    `json:"key"`   // as it was asked for
	State  string    `json:"state"` // present, deleted or absent
	Record *readItem `json:"record"`
}

func (t *feedTarget) writeLatest(feed, key, output string, item feeds.Item, there bool) error {
	a := latestAnswer{Feed: feed, Key: key, State: "absent"}
	var what []string
	switch {
	case !there:
		what = append(what, fmt.Sprintf("feed %s has no record of key %s", feed, shownText(key)))
	case item.Tombstone:
		a.State = "deleted"
	default:
		a.State = "present"
	}
	if there {
		a.Record = new(itemJSON(item))
	}
	switch {
	case t.format == "json":
		if err := writeJSON(t.out, a); err != nil {
			return err
		}
	case there && output == "values" && item.Tombstone: // its payload says nothing
		_, err := fmt.Fprintf(t.err, "key %s was deleted\n", shownText(key))
		return err
	case there:
		if err := writeItem(t.out, item, output); err != nil {
			return err
		}
	}
	return found(what)
}
