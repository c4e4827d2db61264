package main

import (
	"context"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	membership "github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/topics"
)

// leaveOpen leaves a transaction open on the lane of a sink: open TRANSACTIONAL-ID SINK [hangs]
// $PRODUCER is its producer id. One that hangs is unknown to its coordinator, and fencing does not end it.
func leaveOpen(ts *testscript.TestScript, _ bool, args []string) {
	c, _ := clusterOf(ts)
	id, topic := args[0], pipelineName+".lane."+args[1]
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cl := c.Client(tb{ts: ts}, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(10*time.Minute))
	ts.Check(cl.BeginTransaction())
	ts.Check(cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("open")}).FirstErr())
	producer, epoch, err := cl.ProducerID(ctx)
	ts.Check(err)
	ts.Setenv("PRODUCER", strconv.FormatInt(producer, 10))
	if len(args) < 3 {
		return
	}
	k := c.Kfake()
	k.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		req := r.(*kmsg.InitProducerIDRequest)
		if req.TransactionalID == nil || *req.TransactionalID != id {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ProducerID, resp.ProducerEpoch = producer, epoch+1
		return resp, nil, true
	})
	k.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for _, name := range r.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
			state := kmsg.NewDescribeTransactionsResponseTransactionState()
			state.TransactionalID, state.State, state.ProducerID, state.ProducerEpoch = name, "Empty", -1, -1
			if name == id {
				state.ProducerID, state.ProducerEpoch = producer, epoch
			}
			resp.TransactionStates = append(resp.TransactionStates, state)
		}
		return resp, nil, true
	})
	k.ControlKey(int16(kmsg.ListTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := r.ResponseKind().(*kmsg.ListTransactionsResponse)
		state := kmsg.NewListTransactionsResponseTransactionState()
		state.TransactionalID, state.TransactionState, state.ProducerID = id, "Empty", producer
		resp.TransactionStates = append(resp.TransactionStates, state)
		return resp, nil, true
	})
}

// holder keeps a member in the ingest group that tells of itself what an engine
// does: holder
func holder(ts *testscript.TestScript, _ bool, _ []string) {
	c, cl := clusterOf(ts)
	p, err := topics.NewPipeline(pipelineName)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	held, err := membership.Hold(ctx, membership.Config{
		Group: p.IngestGroup(), Topic: p.RequestsTopic(), Lookup: cl, Opts: append(c.Opts(), kgo.ClientID("flusso-shop-ingest-1")),
	})
	ts.Check(err)
	ts.Defer(func() { held.Close(context.Background()) })
}
