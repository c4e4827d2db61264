package bench_test

import (
	"context"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
)

// publish is the throughput of an ingest engine: each batch goes to two lanes
// in one commit, as many as the window takes in flight. Raw produces the same
// records to two topics. Both are handed the batches and build their records
// within the measure.
func publish(e *env) bench.Report {
	e.steady()
	sinks := []string{"a", "b"}
	p := e.commits(e.stream(nil, sinks...))
	cl, topics := e.client(e.rawOpts(rawProducer(rawLinger)...)...), e.topics(len(sinks))
	batches := e.feed()
	ours := func(ctx context.Context, bs []*flusso.Batch) error { return submit(ctx, p, bs, sinks...) }
	raw := func(ctx context.Context, bs []*flusso.Batch) error { return produce(ctx, cl, bs, topics...) }
	n := e.calibrate(e.timed(batches, ours), e.timed(batches, raw))
	pairs := e.interleave(throughput(batches, n, len(sinks), ours), throughput(batches, n, len(sinks), raw))
	return bench.Report{
		Lines: []bench.Line{pairs.Ratio("publish to 2 lanes, pipelined, 32 MiB window", "idempotent produce to 2 topics", rate, rate, bench.AtLeast(0.95))},
		Notes: []string{e.costs.note()},
	}
}

// rawLinger lets raw fill its batches: with none it sends many small ones.
const rawLinger = 5 * time.Millisecond

// rate is of keys and documents, counted for each lane.
const rate = "MB/s"

func rateOf(bytes int64, took time.Duration) float64 { return float64(bytes) / 1e6 / took.Seconds() }

type mover = func(context.Context, []*flusso.Batch) error

// timed is a mover for [env.calibrate].
func (e *env) timed(batches *feed, move mover) func(n int) time.Duration {
	return func(n int) time.Duration {
		e.Helper()
		bs := batches.take(n)
		began := time.Now()
		if err := move(e.Context(), bs); err != nil {
			e.Fatal(err)
		}
		return time.Since(began)
	}
}

// throughput is the side that moves n batches to so many lanes.
func throughput(batches *feed, n, lanes int, move mover) bench.Side {
	return func(ctx context.Context) (bench.Sample, error) {
		bs := batches.take(n)
		moved := bench.MovedBy(bs, lanes)
		began := time.Now()
		err := move(ctx, bs)
		took := time.Since(began)
		return bench.Sample{Moved: moved, Values: map[string]float64{rate: rateOf(moved.Bytes, took)}}, err
	}
}
