package kfaketest

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// EndTransaction ends a transaction that produced to topics. kgo 1.22.3 may
// send nothing, and say nil, when the first records for a topic were
// acknowledged before the client had stored the topic's partitions; a record
// that fails in the client waits for that (package segment does the same). The
// client must use kgo.ManualPartitioner.
func EndTransaction(ctx context.Context, cl *kgo.Client, commit bool, topics ...string) error {
	const nowhere = 1 << 30
	for _, topic := range topics {
		cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: nowhere}) // fails, which is the point
	}
	return cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}
