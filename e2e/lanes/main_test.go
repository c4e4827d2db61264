// Package lanes_test holds what only Apache Kafka can show of the adapter:
// writers and consumers in processes of their own, what Kafka's tools do to
// groups and topics, sizes at the limits, trimming, and a lane as other
// programs see it. All of it shares one broker.
package lanes_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/internal/kafkatest"
	"github.com/flusso/flusso-kafka/kafka"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	// Most of a test is waiting for the broker.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	containers.Main(m)
}

const inc = "pg-7001.slot_a"

// open returns a fresh pipeline on the shared broker.
func open(t *testing.T, tune func(*kafka.Config), sinks ...string) *kafkatest.Pipeline {
	t.Helper()
	return kafkatest.Open(t, []kgo.Opt{kgo.SeedBrokers(containers.Shared(t).Addr())}, sinks, tune)
}

// live is a live batch with an envelope for each id.
func live(at flusso.Position, ids ...string) *flusso.Batch {
	b := &flusso.Batch{Position: at, Changes: uint64(len(ids))}
	for _, id := range ids {
		b.Envelopes = append(b.Envelopes, flusso.Envelope{
			Index: "orders", ID: id, Op: flusso.Upsert, Position: at, Document: fmt.Appendf(nil, `{"id":%q,"at":%d}`, id, at),
		})
	}
	return b
}
