package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkatest"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/kafka"
)

// faultKinds is every kind of request that a stream sends in its life:
// [TestFaultsCoverEveryRequest] compares it with what a broker is sent.
var faultKinds = []kmsg.Key{
	kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.FindCoordinator,
	kmsg.JoinGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.SyncGroup, kmsg.DescribeGroups, kmsg.ApiVersions, kmsg.CreateTopics,
	kmsg.DeleteRecords, kmsg.InitProducerID, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.DescribeConfigs, kmsg.IncrementalAlterConfigs,
}

func TestFaultsCoverEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLifecycle(t)
		var mu sync.Mutex
		seen := map[kmsg.Key]bool{}
		r.c.Fault(t, kfaketest.Any, kfaketest.Fault{Match: func(req kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			seen[kmsg.Key(req.Key())] = true
			return false
		}})
		r.run()
		mu.Lock()
		defer mu.Unlock()
		for k := range seen {
			if !slices.Contains(faultKinds, k) {
				t.Errorf("a stream sends %s: add it to faultKinds, so that it is made to fail", k.Name())
			}
		}
		for _, k := range faultKinds {
			if !seen[k] {
				t.Errorf("a stream does not send %s any more: take it out of faultKinds, or let the lifecycle cause it", k.Name())
			}
		}
	})
}

// TestFaults makes the first request of each kind fail in every way, in the
// life of an ingest engine and a sink that do as the port says: each call
// returns within its context, and in the end nothing is lost, nothing is
// doubled, and everything is confirmed.
func TestFaults(t *testing.T) {
	for _, key := range faultKinds {
		for _, mode := range []kfaketest.Mode{kfaketest.Error, kfaketest.Hang, kfaketest.Disconnect} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s_%s_after=%t", key.Name(), mode, after), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newLifecycle(t)
						f := r.c.Fault(t, key, kfaketest.Fault{Mode: mode, After: after, Code: kerr.UnknownServerError})
						over := make(chan struct{})
						defer close(over)
						if mode == kfaketest.Hang {
							go releaseLater(f, over)
						}
						r.run()
						if f.Hits() == 0 {
							t.Error("no request was hit")
						}
					})
				})
			}
		}
	}
}

// releaseLater ends a hang that a request ran into after longer than any call
// waits: some requests are sent late in a life.
func releaseLater(f *kfaketest.Injected, over <-chan struct{}) {
	select {
	case <-f.Hit():
	case <-over:
		return
	}
	timer := time.NewTimer(45 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		f.Release()
	case <-over:
	}
}

// lifecycle is an ingest engine and a sink of two that do everything once.
type lifecycle struct {
	t *testing.T
	c *kfaketest.Cluster
	p *kafkatest.Pipeline

	ingest, sink flusso.Stream
	commits      flusso.Producer[flusso.Commit]
	told         []error // what failed calls said
}

var lifeSinks = []string{"audit", "search"}

const (
	lifePositions = 6
	callWithin    = 20 * time.Second
)

func newLifecycle(t *testing.T) *lifecycle {
	c := kfaketest.New(t)
	return &lifecycle{t: t, c: c, p: kafkatest.Open(t, append(c.Opts(), kgo.DisableClientMetrics()), lifeSinks, nil)}
}

// call makes one bounded call, and fails the test when it does not honour its
// context.
func (r *lifecycle) call(what string, f func(ctx context.Context) error) error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	if took := time.Since(began); took > callWithin+100*time.Millisecond {
		r.t.Fatalf("%s took %s, its context ended after %s", what, took, callWithin)
	}
	if err != nil {
		r.told = append(r.told, fmt.Errorf("%s: %w", what, err))
	}
	return err
}

// until makes a call again until it succeeds.
func (r *lifecycle) until(what string, f func(ctx context.Context) error) {
	r.t.Helper()
	var err error
	for range 12 {
		if err = r.call(what, f); err == nil {
			return
		}
		r.pass(time.Second)
	}
	r.t.Fatalf("%s does not succeed: %v", what, errors.Join(r.told...))
}

func (r *lifecycle) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func (r *lifecycle) open(incarnation string) (s flusso.Stream) {
	r.t.Helper()
	r.until("open", func(ctx context.Context) (err error) {
		var ks *kafka.Stream
		ks, err = kafka.Open(ctx, kafka.Config{
			Pipeline: r.p.Name().String(), Sinks: lifeSinks, Incarnation: incarnation, CreateTopics: true,
			Client: append(r.c.Opts(), kgo.DisableClientMetrics()), TrimAfter: 5 * time.Second,
		})
		s = ks
		return err
	})
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callWithin)
		defer cancel()
		_ = s.Close(ctx) // it was closed before, unless the test failed
	})
	return s
}

func (r *lifecycle) run() {
	r.t.Helper()
	r.ingest, r.sink = r.open("db:slot"), r.open("")
	r.ask()
	r.publish()
	r.serve()
	for _, sink := range lifeSinks {
		r.apply(sink)
	}
	r.until("the watermark reaches the last position", func(ctx context.Context) error {
		w, err := r.ingest.Watermark(ctx)
		if err == nil && (w.Position != lifePositions || w.Stale) {
			err = fmt.Errorf("it is at %s: %+v", w.Position, w)
		}
		return err
	})
	r.until("the stream is idle", func(ctx context.Context) error {
		ok, err := r.ingest.Idle(ctx)
		if err == nil && !ok {
			err = errors.New("it is not")
		}
		return err
	})
	r.pass(40 * time.Second) // the mirror, and trimming
	for _, s := range []flusso.Stream{r.sink, r.ingest} {
		_ = r.call("close", s.Close) // a fault may hit it; that it returns is checked
	}
}

// ask sends a request as a sink does.
func (r *lifecycle) ask() {
	r.t.Helper()
	var p flusso.Producer[flusso.Request]
	// One that failed is not used again: see [flusso.Producer].
	r.until("send a request", func(ctx context.Context) (err error) {
		if p, err = r.sink.Requests().Producer(ctx); err == nil {
			_, err = p.Publish(ctx, &flusso.Backfill{Sink: lifeSinks[0], Indexes: []string{"order"}})
		}
		return err
	})
}

func (r *lifecycle) produce() {
	r.t.Helper()
	r.until("open a producer", func(ctx context.Context) (err error) {
		r.commits, err = r.ingest.Commits(ctx)
		return err
	})
}

// publish is an ingest engine: when a publish fails it asks for a producer and
// replays from the watermark.
func (r *lifecycle) publish() {
	r.t.Helper()
	r.produce()
	for at := flusso.Position(1); at <= lifePositions; at++ {
		err := r.call(fmt.Sprintf("publish position %s", at), func(ctx context.Context) error {
			_, err := r.commits.Publish(ctx, lifeCommit(at))
			return err
		})
		if err != nil {
			r.pass(time.Second)
			r.produce()
			at = 0 // the watermark is at none
		}
	}
}

func lifeCommit(at flusso.Position) (c flusso.Commit) {
	for _, sink := range lifeSinks {
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: &flusso.Batch{Position: at, Changes: 1, Envelopes: []flusso.Envelope{
			{Index: "order", ID: at.String(), Op: flusso.Upsert, Document: []byte("{}"), Position: at},
			{Index: "order", ID: at.String() + "b", Op: flusso.Delete, Position: at},
		}}})
	}
	return c
}

// serve takes the request and completes it: rows, marker and ack in one.
func (r *lifecycle) serve() {
	r.t.Helper()
	var c flusso.Consumer[flusso.Request]
	attach := func() {
		r.until("attach to the requests", func(ctx context.Context) (err error) {
			c, err = r.ingest.Requests().Consumer(ctx)
			return err
		})
	}
	attach()
	for range 12 {
		var d flusso.Delivery[flusso.Request]
		err := r.call("receive a request", func(ctx context.Context) (err error) {
			d, err = c.Receive(ctx)
			return err
		})
		if err == nil {
			err = r.call("complete a request", func(ctx context.Context) error {
				_, err := r.commits.Publish(ctx, flusso.Commit{
					Items: []flusso.Routed{
						{Sink: lifeSinks[0], Item: &flusso.Batch{Envelopes: []flusso.Envelope{{Index: "order", ID: "row", Op: flusso.Upsert, Document: []byte("{}")}}}},
						{Sink: lifeSinks[0], Item: &flusso.SnapshotComplete{Indexes: []string{"order"}}},
					},
					Acks: []flusso.Delivery[flusso.Request]{d},
				})
				return err
			})
		}
		if err == nil {
			return
		}
		if r.markers() > 0 && r.waiting() == 0 {
			return // it was done, and the answer lost
		}
		r.pass(time.Second)
		r.produce()
		attach()
	}
	r.t.Fatalf("the request is not served: %v", errors.Join(r.told...))
}

// markers counts those in the lane.
func (r *lifecycle) markers() (n int) {
	for _, rec := range r.p.Records(r.t, r.p.Lane(r.t, lifeSinks[0]).Topic()) {
		if h, ok, err := wire.HeaderOf(rec); err == nil && ok && h.Kind == wire.Complete {
			n++
		}
	}
	return n
}

// waiting reports how many requests are delivered to a new consumer: none
// when the ack came with the marker [D2].
func (r *lifecycle) waiting() (n int) {
	c, err := r.ingest.Requests().Consumer(r.t.Context())
	if err != nil {
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for {
		if _, err := c.Receive(ctx); err != nil {
			return n
		}
		n++
	}
}

// apply is a sink: it applies what comes and acks it, and attaches anew when
// it must.
func (r *lifecycle) apply(sink string) {
	r.t.Helper()
	lane, err := r.sink.Lane(sink)
	if err != nil {
		r.t.Fatal(err)
	}
	var c flusso.Consumer[flusso.LaneItem]
	r.until("attach", func(ctx context.Context) (err error) {
		c, err = lane.Consumer(ctx)
		return err
	})
	var got []flusso.Position // live positions applied, in order
	markers := 0
	for range 60 {
		var d flusso.Delivery[flusso.LaneItem]
		if r.call("receive", func(ctx context.Context) (err error) { d, err = c.Receive(ctx); return err }) != nil {
			continue
		}
		if b, ok := d.Item().(*flusso.Batch); ok && b.Live() {
			if len(b.Envelopes) != 2 {
				r.t.Fatalf("sink %s: a part of a batch: %+v", sink, b)
			}
			// A suffix may come again from the first item not acked; nothing
			// may be passed over.
			if len(got) > 0 && b.Position > got[len(got)-1]+1 || len(got) == 0 && b.Position != 1 {
				r.t.Fatalf("sink %s: position %s comes after %v", sink, b.Position, got)
			}
			got = append(got, b.Position)
		} else if !ok {
			markers++
		}
		if err := d.Ack(context.Background()); err != nil && !errors.Is(err, flusso.ErrWithdrawn) {
			r.t.Fatalf("sink %s: ack: %v", sink, err)
		}
		if len(got) == 0 || got[len(got)-1] != lifePositions || sink == lifeSinks[0] && markers == 0 {
			continue
		}
		if r.call("flush", c.Flush) != nil {
			continue
		}
		ok := false
		_ = r.call("caught up", func(ctx context.Context) (err error) { ok, err = c.CaughtUp(ctx); return err })
		if ok {
			break
		}
	}
	if len(got) == 0 || got[len(got)-1] != lifePositions {
		r.t.Fatalf("sink %s applied %v: %v", sink, got, errors.Join(r.told...))
	}
	// Nothing is doubled in the lane itself.
	var there []flusso.Position
	for _, rec := range r.p.Records(r.t, r.p.Lane(r.t, sink).Topic()) {
		if h, ok, err := wire.HeaderOf(rec); err != nil {
			r.t.Fatal(err)
		} else if ok && h.Kind == wire.Live {
			there = append(there, h.Position)
		}
	}
	for i, at := range there {
		if i > 0 && at != there[i-1]+1 {
			r.t.Fatalf("lane of sink %s holds %v", sink, there)
		}
	}
	_ = r.call("close a consumer", c.Close)
}
