package bench_test

import (
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/bench"
)

// costs are what the sides of the last comparison of a row took.
type costs struct{ ours, beside bench.Cost }

// note says it. Clients that have no hook of a side are not counted.
func (c costs) note() string { return fmt.Sprintf("ours takes %s; beside it %s", c.ours, c.beside) }

// The sides of a comparison, as profiles call them.
const ourSide, rawSide = "ours", "raw"

// label marks this goroutine, and those that it starts, as one side's in
// profiles, until what it returns is called. Whatever a client is made for, its
// goroutines keep the mark.
func label(side string) func() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("side", side)))
	return func() { pprof.SetGoroutineLabels(context.Background()) }
}

// metered adds what a side takes to its cost.
func (e *env) metered(name string, side bench.Side, traffic *bench.Traffic, sum *bench.Cost) bench.Side {
	*sum = bench.Cost{}
	return func(ctx context.Context) (bench.Sample, error) {
		defer label(name)()
		traffic.Take()
		began, brokerBegan := e.cpu(), e.brokerCPU()
		s, err := side(ctx)
		*sum = sum.Add(bench.Cost{
			Exchange: traffic.Take(), Moved: s.Moved, CPU: e.cpu() - began, Broker: e.brokerCPU() - brokerBegan,
		})
		return s, err
	}
}

// cpu is the time that this process had, 0 where the broker is part of it.
func (e *env) cpu() time.Duration {
	e.Helper()
	if e.inProcess {
		return 0
	}
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		e.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// brokerCPU is the time that the broker's process had, 0 where it is not on this
// machine: a container's is where there is no virtual machine between.
func (e *env) brokerCPU() time.Duration {
	if e.inProcess {
		return 0
	}
	if e.brokerProcess == nil {
		e.brokerProcess = findBroker()
	}
	stat, err := e.brokerProcess.Stat()
	if err != nil {
		return 0
	}
	return time.Duration(stat.CPUTime() * float64(time.Second))
}

// findBroker returns the only process that runs Kafka, or one that there is not.
func findBroker() *procfs.Proc {
	processes, _ := procfs.AllProcs() // there is no procfs everywhere
	var found []procfs.Proc
	for _, p := range processes {
		if args, err := p.CmdLine(); err == nil && slices.Contains(args, "kafka.Kafka") {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return &procfs.Proc{}
	}
	return &found[0]
}

// ourOpts are [env.opts] for what is ours, counted.
func (e *env) ourOpts() []kgo.Opt { return append(e.opts(), kgo.WithHooks(&e.our)) }

// rawOpts are opts for what is beside it, counted.
func (e *env) rawOpts(opts ...kgo.Opt) []kgo.Opt { return append(opts, kgo.WithHooks(&e.raw)) }
