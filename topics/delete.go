package topics

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// DeleteLane deletes a lane's topic, which must have that ID, and then its
// group; a recreated topic is refused with a [*RecreatedError]. A topic or group
// that is gone already is none to delete, so that a run that got half way can be
// repeated, with a zero ID where the topic is gone.
//
// The topic goes first: a group without a lane is waited for by nobody, but a
// lane whose group is gone, and the retirement with it, would hold the watermark.
func (a *Admin) DeleteLane(ctx context.Context, lane Lane, topicID [16]byte) error {
	if topicID != [16]byte{} {
		if err := a.deleteTopic(ctx, lane.Topic(), topicID); err != nil {
			return err
		}
	}
	_, err := kadm.NewClient(a.cl).DeleteGroup(ctx, lane.Group())
	if err == nil || errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	return fmt.Errorf("topic %s is deleted, and its group is not, which does no harm: run the command again: %w",
		lane.Topic(), kafkaerr.Wrap("delete group "+lane.Group(), err, kafkaerr.OnGroup("Delete", lane.Group())))
}

// deleteTopic deletes by ID, so that a topic that was created anew in between
// stays.
func (a *Admin) deleteTopic(ctx context.Context, topic string, id [16]byte) error {
	op := "delete topic " + topic
	found, err := a.metadata(ctx, []string{topic})
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	switch t := found[topic]; {
	case t.Missing():
		return nil
	case t.Err != nil:
		return fmt.Errorf("%s: %w", op, t.Err)
	case t.ID != id:
		return &RecreatedError{Topic: topic, Have: t.ID, Want: id}
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 30_000
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.TopicID = id
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Delete", topic))
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("%s: %w", op, errNoAnswer)
	}
	err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil // somebody else was faster
	}
	return kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Delete", topic))
}
