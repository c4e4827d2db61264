package lease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/lease"
	"github.com/flusso/flusso-kafka/topics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster with the lanes of a pipeline, inside a bubble.
type world struct {
	*kfaketest.Cluster
	t        *testing.T
	pipeline topics.Pipeline
	lanes    []topics.Lane
	cl       *kgo.Client // the operator's
}

func bubble(t *testing.T, sinks []string, f func(t *testing.T, w *world), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, err := topics.NewPipeline("shop")
		if err != nil {
			t.Fatal(err)
		}
		w := &world{Cluster: kfaketest.New(t, opts...), t: t, pipeline: p}
		for _, sink := range sinks {
			l, err := p.Lane(sink)
			if err != nil {
				t.Fatal(err)
			}
			w.lanes = append(w.lanes, l)
			w.CreateTopic(t, l.Topic())
		}
		w.cl = w.Client(t, kgo.ClientID("operator"))
		f(t, w)
	})
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) describe() lease.State {
	w.t.Helper()
	return lease.Describe(w.ctx(), w.cl, w.pipeline, w.lanes)
}

// begin leaves a transaction open on lanes, under a transactional id.
func (w *world) begin(id string, lanes ...topics.Lane) (cl *kgo.Client, producer int64, epoch int16) {
	w.t.Helper()
	cl = w.Client(w.t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	for _, l := range lanes {
		if err := cl.ProduceSync(w.ctx(), &kgo.Record{Topic: l.Topic(), Value: []byte("open")}).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
	producer, epoch, err := cl.ProducerID(w.ctx())
	if err != nil {
		w.t.Fatal(err)
	}
	return cl, producer, epoch
}

// forget makes coordinators answer that an id has no transaction under way.
func (w *world) forget(id string, producer int64, epoch int16) {
	k := w.Kfake()
	k.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for _, name := range r.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
			st := kmsg.NewDescribeTransactionsResponseTransactionState()
			st.TransactionalID, st.State, st.ProducerID, st.ProducerEpoch = name, "CompleteAbort", -1, -1
			if name == id {
				st.ProducerID, st.ProducerEpoch = producer, epoch
			}
			resp.TransactionStates = append(resp.TransactionStates, st)
		}
		return resp, nil, true
	})
}

// ends returns where readers of committed data stop, and the end of a lane.
func (w *world) ends(l topics.Lane) (stable, high int64) {
	w.t.Helper()
	admin := kadm.NewClient(w.cl)
	committed, err := admin.ListCommittedOffsets(w.ctx(), l.Topic())
	if err != nil {
		w.t.Fatal(err)
	}
	end, err := admin.ListEndOffsets(w.ctx(), l.Topic())
	if err != nil {
		w.t.Fatal(err)
	}
	return committed[l.Topic()][0].Offset, end[l.Topic()][0].Offset
}

// counter counts the requests a cluster gets, by kind.
type counter struct {
	mu   sync.Mutex
	seen map[kmsg.Key]int
}

func (w *world) count() *counter {
	n := &counter{seen: make(map[kmsg.Key]int)}
	w.Kfake().Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.Kfake().KeepControl()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.seen[kmsg.Key(r.Key())]++
		return nil, nil, false
	})
	return n
}

// take returns the counts so far, without connection set-up.
func (n *counter) take() map[kmsg.Key]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen
	n.seen = make(map[kmsg.Key]int)
	delete(seen, kmsg.ApiVersions)
	delete(seen, kmsg.GetTelemetrySubscriptions)
	return seen
}
