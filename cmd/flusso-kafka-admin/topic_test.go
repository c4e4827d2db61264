package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/flusso/flusso-kafka/internal/checkup"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/topics"
)

// A plan shows what is created, set, left to a person, not looked at, and as it
// should be.
func TestPlanAsADiff(t *testing.T) {
	p, err := topics.NewPipeline("shop")
	if err != nil {
		t.Fatal(err)
	}
	sinks := []string{"a", "b", "c"}
	want, err := p.Specs(sinks, topics.Options{ReplicationFactor: 3})
	if err != nil {
		t.Fatal(err)
	}
	safe := map[string]string{
		topics.CleanupPolicy: "delete", topics.RetentionMs: "-1", topics.RetentionBytes: "-1", topics.Unclean: "false",
		topics.TimestampType: "CreateTime", topics.MinInsync: "2",
	}
	topic := func(name string) topics.Topic {
		return topics.Topic{Name: name, Partitions: 1, Replicas: 3, InSync: 3, Leader: 1, Settings: safe}
	}
	split := topic("shop.lane.a")
	split.Partitions = 4
	have := topics.Cluster{
		Names: []string{"shop.lane.a", "shop.lane.old", "shop.requests", "other.lane.x"},
		Topics: map[string]topics.Topic{
			"shop.requests": topic("shop.requests"),
			"shop.lane.a":   split,
			"shop.lane.b":   {Name: "shop.lane.b", Err: kerr.UnknownTopicOrPartition},
			"shop.lane.c":   {Name: "shop.lane.c", Err: errors.New("describe topic shop.lane.c: it broke")},
		},
	}
	c := &cluster{pipeline: p}
	for _, sink := range sinks {
		c.lanes = append(c.lanes, topics.Lane{Pipeline: p, Sink: sink})
	}
	a := newPlan(&topicCluster{cluster: c}, want, have)
	if !a.different() {
		t.Error("no difference")
	}
	var b strings.Builder
	if err := writePlan(&b, a); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"+ topic shop.lane.b\n+   partitions                         1\n+   replication factor                 3\n",
		"+   min.insync.replicas                2\n",
		"! topic shop.lane.a\n!   partitions                         4 → 1\n    items would lose their order",
		`    kafka-topics.sh --bootstrap-server "$BOOTSTRAP" --delete --topic shop.lane.a` + "\n    # once every sink has acked it",
		"! describe topic shop.lane.c: it broke\n",
		"  topic shop.requests\n",
		"  topic shop.lane.old is not of --sinks: left alone\n",
		"1 to create, 0 to set, 1 needs a person, 1 not looked at, 1 as they should be\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
}

// Two that apply at once: neither fails, and everything is there once.
func TestApplyTwiceAtOnce(t *testing.T) {
	c := kfaketest.New(t)
	p, err := topics.NewPipeline("shop")
	if err != nil {
		t.Fatal(err)
	}
	want, err := p.Specs([]string{"a", "b", "c"}, topics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	admins := []*topics.Admin{topics.New(c.Client(t)), topics.New(c.Client(t))}
	have, err := admins[0].Read(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, len(admins))
	for _, admin := range admins {
		go func() {
			_, err := carryOut(t.Context(), admin, want, have) // both go by the empty cluster
			done <- err
		}()
	}
	for range admins {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if _, err := admins[0].Verify(t.Context(), want); err != nil {
		t.Error(err)
	}
}

func TestCommandsCanBeCopied(t *testing.T) {
	var b strings.Builder
	writeCommand(&b, "  ", "tool "+strings.Repeat("--flag value ", 12)+" # because it helps")
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i, line := range lines {
		if n := len([]rune(line)); n > maxColumns {
			t.Errorf("%d columns: %s", n, line)
		}
		if goesOn := strings.HasSuffix(line, ` \`); goesOn != (i < len(lines)-2) {
			t.Errorf("line %d of %d: %s", i, len(lines), line)
		}
	}
	if last := lines[len(lines)-1]; last != "  # because it helps" {
		t.Errorf("got %q", last)
	}
}

// What is found of a thousand groups alike takes no more room than of a few.
func TestCheckShowsTheLikeOnce(t *testing.T) {
	var a checkAnswer
	for i := range 1000 {
		a.Findings = append(a.Findings, checkup.Finding{
			Severity: status.Warning, On: fmt.Sprintf("group shop.sink.s%03d", i), Have: "no member", Want: "a member", Why: "its offsets expire",
			Help: fmt.Sprintf("flusso-kafka-admin lane retire s%03d", i),
		})
	}
	a.Findings = append(a.Findings, checkup.Finding{Severity: status.Warning, On: "topic shop.requests", Why: "another reason"})
	var b strings.Builder
	if err := writeCheck(&b, a); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if n := strings.Count(got, "\n"); n > 40 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{"lane retire s004\n", "and 995 more like that: group shop.sink.s005,", "and 975 more\n", "another reason", ": 1001 warnings"} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q:\n%s", want, got)
		}
	}
}
