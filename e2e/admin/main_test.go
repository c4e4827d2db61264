// Package admin_test runs flusso-kafka-admin against Apache Kafka while engines
// run, stop and fail: what it says is right, what it does takes effect, and two
// operators, or an operator and an engine, do each other no harm. All of it
// shares one broker; each test has a pipeline of its own.
package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/topics"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Most of a test is waiting for the broker.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	containers.Main(m)
}

const incarnation = "pg-7001.slot_a"

// pipeline is one on the shared broker, with a command line for it.
type pipeline struct {
	*probe.Admin
	t     *testing.T
	name  string
	sinks []string
	addr  string
}

// fresh makes a pipeline with its topics.
func fresh(t *testing.T, sinks ...string) *pipeline {
	t.Helper()
	addr := containers.Shared(t).Addr()
	p := &pipeline{t: t, name: fmt.Sprintf("p%08x", rand.Uint32()), sinks: sinks, addr: addr}
	p.Admin = probe.NewAdmin(t, "FLUSSO_KAFKA_BROKERS="+addr, "FLUSSO_KAFKA_PIPELINE="+p.name)
	p.stream(sinks...)
	return p
}

// stream opens a stream that knows these sinks and is closed with the test.
func (p *pipeline) stream(sinks ...string) *kafka.Stream {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), probe.Wait)
	defer cancel()
	s, err := kafka.Open(ctx, kafka.Config{
		Pipeline: p.name, Sinks: sinks, Incarnation: incarnation, CreateTopics: true, Client: []kgo.Opt{kgo.SeedBrokers(p.addr)},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { closeStream(p.t, s) })
	return s
}

func closeStream(t *testing.T, s *kafka.Stream) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil && !errors.Is(err, flusso.ErrFenced) && !errors.Is(err, flusso.ErrLost) {
		t.Logf("close the stream: %v", err)
	}
}

func (p *pipeline) lane(sink string) topics.Lane { return probe.Names(p.t, p.name, sink) }

// runs runs a command that ends with a code.
func (p *pipeline) runs(code int, args ...string) probe.Answer {
	p.t.Helper()
	return p.Must(p.t, code, args...)
}

// reads runs a command with --format json and decodes its answer.
func reads[T any](p *pipeline, code int, args ...string) T {
	p.t.Helper()
	got := p.runs(code, append(args, "--format", "json")...)
	var v T
	if err := json.Unmarshal([]byte(got.Out), &v); err != nil {
		p.t.Fatalf("%v in the answer\n%s", err, got)
	}
	return v
}

// engine is an ingest engine: it publishes a batch to every lane again and
// again, and answers requests by the marker that completes them.
type engine struct {
	p      *pipeline
	stream *kafka.Stream
	stop   context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	position flusso.Position // newest that was published
	served   []string        // sinks whose requests were answered
	errs     []error         // that ended a producer or a consumer
}

// starts starts an engine, which goes on from a position.
func (p *pipeline) starts(from flusso.Position) *engine {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	e := &engine{p: p, stream: p.stream(p.sinks...), stop: stop, done: make(chan struct{}), position: from}
	var loops sync.WaitGroup
	loops.Go(func() { e.loop(ctx, e.publish) })
	loops.Go(func() { e.loop(ctx, e.serve) })
	go func() { loops.Wait(); close(e.done) }()
	p.t.Cleanup(e.ends)
	e.passes(from + 1)
	return e
}

// ends stops the engine as a shutdown does.
func (e *engine) ends() {
	e.stop()
	<-e.done
	closeStream(e.p.t, e.stream)
}

// loop repeats what an engine does until it is fenced: after any other error it
// begins anew.
func (e *engine) loop(ctx context.Context, do func(context.Context) error) {
	for ctx.Err() == nil {
		err := do(ctx)
		if ctx.Err() != nil {
			return
		}
		e.mu.Lock()
		e.errs = append(e.errs, err)
		e.mu.Unlock()
		if errors.Is(err, flusso.ErrFenced) || errors.Is(err, flusso.ErrClosed) {
			return
		}
	}
}

func (e *engine) publish(ctx context.Context) error {
	out, err := e.stream.Commits(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for at := e.at() + 1; ; at++ {
		b := &flusso.Batch{Position: at, Changes: 1, Envelopes: []flusso.Envelope{{
			Index: "orders", ID: at.String(), Op: flusso.Upsert, Document: fmt.Appendf(nil, `{"at":%d}`, at), Position: at,
		}}}
		var c flusso.Commit
		for _, sink := range e.p.sinks {
			c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: b})
		}
		// An engine that is told to stop knows what it has published.
		if _, err := out.Publish(context.WithoutCancel(ctx), c); err != nil {
			return err
		}
		e.mu.Lock()
		e.position = at
		e.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *engine) serve(ctx context.Context) error {
	in, err := e.stream.Requests().Consumer(ctx)
	if err != nil {
		return err
	}
	for {
		d, err := in.Receive(ctx)
		if err != nil {
			return err
		}
		b, ok := d.Item().(*flusso.Backfill)
		if !ok {
			return fmt.Errorf("received %T", d.Item())
		}
		out, err := e.stream.Commits(ctx)
		if err != nil {
			return err
		}
		c := flusso.Commit{
			Items: []flusso.Routed{{Sink: b.Sink, Item: &flusso.SnapshotComplete{Indexes: b.Indexes}}},
			Acks:  []flusso.Delivery[flusso.Request]{d},
		}
		if _, err := out.Publish(ctx, c); err != nil {
			return err
		}
		e.mu.Lock()
		e.served = append(e.served, b.Sink)
		e.mu.Unlock()
	}
}

func (e *engine) at() flusso.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.position
}

// answered returns the sinks whose requests the engine has served.
func (e *engine) answered() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.served)
}

// failures returns what ended a producer or a consumer of the engine.
func (e *engine) failures() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.errs)
}

// passes waits until the engine has published a position.
func (e *engine) passes(at flusso.Position) {
	e.p.t.Helper()
	probe.Eventually(e.p.t, "the engine has published position "+at.String(), func(context.Context) error {
		if now := e.at(); now < at {
			return errors.Join(append([]error{fmt.Errorf("it is at %s", now)}, e.failures()...)...)
		}
		return nil
	})
}

// sink is the engine of a sink: it acks what it receives, but for the items
// that it fails on, which end it.
type sink struct {
	p      *pipeline
	name   string
	stream *kafka.Stream
	stop   context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	acked []flusso.Position // of live batches, in the order in which they came
	rows  []string          // ids of the documents of snapshot batches
	err   error
}

var errPoison = errors.New("this item cannot be applied")

// attaches starts a sink. It fails on the positions of poison.
func (p *pipeline) attaches(name string, poison ...flusso.Position) *sink {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	s := &sink{p: p, name: name, stream: p.stream(name), stop: stop, done: make(chan struct{})}
	lane, err := s.stream.Lane(name)
	if err != nil {
		p.t.Fatal(err)
	}
	in, err := lane.Consumer(ctx)
	if err != nil {
		p.t.Fatalf("attach to the lane of %s: %v", name, err)
	}
	go func() {
		defer close(s.done)
		err := s.apply(ctx, in, poison)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = err
	}()
	p.t.Cleanup(s.ends)
	return s
}

func (s *sink) apply(ctx context.Context, in flusso.Consumer[flusso.LaneItem], poison []flusso.Position) error {
	for {
		d, err := in.Receive(ctx)
		if err != nil {
			return err
		}
		b, batch := d.Item().(*flusso.Batch)
		live := batch && b.Position != flusso.NoPosition
		if live && slices.Contains(poison, b.Position) {
			return errPoison
		}
		if err := d.Ack(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		switch {
		case live:
			s.acked = append(s.acked, b.Position)
		case batch:
			for _, row := range b.Envelopes {
				s.rows = append(s.rows, row.ID)
			}
		}
		s.mu.Unlock()
	}
}

// ends stops the sink as a shutdown does: what it acked is durable.
func (s *sink) ends() {
	s.stop()
	<-s.done
	closeStream(s.p.t, s.stream)
}

// end waits for what ended the sink by itself.
func (s *sink) end() error {
	s.p.t.Helper()
	select {
	case <-s.done:
	case <-time.After(probe.Wait):
		s.p.t.Fatalf("the sink %s goes on", s.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *sink) all() []flusso.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acked)
}

// snapshots returns the ids of the documents that came in snapshots.
func (s *sink) snapshots() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rows)
}

// reaches waits until the sink has acked a position.
func (s *sink) reaches(at flusso.Position) {
	s.p.t.Helper()
	probe.Eventually(s.p.t, "sink "+s.name+" has acked position "+at.String(), func(context.Context) error {
		all := s.all()
		if len(all) == 0 || all[len(all)-1] < at {
			s.mu.Lock()
			defer s.mu.Unlock()
			return fmt.Errorf("it acked %d, up to %v: %w", len(all), all[max(0, len(all)-1):], errors.Join(s.err, errNotYet))
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")

// empties waits until a lane's group has no member, and what it acked is all
// that was published.
func (p *pipeline) settles(e *engine, sinks ...*sink) flusso.Position {
	p.t.Helper()
	e.ends()
	at := e.at()
	for _, s := range sinks {
		s.reaches(at)
		s.ends()
	}
	return at
}
