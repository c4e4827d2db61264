package requests

import (
	"context"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/internal/segment"
)

// Pending is an ack of requests that a transaction makes together with the
// items that complete them [D2]. Either [Pending.Resolve] or [Pending.Abandon]
// must be called; until then nothing else is committed to the group.
type Pending struct {
	// Offsets is what the transaction must commit.
	Offsets *segment.GroupOffsets
	pending *group.Pending[flusso.Request, mark]
}

// Prepare computes what a transaction must commit so that the deliveries are
// acked. It waits for a pending one before it. It fails with
// [*flusso.InvalidError] for a delivery of something else, and with what ended
// one of the deliveries.
func (c *Consumer) Prepare(ctx context.Context, deliveries []flusso.Delivery[flusso.Request]) (*Pending, error) {
	ds := make([]*delivery, len(deliveries))
	for i, d := range deliveries {
		own, ok := d.(*delivery)
		if !ok {
			return nil, &flusso.InvalidError{What: "ack of a commit", Reason: "the delivery does not come from this stream's request lane"}
		}
		ds[i] = own
	}
	p, err := c.Consumer.Prepare(ctx, ds)
	if err != nil {
		return nil, err
	}
	return &Pending{
		pending: p,
		Offsets: &segment.GroupOffsets{
			Group: c.pipeline.IngestGroup(), Topic: c.pipeline.RequestsTopic(), TopicID: p.TopicID(),
			Offset: int64(p.Offset), LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata,
			Member: func() (string, int32, *string, error) {
				id, err := p.Identity()
				return id.MemberID, id.Generation, id.Instance, err
			},
		},
	}, nil
}

// Resolve tells what became of the transaction: nil when it committed. Where
// that is unknown ([flusso.ErrUnknownOutcome]) the consumer attaches again and
// reads it back.
func (p *Pending) Resolve(err error) { p.pending.Resolve(err) }

// Abandon gives the ack up: the transaction never began.
func (p *Pending) Abandon() { p.pending.Abandon() }
