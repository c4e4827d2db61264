package bench_test

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
)

// stalled is the throughput of publish while a sink is attached, holds what it
// got and acks nothing, with a backlog in its lane; beside it the same pipeline
// where that lane is drained before each measure. In both the other sink
// receives and acks meanwhile, and the sink in question takes nothing: a sink
// that stalls also leaves its work undone, and that must not hide a cost.
func stalled(e *env) bench.Report {
	batches := e.feed()
	behind, drained := e.site(batches), e.site(batches)
	behind.stall()
	n := e.calibrate(behind.timed, drained.timed)
	pairs := e.interleave(
		func(ctx context.Context) (bench.Sample, error) { return behind.measure(ctx, n) },
		func(ctx context.Context) (bench.Sample, error) { return drained.measure(ctx, n) })
	what := fmt.Sprintf("publish to 2 lanes, one sink %d batches behind", e.backlog)
	return bench.Report{
		Lines: []bench.Line{pairs.Ratio(what, "the same with none behind", rate, rate, bench.AtLeast(0.99))},
	}
}

// site is a pipeline at work, of which one sink follows and another does not.
type site struct {
	*env
	batches *feed
	publish flusso.Producer[flusso.Commit]
	follows flusso.Consumer[flusso.LaneItem]
	holds   flusso.Consumer[flusso.LaneItem]
	stalled bool
}

const follower, holder = "follower", "holder"

func (e *env) site(batches *feed) *site {
	e.Helper()
	s := e.stream(nil, follower, holder)
	// It fetches next to nothing ahead, in both pipelines.
	ahead := e.attach(s, 64<<10, follower, holder)
	return &site{
		env: e, batches: batches, publish: e.commits(s),
		follows: e.consumer(s, follower), holds: e.consumer(ahead, holder),
	}
}

// stall builds the backlog, of small batches, and has the sink hold the first.
func (s *site) stall() {
	s.Helper()
	s.stalled = true
	small := bench.NewDocuments(2, 16)
	for left := s.backlog; left > 0; left -= 10_000 { // what was published is let go
		var bs []*flusso.Batch
		for range min(left, 10_000) {
			s.batches.position++
			bs = append(bs, bench.At(small.Batch(1), s.batches.position))
		}
		if err := submit(s.Context(), s.publish, bs, holder); err != nil {
			s.Fatal(err)
		}
	}
	if _, err := s.holds.Receive(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func (s *site) timed(n int) time.Duration {
	s.Helper()
	_, took, err := s.move(s.Context(), n)
	if err != nil {
		s.Fatal(err)
	}
	return took
}

func (s *site) measure(ctx context.Context, n int) (bench.Sample, error) {
	moved, took, err := s.move(ctx, n)
	return bench.Sample{Moved: moved, Values: map[string]float64{rate: rateOf(moved.Bytes, took)}}, err
}

// move publishes n batches and tells how long that took. Behind it nothing is
// left to receive but for the sink that is stalled.
func (s *site) move(ctx context.Context, n int) (moved bench.Moved, took time.Duration, err error) {
	bs := s.batches.take(n)
	moved = bench.MovedBy(bs, 2)
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	group.Go(func() error { return drain(ctx, s.follows, n) })
	group.Go(func() error {
		err := submit(ctx, s.publish, bs, follower, holder)
		took = time.Since(began)
		return err
	})
	if err := group.Wait(); err != nil {
		return moved, took, err
	}
	if !s.stalled {
		// The context above has ended with its group.
		return moved, took, drain(s.Context(), s.holds, n)
	}
	return moved, took, nil
}

// drain receives and acks n items and returns when that is durable.
func drain(ctx context.Context, c flusso.Consumer[flusso.LaneItem], n int) error {
	for range n {
		d, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		if err := d.Ack(ctx); err != nil {
			return err
		}
	}
	return c.Flush(ctx)
}
