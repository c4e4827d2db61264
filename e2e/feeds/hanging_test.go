package feeds_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/markers"
)

// What a coordinator wrote down of a transaction is read from its own log, and
// the marker that is missing is written: on both versions of Kafka, by clients
// of both versions of transactions.
func TestE16_what_a_broker_left_open_is_ended_as_it_was_decided(t *testing.T) {
	for _, version := range []string{"4.3.1", "3.9.1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := containers.Kafka(t, containers.WithVersion(version), containers.WithConfig(map[string]string{"transaction.partition.verification.enable": "false"}))
			opts := []kgo.Opt{kgo.SeedBrokers(b.Addr())}
			cl := probe.Client(t, b.Addr())
			adm := kadm.NewClient(cl)
			for name, commit := range map[string]bool{"committed": true, "aborted": false} {
				topic, id := fresh(name), fresh(name)+".1"
				if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
					t.Fatal(err)
				}
				// The newest that the id decided on the topic is what the log tells.
				w := probe.Client(t, b.Addr(), probe.Old(), kgo.TransactionalID(id))
				for _, try := range []bool{!commit, commit} {
					if err := w.BeginTransaction(); err != nil {
						t.Fatal(err)
					}
					if err := w.ProduceSync(t.Context(), &kgo.Record{Topic: topic}).FirstErr(); err != nil {
						t.Fatal(err)
					}
					if err := w.EndTransaction(t.Context(), kgo.TransactionEndTry(try)); err != nil {
						t.Fatal(err)
					}
				}
				if err := probe.Hang(t.Context(), opts, id, topic); err != nil {
					t.Fatal(err)
				}
				open, failed := markers.Open(t.Context(), cl, topic)
				if len(open) != 1 || len(failed) > 0 {
					t.Fatalf("%s: open is %+v, %v", name, open, failed)
				}
				fence := probe.Client(t, b.Addr(), kgo.TransactionalID(id))
				if _, _, err := fence.ProducerID(t.Context()); err != nil {
					t.Fatal(err)
				}
				ids := map[int64]string{open[0].ProducerID: id}
				ended, err := markers.End(t.Context(), cl, opts, ids, topic)
				if err != nil || len(ended) != 1 || ended[0].Committed != commit {
					t.Errorf("%s: ended %+v, %v", name, ended, err)
				}
				if open, failed := markers.Open(t.Context(), cl, topic); len(open) > 0 || len(failed) > 0 {
					t.Errorf("%s: still open is %+v, %v", name, open, failed)
				}
				// Nothing that was decided is as young as this one is.
				if err := probe.Hang(t.Context(), opts, id, topic); err != nil {
					t.Fatal(err)
				}
				var undecided *markers.UndecidedError
				if ended, err := markers.End(t.Context(), cl, opts, ids, topic); !errors.As(err, &undecided) || undecided.Cause != nil || len(ended) > 0 {
					t.Errorf("%s: of what no log tells %+v was ended, %v", name, ended, err)
				}
			}
		})
	}
}
