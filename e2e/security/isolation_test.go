package security_test

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/kafka"
)

// The engine of one sink can do nothing to the lane of another, nor to its own
// beyond reading it: it can't write there, delete, or move the group of others.
func TestF4_a_sink_is_kept_to_its_own(t *testing.T) {
	b := broker(t)
	b.prepare(t)
	a := acls{probe.Client(t, b.Addr(), b.super()...)}
	if err := a.grant(t.Context(), "search", permissions(t, access.Sink, "search")...); err != nil {
		t.Fatal(err)
	}
	probe.Within(t, shortly, "the sink may ask for a backfill", func(ctx context.Context) error {
		return stream(ctx, kafka.Config{Sinks: []string{"search"}, Client: b.as("search")}, request)
	})
	cl := probe.Client(t, b.Addr(), b.as("search")...)
	adm := kadm.NewClient(cl)
	own, other := lane(t, "search"), lane(t, "audit")
	at := func(topic string, offset int64) kadm.Offsets {
		var o kadm.Offsets
		o.Add(kadm.Offset{Topic: topic, At: offset, LeaderEpoch: -1})
		return o
	}
	consume := func(ctx context.Context) error {
		return stream(ctx, kafka.Config{Sinks: []string{"audit"}, Client: b.as("search")}, func(ctx context.Context, s *kafka.Stream) error {
			return consume(ctx, s, "audit")
		})
	}
	produce := func(ctx context.Context, topic string) error {
		return cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
	}
	for _, tt := range []struct {
		what string
		do   func(context.Context) error
		want *kerr.Error
	}{
		{"attach to another's lane", consume, kerr.TopicAuthorizationFailed},
		{"write to another's lane", func(ctx context.Context) error { return produce(ctx, other.Topic()) }, kerr.TopicAuthorizationFailed},
		{"write to its own lane", func(ctx context.Context) error { return produce(ctx, own.Topic()) }, kerr.TopicAuthorizationFailed},
		{"move another's group", func(ctx context.Context) error {
			got, err := adm.CommitOffsets(ctx, other.Group(), at(own.Topic(), 1))
			return errors.Join(err, got.Error())
		}, kerr.GroupAuthorizationFailed},
		{"write into the mirror", func(ctx context.Context) error {
			got, err := adm.CommitOffsets(ctx, "shop.ingest", at(own.Topic(), 1))
			return errors.Join(err, got.Error())
		}, kerr.GroupAuthorizationFailed},
		{"trim its own lane", func(ctx context.Context) error {
			got, err := adm.DeleteRecords(ctx, at(own.Topic(), 1))
			return errors.Join(err, got.Error())
		}, kerr.TopicAuthorizationFailed},
		{"delete its own lane", func(ctx context.Context) error {
			got, err := adm.DeleteTopics(ctx, own.Topic())
			return errors.Join(err, got[own.Topic()].Err)
		}, kerr.TopicAuthorizationFailed},
		{"fence the writer", func(ctx context.Context) error {
			writer, err := kgo.NewClient(append(b.as("search"), kgo.TransactionalID("shop.writer.0"))...)
			if err != nil {
				return err
			}
			defer writer.Close()
			_, _, err = writer.ProducerID(ctx)
			return err
		}, kerr.TransactionalIDAuthorizationFailed},
		{"describe another's group", func(ctx context.Context) error {
			got, err := adm.DescribeGroups(ctx, other.Group())
			return errors.Join(err, got[other.Group()].Err)
		}, kerr.GroupAuthorizationFailed},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), shortly)
		if err := tt.do(ctx); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.what, err, tt.want)
		}
		cancel()
	}
	topics, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range topics.Names() {
		if name != own.Topic() && name != "shop.requests" {
			t.Errorf("it sees topic %s", name)
		}
	}
}
