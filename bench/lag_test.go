package bench_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// lag is how much longer it takes to tell the lag of a sink, and what an offset
// stands for, with a large backlog than with a small one, by somebody who looks
// for the first time; and in how many steps a position is found.
func lag(e *env) bench.Report {
	lanes := e.backlogs()
	var traffic bench.Traffic
	cl := e.client(kgo.WithHooks(&traffic))
	var r bench.Report
	lagOf := func(l *backlogged) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := offsets.New(cl).Lag(ctx, []topics.Lane{l.lane})
			if err == nil {
				err = got[l.lane].Err
			}
			if have := got[l.lane].Batches; err == nil && have != uint64(l.batches-1) {
				err = fmt.Errorf("lag of %s is %d batches, want %d", l.lane.Topic(), have, l.batches-1)
			}
			return err
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	positionOf := func(l *backlogged) func(context.Context) error {
		return func(ctx context.Context) error {
			off := l.ends.Start + 1 + flusso.Offset(rng.Int64N(int64(l.ends.Stable-l.ends.Start)))
			_, err := offsets.New(cl).Below(ctx, l.lane, off)
			return err
		}
	}
	offsetOf := func(l *backlogged, reads *int) func(context.Context) error {
		return func(ctx context.Context) error {
			pos := flusso.Position(1 + rng.Int64N(int64(l.batches)))
			tr, err := offsets.New(cl).TranslatePosition(ctx, l.lane, pos)
			if err == nil && tr.Position != pos {
				err = fmt.Errorf("offset %s of %s stands for position %s, want %s", tr.Offset, l.lane.Topic(), tr.Position, pos)
			}
			*reads = max(*reads, tr.Reads)
			return err
		}
	}
	curve := bench.Curve{Name: "lag", Title: "Lag and translation, the first time", X: "batches behind", Y: "ms", LogX: true, LogY: true}
	const took = "took"
	small, large := lanes[0], lanes[len(lanes)-1]
	for _, q := range []struct {
		what string
		of   func(*backlogged) func(context.Context) error
	}{
		{"lag", lagOf},
		{"offset → position", positionOf},
	} {
		n := e.calibrate(e.repeated(q.of(small)))
		pairs := e.interleave(repeating(n, took, q.of(large)), repeating(n, took, q.of(small)))
		r.Lines = append(r.Lines, pairs.Ratio(fmt.Sprintf("%s, cold, with %d batches", q.what, large.batches), fmt.Sprintf("with %d", small.batches), took, "ms", bench.AtMost(1.5)))
		series := bench.Series{Name: q.what}
		var each []string
		least, most := 0, 0
		for i, l := range lanes {
			asked(&traffic)
			const looks = 20
			began := time.Now()
			for range looks {
				if err := q.of(l)(e.Context()); err != nil {
					e.Fatal(err)
				}
			}
			series.Points = append(series.Points, bench.Point{X: float64(l.batches), Y: ms(time.Since(began)) / looks})
			n := asked(&traffic).all()
			if i == 0 {
				least, most = n, n
			}
			least, most = min(least, n), max(most, n)
			each = append(each, fmt.Sprintf("%.1f", float64(n)/looks))
		}
		// An offset right behind a marker costs a read more, by chance.
		r.Lines = append(r.Lines, bench.Check("requests of one "+q.what, fmt.Sprintf("%v with %v batches", each, sizesOf(lanes)), "flat", float64(most) <= 1.25*float64(least)))
		curve.Series = append(curve.Series, series)
	}
	series := bench.Series{Name: "position → offset"}
	for _, l := range lanes {
		reads, looks := 0, e.quiet
		var all []float64
		step := offsetOf(l, &reads)
		for range looks {
			began := time.Now()
			if err := step(e.Context()); err != nil {
				e.Fatal(err)
			}
			all = append(all, ms(time.Since(began)))
		}
		line := bench.Value(fmt.Sprintf("position → offset, cold, with %d batches", l.batches), "ms", all, bench.Printed())
		series.Points = append(series.Points, bench.Point{X: float64(l.batches), Y: line.Ours.Median})
		// One read for the tail, then one for each bit of the offsets between.
		steps := bits.Len64(uint64(l.ends.Stable - l.ends.Start))
		r.Lines = append(r.Lines, line, bench.Check("its steps", fmt.Sprintf("%d at most in %d searches", reads-1, looks), fmt.Sprintf("≤ %d, log2 of its offsets", steps), reads-1 <= steps))
	}
	curve.Series = append(curve.Series, series)
	r.Curves = append(r.Curves, curve)
	return r
}

// backlogged is a lane whose sink acked its first batch.
type backlogged struct {
	lane    topics.Lane
	batches int
	ends    offsets.Ends
}

func sizesOf(lanes []*backlogged) (n []int) {
	for _, l := range lanes {
		n = append(n, l.batches)
	}
	return n
}

// backlogs makes a lane of each size. The batches are small, and the segments
// alike, so that the lanes differ in length alone: what a read of one header
// costs is the record batch that it lies in.
func (e *env) backlogs() []*backlogged {
	e.Helper()
	var sinks []string
	for _, n := range e.behind {
		sinks = append(sinks, fmt.Sprintf("behind-%d", n))
	}
	s := e.stream(func(cfg *kafka.Config) { cfg.SegmentBytes = 128 << 10 }, sinks...)
	pool := bench.NewDocuments(1, 64).Batches(4096, 1)
	cl := e.client()
	store := offsets.New(cl)
	p, err := topics.NewPipeline(s.name)
	if err != nil {
		e.Fatal(err)
	}
	var out []*backlogged
	for i, n := range e.behind {
		began := time.Now()
		producer, err := e.lane(s, sinks[i]).Producer(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		if err := fill(e.Context(), producer, n, inTurn(pool)); err != nil {
			e.Fatal(err)
		}
		l, err := p.Lane(sinks[i])
		if err != nil {
			e.Fatal(err)
		}
		ends, err := store.Ends(e.Context(), []topics.Lane{l})
		if err != nil {
			e.Fatal(err)
		}
		first, ferr := store.From(e.Context(), l, 0)
		if err := errors.Join(ferr, ack(e.Context(), cl, l, first, ends[l].TopicID)); err != nil {
			e.Fatal(err)
		}
		out = append(out, &backlogged{lane: l, batches: n, ends: ends[l]})
		e.Logf("%d batches published in %s", n, time.Since(began).Round(time.Millisecond))
	}
	return out
}
