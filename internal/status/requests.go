package status

import (
	"context"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/requests"
)

// readRequests returns the requests that the ingest group has not acked.
func (p *parts) readRequests(ctx context.Context) ([]Request, error) {
	list, err := requests.List(ctx, p.cl, p.pipeline)
	if err != nil {
		return nil, err
	}
	out := make([]Request, len(list))
	for i, r := range list {
		out[i] = Request{Offset: Offset(r.Offset), SentAt: r.SentAt.UTC(), Seconds: max(0, p.at.Sub(r.SentAt).Seconds())}
		if b, ok := r.Request.(*flusso.Backfill); ok && r.Err == nil {
			out[i].Sink, out[i].Indexes = b.Sink, b.Indexes
		} else {
			out[i].Error = fmt.Sprintf("the record at offset %s of topic %s is no request: %v", r.Offset, p.pipeline.RequestsTopic(), r.Err)
		}
	}
	return out, nil
}
