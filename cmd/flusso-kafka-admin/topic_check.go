package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/internal/checkup"
	"github.com/flusso/flusso-kafka/internal/status"
)

func newTopicCheck(t *topicTarget) *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find what is unsafe under a pipeline, and what helps",
		Long: `Find what would break a pipeline later: unsafe settings of its topics and of the
brokers, topics that are missing or short of replicas, brokers that are too old,
names that Kafka takes for the same, offsets that will expire. With --role also
the permissions that the user lacks for that role: brokers are asked for them,
and nothing is tried. Exit code 1 says that a failure or a warning was found; a
note is worth knowing. It takes the same few requests for any number of lanes.
With --feed it is about a feed, and so are the roles: feed-reader, feed-writer and
feed-operator.

JSON: see docs/json.md.`,
		Example: `  $ flusso-kafka-admin topic check --pipeline shop --role viewer
  failure  topic shop.lane.audit: retention.ms: 604800000 → -1
           the broker deletes items that were not acked when they get old
           flusso-kafka-admin topic apply --pipeline shop --sinks audit,search --yes
  warning  group shop.sink.audit: no member → a member
           brokers drop its offsets 7 d after it lost its last member; the ingest engine's mirror
           keeps a copy as long as one runs
           flusso-kafka-admin lane retire audit --pipeline shop --dry-run
           # if the sink is gone for good; else start its engine within that time

  3 topics, 1 broker and 2 groups looked at, 5 of 5 permissions of role viewer are there: 1 failure,
  1 warning`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := t.role(role)
			if err != nil {
				return err
			}
			return t.runTopics(cmd, func(ctx context.Context, c *topicCluster) error { return t.checkup(ctx, c, r) }, checkup.ClientOpt())
		},
	}
	all := names(slices.Concat(access.Roles(), access.FeedRoles()))
	cmd.Flags().StringVar(&role, "role", "", "also check the user's permissions for a `role`: "+all)
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(strings.Split(all, ", "), cobra.ShellCompDirectiveNoFileComp))
	t.addOptions(cmd)
	return cmd
}

// role reads the name of a role, empty for none: on a pipeline, or on a feed.
func (t *topicTarget) role(name string) (r access.Role, err error) {
	switch {
	case name == "":
		return "", nil
	case t.feed != "":
		r, err = access.ParseFeedRole(name)
	default:
		r, err = access.ParseRole(name)
		if _, ofFeed := access.ParseFeedRole(name); ofFeed == nil {
			return "", usageError{fmt.Errorf("--role %s is one on a feed: name it with --feed", name)}
		}
	}
	if err != nil {
		return "", usageError{fmt.Errorf("--role: %w", err)}
	}
	return r, nil
}

// names lists roles.
func names(roles []access.Role) string {
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}

// checkAnswer is a check as it is answered.
type checkAnswer struct {
	Pipeline string            `json:"pipeline"` // empty for a feed
	Feed     string            `json:"feed,omitempty"`
	Sinks    []string          `json:"sinks"`
	Role     access.Role       `json:"role,omitempty"`
	Sound    bool              `json:"sound"`
	Findings []checkup.Finding `json:"findings"`
	Topics   int               `json:"topics"`
	Brokers  int               `json:"brokers"`
	Groups   int               `json:"groups"`
	Allowed  int               `json:"permissionsAllowed"`
	Asked    int               `json:"permissions"`
}

func (t *topicTarget) checkup(ctx context.Context, c *topicCluster, role access.Role) error {
	var facts checkup.Facts
	var err error
	if c.cluster == nil {
		facts, err = checkup.CollectFeed(ctx, c.Client.Client, c.feed, t.options, role)
	} else {
		facts, err = checkup.Collect(ctx, c.Client.Client, c.cluster.pipeline, c.sinks(), t.options, role)
	}
	if err != nil {
		return err
	}
	found := checkup.Judge(facts, t.User)
	a := checkAnswer{
		Pipeline: c.pipeline(), Feed: c.feed.String(), Sinks: c.sinks(), Role: role, Sound: checkup.Sound(found), Findings: found,
		Topics: len(facts.Want), Brokers: len(facts.Brokers), Groups: len(facts.Groups), Asked: len(facts.Allowed),
	}
	if found == nil {
		a.Findings = []checkup.Finding{}
	}
	for _, p := range facts.Allowed {
		if p.Answer == checkup.Allowed {
			a.Allowed++
		}
	}
	if t.format == "json" {
		err = writeJSON(t.out, a)
	} else {
		err = writeCheck(t.out, a)
	}
	if err != nil || a.Sound {
		return err
	}
	return finding{[]string{a.counts() + " under " + c.whose()}}
}

// counts says how many findings of which severity there are.
func (a checkAnswer) counts() string {
	number := make(map[status.Severity]int)
	for _, f := range a.Findings {
		number[f.Severity]++
	}
	var words []string
	for _, s := range []status.Severity{status.Failure, status.Warning, status.Note} {
		if n := number[s]; n > 0 {
			words = append(words, count(n, string(s), string(s)+"s"))
		}
	}
	if len(words) == 0 {
		return "nothing to say"
	}
	return strings.Join(words, ", ")
}

// kindOf is what findings have in common that say the same of several topics or
// groups.
func kindOf(f checkup.Finding) checkup.Finding {
	f.On, f.Help = "", ""
	return f
}

func writeCheck(w io.Writer, a checkAnswer) error {
	var b strings.Builder
	const indent = "         "
	alike := make(map[checkup.Finding][]string) // by all but what it is about
	for _, f := range a.Findings {
		alike[kindOf(f)] = append(alike[kindOf(f)], f.On)
	}
	shown := make(map[checkup.Finding]int)
	for _, f := range a.Findings {
		kind := kindOf(f)
		switch shown[kind]++; {
		case shown[kind] == mostAlike+1:
			others := alike[kind][mostAlike:]
			_ = paragraph(&b, fmt.Sprintf("%-9s", f.Severity), fmt.Sprintf("and %d more like that: %s", len(others), some(others, mostNamed)))
			continue
		case shown[kind] > mostAlike:
			continue
		}
		line := f.On
		if f.Setting != "" {
			line += ": " + f.Setting
		}
		switch {
		case f.Have != "" && f.Want != "":
			line += ": " + f.Have + " → " + f.Want
		case f.Have != "":
			line += ": " + f.Have
		case f.Want != "":
			line += ": wanted " + f.Want
		}
		_ = paragraph(&b, fmt.Sprintf("%-9s", f.Severity), line)
		_ = paragraph(&b, indent, f.Why)
		writeCommand(&b, indent, f.Help)
	}
	if len(a.Findings) > 0 {
		b.WriteByte('\n')
	}
	looked := count(a.Topics, "topic", "topics") + ", " + count(a.Brokers, "broker", "brokers") + " and " + count(a.Groups, "group", "groups")
	if a.Role != "" {
		looked += fmt.Sprintf(" looked at, %d of %d permissions of role %s are there", a.Allowed, a.Asked, a.Role)
	} else {
		looked += " looked at"
	}
	_ = paragraph(&b, "", looked+": "+a.counts())
	_, err := io.WriteString(w, b.String())
	return err
}
