package admin_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

type checked struct {
	Sound    bool
	Findings []struct{ Severity, Code, On, Setting, Have, Want, Why, Help string }
}

// of returns what was found of a setting.
func (c checked) of(setting string) string {
	for _, f := range c.Findings {
		if f.Setting == setting {
			return f.Severity + " " + f.Have
		}
	}
	return ""
}

// From nothing to topics that are as they should be, by two operators at once;
// what another tool changes behind them is found, and set again.
func TestF3_topics_are_planned_applied_and_checked(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("p%08x", rand.Uint32())
	p := &pipeline{t: t, name: name, addr: containers.Shared(t).Addr()}
	p.Admin = probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+p.addr, "FLUSSO_KAFKA_PIPELINE="+name)
	plan := p.runs(1, "topic", "plan", "--sinks", "audit,search")
	if !strings.Contains(plan.Out, "3 to create") {
		t.Errorf("the plan of nothing:\n%s", plan)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			got, err := p.Run(t.Context(), "topic", "apply", "--sinks", "audit,search", "--yes")
			if err != nil || got.Code != 0 {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
	both.Wait()
	p.runs(0, "topic", "plan", "--sinks", "audit,search")

	lane := p.lane("search").Topic()
	tool(t, "kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", lane, "--add-config", "retention.ms=1000")
	probe.Eventually(t, "the broker shows what the tool changed", func(ctx context.Context) error {
		got, err := p.Run(ctx, "topic", "plan")
		if err == nil && got.Code == 0 {
			err = errNotYet
		}
		return err
	})
	changed := p.runs(1, "topic", "plan")
	if !strings.Contains(changed.Out, "1000 → -1") {
		t.Errorf("what another tool changed:\n%s", changed)
	}
	found := reads[checked](p, 1, "topic", "check")
	if found.Sound || found.of("retention.ms") != "failure 1000" {
		t.Errorf("the check says %+v", found)
	}
	t.Logf("%s\n%s\n%s", plan, changed, p.runs(1, "topic", "check", "--role", "ingest"))
	p.runs(0, "topic", "apply", "--yes")
	p.runs(0, "topic", "plan")
	if found := reads[checked](p, 0, "topic", "check"); !found.Sound {
		t.Errorf("the check of a broker as it comes says %+v", found)
	}
}

// A broker with settings that break a pipeline: each is found by the name that
// Kafka gives it.
func TestF3_unsafe_settings_of_a_broker_are_found(t *testing.T) {
	unsafe := map[string]string{
		"offsets.retention.minutes":      "60",
		"offset.metadata.max.bytes":      "100",
		"transactional.id.expiration.ms": "3600000",
		"transaction.max.timeout.ms":     "5000",
		"group.min.session.timeout.ms":   "20000",
		"log.cleaner.enable":             "false",
		"unclean.leader.election.enable": "true",
		"auto.create.topics.enable":      "true",
		"delete.topic.enable":            "false",
		"socket.request.max.bytes":       "1000000",
		"log.retention.ms":               "-1",
	}
	b := containers.Kafka(t, containers.WithConfig(unsafe))
	p := &pipeline{t: t, name: "unsafe", addr: b.Addr()}
	p.Admin = probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+p.addr, "FLUSSO_KAFKA_PIPELINE="+p.name)
	p.runs(0, "topic", "apply", "--sinks", "search", "--yes")
	found := reads[checked](p, 1, "topic", "check")
	for setting, want := range map[string]string{
		"offsets.retention.minutes": "warning 60", "offset.metadata.max.bytes": "failure 100", "transactional.id.expiration.ms": "warning 3600000",
		"transaction.max.timeout.ms": "failure 5000", "group.min.session.timeout.ms": "failure 20000", "log.cleaner.enable": "warning false",
		"unclean.leader.election.enable": "warning true", "auto.create.topics.enable": "note true", "delete.topic.enable": "note false",
		"socket.request.max.bytes": "failure 1000000",
	} {
		if got := found.of(setting); got != want {
			t.Errorf("of %s it says %q, want %q", setting, got, want)
		}
	}
	t.Log(p.runs(1, "topic", "check"))

	// A lane that another tool made is safe by the broker's setting alone.
	b.Exec(t, "kafka-topics", "--bootstrap-server", containers.InnerAddr, "--create", "--topic", "unsafe.lane.bare", "--partitions", "2")
	probe.Eventually(t, "the broker shows the topic", func(ctx context.Context) error {
		got, err := p.Run(ctx, "topic", "check", "--sinks", "bare", "--format", "json")
		if err == nil && !strings.Contains(got.Out, "-1, from the broker") {
			err = errNotYet
		}
		return err
	})
	bare := p.runs(1, "topic", "plan", "--sinks", "bare")
	if !strings.Contains(bare.Out, "2 → 1") || !strings.Contains(bare.Out, "1 needs a person") {
		t.Errorf("the plan of a lane with two partitions:\n%s", bare)
	}
}
