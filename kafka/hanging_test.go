package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestB9_ATransactionThatHangsIsEnded: an earlier writer's transaction stays
// open on a lane although its coordinator says that it is over, as a broker
// that went down may leave it. The next session aborts it, nothing of it is
// delivered, and the engine's replay is.
func TestB9_ATransactionThatHangsIsEnded(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		first := w.process("db:slot")
		w.publish(first, w.commits(first), 1)
		w.do("close", first.Close(w.ctx()))
		lane, id := w.Lane(t, "audit"), w.Name().WriterID(1)

		// The earlier writer: a segment without an end.
		cl := w.cluster.Client(t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		w.do("begin", cl.BeginTransaction())
		w.do("produce", cl.ProduceSync(w.ctx(), &kgo.Record{Topic: lane.Topic(), Value: []byte("hangs")}).FirstErr())
		pid, epoch, err := cl.ProducerID(w.ctx())
		w.do("producer id", err)
		cl.CloseAllowingRebalance()

		// The broker forgets it: fencing ends nothing, the coordinator knows of nothing.
		k := w.cluster.Kfake()
		k.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			req := r.(*kmsg.InitProducerIDRequest)
			if req.TransactionalID == nil || *req.TransactionalID != id {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ProducerID, resp.ProducerEpoch = pid, epoch
			return resp, nil, true
		})
		k.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			resp := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
			state := kmsg.NewDescribeTransactionsResponseTransactionState()
			state.TransactionalID, state.State, state.ProducerID, state.ProducerEpoch = id, "Empty", pid, epoch
			resp.TransactionStates = append(resp.TransactionStates, state)
			return resp, nil, true
		})
		markers := 0
		k.ControlKey(int16(kmsg.WriteTxnMarkers), func(r kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			for _, m := range r.(*kmsg.WriteTxnMarkersRequest).Markers {
				if m.ProducerID != pid || m.Committed {
					t.Errorf("got a marker for producer %d, committed %t: want an abort for %d", m.ProducerID, m.Committed, pid)
				}
				markers++
			}
			return nil, nil, false
		})

		began := time.Now()
		s := w.process("db:slot")
		p := w.commits(s)
		if took := time.Since(began); markers == 0 || took > 30*time.Second { // the bubble's clock
			t.Fatalf("opened after %s with %d markers", took, markers)
		}
		w.publish(s, p, 2)
		c := w.attach(s, "audit")
		w.applies(c, 1, 2)
		w.nothing(c)
		w.mark(s, 2)
	})
}
