package bench_test

import (
	"context"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
	"github.com/flusso/flusso-kafka/channel"
)

// inProcess is the channel adapter: submitted, received and acked by two
// goroutines, beside a bare channel that hands the same batches over.
func inProcess(e *env) bench.Report {
	const sink = "a"
	s, err := channel.New(channel.Config{Sinks: []string{sink}, Incarnation: incarnation})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { e.close(s) })
	p, err := e.lane(s, sink).Producer(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	c := e.consumer(s, sink)
	batches := e.feed()
	ours := func(ctx context.Context, bs []*flusso.Batch) error {
		sent := make(chan error, 1)
		go func() {
			for _, b := range bs {
				if _, err := p.Submit(ctx, b); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		for range bs {
			d, err := c.Receive(ctx)
			if err != nil {
				return err
			}
			if err := d.Ack(ctx); err != nil {
				return err
			}
		}
		return <-sent
	}
	raw := func(_ context.Context, bs []*flusso.Batch) error {
		items := make(chan flusso.LaneItem, channel.DefaultCapacity)
		go func() {
			defer close(items)
			for _, b := range bs {
				items <- b
			}
		}()
		for range items {
		}
		return nil
	}
	n := min(e.calibrate(e.timed(batches, ours)), 100_000)
	const each = "each"
	side := func(move mover) bench.Side {
		return func(ctx context.Context) (bench.Sample, error) {
			bs := batches.take(n)
			began := time.Now()
			err := move(ctx, bs)
			return bench.Sample{Moved: bench.MovedBy(bs, 1), Values: map[string]float64{each: float64(time.Since(began).Microseconds()) / float64(n)}}, err
		}
	}
	pairs := e.interleave(side(ours), side(raw))
	return bench.Report{Lines: []bench.Line{pairs.Ratio("channel adapter, one batch", "a bare Go channel", each, "µs", bench.Printed())}}
}
