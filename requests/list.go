package requests

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
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Waiting is a request that is not acked.
type Waiting struct {
	Offset  flusso.Offset
	SentAt  time.Time
	Request flusso.Request // nil with Err
	Err     error          // why the record can't be read
}

// MaxListed is how many waiting requests are listed at most, the oldest.
const MaxListed = 10_000

// List returns the requests of a pipeline that are not acked, oldest first,
// [MaxListed] at most; more says that others wait behind those. It does not join
// the group.
//
// It costs one Metadata, one OffsetFetch (after a FindCoordinator, once) and
// one Fetch for every 8 MiB that lie between the group's offset and the end of
// the topic, and a ListOffsets and a Metadata more where the group has no offset
// in the log.
func List(ctx context.Context, cl *kgo.Client, p topics.Pipeline) (list []Waiting, more bool, err error) {
	s, err := look(ctx, cl, p)
	if err != nil {
		return nil, false, fmt.Errorf("list requests of pipeline %s: %w", p, err)
	}
	return s.waiting, s.more, nil
}

// committed returns what the ingest group has acked.
func committed(ctx context.Context, cl *kgo.Client, p topics.Pipeline) (progress, error) {
	none := progress{offset: flusso.NoOffset, leaderEpoch: -1}
	op := "fetch the offset of group " + p.IngestGroup()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = p.IngestGroup()
	g.Topics = nil // all: brokers that ask for topic ids need none then
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return none, kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Describe", p.IngestGroup()))
	}
	for _, g := range resp.Groups {
		switch err := kerr.ErrorForCode(g.ErrorCode); {
		case err == nil:
		case errors.Is(err, kerr.GroupIDNotFound):
			continue
		default:
			return none, kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Describe", p.IngestGroup()))
		}
		for _, gt := range g.Topics {
			for _, gp := range gt.Partitions {
				if gt.Topic != p.RequestsTopic() || gp.Partition != 0 {
					continue
				}
				if err := kerr.ErrorForCode(gp.ErrorCode); err != nil {
					return none, kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Describe", p.IngestGroup()))
				}
				if gp.Offset < 0 {
					continue
				}
				text := ""
				if gp.Metadata != nil {
					text = *gp.Metadata
				}
				return progressOf(flusso.Offset(gp.Offset), gp.LeaderEpoch, text), nil
			}
		}
	}
	return none, nil
}

// progressOf reads a commit. Metadata that is not ours says nothing; its offset
// counts exactly.
func progressOf(offset flusso.Offset, leaderEpoch int32, metadata string) progress {
	at := progress{found: true, offset: offset, leaderEpoch: leaderEpoch, metadata: metadata}
	m, err := wire.ParseRequestMetadata(metadata)
	if err != nil || m.Offset != offset {
		return at
	}
	at.topicID = m.TopicID
	at.acked = make(map[flusso.Offset]bool, len(m.Acked))
	for _, o := range m.Acked {
		at.acked[o] = true
	}
	return at
}
