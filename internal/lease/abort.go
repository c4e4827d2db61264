package lease

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Abort writes the marker that a hanging transaction lacks, as
// kafka-transactions.sh abort does. Nobody has read what is in it, so the
// watermark is below it, and the engine publishes it again [B9], also where the
// transaction had been committed.
//
// It is for a [Transaction] that [Describe] calls hanging, of a writer that was
// fenced: one that is under way would be torn apart.
func Abort(ctx context.Context, cl *kgo.Client, t Transaction) error {
	topic := t.Lane.Topic()
	op := fmt.Sprintf("abort the hanging transaction of producer %d on topic %s", t.ProducerID, topic)
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch = t.ProducerID, t.ProducerEpoch
	m.CoordinatorEpoch = max(t.CoordinatorEpoch, 0)
	mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	mt.Topic, mt.Partitions = topic, []int32{0}
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
