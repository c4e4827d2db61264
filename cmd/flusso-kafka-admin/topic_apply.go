package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/topics"
)

func newTopicApply(t *topicTarget) *cobra.Command {
	var act *action
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Create topics that are missing, and set what is unsafe",
		Long: `Create topics that are missing and set what is unsafe, as topic plan shows it.
Nothing is deleted and no setting takes data away. Two of these at once do no
harm: a topic that exists meanwhile is only checked. Exit code 1 says that a
change failed, or that something is left that needs a person.

With --feed it is about the two topics of a feed: "feed create" makes them, too.
The watermark does not move by it. The lane of a new sink counts for it from
when the ingest engine's list of sinks names it. JSON: see docs/json.md.`,
		Example: `  $ flusso-kafka-admin topic apply --pipeline shop --sinks archive,search --yes
  ~ topic shop.requests
  ~   retention.ms                       604800000 → -1
      done
  + topic shop.lane.archive
  +   partitions                         1
  +   replication factor                 by default
  +   cleanup.policy                     delete
  +   retention.ms                       -1
  +   retention.bytes                    -1
  +   unclean.leader.election.enable     false
  +   message.timestamp.type             CreateTime
      done

  2 done, 0 failed, 1 as they should be; the watermark does not move by it`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := act.check("this creates topics and alters their settings"); err != nil {
				return err
			}
			return t.runTopics(cmd, func(ctx context.Context, c *topicCluster) error { return t.apply(ctx, c, act.dry) })
		},
	}
	t.addOptions(cmd)
	act = addAction(cmd)
	return cmd
}

// applyAnswer is a plan and what became of it.
type applyAnswer struct {
	planAnswer

	DryRun  bool            `json:"dryRun"`
	Results []appliedAnswer `json:"results"`
}

type appliedAnswer struct {
	changeAnswer

	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"`
}

func (t *topicTarget) apply(ctx context.Context, c *topicCluster, dry bool) error {
	want, err := t.specs(c)
	if err != nil {
		return err
	}
	admin := topics.New(c.Client.Client)
	have, err := admin.Read(ctx, want)
	if err != nil {
		return err
	}
	a := applyAnswer{planAnswer: newPlan(c, want, have), DryRun: dry, Results: []appliedAnswer{}}
	var failed error
	if !dry {
		var applied []topics.Applied
		applied, failed = carryOut(ctx, admin, want, have)
		for _, r := range applied {
			result := appliedAnswer{changeAnswer: newChange(r.Change), Done: r.Err == nil}
			if r.Err != nil {
				result.Error = r.Err.Error()
			}
			a.Results = append(a.Results, result)
		}
	}
	if t.format == "json" {
		err = writeJSON(t.out, a)
	} else {
		err = writeApply(t.out, a)
	}
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case len(a.Unfixed)+len(a.Errors) > 0:
		return finding{[]string{fmt.Sprintf("%s: see %s", a.left(), t.call("plan", c))}}
	}
	return nil
}

// left counts what a change cannot put right.
func (a applyAnswer) left() string {
	return fmt.Sprintf("%s a person, %d topics could not be looked at", count(len(a.Unfixed), "difference needs", "differences need"), len(a.Errors))
}

// carryOut makes the topics as they should be, as far as changes can, and
// waits until the brokers show them so. A topic that also needs a person has
// its changes made all the same.
func carryOut(ctx context.Context, admin *topics.Admin, want []topics.Spec, have topics.Cluster) ([]topics.Applied, error) {
	plan := topics.Plan(want, have)
	left := plan.Unfixed()
	whole := slices.DeleteFunc(slices.Clone(want), func(s topics.Spec) bool {
		t := have.Topics[s.Topic]
		return t.Err != nil && !t.Missing() || slices.ContainsFunc(left, func(f topics.Finding) bool { return f.Topic == s.Topic })
	})
	others := slices.DeleteFunc(slices.Clone(plan.Changes), func(c topics.Change) bool {
		return slices.ContainsFunc(whole, func(s topics.Spec) bool { return s.Topic == c.Topic })
	})
	applied, err := admin.Ensure(ctx, whole)
	more, merr := admin.Apply(ctx, others)
	return append(applied, more...), errors.Join(err, merr)
}

func writeApply(w io.Writer, a applyAnswer) error {
	if a.DryRun {
		if err := writePlan(w, a.planAnswer); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, "dry run, nothing changed")
		return err
	}
	var b strings.Builder
	done := 0
	for _, r := range a.Results {
		writeChange(&b, r.changeAnswer)
		if r.Done {
			done++
			b.WriteString("    done\n")
		} else {
			_ = paragraph(&b, "    failed: ", r.Error)
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d done, %d failed, %d as they should be; the watermark does not move by it\n", done, len(a.Results)-done, len(a.Same))
	_, err := io.WriteString(w, b.String())
	return err
}
