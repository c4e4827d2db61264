package status

import (
	"context"
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/requests"
	"github.com/flusso/flusso-kafka/topics"
)

// readRequests returns the requests that the ingest group has not acked.
func (p *parts) readRequests(ctx context.Context) (list []Request, more bool, err error) {
	got, more, err := requests.List(ctx, p.cl, p.pipeline)
	if err != nil {
		return nil, false, err
	}
	return RequestsOf(p.pipeline, got, p.at), more, nil
}

// RequestsOf returns requests that wait at a time as reports show them.
func RequestsOf(p topics.Pipeline, list []requests.Waiting, at time.Time) []Request {
	out := make([]Request, len(list))
	for i, r := range list {
		out[i] = Request{Offset: Offset(r.Offset), SentAt: r.SentAt.UTC(), Seconds: max(0, at.Sub(r.SentAt).Seconds())}
		if b, ok := r.Request.(*flusso.Backfill); ok && r.Err == nil {
			out[i].Sink, out[i].Indexes = b.Sink, b.Indexes
		} else {
			out[i].Error = fmt.Sprintf("the record at offset %s of topic %s is no request: %v", r.Offset, p.RequestsTopic(), r.Err)
		}
	}
	return out
}
