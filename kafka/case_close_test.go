package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// The reply to a commit is lost, and the consumer is closed before it could
// look whether it was made: Close must not say that all is durable [F1].
func TestF1_CloseSaysThatTheLastCommitIsNotKnown(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		w.publish(s, w.commits(s), 1, 2)
		c := w.attach(s, "audit")
		ds := w.receive(c, 1, 2)
		lost := w.cluster.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Disconnect, Times: -1})
		again := w.cluster.Fault(t, kmsg.DescribeGroups, kfaketest.Fault{Mode: kfaketest.Disconnect, Times: -1})
		w.ack(ds[1], ds[0]) // one commit for both: the floor moves once
		<-lost.Hit()
		w.sleep(time.Second)
		if err := c.Close(w.ctx()); !errors.Is(err, flusso.ErrWithdrawn) {
			t.Errorf("close: got %v, want it to say that acks may not be committed", err)
		}
		lost.Release()
		again.Release()
		w.applies(w.attach(s, "audit"), 1, 2)
		w.mark(s, 2)
	})
}
