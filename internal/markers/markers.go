// Package markers ends transactions that hang: open in the log of a topic
// although their coordinator has decided them and is done with them. Apache
// Kafka leaves such behind when a broker goes down between the end of a
// transaction and its markers, or decides one before it knows who leads its
// partitions (seen on 4.3.1), and readers wait behind them for ever.
//
// [Open] lists what is open, [Decided] reads from the coordinators' own log how
// one was decided, and [Write] writes the marker that is missing; [End] does all
// of it for who holds the transactional ids.
package markers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Settle is how long a transaction may stay open in a log after its coordinator
// has called it over, until it is ended by hand. Markers need milliseconds, a
// few seconds on a broker that has just started.
const Settle = 4 * time.Second

// Over reports whether a coordinator that gives this state to a transactional id
// has no transaction of it under way, not even one whose markers are still to be
// written.
func Over(state string) bool {
	switch state {
	case "Empty", "Dead", "CompleteCommit", "CompleteAbort":
		return true
	}
	return false
}

// Transaction is one that is open in partition 0 of a topic: readers wait at
// its offset.
type Transaction struct {
	Topic            string
	Offset           flusso.Offset // its first
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Last             time.Time // of the producer's newest record in the topic, by its client's clock; zero when not known
}

// errLeftOut is the error of what an answer should name and does not.
var errLeftOut = errors.New("the answer does not name it")

// Open asks the leaders of topics, of one partition each, for what is open in
// them. Those that could not be asked are in failed, by topic. kadm's call ends
// at the first topic that may not be looked at; here the others are answered.
func Open(ctx context.Context, cl *kgo.Client, topics ...string) (all []Transaction, failed map[string]error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	failed = make(map[string]error, len(topics))
	for _, topic := range topics {
		if failed[topic] != nil {
			continue
		}
		failed[topic] = errLeftOut
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic, t.Partitions = topic, []int32{0}
		req.Topics = append(req.Topics, t)
	}
	if len(req.Topics) == 0 {
		return nil, nil
	}
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, t := range shard.Req.(*kmsg.DescribeProducersRequest).Topics {
				failed[t.Topic] = shard.Err
			}
			continue
		}
		for _, t := range shard.Resp.(*kmsg.DescribeProducersResponse).Topics {
			for _, p := range t.Partitions {
				if failed[t.Topic] == nil || p.Partition != 0 {
					continue
				}
				if failed[t.Topic] = kerr.ErrorForCode(p.ErrorCode); failed[t.Topic] != nil {
					continue
				}
				delete(failed, t.Topic)
				for _, producer := range p.ActiveProducers {
					if producer.CurrentTxnStartOffset >= 0 {
						all = append(all, transaction(t.Topic, &producer))
					}
				}
			}
		}
	}
	for topic, err := range failed {
		failed[topic] = kafkaerr.Wrap("describe the producers of topic "+topic, err, kafkaerr.OnTopic("Read", topic))
	}
	return all, failed
}

func transaction(topic string, p *kmsg.DescribeProducersResponseTopicPartitionActiveProducer) Transaction {
	t := Transaction{
		Topic: topic, Offset: flusso.Offset(p.CurrentTxnStartOffset),
		ProducerID: p.ProducerID, ProducerEpoch: int16(p.ProducerEpoch), CoordinatorEpoch: p.CoordinatorEpoch,
	}
	if p.LastTimestamp >= 0 {
		t.Last = time.UnixMilli(p.LastTimestamp)
	}
	return t
}

// Write writes the marker that a transaction lacks, as kafka-transactions.sh
// abort does for one that is given up. It is for a transaction of a writer that
// was fenced: one that is under way would be torn apart.
func Write(ctx context.Context, cl *kgo.Client, t Transaction, commit bool) error {
	verb := "abort"
	if commit {
		verb = "commit"
	}
	op := fmt.Sprintf("%s the hanging transaction of producer %d on topic %s", verb, t.ProducerID, t.Topic)
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed = t.ProducerID, t.ProducerEpoch, commit
	m.CoordinatorEpoch = max(t.CoordinatorEpoch, 0)
	mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	mt.Topic, mt.Partitions = t.Topic, []int32{0}
	m.Topics = append(m.Topics, mt)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = append(req.Markers, m)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return kafkaerr.Wrap(op, err)
	}
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return kafkaerr.Wrap(op, err, kafkaerr.OnCluster("ClusterAction"))
				}
			}
		}
	}
	return nil
}
