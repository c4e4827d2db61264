package requests

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/topics"
)

// Mirrored is a lane's verified offset, to be kept in the ingest group.
type Mirrored struct {
	TopicID     [16]byte
	Offset      flusso.Offset
	LeaderEpoch int32 // -1 when unknown
	Metadata    string
}

// CommitMirror commits offsets of lane topics in the ingest group, under the
// consumer's identity and in turn with its own commits.
func (c *Consumer) CommitMirror(ctx context.Context, mirror map[string]Mirrored) error {
	commits := make([]group.MirrorCommit, 0, len(mirror))
	for _, topic := range slices.Sorted(maps.Keys(mirror)) {
		m := mirror[topic]
		commits = append(commits, group.MirrorCommit{
			Topic: topic, TopicID: m.TopicID,
			Commit: group.Commit{Offset: m.Offset, LeaderEpoch: m.LeaderEpoch, Metadata: m.Metadata},
		})
	}
	if err := c.CommitOthers(ctx, commits); err != nil {
		return fmt.Errorf("mirror lane offsets of pipeline %s: %w", c.pipeline, err)
	}
	return nil
}

// CommitMirror commits offsets of lane topics in the ingest group from a
// process that is not attached to the request lane. The broker refuses it
// while another process is: that one mirrors.
func CommitMirror(ctx context.Context, cl *kgo.Client, p topics.Pipeline, mirror map[string]Mirrored) error {
	if len(mirror) == 0 {
		return nil
	}
	op := "mirror lane offsets of pipeline " + p.String() + " into group " + p.IngestGroup()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = p.IngestGroup()
	req.Generation = -1
	for _, topic := range slices.Sorted(maps.Keys(mirror)) {
		m := mirror[topic]
		tp := kmsg.NewOffsetCommitRequestTopicPartition()
		tp.Offset, tp.LeaderEpoch, tp.Metadata = int64(m.Offset), m.LeaderEpoch, new(m.Metadata)
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.TopicID = topic, m.TopicID
		t.Partitions = append(t.Partitions, tp)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return kafkaerr.Wrap(op, err)
	}
	var errs []error
	for _, t := range resp.Topics {
		for _, tp := range t.Partitions {
			if err := kerr.ErrorForCode(tp.ErrorCode); err != nil {
				errs = append(errs, kafkaerr.Wrap("topic "+t.Topic, err, kafkaerr.OnGroup("Read", p.IngestGroup()), kafkaerr.OnTopic("Read", t.Topic)))
			}
		}
	}
	return kafkaerr.Wrap(op, errors.Join(errs...))
}
