package bench_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
)

// curve is how long a batch takes from the moment that it was due to be
// submitted until a consumer has it, at shares of the peak. Batches are due at
// a fixed rate, whatever became of those before: what has to wait for room in
// the window has waited, too. The peak is that of the slower side.
func curve(e *env) bench.Report {
	batches := e.feed()
	ours, raw := e.ourFlow(), e.rawFlow()
	full := func(f *flow) func(int) time.Duration {
		return func(n int) time.Duration {
			e.Helper()
			_, took, err := f.run(e.Context(), batches.take(n), 0)
			if err != nil {
				e.Fatal(err)
			}
			return took
		}
	}
	n := e.calibrate(full(ours), full(raw))
	peaks := e.rounded(func(f *flow) bench.Side {
		return func(ctx context.Context) (bench.Sample, error) {
			bs := batches.take(n)
			moved := bench.MovedBy(bs, 1)
			_, took, err := f.run(ctx, bs, 0)
			return bench.Sample{Moved: moved, Values: map[string]float64{
				rate: rateOf(moved.Bytes, took), "batches": float64(n) / took.Seconds(),
			}}, err
		}
	}, ours, raw)
	a, b := peaks.Values("batches")
	peak := min(bench.SpreadOf(a).Median, bench.SpreadOf(b).Median)

	quantiles := []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p99", 0.99}}
	series := make([]bench.Series, 2*len(quantiles))
	for _, percent := range []int{1, 10, 50, 90} {
		perSecond := peak * float64(percent) / 100
		length := e.measure
		if percent <= 10 { // too few to tell a p99
			length *= 2
		}
		n := max(1, int(perSecond*length.Seconds()))
		pairs := e.rounded(func(f *flow) bench.Side {
			return func(ctx context.Context) (bench.Sample, error) {
				bs := batches.take(n)
				took, _, err := f.run(ctx, bs, perSecond)
				slices.Sort(took)
				values := map[string]float64{}
				for _, q := range quantiles {
					values[q.name] = bench.Quantile(took, q.q)
				}
				return bench.Sample{Moved: bench.MovedBy(bs, 1), Values: values}, err
			}
		}, ours, raw)
		for i, q := range quantiles {
			a, b := pairs.Values(q.name)
			for side, samples := range [][]float64{a, b} {
				s := &series[2*i+side]
				s.Name = [2]string{"ours", "raw"}[side] + " " + q.name
				s.Points = append(s.Points, bench.SpreadOf(samples).Point(float64(percent)))
			}
		}
	}
	return bench.Report{
		Lines: []bench.Line{peaks.Ratio("publish and deliver end to end, peak", "idempotent produce, poll of a kgo group", rate, rate, bench.Printed())},
		Curves: []bench.Curve{{
			Name: "curve", Title: "Latency from submit to delivery", X: "% of the peak", Y: "ms", LogX: true, LogY: true, Series: series,
		}},
		Notes: []string{fmt.Sprintf("the loads are shares of %.0f batches a second, the lower of both peaks; a point is the median of %d rounds", peak, e.rounds)},
	}
}

// rounded interleaves as many rounds as a curve has.
func (e *env) rounded(side func(*flow) bench.Side, ours, raw *flow) bench.Pairs {
	e.Helper()
	p, err := bench.Interleave(e.Context(), 0, e.rounds, side(ours), side(raw))
	if err != nil {
		e.Fatal(err)
	}
	return p
}

// flow is a producer, and a consumer that receives all the while.
type flow struct {
	send    func(context.Context, *flusso.Batch) error
	settled func(context.Context) error // returns when what was sent is durable
	inbox
}

// run sends batches at a rate, 0 for as fast as it goes. It returns how long
// each took from when it was due, in milliseconds, and how long all took.
func (f *flow) run(ctx context.Context, batches []*flusso.Batch, perSecond float64) ([]float64, time.Duration, error) {
	arrived := f.expect(len(batches))
	began := time.Now()
	due := func(i int) time.Time {
		if perSecond == 0 {
			return began
		}
		return began.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
	}
	for i, b := range batches {
		if wait := time.Until(due(i)); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, 0, context.Cause(ctx)
			}
		}
		if err := f.send(ctx, b); err != nil {
			return nil, 0, err
		}
	}
	if err := f.settled(ctx); err != nil {
		return nil, 0, err
	}
	select {
	case <-arrived:
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	at, err := f.all()
	if err != nil {
		return nil, 0, err
	}
	took := make([]float64, len(at))
	for i, t := range at {
		took[i] = ms(t.Sub(due(i)))
	}
	return took, at[len(at)-1].Sub(began), nil
}

// inbox notes when batches arrive. They do in their order.
type inbox struct {
	mu   sync.Mutex
	at   []time.Time
	want int
	full chan struct{}
	err  error
}

func (i *inbox) expect(n int) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at, i.want, i.full = make([]time.Time, 0, n), n, make(chan struct{})
	return i.full
}

// take notes the arrival of a batch, or why there will be no more.
func (i *inbox) take(err error) {
	now := time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	done := len(i.at) == i.want || i.err != nil
	if i.err = errors.Join(i.err, err); err == nil {
		i.at = append(i.at, now)
	}
	if !done && (len(i.at) == i.want || err != nil) {
		close(i.full)
	}
}

func (i *inbox) all() ([]time.Time, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err == nil && len(i.at) != i.want {
		return nil, fmt.Errorf("%d batches arrived, want %d", len(i.at), i.want)
	}
	return i.at, i.err
}

// receiving runs a consumer until the row ends.
func (e *env) receiving(f *flow, receive func(context.Context) error) *flow {
	ctx, cancel := context.WithCancel(e.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			if err := receive(ctx); err != nil {
				f.take(err)
				return
			}
		}
	})
	e.Cleanup(func() { cancel(); done.Wait() })
	return f
}

func (e *env) ourFlow() *flow {
	e.Helper()
	const sink = "a"
	s := e.stream(nil, sink)
	p, c := e.commits(s), e.consumer(s, sink)
	var last *flusso.Future
	f := &flow{
		send: func(ctx context.Context, b *flusso.Batch) (err error) {
			last, err = p.Submit(ctx, flusso.Commit{Items: []flusso.Routed{{Sink: sink, Item: b}}})
			return err
		},
		settled: func(ctx context.Context) error { // in submit order: an error ends the session
			_, err := last.Wait(ctx)
			return err
		},
	}
	return e.receiving(f, func(ctx context.Context) error {
		d, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		f.take(nil)
		return d.Ack(ctx)
	})
}

func (e *env) rawFlow() *flow {
	e.Helper()
	topic := e.topics(1)[0]
	producer := e.client(rawProducer(0)...)
	consumer := e.client(rawConsumer(e.name(), topic)...)
	sent := &sending{cl: producer}
	f := &flow{
		send: func(ctx context.Context, b *flusso.Batch) error {
			for _, r := range records(b, topic) {
				sent.produce(ctx, r)
			}
			return nil
		},
		settled: sent.flush,
	}
	records := 0
	return e.receiving(f, func(ctx context.Context) error {
		fs := consumer.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		fs.EachRecord(func(*kgo.Record) {
			if records++; records%e.batch == 0 {
				f.take(nil)
			}
		})
		return nil
	})
}
