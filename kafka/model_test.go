package kafka_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/kafka"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "replay the model test with this seed alone")
	modelSeeds = flag.Uint64("model.seeds", 6, "number of seeds of the model test")
	modelSteps = flag.Int("model.steps", 60, "steps of the model test for each seed")
)

// TestModel drives whole processes (ingest engines, sinks, outside tools, a
// broker that drops connections) at random, beside a model that keeps
// everything and optimizes nothing, and looks after each step for what
// architecture invariants say must never be seen.
func TestModel(t *testing.T) {
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		base := rand.Uint64()>>1 + 1
		seeds = seeds[:0]
		for i := range *modelSeeds {
			seeds = append(seeds, base+i)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newWorld(t, seed).run(*modelSteps) })
		})
	}
}

// modelWait bounds one call of the model, in the bubble's time.
const modelWait = 2 * time.Minute

// world is the pipeline under test beside the model of it.
type world struct {
	t    *testing.T
	p    pipeline
	seed uint64
	rng  *rand.Rand // of the step alone, so that a replay with fewer steps takes the same ones
	step int
	log  []string

	sinks  []string
	lanes  map[string]*modelLane
	source *source
	writer *engine   // the ingest engine whose word counts, nil when there is none
	old    []*engine // superseded, and not told yet
	opened int       // engines opened so far
	// contended: a superseded engine had something to publish. kfake lets its
	// client fence the newer one back, which Apache Kafka does not.
	contended bool

	watchers []*watcher
	faults   []*modelFault
	faulted  int                        // the last step in which a fault began or ended
	expected map[string]flusso.LaneItem // by token
	atomic   [][]routedToken            // each is in all its lanes or in none
	never    map[string]string          // tokens that must not be in a lane, and why
	snaps    int
	copies   uint64
}

type routedToken struct{ sink, token string }

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, lanes: map[string]*modelLane{}, expected: map[string]flusso.LaneItem{}, never: map[string]string{},
	}
	w.rng = rand.New(rand.NewPCG(seed, 0))
	w.sinks = []string{"audit", "search", "store"}[:1+w.rng.IntN(3)]
	trimAfter := []time.Duration{-1, 2 * time.Second, 30 * time.Second}[w.rng.IntN(3)]
	budget := []int64{0, 1, 2000}[w.rng.IntN(3)]
	w.p = open(t, w.sinks, func(c *kafka.Config) {
		c.TrimAfter, c.PrefetchBytes, c.SegmentBytes = trimAfter, budget, 400
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with -args -model.seed=%d -model.steps=%d; what was done:\n%s", seed, *modelSteps, strings.Join(w.log, "\n"))
		}
	})
	w.say("sinks %v, trim after %s, prefetch %d", w.sinks, trimAfter, budget)
	w.newSource()
	return w
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%3d %s", w.step, fmt.Sprintf(format, args...)))
	if testing.Verbose() { // a run that hangs prints nothing at its end
		w.t.Log(w.log[len(w.log)-1])
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("step %d: %s", w.step, fmt.Sprintf(format, args...))
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), modelWait)
	w.t.Cleanup(cancel)
	return ctx
}

// lane returns a random one.
func (w *world) lane() *modelLane { return w.lanes[w.sinks[w.rng.IntN(len(w.sinks))]] }

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func (w *world) run(steps int) {
	w.start()
	type action struct {
		weight int
		do     func()
	}
	actions := []action{
		{20, w.publishNext},
		{8, w.publishOneLane},
		{6, w.publishPipelined},
		{6, w.publishSnapshot},
		{3, w.publishWrong},
		{3, w.publishLarge},
		{25, func() { w.receive(w.lane()) }},
		{25, func() { w.ack(w.lane()) }},
		{5, func() { w.nack(w.lane()) }},
		{6, func() { w.flush(w.lane()) }},
		{4, func() { w.closeSink(w.lane()) }},
		{4, func() { w.crashSink(w.lane()) }},
		{5, func() { w.takeover(w.lane()) }},
		{3, w.crashEngine},
		{2, w.closeEngine},
		{3, w.secondWriter},
		{4, w.zombie},
		{3, w.wait},
		{3, func() { w.trimByHand(w.lane()) }},
		{3, func() { w.rewind(w.lane()) }},
		{2, func() { w.jump(w.lane()) }},
		{2, func() { w.expire(w.lane()) }},
		{3, func() { w.retire(w.lane()) }},
		{1, w.newIncarnation},
		{8, w.fault},
		{2, w.newWatcher},
		{3, func() { w.caughtUp(w.lane()) }},
	}
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	for w.step = 1; w.step <= steps; w.step++ {
		w.rng = rand.New(rand.NewPCG(w.seed, uint64(w.step)))
		n := w.rng.IntN(total)
		for _, a := range actions {
			if n -= a.weight; n < 0 {
				a.do()
				break
			}
		}
		w.healFaults()
		w.check()
	}
	w.finish()
}

// check looks for what must never be seen.
func (w *world) check() {
	w.t.Helper()
	for _, sink := range w.sinks {
		w.lanes[sink].sync()
	}
	for _, r := range w.watchers {
		r.look(w)
	}
}

// finish ends the faults: then everything must drain [6].
func (w *world) finish() {
	w.say("faults end; everything must drain")
	for _, f := range w.faults {
		f.in.Release()
	}
	w.faults = nil
	w.pass(15 * time.Second) // sessions of members that crashed
	w.ensureEngine()
	w.settle()
	for w.catchUp() {
	}
	for _, sink := range w.sinks {
		l := w.lanes[sink]
		w.takeover(l)
		w.drain(l)
	}
	last := w.source.last()
	w.eventually("the stream is idle", func() (bool, error) { return w.writer.s.Idle(w.ctx()) })
	w.newWatcher()
	if last != flusso.NoPosition {
		w.eventually("the watermark is at "+last.String(), func() (bool, error) {
			mark, err := w.writer.s.Watermark(w.ctx())
			return mark.Position == last && !mark.Stale, err
		})
	}
	w.check()
	for _, sink := range w.sinks {
		w.lanes[sink].checkWhole()
	}
	w.checkAtomic()
	w.checkNever()
	w.closeAll()
}

func (w *world) eventually(what string, cond func() (bool, error)) {
	w.t.Helper()
	var err error
	for range 120 {
		var ok bool
		if ok, err = cond(); ok && err == nil {
			return
		}
		w.pass(500 * time.Millisecond)
	}
	w.fail("waited a minute until %s (last error %v)", what, err)
}

// checkAtomic: what was one commit is in all of its lanes or in none [B11].
func (w *world) checkAtomic() {
	for _, c := range w.atomic {
		there := 0
		for _, r := range c {
			if w.lanes[r.sink].has(r.token) {
				there++
			}
		}
		if there != 0 && there != len(c) {
			w.fail("commit %v is in %d of its %d lanes", c, there, len(c))
		}
	}
}

func (w *world) checkNever() {
	for _, sink := range w.sinks {
		for _, e := range w.lanes[sink].log {
			if why, bad := w.never[e.token]; bad {
				w.fail("lane of sink %s: %s is there, %s", sink, e.token, why)
			}
		}
	}
}

// watcher reads the watermark of one incarnation, as an engine does.
type watcher struct {
	s           flusso.Stream
	incarnation string
	last        flusso.Position
	since       int
}

func (w *world) newWatcher() {
	s := w.openStream(w.source.incarnation)
	if s == nil {
		return
	}
	w.say("a new watcher of incarnation %s", w.source.incarnation)
	w.watchers = append(w.watchers, &watcher{s: s, incarnation: w.source.incarnation, since: w.step})
	if len(w.watchers) > 3 {
		w.stop(w.watchers[1].s)
		w.watchers = append(w.watchers[:1], w.watchers[2:]...)
	}
}

// look holds what a reader sees against the truth: every live batch at or
// below the watermark was acked by every sink [C3], and it does not go back.
func (r *watcher) look(w *world) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	mark, err := r.s.Watermark(ctx)
	if err != nil && len(w.faults) == 0 && !mark.Stale {
		w.fail("watermark: %v", err)
	}
	w.judge(r.incarnation, mark)
	if mark.Position < r.last {
		w.fail("the watermark of incarnation %s went back from %s to %s", r.incarnation, r.last, mark.Position)
	}
	r.last = mark.Position
}

// judge: Safe. What was confirmed while a lane was retired stays confirmed, and
// its items must still be there: [modelLane.checkWhole] looks for that.
func (w *world) judge(incarnation string, mark flusso.Watermark) {
	w.t.Helper()
	for _, sink := range w.sinks {
		l := w.lanes[sink]
		if l.retired {
			l.passed[incarnation] = max(l.passed[incarnation], mark.Position)
			continue
		}
		for i, e := range l.log {
			if e.incarnation == incarnation && e.position > l.passed[incarnation] && e.position <= mark.Position && !l.acked[i] {
				w.fail("the watermark of incarnation %s is at %s, but sink %s has not acked item %d (%s, position %s); %+v",
					incarnation, mark.Position, sink, i, e.token, e.position, mark)
			}
		}
	}
}

// openStream opens a process, or returns nil while faults are about.
func (w *world) openStream(incarnation string) flusso.Stream {
	w.t.Helper()
	for _, f := range w.faults { // opening is tested by the fault tests
		f.in.Release()
		w.faulted = w.step
	}
	w.faults = nil
	s := w.p.Stream(w.t, incarnation)
	w.t.Cleanup(func() { w.p.Crash(w.t, s) }) // a failed run leaves streams open, and a bubble waits for them
	return s
}

func (w *world) stop(s flusso.Stream) {
	w.t.Helper()
	if err := s.Close(w.ctx()); err != nil && len(w.faults) == 0 {
		w.say("closing a stream: %v", err)
	}
}

func (w *world) closeAll() {
	if w.writer != nil {
		w.stop(w.writer.s)
	}
	for _, e := range w.old {
		w.stop(e.s)
	}
	for _, r := range w.watchers {
		w.stop(r.s)
	}
	for _, l := range w.lanes {
		if l.sink != nil {
			w.stop(l.sink.s)
		}
	}
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
