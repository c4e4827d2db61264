package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/markers"
	"github.com/flusso/flusso-kafka/topics"
)

// errLeftOut is the error of what an answer should name and does not.
var errLeftOut = errors.New("the answer does not name it")

// open is a transaction as the leader of its lane knows it.
type open struct {
	markers.Transaction
	lane topics.Lane
}

func (o open) transaction() Transaction {
	return Transaction{Lane: o.lane, Offset: o.Offset, ProducerID: o.ProducerID, ProducerEpoch: o.ProducerEpoch, CoordinatorEpoch: o.CoordinatorEpoch}
}

// producers asks the lanes' leaders for what is open on them.
func producers(ctx context.Context, cl *kgo.Client, lanes []topics.Lane) (all []open, unknown []LaneError) {
	byTopic := make(map[string]topics.Lane, len(lanes))
	for _, l := range lanes {
		byTopic[l.Topic()] = l
	}
	found, failed := markers.Open(ctx, cl, slices.Sorted(maps.Keys(byTopic))...)
	for _, t := range found {
		all = append(all, open{t, byTopic[t.Topic]})
	}
	for topic, err := range failed {
		unknown = append(unknown, LaneError{byTopic[topic], err})
	}
	slices.SortFunc(unknown, func(a, b LaneError) int { return strings.Compare(a.Lane.Sink, b.Lane.Sink) })
	return all, unknown
}

// transactions asks the coordinators for the state of transactional ids, and
// answers in their order.
func transactions(ctx context.Context, cl *kgo.Client, names []string) []ID {
	ids := make([]ID, len(names))
	at := make(map[string]*ID, len(names))
	fail := func(id *ID, err error) {
		id.Err = kafkaerr.Wrap("describe transactional id "+id.Name, err, kafkaerr.OnTransactionalID("Describe", id.Name))
	}
	for i, name := range names {
		ids[i] = ID{Name: name, ProducerID: -1, ProducerEpoch: -1, Coordinator: -1}
		at[name] = &ids[i]
		fail(&ids[i], errLeftOut)
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = names
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, name := range shard.Req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
				fail(at[name], shard.Err)
			}
			continue
		}
		for _, st := range shard.Resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
			id := at[st.TransactionalID]
			if id == nil {
				continue
			}
			id.Coordinator = shard.Meta.NodeID
			switch err := kerr.ErrorForCode(st.ErrorCode); {
			case errors.Is(err, kerr.TransactionalIDNotFound):
				id.State, id.Err = None, nil
			case err != nil:
				fail(id, err)
			default:
				id.Err = nil
				id.State, id.ProducerID, id.ProducerEpoch = st.State, st.ProducerID, st.ProducerEpoch
				id.Timeout = time.Duration(st.TimeoutMillis) * time.Millisecond
				if !id.Over() {
					id.StartedAt = unixMilli(st.StartTimestamp)
				}
				for _, t := range st.Topics {
					id.Topics = append(id.Topics, t.Topic)
				}
				slices.Sort(id.Topics)
			}
		}
	}
	return ids
}

// listedOwners finds the transactional ids that have producer ids, by asking
// every broker. Ids that the user may not describe are not listed; the error
// says that a broker did not answer.
func listedOwners(ctx context.Context, cl *kgo.Client, producerIDs []int64) (map[int64]ID, error) {
	req := kmsg.NewPtrListTransactionsRequest()
	req.ProducerIDFilters = producerIDs
	owners := make(map[int64]ID)
	var failed error
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			failed = shard.Err
			continue
		}
		resp := shard.Resp.(*kmsg.ListTransactionsResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			failed = err
			continue
		}
		for _, st := range resp.TransactionStates {
			owners[st.ProducerID] = ID{Name: st.TransactionalID, State: st.TransactionState, ProducerID: st.ProducerID, ProducerEpoch: -1, Coordinator: shard.Meta.NodeID}
		}
	}
	return owners, kafkaerr.Wrap("list the transactional ids of foreign producers", failed)
}

func unixMilli(ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
