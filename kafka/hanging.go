package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/topics"
)

// hangsAfter is how long a transaction may stay open on a lane after its
// coordinator has called it over, until it is taken for one that hangs.
// Markers need milliseconds, a few seconds on a broker that has just started.
const hangsAfter = 4 * time.Second

// endHanging aborts transactions that hang on the lanes: open in a lane's log
// although the coordinator knows of none. Apache Kafka leaves such behind when a
// broker goes down between the end of a transaction and its markers (seen on
// 4.3.1), and readers wait behind them for ever.
//
// It is called by a session that holds the lease, and touches its own producer
// ids only: whatever they have open belongs to a writer that was fenced.
// Nobody has read what is in there, so the watermark is below it and the engine
// publishes it again [B9], also where the transaction had been committed.
func (s *Stream) endHanging(ctx context.Context, own []int64) error {
	adm := kadm.NewClient(s.client)
	ids := make([]string, topics.WriterIDs)
	for i := range ids {
		ids[i] = s.names.pipeline.WriterID(i)
	}
	transactions, err := adm.DescribeTransactions(ctx, ids...)
	if err != nil {
		return kafkaerr.Wrap("describe the writer's transactions", err)
	}
	var set kadm.TopicsSet
	for _, l := range s.names.lanes {
		set.Add(l.Topic(), 0)
	}
	described, err := adm.DescribeProducers(ctx, set)
	if err != nil {
		return kafkaerr.Wrap("describe the lanes' producers", err)
	}
	for _, t := range described {
		for _, p := range t.Partitions {
			for id, producer := range p.ActiveProducers {
				if producer.CurrentTxnStartOffset < 0 || !slices.Contains(own, id) || !over(transactions, id) {
					continue
				}
				if err := s.abort(ctx, p.Topic, producer); err != nil {
					return err
				}
				s.log.Warn("aborted a hanging transaction of an earlier writer", "topic", p.Topic,
					"producer", id, "epoch", producer.ProducerEpoch, "offset", producer.CurrentTxnStartOffset)
			}
		}
	}
	return nil
}

// over reports whether the coordinator has no transaction of a producer id
// under way, not even one whose markers are still to be written.
func over(described kadm.DescribedTransactions, producerID int64) bool {
	for _, t := range described {
		if t.Err == nil && t.ProducerID == producerID {
			return t.State == "Empty" || t.State == "CompleteCommit" || t.State == "CompleteAbort"
		}
	}
	return false
}

// abort writes the marker that a transaction lacks, as kafka-transactions.sh
// abort does.
func (s *Stream) abort(ctx context.Context, topic string, producer kadm.DescribedProducer) error {
	op := fmt.Sprintf("abort the hanging transaction of producer %d on topic %s", producer.ProducerID, topic)
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch = producer.ProducerID, producer.ProducerEpoch
	m.CoordinatorEpoch = max(producer.CoordinatorEpoch, 0)
	mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	mt.Topic, mt.Partitions = topic, []int32{0}
	m.Topics = append(m.Topics, mt)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = append(req.Markers, m)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return kafkaerr.Wrap(op, err)
	}
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return kafkaerr.Wrap(op, err)
				}
			}
		}
	}
	return nil
}
