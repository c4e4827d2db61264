package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/bench"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// memory is what a process takes that runs one sink and nothing else: one that
// took a delivery and is stuck with it, however much lies behind, and one that
// has many deliveries outstanding. Each is a process of its own.
func memory(e *env) bench.Report {
	var r bench.Report
	const sink = "a"
	s := e.stream(nil, sink)
	idle := e.sink(sinkProcess{Pipeline: s.name, Sink: sink})
	r.Lines = append(r.Lines, bench.Value("memory of a process with an idle sink", "MiB", []float64{idle}, bench.Printed()))

	fill, err := e.lane(s, sink).Producer(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	pool := bench.NewDocuments(1, e.heldSize).Batches(max(e.pool/(e.heldSize*e.heldBatch), 1), e.heldBatch)
	curve := bench.Curve{Name: "memory", Title: "Memory of a process whose sink is stalled", X: "GiB behind", Y: "MiB", LogX: true}
	series := []bench.Series{{Name: "prefetch of 32 MiB, the default"}, {Name: "prefetch of 64 MiB"}}
	var at flusso.Position
	var held int64
	var least, most float64
	began := time.Now()
	for _, part := range []int64{16, 4, 1} {
		for held < e.held/part {
			var last *flusso.Future
			for range 64 {
				at++
				b := bench.At(pool[int(at)%len(pool)], at)
				f, err := fill.Submit(e.Context(), b)
				if err != nil {
					e.Fatal(err)
				}
				last = f
				held += bench.MovedBy([]*flusso.Batch{b}, 1).Bytes
			}
			if held >= e.held/part {
				if _, err := last.Wait(e.Context()); err != nil {
					e.Fatal(err)
				}
			}
		}
		e.Logf("%.2f GiB behind after %s", gib(held), time.Since(began).Round(time.Millisecond))
		for i, prefetch := range []int64{32 << 20, 64 << 20} {
			rss := e.sink(sinkProcess{Pipeline: s.name, Sink: sink, Prefetch: prefetch, Take: 1})
			series[i].Points = append(series[i].Points, bench.Point{X: gib(held), Y: rss})
			what := fmt.Sprintf("memory, stalled sink with %.3g GiB behind, PrefetchBytes of %d MiB", gib(held), prefetch>>20)
			r.Lines = append(r.Lines, bench.Value(what, "MiB", []float64{rss}, bench.Printed()))
			if i == 0 {
				if part == 16 {
					least = rss
				}
				most = rss
			}
		}
	}
	behind, err := e.waiting(s.name, sink)
	if err != nil {
		e.Fatal(err)
	}
	if behind.Batches != uint64(at) {
		e.Fatalf("%d batches were published and none was acked, but %d wait in the lane of sink %s of pipeline %s", at, behind.Batches, sink, s.name)
	}
	r.Notes = append(r.Notes, fmt.Sprintf("behind the stalled sink wait %d batches with %.2f GiB of keys and documents, as its lag says", behind.Batches, gib(int64(behind.Bytes))))
	r.Lines = append(r.Lines, bench.Check("it does not grow with what is behind", fmt.Sprintf("%.0f MiB with all behind, %.0f MiB with a sixteenth", most, least), "≤ 1.25 ×", least > 0 && most <= 1.25*least))
	curve.Series = series
	r.Curves = append(r.Curves, curve)
	return e.outstandingRows(r)
}

// outstandingRows adds a sink with many deliveries that are not acked, on a lane
// of its own: small batches, since it is the count that is meant.
func (e *env) outstandingRows(r bench.Report) bench.Report {
	e.Helper()
	const sink = "a"
	s := e.stream(nil, sink)
	p, err := e.lane(s, sink).Producer(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	pool := bench.NewDocuments(2, e.size).Batches(4096, 1)
	if err := fill(e.Context(), p, e.outstanding, inTurn(pool)); err != nil {
		e.Fatal(err)
	}
	few := e.sink(sinkProcess{Pipeline: s.name, Sink: sink, Take: 1})
	many := e.sink(sinkProcess{Pipeline: s.name, Sink: sink, Take: e.outstanding})
	bounded := e.sink(sinkProcess{Pipeline: s.name, Sink: sink, Take: e.outstanding, Outstanding: outstandingBytes})
	payload := bench.MovedBy(pool[:1], 1).Bytes
	r.Lines = append(r.Lines,
		bench.Value(fmt.Sprintf("memory, %d deliveries of one document outstanding", e.outstanding), "MiB", []float64{many}, bench.Printed()),
		bench.Value(fmt.Sprintf("memory, as many of them as MaxOutstandingBytes of %d MiB lets out", outstandingBytes>>20), "MiB", []float64{bounded}, bench.Printed()),
		bench.Value(fmt.Sprintf("each of them, with %d B of key and document in it", payload), "B", []float64{(many - few) * (1 << 20) / float64(e.outstanding)}, bench.Printed()))
	return r
}

// outstandingBytes is the bound that the same sink is measured with.
const outstandingBytes = 16 << 20

// waiting is what waits for a sink: all that its lane holds while it never
// acked anything.
func (e *env) waiting(pipeline, sink string) (offsets.Totals, error) {
	p, err := topics.NewPipeline(pipeline)
	if err != nil {
		return offsets.Totals{}, err
	}
	l, err := p.Lane(sink)
	if err != nil {
		return offsets.Totals{}, err
	}
	got, err := offsets.New(e.client()).Lag(e.Context(), []topics.Lane{l})
	lag := got[l]
	if !lag.Known {
		return lag.Retained, errors.Join(err, lag.Err)
	}
	return offsets.Totals{Batches: lag.Batches, Envelopes: lag.Envelopes, Bytes: lag.Bytes, Changes: lag.Changes}, errors.Join(err, lag.Err)
}

func gib(n int64) float64 { return float64(n) / (1 << 30) }

// sinkProcess is what a process of a sink is to do.
type sinkProcess struct {
	Broker, Pipeline, Sink string
	Prefetch, Outstanding  int64
	Take                   int           // deliveries to take, as far as it gets any, and to ack none of them
	Settle                 time.Duration // how long it must not have grown
}

// sinkVariable tells the test binary that it is such a process.
const sinkVariable = "FLUSSO_BENCH_SINK"

// sink runs such a process until it has what it is to take and its prefetch
// has had the time to fill, and returns the most memory that it had, in MiB.
func (e *env) sink(p sinkProcess) float64 {
	e.Helper()
	p.Broker, p.Settle = e.addr, min(e.measure, time.Second)
	text, err := json.Marshal(p)
	if err != nil {
		e.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), sinkVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		e.Fatalf("process of a sink: %v", err)
	}
	kib, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		e.Fatalf("process of a sink: %v", err)
	}
	return kib / 1024
}

// runSink is the program of such a process.
func runSink(text string) error {
	var p sinkProcess
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := kafka.Open(ctx, kafka.Config{
		Pipeline: p.Pipeline, Sinks: []string{p.Sink}, Client: []kgo.Opt{kgo.SeedBrokers(p.Broker)}, PrefetchBytes: p.Prefetch, MaxOutstandingBytes: p.Outstanding,
	})
	if err != nil {
		return err
	}
	lane, err := s.Lane(p.Sink)
	if err != nil {
		return err
	}
	c, err := lane.Consumer(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	held := make([]flusso.Delivery[flusso.LaneItem], 0, p.Take)
	for range p.Take {
		d, err := receiveWithin(ctx, c, p)
		if p.Outstanding > 0 && errors.Is(err, context.DeadlineExceeded) {
			break // it has all that it may have
		}
		if err != nil {
			return err
		}
		held = append(held, d)
	}
	// Full is when it has hardly grown for a while.
	most, err := mostMemory()
	for since := time.Now(); err == nil && time.Since(since) < p.Settle; <-tick.C {
		var now int64
		if now, err = mostMemory(); now > most+most/50 {
			most, since = now, time.Now()
		}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, most)
	runtime.KeepAlive(held)
	return err
}

// receiveWithin takes a delivery. A sink that may not have more of them waits
// no longer than for its memory to settle.
func receiveWithin(ctx context.Context, c flusso.Consumer[flusso.LaneItem], p sinkProcess) (flusso.Delivery[flusso.LaneItem], error) {
	if p.Outstanding > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Settle)
		defer cancel()
	}
	return c.Receive(ctx)
}

// mostMemory is the most that this process had, in KiB.
func mostMemory() (int64, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, err
	}
	status, err := self.NewStatus()
	return int64(status.VmHWM >> 10), err
}
