package lease

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/markers"
)

// Abort writes the marker that a hanging transaction lacks, as
// kafka-transactions.sh abort does. Nobody has read what is in it, so the
// watermark is below it, and the engine publishes it again [B9], also where the
// transaction had been committed.
//
// It is for a [Transaction] that [Describe] calls hanging, of a writer that was
// fenced: one that is under way would be torn apart.
func Abort(ctx context.Context, cl *kgo.Client, t Transaction) error {
	return markers.Write(ctx, cl, markers.Transaction{
		Topic: t.Lane.Topic(), Offset: t.Offset, ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch, CoordinatorEpoch: t.CoordinatorEpoch,
	}, false)
}
