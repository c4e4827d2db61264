package lanes_test

import (
	"fmt"
	"strings"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func store(t *testing.T) *offsets.Store {
	t.Helper()
	return offsets.New(probe.Client(t, containers.Shared(t).Addr()))
}

// tool runs one of Kafka's own in the broker's container.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	return containers.Shared(t).Exec(t, append([]string{name, "--bootstrap-server", containers.InnerAddr}, args...)...)
}

// reset moves a lane's group as an operator would.
func reset(t *testing.T, l topics.Lane, to flusso.Offset) {
	t.Helper()
	out := tool(t, "kafka-consumer-groups", "--group", l.Group(), "--topic", l.Topic(),
		"--reset-offsets", "--to-offset", fmt.Sprint(int64(to)), "--execute")
	if !strings.Contains(out, l.Topic()) {
		t.Fatalf("kafka-consumer-groups --reset-offsets did nothing:\n%s", out)
	}
}

// column returns a column of what kafka-consumer-groups prints of a topic.
func column(t *testing.T, out, topic, name string) string {
	t.Helper()
	at := -1
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if at < 0 {
			for i, f := range fields {
				if f == name {
					at = i
				}
			}
			continue
		}
		if len(fields) > at && len(fields) > 1 && fields[1] == topic {
			return fields[at]
		}
	}
	t.Fatalf("no column %s of topic %s in:\n%s", name, topic, out)
	return ""
}
