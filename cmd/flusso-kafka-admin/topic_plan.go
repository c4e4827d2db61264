package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/topics"
)

func newTopicPlan(t *topicTarget) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what topics there are against what there should be",
		Long: `Show what topics there are against what there should be, as a diff: + is created,
~ is set (prior → new), ! needs a person. Nothing is changed. Exit code 1 says
that there is a difference.

Without --sinks the lanes that exist are compared. With --feed it is about the two
topics of a feed. JSON: see docs/json.md.`,
		Example: `  $ flusso-kafka-admin topic plan --pipeline shop --sinks archive,search
  ~ topic shop.requests
  ~   retention.ms                       604800000 → -1
  + topic shop.lane.archive
  +   partitions                         1
  +   replication factor                 by default
  +   cleanup.policy                     delete
  +   retention.ms                       -1
  +   retention.bytes                    -1
  +   unclean.leader.election.enable     false
  +   message.timestamp.type             CreateTime
    topic shop.lane.search

  1 to create, 1 to set, 1 as they should be`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.runTopics(cmd, t.plan)
		},
	}
	t.addOptions(cmd)
	return cmd
}

func (t *topicTarget) plan(ctx context.Context, c *topicCluster) error {
	want, err := t.specs(c)
	if err != nil {
		return err
	}
	have, err := topics.New(c.Client.Client).Read(ctx, want)
	if err != nil {
		return err
	}
	a := newPlan(c, want, have)
	if t.format == "json" {
		err = writeJSON(t.out, a)
	} else {
		err = writePlan(t.out, a)
	}
	if err != nil || !a.different() {
		return err
	}
	return finding{[]string{fmt.Sprintf("the topics of %s differ from what they should be: %s: carry it out by %s --yes",
		c.whose(), a.summary(), t.call("apply", c))}}
}

// writePlan writes a plan as a diff.
func writePlan(w io.Writer, a planAnswer) error {
	var b strings.Builder
	for _, c := range a.Changes {
		writeChange(&b, c)
	}
	for _, f := range a.Unfixed {
		fmt.Fprintf(&b, "! topic %s\n!   %-34s %s → %s\n", f.Topic, f.Setting, f.Have, f.Want)
		_ = paragraph(&b, "    ", f.Why)
		writeCommand(&b, "    ", f.Help)
	}
	for _, e := range a.Errors {
		_ = paragraph(&b, "! ", e)
	}
	for _, name := range a.Same {
		fmt.Fprintf(&b, "  topic %s\n", name)
	}
	for _, name := range a.Others {
		fmt.Fprintf(&b, "  topic %s is not of --sinks: left alone\n", name)
	}
	fmt.Fprintf(&b, "\n%s\n", a.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

func writeChange(b *strings.Builder, c changeAnswer) {
	if c.Kind == topics.Set {
		fmt.Fprintf(b, "~ topic %s\n", c.Topic)
		for _, s := range c.Settings {
			fmt.Fprintf(b, "~   %-34s %s → %s\n", s.Name, *s.Have, s.Want)
		}
		return
	}
	replicas := "by default"
	if c.ReplicationFactor != nil {
		replicas = strconv.Itoa(*c.ReplicationFactor)
	}
	fmt.Fprintf(b, "+ topic %s\n+   %-34s 1\n+   %-34s %s\n", c.Topic, topics.Partitions, topics.Replication, replicas)
	for _, s := range c.Settings {
		fmt.Fprintf(b, "+   %-34s %s\n", s.Name, s.Want)
	}
}

// writeCommand writes a command so that it can be copied: broken by \ where it
// is long, what is said about it on lines of its own.
func writeCommand(b *strings.Builder, indent, command string) {
	command, about, _ := strings.Cut(" "+command, " # ")
	line := indent
	for i, word := range strings.Fields(command) {
		if i > 0 && len([]rune(line))+len([]rune(word))+3 > maxColumns {
			b.WriteString(line + " \\\n")
			line = indent + "  "
		} else if i > 0 {
			line += " "
		}
		line += word
	}
	if strings.TrimSpace(line) != "" {
		b.WriteString(line + "\n")
	}
	if about != "" {
		_ = paragraph(b, indent+"# ", about)
	}
}
