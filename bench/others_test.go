package bench_test

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
)

// others publish the same batches, each as one message with the same keys and
// documents in it: one after the other, as each of them is used to, and all at
// once. They are idempotent, acknowledged by all and compressed as ours.
func others(e *env) bench.Report {
	lane, err := e.lane(e.stream(nil, "a"), "a").Producer(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	cfg := saramaConfig()
	brokers := []string{e.addr}
	sync, err := sarama.NewSyncProducer(brokers, cfg)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := sync.Close(); err != nil {
			e.Error(err)
		}
	})
	mill, err := wkafka.NewPublisher(wkafka.PublisherConfig{Brokers: brokers, Marshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: saramaConfig()}, watermill.NopLogger{})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := mill.Close(); err != nil {
			e.Error(err)
		}
	})
	topics := e.topics(2)
	toSarama := func(b *flusso.Batch) *sarama.ProducerMessage {
		return &sarama.ProducerMessage{Topic: topics[0], Value: sarama.ByteEncoder(whole(b))}
	}
	toWatermill := func(b *flusso.Batch) *message.Message { return message.NewMessage(watermill.NewShortUUID(), whole(b)) }

	one := func(publish func(context.Context, *flusso.Batch) error) mover {
		return func(ctx context.Context, bs []*flusso.Batch) error {
			for _, b := range bs {
				if err := publish(ctx, b); err != nil {
					return err
				}
			}
			return nil
		}
	}
	oursOne := one(func(ctx context.Context, b *flusso.Batch) error { _, err := lane.Publish(ctx, b); return err })
	oursAll := func(ctx context.Context, bs []*flusso.Batch) error {
		return fill(ctx, lane, len(bs), func(i int) *flusso.Batch { return bs[i] })
	}
	var r bench.Report
	batches := e.feed()
	for _, side := range []struct {
		what, beside string
		ours, theirs mover
	}{
		{"batches one after the other", "Sarama's SyncProducer, SendMessage", oursOne, one(func(_ context.Context, b *flusso.Batch) error {
			_, _, err := sync.SendMessage(toSarama(b))
			return err
		})},
		{"batches one after the other", "Watermill's publisher", oursOne, one(func(_ context.Context, b *flusso.Batch) error {
			return mill.Publish(topics[1], toWatermill(b))
		})},
		{"batches all at once", "Sarama's SyncProducer, SendMessages", oursAll, func(_ context.Context, bs []*flusso.Batch) error {
			all := make([]*sarama.ProducerMessage, len(bs))
			for i, b := range bs {
				all[i] = toSarama(b)
			}
			return sync.SendMessages(all)
		}},
		{"batches all at once", "Watermill's publisher", oursAll, func(_ context.Context, bs []*flusso.Batch) error {
			all := make([]*message.Message, len(bs))
			for i, b := range bs {
				all[i] = toWatermill(b)
			}
			return mill.Publish(topics[1], all...)
		}},
	} {
		n := e.calibrate(e.timed(batches, side.theirs))/2 + 1 // four comparisons share the time of a row
		pairs := e.interleave(throughput(batches, n, 1, side.ours), throughput(batches, n, 1, side.theirs))
		r.Lines = append(r.Lines, pairs.Ratio("publish "+side.what, side.beside, rate, rate, bench.Printed()))
	}
	return r
}

// whole is a batch as one message: its keys and documents, and nothing between them.
func whole(b *flusso.Batch) []byte {
	size := 0
	for i := range b.Envelopes {
		en := &b.Envelopes[i]
		size += len(en.Index) + 1 + len(en.ID) + len(en.Document)
	}
	out := make([]byte, 0, size)
	for i := range b.Envelopes {
		en := &b.Envelopes[i]
		out = append(append(append(out, en.Index...), '/'), en.ID...)
		out = append(out, en.Document...)
	}
	return out
}

func saramaConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Net.MaxOpenRequests = 1 // what Sarama asks for where it is idempotent
	cfg.Producer.Compression = sarama.CompressionSnappy
	cfg.Producer.Return.Successes, cfg.Producer.Return.Errors = true, true
	cfg.Producer.Timeout = 30 * time.Second
	return cfg
}
