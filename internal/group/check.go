package group

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

// checkGroup refuses a group with members of the other mode. In takeover mode
// it returns the member id that holds our instance id, or "".
func checkGroup(ctx context.Context, cl *kgo.Client, cfg *Config) (holder string, err error) {
	groups, err := describeGroup(ctx, cl, cfg.Group)
	if err != nil {
		return "", kafkaerr.Wrap("describe group "+cfg.Group, err, kafkaerr.OnGroup("Describe", cfg.Group))
	}
	mixed := &MixedModeError{Group: cfg.Group, Mode: cfg.Mode}
	for _, g := range groups {
		for _, m := range g.Members {
			static := m.InstanceID != nil
			if static != (cfg.Mode == Takeover) || static && *m.InstanceID != cfg.Group {
				mixed.Members = append(mixed.Members, m.ClientID+"@"+m.ClientHost)
				continue
			}
			if static {
				holder = m.MemberID
			}
		}
	}
	if len(mixed.Members) > 0 {
		return "", mixed
	}
	return holder, nil
}

// describeGroup repeats what passes for longer than the client does: a
// cluster's first group waits for the offsets topic, and any while its
// coordinator moves.
func describeGroup(ctx context.Context, cl *kgo.Client, group string) ([]kmsg.DescribeGroupsResponseGroup, error) {
	const every = 50 * time.Millisecond
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	for {
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			for _, g := range resp.Groups {
				err = errors.Join(err, kerr.ErrorForCode(g.ErrorCode))
			}
		}
		switch {
		case err == nil:
			return resp.Groups, nil
		case errors.Is(err, kerr.GroupIDNotFound): // brokers differ: an unknown group is this, or dead
			return nil, nil
		case kafkaerr.Classify(err) != kafkaerr.Retriable:
			return nil, err
		}
		if !wait(ctx, every) {
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// checkTopic compares the topic's identity with the one expected, and returns
// it. A topic that is not there yet is looked for once more: a broker may not
// have heard of a new one.
func checkTopic(ctx context.Context, cl *kgo.Client, topic string, want [16]byte) ([16]byte, error) {
	const (
		every = 100 * time.Millisecond
		times = 10
	)
	op := "describe topic " + topic
	var (
		found kmsg.MetadataResponseTopic
		err   error
	)
	for try := range times {
		if try > 0 && !wait(ctx, every) {
			break
		}
		found, err = describeTopic(ctx, cl, topic)
		if class := kafkaerr.Classify(err); err == nil || class != kafkaerr.Missing && class != kafkaerr.Retriable {
			break
		}
	}
	switch {
	case err != nil:
		return want, kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Describe", topic))
	case len(found.Partitions) != 1:
		return want, fmt.Errorf("%s: it has %d partitions, a lane has one: create it anew with one partition", op, len(found.Partitions))
	case want != [16]byte{} && found.TopicID != want:
		return want, kafkaerr.Wrap(op, fmt.Errorf("its topic ID is not the one expected: %w", kerr.InconsistentTopicID))
	}
	return found.TopicID, nil
}

func describeTopic(ctx context.Context, cl *kgo.Client, topic string) (kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = new(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	for _, t := range resp.Topics {
		if t.Topic != nil && *t.Topic == topic {
			return t, kerr.ErrorForCode(t.ErrorCode)
		}
	}
	return kmsg.MetadataResponseTopic{}, kerr.UnknownTopicOrPartition
}

// wait waits for d; it returns false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Timestamps that ListOffsets takes for the ends of a log.
const (
	Latest   = -1
	Earliest = -2
)

// ListOffset asks the leader of partition 0 for an end of its log. [Latest] is
// the high watermark: open transactions and what readers can't see yet count.
func ListOffset(ctx context.Context, cl *kgo.Client, topic string, timestamp int64) (flusso.Offset, error) {
	op := "list offsets of topic " + topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = timestamp, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return flusso.NoOffset, kafkaerr.Wrap(op, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Topic != topic || p.Partition != 0 {
				continue
			}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return flusso.NoOffset, kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Describe", topic))
			}
			return flusso.Offset(p.Offset), nil
		}
	}
	return flusso.NoOffset, fmt.Errorf("%s: the answer does not name the partition", op)
}
