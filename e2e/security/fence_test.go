package security_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/kafka"
)

// A transaction that hangs is found by an operator, and ended by fencing with
// --abort-hanging alone.
func TestWriter_fence_ends_what_hangs(t *testing.T) {
	t.Parallel()
	b := broker(t)
	const name, sink = "hangs", "audit"
	s, err := kafka.Open(t.Context(), kafka.Config{
		Pipeline: name, Sinks: []string{sink}, Incarnation: "pg-7301:flusso", CreateTopics: true,
		Client: append(b.super(), kgo.SeedBrokers(b.Addr())),
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Lane(sink)
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Producer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), &flusso.Batch{Position: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.hang(t.Context(), probe.Names(t, name, sink)); err != nil {
		t.Fatal(err)
	}
	admin := b.command(t, superUser).With("FLUSSO_KAFKA_SASL_MECHANISM=PLAIN", "FLUSSO_KAFKA_SASL_PASSWORD="+b.secrets.super, "FLUSSO_KAFKA_PIPELINE="+name)
	for _, step := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"writer", "describe"}, 1, "never: it hangs"},
		{[]string{"writer", "fence", "--yes"}, 0, "never: it hangs"},
		{[]string{"writer", "fence", "--abort-hanging", "--dry-run"}, 0, "would abort the hanging transaction"},
		{[]string{"writer", "fence", "--abort-hanging", "--yes"}, 0, "aborted the hanging transaction"},
	} {
		got := admin.Must(t, step.code, step.args...)
		if !strings.Contains(got.Out, step.says) {
			t.Errorf("want %q\n%s", step.says, got)
		}
		t.Log(got)
	}
	// With no engine attached that is a finding after a while, and not before.
	after, err := admin.Run(t.Context(), "writer", "describe")
	if err != nil || !strings.Contains(after.Out, "no transaction is open on the lanes") {
		t.Errorf("%v\n%s", err, after)
	}
}
