package topics

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// RecreatedError says that a topic was deleted and created again under its name, so
// that offsets of the old one mean nothing.
type RecreatedError struct {
	Topic      string
	Have, Want [16]byte // topic IDs: the topic's now, and the one offsets were taken from
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("topic %s was deleted and created again: it has ID %s, offsets were taken from ID %s; find out who did it, then seed its sinks again",
		e.Topic, IDString(e.Have), IDString(e.Want))
}

// IDString returns a topic ID as Kafka's own tools print it.
func IDString(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// Trim is [Admin.TrimTopic] of a lane.
func (a *Admin) Trim(ctx context.Context, lane Lane, topicID [16]byte, upTo flusso.Offset) (flusso.Offset, error) {
	return a.TrimTopic(ctx, lane.Topic(), topicID, upTo)
}

// TrimTopic deletes the records of a topic's partition 0 below an offset,
// which must come from the topic with that ID; a recreated topic is refused
// with a [*RecreatedError]. It returns the log start, which is above upTo when
// more was trimmed before: trimming again, or less, does nothing. An offset
// above the end of the log is an error and deletes nothing.
//
// Kafka trims by name. A topic recreated in the instant after the look-up is
// shorter than upTo, and refused for that reason.
func (a *Admin) TrimTopic(ctx context.Context, topic string, topicID [16]byte, upTo flusso.Offset) (flusso.Offset, error) {
	op := fmt.Sprintf("trim topic %s up to offset %s", topic, upTo)
	switch {
	case upTo < 0:
		return flusso.NoOffset, &flusso.InvalidError{What: "trim of topic " + topic, Reason: fmt.Sprintf("offset %d is not an explicit offset", int64(upTo))}
	case topicID == [16]byte{}:
		return flusso.NoOffset, &flusso.InvalidError{What: "trim of topic " + topic, Reason: "without a topic ID a recreated topic can't be told"}
	}
	found, err := a.metadata(ctx, []string{topic})
	if err != nil {
		return flusso.NoOffset, fmt.Errorf("%s: %w", op, err)
	}
	switch t := found[topic]; {
	case t.Err != nil:
		return flusso.NoOffset, fmt.Errorf("%s: %w", op, t.Err)
	case t.ID != topicID:
		return flusso.NoOffset, &RecreatedError{Topic: topic, Have: t.ID, Want: topicID}
	}
	// Below the log start Apache Kafka answers with the log start and other
	// brokers with an error, so that it is not asked.
	start, err := a.logStart(ctx, topic)
	if err != nil {
		return flusso.NoOffset, kafkaerr.Wrap(op, err)
	}
	if start >= upTo {
		return start, nil
	}
	low, err := a.deleteRecords(ctx, topic, upTo)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		// Above the end, or somebody else trimmed further meanwhile.
		if start, again := a.logStart(ctx, topic); again == nil && start >= upTo {
			return start, nil
		}
		return flusso.NoOffset, fmt.Errorf("%s: %w: the log ends below it", op, err)
	}
	if err != nil {
		return flusso.NoOffset, kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Delete", topic))
	}
	return max(low, upTo), nil
}

// logStart returns the first offset of partition 0.
func (a *Admin) logStart(ctx context.Context, topic string) (flusso.Offset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -2 // earliest
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return flusso.NoOffset, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return flusso.NoOffset, errNoAnswer
	}
	got := &resp.Topics[0].Partitions[0]
	return flusso.Offset(got.Offset), kerr.ErrorForCode(got.ErrorCode)
}

func (a *Admin) deleteRecords(ctx context.Context, topic string, upTo flusso.Offset) (flusso.Offset, error) {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = int32((30 * time.Second).Milliseconds())
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = int64(upTo)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return flusso.NoOffset, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return flusso.NoOffset, errNoAnswer
	}
	got := &resp.Topics[0].Partitions[0]
	return flusso.Offset(got.LowWatermark), kerr.ErrorForCode(got.ErrorCode)
}
