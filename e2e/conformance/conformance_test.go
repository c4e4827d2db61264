// Package conformance_test runs the conformance suite of the stream port
// against the adapter on real Apache Kafka.
package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/internal/kafkatest"
	"github.com/flusso/flusso-kafka/streamtest"
)

// Most of a clause is waiting for the broker: several run at a time.
const parallel = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	containers.Main(m)
}

// The clauses that stop the broker run before the others, one after another.
const stopping = "/C7_"

// pipeline is a pipeline on a broker in a container.
type pipeline struct {
	*kafkatest.Pipeline
	broker *containers.Broker
}

var _ streamtest.Stopper = pipeline{}

// Stop implements [streamtest.Stopper]: the broker accepts connections and
// answers nothing.
func (p pipeline) Stop(t *testing.T) (restart func()) {
	t.Helper()
	if !strings.Contains(t.Name(), stopping) {
		t.Fatal("this clause stops the broker under those that run beside it: see the constant stopping")
	}
	p.broker.Pause(t)
	return func() { p.broker.Unpause(t) }
}

func conform(t *testing.T, version string) {
	b := containers.Kafka(t, containers.WithVersion(version))
	streamtest.Run(t, streamtest.Harness{
		Name: "kafka on Apache Kafka " + version,
		Run: func(t *testing.T, body func(t *testing.T)) {
			if !strings.Contains(t.Name(), stopping) {
				t.Parallel()
			}
			body(t)
		},
		Open: func(t *testing.T, sinks []string) streamtest.Pipeline {
			return pipeline{kafkatest.Open(t, []kgo.Opt{kgo.SeedBrokers(b.Addr())}, sinks, nil), b}
		},
	})
}

func TestConformance_4_3_1(t *testing.T) { conform(t, "4.3.1") }

func TestConformance_3_9_1(t *testing.T) { conform(t, "3.9.1") }
