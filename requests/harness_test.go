package requests

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/topics"
)

var sinks = []string{"audit", "search"}

// world is a cluster with the topics of a pipeline, inside a bubble.
type world struct {
	t        testing.TB
	k        *kfaketest.Cluster
	pipeline topics.Pipeline
	lookup   *kgo.Client
}

type received = flusso.Delivery[flusso.Request]

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, err := topics.NewPipeline("orders")
		if err != nil {
			t.Fatal(err)
		}
		k := kfaketest.New(t)
		k.CreateTopic(t, p.RequestsTopic())
		f(t, &world{t, k, p, k.Client(t)})
	})
}

func ctxOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) producer() *Producer {
	w.t.Helper()
	p, err := NewProducer(w.pipeline, sinks, w.k.Opts())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p
}

// send publishes one backfill of an index for each name.
func (w *world) send(indexes ...string) {
	w.t.Helper()
	p := w.producer()
	for _, ix := range indexes {
		if _, err := p.Publish(ctxOf(w.t), &flusso.Backfill{Sink: "audit", Indexes: []string{ix}}); err != nil {
			w.t.Fatalf("publish: %v", err)
		}
	}
	if err := p.Close(ctxOf(w.t)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) attach() *Consumer {
	w.t.Helper()
	c, err := Attach(ctxOf(w.t), Config{Pipeline: w.pipeline, Client: w.k.Opts(), Lookup: w.lookup})
	if err != nil {
		w.t.Fatalf("attach: %v", err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func (w *world) receive(c *Consumer, index string) received {
	w.t.Helper()
	d, err := c.Receive(ctxOf(w.t))
	if err != nil {
		w.t.Fatalf("receive of %s: %v", index, err)
	}
	if b := d.Item().(*flusso.Backfill); b.Indexes[0] != index {
		w.t.Fatalf("received %+v, want %s", b, index)
	}
	return d
}

func (w *world) ack(ds ...received) {
	w.t.Helper()
	for _, d := range ds {
		if err := d.Ack(context.Background()); err != nil {
			w.t.Fatalf("ack: %v", err)
		}
	}
}

func (w *world) flush(c *Consumer) {
	w.t.Helper()
	if err := c.Flush(ctxOf(w.t)); err != nil {
		w.t.Fatalf("flush: %v", err)
	}
}

func (w *world) close(c *Consumer) {
	w.t.Helper()
	if err := c.Close(ctxOf(w.t)); err != nil {
		w.t.Fatalf("close: %v", err)
	}
}

// wantWaiting checks what waits, as the command line shows it.
func (w *world) wantWaiting(indexes ...string) {
	w.t.Helper()
	got, _, err := List(ctxOf(w.t), w.lookup, w.pipeline)
	if err != nil {
		w.t.Fatalf("list: %v", err)
	}
	var names []string
	for _, r := range got {
		if r.Err != nil {
			names = append(names, "unreadable")
			continue
		}
		names = append(names, r.Request.(*flusso.Backfill).Indexes[0])
	}
	if len(names) != len(indexes) {
		w.t.Fatalf("waiting: got %v, want %v", names, indexes)
	}
	for i := range names {
		if names[i] != indexes[i] {
			w.t.Fatalf("waiting: got %v, want %v", names, indexes)
		}
	}
}

func (w *world) committed(topic string) kadm.Offset {
	w.t.Helper()
	os, err := kadm.NewClient(w.lookup).FetchOffsets(ctxOf(w.t), w.pipeline.IngestGroup())
	if err != nil {
		w.t.Fatal(err)
	}
	o, _ := os.Lookup(topic, 0)
	return o.Offset
}

func wantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}
