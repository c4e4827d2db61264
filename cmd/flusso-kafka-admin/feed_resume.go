package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/status"
)

func newFeedResume(t *feedTarget) *cobra.Command {
	var (
		message string
		noSeal  bool
		take    *taking
		act     *action
	)
	cmd := &cobra.Command{
		Use:   "resume FEED STREAM",
		Short: "Take over a stream that was left open, and seal it",
		Long: `Take over a stream that was left open, and seal it into a commit. With --no-seal it
is only taken over: whoever wrote to it is fenced, and it stays open for
"append FEED --resume". A seal that --timeout or an interrupt ends goes on with
"feed repair".

Exit code 1: there is no such open stream, or it could not be sealed.
JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin feed resume hourly 2 --message 'late news' --yes
  feed hourly, stream 2: abandoned with 1 record, 7 B → commit 2 (done)`,
		Args:              feedStream,
		ValidArgsFunction: completeFeeds(t, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if noSeal && cmd.Flags().Changed("message") {
				return usageError{errors.New("--message is that of the seal: leave it or --no-seal out")}
			}
			if err := checkMessage(args[0], message); err != nil {
				return err
			}
			if err := act.check("this takes a stream over"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *feedCluster) error {
				return t.resume(ctx, c, &resuming{args[0], streamOf(args), message, !noSeal, take, act.dry})
			})
		},
	}
	cmd.Flags().StringVar(&message, "message", "", "`text` of the commit")
	cmd.Flags().BoolVar(&noSeal, "no-seal", false, "only take it over")
	addPackBytes(cmd, &t.packBytes)
	take = addTakeover(cmd)
	act = addAction(cmd)
	return cmd
}

// resuming is one call of feed resume.
type resuming struct {
	feed    string
	stream  uint64
	message string
	seal    bool
	take    *taking
	dry     bool
}

// onStream is what an action on a stream answers.
type onStream struct {
	Feed       string          `json:"feed"`
	Prior      *unsealedStream `json:"prior"`
	State      string          `json:"state"` // afterwards
	PriorEpoch uint64          `json:"priorEpoch"`
	Epoch      *uint64         `json:"epoch"` // null for a dry run
	Fenced     string          `json:"fenced,omitempty"`
	Commit     *feedCommit     `json:"commit"` // null for none
	Done       bool            `json:"done"`
}

// streamIn is an unsealed stream of a feed.
func streamIn(d feeds.Description, stream uint64, resumable bool) (*unsealedStream, error) {
	e := &feeds.NoStreamError{Feed: d.Feed, Stream: stream, Uncommitted: []uint64{}}
	for _, s := range describe(d).Streams {
		if resumable && s.State == "sealed" {
			if s.Stream == stream {
				return nil, fmt.Errorf("stream %d of feed %s is sealed: `flusso-kafka-admin feed repair %s --yes` finishes it", stream, d.Feed, d.Feed)
			}
			continue
		}
		if s.Stream == stream {
			return &s, nil
		}
		e.Uncommitted = append(e.Uncommitted, s.Stream)
	}
	return nil, e
}

func (t *feedTarget) resume(ctx context.Context, c *feedCluster, r *resuming) error {
	d, err := c.Describe(ctx, r.feed)
	if err != nil {
		return err
	}
	prior, err := streamIn(d, r.stream, true)
	if err != nil {
		return err
	}
	a := onStream{Feed: r.feed, Prior: prior, State: "committed", PriorEpoch: d.Epoch, Fenced: r.take.says(d, r.dry), Done: !r.dry}
	if !r.seal {
		a.State = "abandoned"
	}
	if !r.dry {
		if err := r.take.check(d); err != nil {
			return err
		}
		s, err := c.ResumeStream(ctx, r.feed, r.stream)
		if err != nil {
			return err
		}
		a.Epoch = new(s.Epoch())
		if r.seal {
			commit, err := s.Seal(ctx, r.message)
			if err != nil {
				return err
			}
			a.Commit = commitJSON(commit)
		}
		if err := s.Close(ctx); err != nil {
			return err
		}
	}
	return t.writeOnStream(a, r.dry)
}

// writeOnStream answers an action on a stream: prior → new.
func (t *feedTarget) writeOnStream(a onStream, dry bool) error {
	if t.format == "json" {
		return writeJSON(t.out, a)
	}
	now, outcome := a.State, "done"
	if a.Commit != nil {
		now = fmt.Sprintf("commit %d", a.Commit.Commit)
	}
	if dry {
		outcome = "dry run, nothing done"
	}
	line := fmt.Sprintf("feed %s, stream %d: %s with %s, %s → %s (%s)", a.Feed, a.Prior.Stream, a.Prior.State, status.Count(a.Prior.Last, "record"), tied(size(a.Prior.Bytes)), now, outcome)
	if err := paragraph(t.out, "", line); err != nil {
		return err
	}
	if a.Fenced != "" {
		if err := paragraph(t.out, "", a.Fenced); err != nil {
			return err
		}
	}
	if a.Commit != nil && a.Commit.Warning != "" {
		return paragraph(t.out, "warning: ", a.Commit.Warning)
	}
	return nil
}
