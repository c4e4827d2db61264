package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/flusso/flusso-kafka/topics"
)

// Fenced is what fencing did to one transactional id.
type Fenced struct {
	Prior         ID // as its coordinator knew it; its Err says when it did not tell
	Done          bool
	ProducerID    int64 // of today, -1 when it is not known
	ProducerEpoch int16
}

// Fence takes the four transactional ids over, in their order, each within a
// deadline, as an engine that opens a session does: what was open under them is
// aborted, and whoever wrote with them can commit nothing any more. It holds
// nothing afterwards: the next session that is opened has them.
//
// With an error those before the one that it names are fenced all the same, and
// the result says which.
func Fence(ctx context.Context, cl *kgo.Client, p topics.Pipeline, each time.Duration) ([]Fenced, error) {
	names := writerIDs(p)
	fenced := make([]Fenced, len(names))
	for i, id := range transactions(ctx, cl, names) {
		fenced[i] = Fenced{Prior: id, ProducerID: -1, ProducerEpoch: -1}
	}
	session, err := segment.Open(ctx, segment.Config{Lease: p.WriterLease(), Opts: cl.Opts(), FenceTimeout: each})
	if err != nil {
		if ended := (*segment.Error)(nil); errors.As(err, &ended) {
			err = ended.Cause // of a session that nobody knows of
		}
		for i, id := range transactions(ctx, cl, names) {
			prior := fenced[i].Prior
			if id.Err == nil && prior.Err == nil && (id.ProducerID != prior.ProducerID || id.ProducerEpoch != prior.ProducerEpoch) {
				fenced[i].Done, fenced[i].ProducerID, fenced[i].ProducerEpoch = true, id.ProducerID, id.ProducerEpoch
			}
		}
		return fenced, fmt.Errorf("fence the writer of pipeline %s: %w", p, err)
	}
	producers, epochs := session.ProducerIDs(), session.ProducerEpochs()
	for i := range fenced {
		fenced[i].Done, fenced[i].ProducerID, fenced[i].ProducerEpoch = true, producers[i], epochs[i]
	}
	return fenced, session.Close(ctx)
}
