package kafka_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/embedded"
	"github.com/flusso/flusso-kafka/kafka"
)

// An ingest engine publishes a commit to the lanes of two sinks; one of them
// applies and acks it. Until the other does too there is no watermark.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "flusso-example-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	broker, err := embedded.Open(ctx, dir) // yours is kgo.SeedBrokers("kafka:9092")
	if err != nil {
		panic(err)
	}
	defer func() { _ = broker.Close() }()
	if err := run(ctx, broker.Opts()); err != nil {
		panic(err)
	}
	// Output:
	// search applies upsert orders/17 {"total":42}
	// watermark none, held by [audit]
	// watermark 100, held by [audit search]
}

func run(ctx context.Context, brokers []kgo.Opt) error {
	stream, err := kafka.Open(ctx, kafka.Config{
		Pipeline: "shop", Sinks: []string{"search", "audit"},
		Incarnation: "pg-7301.flusso", // names the source's change feed
		Client:      brokers, CreateTopics: true,
	})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close(ctx) }()

	// The ingest engine: one commit, in all lanes or in none.
	commits, err := stream.Commits(ctx)
	if err != nil {
		return err
	}
	batch := &flusso.Batch{Position: 100, Changes: 1, Envelopes: []flusso.Envelope{{
		Index: "orders", ID: "17", Op: flusso.Upsert, Document: []byte(`{"total":42}`), Position: 100,
	}}}
	if _, err := commits.Publish(ctx, flusso.Commit{Items: []flusso.Routed{
		{Sink: "search", Item: batch}, {Sink: "audit", Item: batch},
	}}); err != nil {
		return err
	}

	// A sink engine: receive, apply, ack. Here each takes one item.
	for _, sink := range []string{"search", "audit"} {
		lane, err := stream.Lane(sink)
		if err != nil {
			return err
		}
		in, err := lane.Consumer(ctx)
		if err != nil {
			return err
		}
		delivery, err := in.Receive(ctx)
		if err != nil {
			return err
		}
		if b, ok := delivery.Item().(*flusso.Batch); ok && sink == "search" {
			for _, e := range b.Envelopes {
				fmt.Printf("%s applies %s %s/%s %s\n", sink, e.Op, e.Index, e.ID, e.Document)
			}
		}
		if err := delivery.Ack(ctx); err != nil {
			return err
		}
		if err := in.Flush(ctx); err != nil { // the ack is durable
			return err
		}
		w, err := stream.Watermark(ctx) // what the source may confirm
		if err != nil {
			return err
		}
		fmt.Printf("watermark %s, held by %v\n", w.Position, w.Holders)
	}
	return nil
}
