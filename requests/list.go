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
	"github.com/flusso/flusso-kafka/internal/group"
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

// List returns the requests of a pipeline that are not acked, oldest first. It
// does not join the group. opts configure the client it uses and closes.
func List(ctx context.Context, p topics.Pipeline, opts []kgo.Opt) ([]Waiting, error) {
	topic := p.RequestsTopic()
	op := "list requests of pipeline " + p.String()
	client := func(own ...kgo.Opt) (*kgo.Client, error) {
		cl, err := kgo.NewClient(append(append([]kgo.Opt(nil), opts...), own...)...)
		if err != nil {
			return nil, fmt.Errorf("%s: configure the Kafka client: %w", op, err)
		}
		return cl, nil
	}
	lookup, err := client(kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	defer lookup.Close()
	from, err := group.ListOffset(ctx, lookup, topic, group.Earliest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	to, err := group.ListOffset(ctx, lookup, topic, group.Latest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	floor, acked, err := committed(ctx, lookup, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	from = max(from, floor)
	if from >= to {
		return nil, nil
	}
	cl, err := client(
		kgo.DisableClientMetrics(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(int64(from))}}),
	)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out []Waiting
	for next := from; next < to; {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", op, context.Cause(ctx))
		}
		if err := fs.Err(); err != nil {
			return nil, kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Read", topic))
		}
		fs.EachRecord(func(r *kgo.Record) {
			offset := flusso.Offset(r.Offset)
			next = offset + 1
			if r.Attrs.IsControl() || acked[offset] || offset >= to {
				return
			}
			w := Waiting{Offset: offset, SentAt: r.Timestamp}
			w.Request, w.Err = wire.DecodeRequest(r)
			out = append(out, w)
		})
	}
	return out, nil
}

// committed returns the floor on record, -1 for none, and what is acked above.
func committed(ctx context.Context, cl *kgo.Client, p topics.Pipeline) (flusso.Offset, map[flusso.Offset]bool, error) {
	op := "fetch the offset of group " + p.IngestGroup()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = p.IngestGroup()
	g.Topics = nil // all: brokers that ask for topic ids need none then
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return flusso.NoOffset, nil, kafkaerr.Wrap(op, err)
	}
	for _, g := range resp.Groups {
		switch err := kerr.ErrorForCode(g.ErrorCode); {
		case err == nil:
		case errors.Is(err, kerr.GroupIDNotFound):
			continue
		default:
			return flusso.NoOffset, nil, kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Describe", p.IngestGroup()))
		}
		for _, gt := range g.Topics {
			for _, gp := range gt.Partitions {
				if gt.Topic != p.RequestsTopic() || gp.Partition != 0 || gp.Offset < 0 {
					continue
				}
				if err := kerr.ErrorForCode(gp.ErrorCode); err != nil {
					return flusso.NoOffset, nil, kafkaerr.Wrap(op, err)
				}
				acked := make(map[flusso.Offset]bool)
				if gp.Metadata != nil {
					if m, err := wire.ParseRequestMetadata(*gp.Metadata); err == nil && int64(m.Offset) == gp.Offset {
						for _, o := range m.Acked {
							acked[o] = true
						}
					}
				}
				return flusso.Offset(gp.Offset), acked, nil
			}
		}
	}
	return flusso.NoOffset, nil, nil
}
