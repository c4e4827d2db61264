package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/topics"
)

func newTopic(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "Plan, create and check the topics of a pipeline or a feed",
		Long: `Plan, create and check the topics of a pipeline: one for each sink's lane, and
one for requests. With --feed they are the two of a feed. Nothing here deletes or
shrinks anything.`,
		Example: `  $ flusso-kafka-admin topic check --pipeline shop
  2 topics, 1 broker and 1 group looked at: nothing to say`,
		Args: noArgs,
		RunE: nameOne,
	}
	t := &topicTarget{target: addTarget(cmd, s)}
	cmd.PersistentFlags().StringVar(&t.feed, "feed", "", "`name` of a feed, whose topics it is about instead of a pipeline's")
	_ = cmd.RegisterFlagCompletionFunc("feed", completeFeedFlag(t))
	cmd.AddCommand(newTopicPlan(t), newTopicApply(t), newTopicCheck(t))
	return cmd
}

// topicTarget is a target and what its topics should be.
type topicTarget struct {
	*target

	feed    string // empty for a pipeline
	options topics.Options
}

// addOptions registers what an operator chooses for topics.
func (t *topicTarget) addOptions(cmd *cobra.Command) {
	cmd.Flags().IntVar(&t.options.ReplicationFactor, "replication-factor", 0, "`number` of replicas of each topic (default: the broker's)")
	cmd.Flags().IntVar(&t.options.MaxMessageBytes, "max-message-bytes", 0, "largest record batch that a topic takes, in `bytes` (default: the broker's)")
}

// runTopics is [target.run] after the options were looked at.
func (t *topicTarget) runTopics(cmd *cobra.Command, do func(context.Context, *topicCluster) error, extra ...kgo.Opt) error {
	if t.feed != "" {
		return t.runFeed(cmd, do, extra...)
	}
	p, err := t.check()
	if err != nil {
		return err
	}
	if _, err := p.Specs(t.sinks, t.options); err != nil {
		return usageError{err}
	}
	return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
		return do(ctx, &topicCluster{Client: c.Client, cluster: c})
	}, extra...)
}

// topicCluster is a cluster that answered, and whose topics it is about: a
// pipeline's, or a feed's.
type topicCluster struct {
	*connect.Client

	cluster *cluster    // of a pipeline; nil for a feed
	feed    topics.Feed // zero for a pipeline
}

// runFeed connects and has do answer for the feed.
func (t *topicTarget) runFeed(cmd *cobra.Command, do func(context.Context, *topicCluster) error, extra ...kgo.Opt) error {
	for _, flag := range []string{"pipeline", "sinks"} {
		if err := exclusive(cmd, "feed", flag); err != nil {
			return err
		}
	}
	feed, err := topics.NewFeed(t.feed)
	if err == nil {
		err = t.connection.check()
	}
	if err != nil {
		return err
	}
	if _, err := feed.Specs(t.options); err != nil {
		return usageError{err}
	}
	return t.connected(cmd.Context(), func(ctx context.Context, client *connect.Client) error {
		return do(ctx, &topicCluster{Client: client, feed: feed})
	}, extra...)
}

// sinks are those of the pipeline.
func (c *topicCluster) sinks() []string {
	if c.cluster == nil {
		return []string{}
	}
	return sinksOf(c.cluster.lanes)
}

// pipeline is its name, empty for a feed.
func (c *topicCluster) pipeline() string {
	if c.cluster == nil {
		return ""
	}
	return c.cluster.pipeline.String()
}

// whose names the owner of the topics.
func (c *topicCluster) whose() string {
	if c.cluster == nil {
		return "feed " + c.feed.String()
	}
	return "pipeline " + c.pipeline()
}

// specs are the topics that there should be.
func (t *topicTarget) specs(c *topicCluster) ([]topics.Spec, error) {
	if c.cluster == nil {
		return c.feed.Specs(t.options)
	}
	return c.cluster.pipeline.Specs(c.sinks(), t.options)
}

// call is how another topic command is called for the same topics.
func (t *topicTarget) call(command string, c *topicCluster) string {
	call := fmt.Sprintf("flusso-kafka-admin topic %s --pipeline %s --sinks %s", command, c.pipeline(), strings.Join(c.sinks(), ","))
	if c.cluster == nil {
		call = fmt.Sprintf("flusso-kafka-admin topic %s --feed %s", command, c.feed)
	}
	if n := t.options.ReplicationFactor; n > 0 {
		call += fmt.Sprintf(" --replication-factor %d", n)
	}
	if n := t.options.MaxMessageBytes; n > 0 {
		call += fmt.Sprintf(" --max-message-bytes %d", n)
	}
	return call
}

// planAnswer is a plan as it is answered.
type planAnswer struct {
	Pipeline string         `json:"pipeline"` // empty for a feed
	Feed     string         `json:"feed,omitempty"`
	Sinks    []string       `json:"sinks"`
	Changes  []changeAnswer `json:"changes"`
	Unfixed  []topicFinding `json:"unfixed"` // differences that no change removes
	Errors   []string       `json:"errors"`  // topics that could not be looked at
	Same     []string       `json:"same"`    // topics that are as they should be
	Others   []string       `json:"others"`  // lanes of the pipeline that --sinks does not name
}

type changeAnswer struct {
	Kind              topics.ChangeKind `json:"kind"`
	Topic             string            `json:"topic"`
	ReplicationFactor *int              `json:"replicationFactor"` // of a topic that is created; null for the broker's default
	Settings          []settingAnswer   `json:"settings"`
}

type settingAnswer struct {
	Name string  `json:"name"`
	Have *string `json:"have"` // null when the topic is created
	Want string  `json:"want"`
}

type topicFinding struct {
	Topic   string `json:"topic"`
	Setting string `json:"setting"`
	Have    string `json:"have"`
	Want    string `json:"want"`
	Why     string `json:"why"`
	Help    string `json:"help"`
}

// newPlan decides what to answer of a plan. It does no I/O.
func newPlan(c *topicCluster, want []topics.Spec, have topics.Cluster) planAnswer {
	plan := topics.Plan(want, have)
	a := planAnswer{
		Pipeline: c.pipeline(), Feed: c.feed.String(), Sinks: c.sinks(), Changes: []changeAnswer{}, Unfixed: []topicFinding{},
		Errors: []string{}, Same: []string{}, Others: []string{},
	}
	for _, c := range plan.Changes {
		a.Changes = append(a.Changes, newChange(c))
	}
	for _, f := range plan.Unfixed() {
		a.Unfixed = append(a.Unfixed, topicFinding{f.Topic, f.Setting, f.Have, f.Want, f.Why, f.Fix})
	}
	for _, spec := range want {
		switch t := have.Topics[spec.Topic]; {
		case t.Err != nil && !t.Missing():
			a.Errors = append(a.Errors, t.Err.Error())
		case !slices.ContainsFunc(plan.Findings, func(f topics.Finding) bool { return f.Topic == spec.Topic }):
			a.Same = append(a.Same, spec.Topic)
		}
	}
	for _, name := range have.Names {
		if l, err := topics.ParseLaneTopic(name); err == nil && c.cluster != nil && l.Pipeline == c.cluster.pipeline && !slices.Contains(a.Sinks, l.Sink) {
			a.Others = append(a.Others, name)
		}
	}
	return a
}

func newChange(c topics.Change) changeAnswer {
	a := changeAnswer{Kind: c.Kind, Topic: c.Topic, Settings: []settingAnswer{}}
	if n := c.ReplicationFactor; n > 0 {
		a.ReplicationFactor = &n
	}
	for _, s := range c.Settings {
		set := settingAnswer{Name: s.Name, Want: s.Want}
		if c.Kind == topics.Set {
			set.Have = &s.Have
		}
		a.Settings = append(a.Settings, set)
	}
	return a
}

// different reports whether anything is not as it should be.
func (a planAnswer) different() bool { return len(a.Changes)+len(a.Unfixed)+len(a.Errors) > 0 }

// summary counts what a plan holds.
func (a planAnswer) summary() string {
	creates := 0
	for _, c := range a.Changes {
		if c.Kind == topics.Create {
			creates++
		}
	}
	words := []string{fmt.Sprintf("%d to create", creates), fmt.Sprintf("%d to set", len(a.Changes)-creates)}
	if n := len(a.Unfixed); n > 0 {
		words = append(words, count(n, "needs a person", "need a person"))
	}
	if n := len(a.Errors); n > 0 {
		words = append(words, fmt.Sprintf("%d not looked at", n))
	}
	return strings.Join(append(words, fmt.Sprintf("%d as they should be", len(a.Same))), ", ")
}
