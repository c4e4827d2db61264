package bench_test

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/bench"
	"github.com/flusso/flusso-kafka/feeds"
)

// appended is the throughput of a writer session on a feed, whose flusher
// reads, packs and uploads on the same machine meanwhile. Raw produces the same
// documents to the WAL of another feed. Documents are twice as large as in the
// other rows: records of a feed are a kibibyte.
func appended(e *env) bench.Report {
	e.steady()
	client, err := feeds.New(feeds.Config{Client: e.ourOpts(), StagingDir: e.TempDir()})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { e.close(client) })
	names := [2]string{e.name(), e.name()}
	for _, name := range names {
		if _, err := client.Create(e.Context(), name, feeds.CreateOptions{Bucket: "file://" + filepath.ToSlash(e.TempDir())}); err != nil {
			e.Fatal(err)
		}
	}
	defer label(ourSide)()
	s, err := client.Open(e.Context(), names[0])
	if err != nil {
		e.Fatal(err)
	}
	cl := e.client(append(rawProducer(rawLinger), kgo.MaxBufferedBytes(feeds.DefaultMaxUnackedBytes))...)

	d := bench.NewDocuments(1, 2*e.size)
	pool := make([][]byte, max(e.pool/(2*e.size), e.batch))
	for i := range pool {
		pool[i] = d.Next()
	}
	next := 0
	take := func() []byte {
		next++
		return pool[next%len(pool)]
	}
	ours := func(ctx context.Context, batches int) error {
		var last *feeds.Future
		for range batches {
			b := feeds.Batch{Records: make([]feeds.Record, e.batch)}
			for i := range b.Records {
				b.Records[i].Payload = take()
			}
			var err error
			if last, err = s.AppendAsync(ctx, b); err != nil {
				return err
			}
		}
		_, err := last.Wait(ctx) // futures resolve in order
		return err
	}
	raw := func(ctx context.Context, batches int) error {
		p := sending{cl: cl}
		for range batches * e.batch {
			p.produce(ctx, &kgo.Record{Topic: names[1] + ".feed.wal", Value: take()})
		}
		return p.flush(ctx)
	}
	n := e.calibrate(func(n int) time.Duration {
		e.Helper()
		began := time.Now()
		if err := raw(e.Context(), n); err != nil {
			e.Fatal(err)
		}
		return time.Since(began)
	})
	side := func(move func(context.Context, int) error) bench.Side {
		return func(ctx context.Context) (bench.Sample, error) {
			moved := bench.Moved{Records: int64(n * e.batch), Bytes: int64(n * e.batch * 2 * e.size)}
			began := time.Now()
			err := move(ctx, n)
			return bench.Sample{Moved: moved, Values: map[string]float64{rate: rateOf(moved.Bytes, time.Since(began))}}, err
		}
	}
	pairs := e.interleave(side(ours), side(raw))
	what := fmt.Sprintf("append documents of %d B to a feed, pipelined, 16 MiB window", 2*e.size)
	return bench.Report{
		Lines: []bench.Line{pairs.Ratio(what, "idempotent produce to one topic", rate, rate, bench.AtLeast(0.9))},
		Notes: []string{fmt.Sprintf("at the end %.0f MiB wait for the flusher, which shares the cores", float64(s.Backlog().Bytes)/(1<<20))},
	}
}
