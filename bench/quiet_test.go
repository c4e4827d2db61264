package bench_test

import (
	"context"
	"slices"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
)

// quiet is how long one batch takes on a lane where nothing else happens, from
// the call to its return.
func quiet(e *env) bench.Report {
	lane, err := e.lane(e.stream(nil, "a"), "a").Producer(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	cl, topic := e.client(e.rawOpts(rawProducer(0)...)...), e.topics(1)[0] // who waits for one batch must not linger
	batches := e.feed()
	const p50, p99 = "p50", "p99"
	side := func(one func(context.Context, *flusso.Batch) error) bench.Side {
		return func(ctx context.Context) (bench.Sample, error) {
			bs := batches.take(e.quiet)
			took := make([]float64, 0, len(bs))
			for _, b := range bs {
				began := time.Now()
				if err := one(ctx, b); err != nil {
					return bench.Sample{}, err
				}
				took = append(took, ms(time.Since(began)))
			}
			slices.Sort(took)
			return bench.Sample{Moved: bench.MovedBy(bs, 1), Values: map[string]float64{p50: bench.Quantile(took, 0.5), p99: bench.Quantile(took, 0.99)}}, nil
		}
	}
	pairs := e.interleave(
		side(func(ctx context.Context, b *flusso.Batch) error {
			_, err := lane.Publish(ctx, b)
			return err
		}),
		side(func(ctx context.Context, b *flusso.Batch) error {
			return cl.ProduceSync(ctx, records(b, topic)...).FirstErr()
		}))
	const what, beside = "one batch on a quiet lane", "idempotent ProduceSync"
	return bench.Report{
		Lines: []bench.Line{
			pairs.Ratio(what+", p50", beside, p50, "ms", bench.AtMost(3)),
			pairs.Difference(what+", p99", beside, p99, "ms", bench.AtMost(10)),
		},
		Notes: []string{e.costs.note()},
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
