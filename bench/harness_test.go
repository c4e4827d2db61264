package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/internal/embedded"
	"github.com/flusso/flusso-kafka/kafka"
)

// sizes say how much a row does.
type sizes struct {
	pairs   int           // measured pairs
	warmups int           // pairs before them
	size    int           // bytes of a document
	batch   int           // envelopes of a batch
	measure time.Duration // of one measure of one side, about
	pool    int           // bytes of documents that differ
	backlog int           // batches behind a stalled sink
	quiet   int           // batches of one measure on a quiet lane
	rounds  int           // of each load of a curve

	lanes       []int // how many, of what is asked about all lanes at once
	behind      []int // batches behind a sink, of what must not depend on them
	held        int64 // bytes behind a sink whose memory is measured, and of what they are made
	heldBatch   int   // envelopes of a batch
	heldSize    int   // bytes of a document
	outstanding int   // deliveries of a sink that acks none
}

// full is what a table is made of.
func full() sizes {
	return sizes{
		pairs: 7, warmups: 1, size: 512, batch: 64, measure: 1500 * time.Millisecond,
		pool: 64 << 20, backlog: 100_000, quiet: 250, rounds: 3,
		lanes: []int{1, 100, 1000}, behind: []int{1e3, 1e4, 1e5, 1e6}, held: 10 << 30, heldBatch: 16, heldSize: 16 << 10, outstanding: 1e5,
	}
}

// env is what a row is given: a broker, and all that it may make there. What
// it makes is gone when the row has ended.
type env struct {
	testing.TB
	sizes

	addr      string
	broker    string // its kind and version
	inProcess bool   // the broker is: its work and its allocations count as ours and raw's
	prefix    string // of all names that the row makes
	made      int

	brokerProcess *procfs.Proc // nil until it was looked for

	our, raw bench.Traffic // of the clients of each side
	costs    costs         // of the last comparison
}

// newEnv finds the broker that BROKER names: "embedded" for one in this
// process, host:port for one that runs, and a real Kafka in a container when
// it is empty.
func newEnv(t testing.TB, s sizes) *env {
	t.Helper()
	e := &env{TB: t, sizes: s, prefix: fmt.Sprintf("bench%x", time.Now().UnixNano())}
	switch name := os.Getenv("BROKER"); name {
	case "":
		b := containers.Shared(t)
		e.addr, e.broker = b.Addr(), "Apache Kafka "+b.Version()+" in a container"
	case "embedded":
		e.embedded()
	default:
		e.addr = name
		e.broker = "a broker that was named, " + e.version()
	}
	t.Cleanup(e.remove)
	return e
}

func (e *env) embedded() {
	e.Helper()
	b, err := embedded.Open(e.Context(), e.TempDir())
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := b.Close(); err != nil {
			e.Error(err)
		}
	})
	e.addr, e.broker, e.inProcess = b.Addr(), "the embedded broker in the same process", true
}

func (e *env) version() string {
	e.Helper()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(e.Context(), e.client())
	if err != nil {
		e.Fatalf("broker %s: %v", e.addr, err)
	}
	return "Kafka " + strings.TrimPrefix(kversion.FromApiVersionsResponse(resp).VersionGuess(), "v")
}

// opts reach the broker.
func (e *env) opts() []kgo.Opt { return []kgo.Opt{kgo.SeedBrokers(e.addr)} }

// client returns a client that is closed at the end of the row.
func (e *env) client(opts ...kgo.Opt) *kgo.Client {
	e.Helper()
	defer label(rawSide)()
	cl, err := kgo.NewClient(append(e.opts(), opts...)...)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(cl.Close)
	return cl
}

// name returns a name that nobody else has.
func (e *env) name() string {
	e.made++
	return fmt.Sprintf("%s-%d", e.prefix, e.made)
}

// topics creates topics of one partition each, as lanes are.
func (e *env) topics(n int) []string {
	e.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = e.name()
	}
	resp, err := kadm.NewClient(e.client()).CreateTopics(e.Context(), 1, 1, nil, names...)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		e.Fatal(err)
	}
	return names
}

// incarnation is the one of all sources.
const incarnation = "bench"

// pipeline is a stream of a pipeline of its own.
type pipeline struct {
	*kafka.Stream
	name string
}

func (p pipeline) topic(sink string) string { return p.name + ".lane." + sink }
func (p pipeline) group(sink string) string { return p.name + ".sink." + sink }

// stream creates a pipeline with these sinks. change, if not nil, changes the
// defaults that it is opened with.
func (e *env) stream(change func(*kafka.Config), sinks ...string) pipeline {
	e.Helper()
	cfg := kafka.Config{
		Pipeline: e.name(), Sinks: sinks, Incarnation: incarnation,
		Client: e.ourOpts(), CreateTopics: true, TrimAfter: -1,
	}
	if change != nil {
		change(&cfg)
	}
	defer label(ourSide)()
	s, err := kafka.Open(e.Context(), cfg)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { e.close(s) })
	return pipeline{s, cfg.Pipeline}
}

// attach opens another stream on a pipeline, as another process would.
func (e *env) attach(p pipeline, prefetch int64, sinks ...string) pipeline {
	e.Helper()
	return e.stream(func(cfg *kafka.Config) {
		cfg.Pipeline, cfg.CreateTopics, cfg.PrefetchBytes = p.name, false, prefetch
	}, sinks...)
}

// close closes what is ours, also where the row's context has ended.
func (e *env) close(c interface{ Close(context.Context) error }) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		e.Error(err)
	}
}

// commits returns the producer of a stream.
func (e *env) commits(s flusso.Stream) flusso.Producer[flusso.Commit] {
	e.Helper()
	defer label(ourSide)()
	p, err := s.Commits(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	return p
}

// lane returns a lane of a stream.
func (e *env) lane(s flusso.Stream, sink string) flusso.Lane[flusso.LaneItem] {
	e.Helper()
	l, err := s.Lane(sink)
	if err != nil {
		e.Fatal(err)
	}
	return l
}

// consumer attaches to a lane.
func (e *env) consumer(s flusso.Stream, sink string) flusso.Consumer[flusso.LaneItem] {
	e.Helper()
	defer label(ourSide)()
	c, err := e.lane(s, sink).Consumer(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	return c
}

// feed hands out batches of documents that differ, at positions that rise. Each
// one comes again after a while, far from the last time: record batches are
// compressed one by one.
type feed struct {
	pool     []*flusso.Batch
	next     int
	position flusso.Position
}

func (e *env) feed() *feed {
	return &feed{pool: bench.NewDocuments(1, e.size).Batches(max(e.pool/(e.size*e.batch), 1), e.batch)}
}

// take returns the next n batches.
func (f *feed) take(n int) []*flusso.Batch {
	batches := make([]*flusso.Batch, n)
	for i := range batches {
		f.position++
		batches[i] = bench.At(f.pool[f.next], f.position)
		f.next = (f.next + 1) % len(f.pool)
	}
	return batches
}

// steady makes measures longer: a writer that goes on and on has no first and no
// last segment, which take some 100 ms with nothing beside them. And it makes
// more of them: where both sides take all cores, a neighbour shows most.
func (e *env) steady() {
	e.measure = e.measure * 5 / 2
	e.pairs = e.pairs * 3 / 2
}

// calibrate returns how many batches a measure takes to last as long as it
// should on the faster of the sides, by doing more and more of them.
func (e *env) calibrate(sides ...func(n int) time.Duration) int {
	most := 1
	for _, side := range sides {
		for n := 16; ; n *= 4 {
			took := side(n)
			if took >= e.measure/5 {
				most = max(most, int(float64(n)*float64(e.measure)/float64(took)))
				break
			}
		}
	}
	return most
}

// interleave measures a comparison of the row.
func (e *env) interleave(ours, beside bench.Side) bench.Pairs {
	e.Helper()
	ours, beside = e.metered(ourSide, ours, &e.our, &e.costs.ours), e.metered(rawSide, beside, &e.raw, &e.costs.beside)
	p, err := bench.Interleave(e.Context(), e.warmups, e.pairs, ours, beside)
	if err != nil {
		e.Fatal(err)
	}
	return p
}

// finish completes a report by what all rows have.
func (e *env) finish(row string, r bench.Report) bench.Report {
	r.Row, r.Machine, r.Broker = row, bench.ThisMachine(), e.broker
	r.Settings = fmt.Sprintf("documents of %d B, %d envelopes a batch, %d pairs", e.size, e.batch, e.pairs)
	return r
}

// remove deletes the topics and groups of the row.
func (e *env) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(e.opts()...)
	if err != nil {
		e.Error(err)
		return
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	var mine []string
	topics, err := adm.ListTopics(ctx)
	for _, t := range topics.Names() {
		if strings.HasPrefix(t, e.prefix) {
			mine = append(mine, t)
		}
	}
	if err == nil && len(mine) > 0 {
		_, err = adm.DeleteTopics(ctx, mine...)
	}
	groups, listed := adm.ListGroups(ctx)
	mine = nil
	for _, g := range groups.Groups() {
		if strings.HasPrefix(g, e.prefix) {
			mine = append(mine, g)
		}
	}
	if listed == nil && len(mine) > 0 {
		_, listed = adm.DeleteGroups(ctx, mine...)
	}
	if err := errors.Join(err, listed); err != nil {
		e.Errorf("topics and groups named %s… are left: %v", e.prefix, err)
	}
}
