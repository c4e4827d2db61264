package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

var (
	soakSeed  = flag.Uint64("soak.seed", 0, "replay the soak test with this seed alone")
	soakSeeds = flag.Uint64("soak.seeds", 3, "number of seeds of the soak test")
	soakFor   = flag.Duration("soak.for", 15*time.Minute, "fake time that each seed of the soak test lasts")
)

// TestSoak lets two operators run commands at random, half of them interrupted or
// killed at some request, while an engine publishes, sinks consume and both crash,
// another tool commits offsets and the broker loses answers, hangs and hangs up.
// Whatever is then read as the watermark lies at or below what every sink has
// applied, but for what a command said that it gives up; dry runs change nothing;
// nothing is skipped in silence; and in the end everything arrives.
//
// Goroutines race as they would: a seed tells what everybody does, and not what
// comes first.
func TestSoak(t *testing.T) {
	seeds := []uint64{*soakSeed}
	if *soakSeed == 0 {
		base := rand.Uint64()>>1 + 1
		seeds = seeds[:0]
		for i := range *soakSeeds {
			seeds = append(seeds, base+i)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newSoak(t, seed).run() })
		})
	}
}

// soakIncarnation is that of the source.
const soakIncarnation = "db:slot"

// soak is a pipeline, those who use it, and what is true of it.
type soak struct {
	t       *testing.T
	seed    uint64
	cluster *kfaketest.Cluster
	admin   *kgo.Client
	store   *offsets.Store
	sinks   []string
	lanes   map[string]topics.Lane
	dir     string
	trim    time.Duration
	begin   time.Time

	ctx  context.Context //nolint:containedctx // of all who take part
	stop context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex
	log      []string
	failed   bool
	clock    int                                 // orders commands and suspicions
	last     flusso.Position                     // newest of the source
	applied  map[string]map[flusso.Position]bool // by sink
	named    map[string][]soakRange              // what commands said they give up
	suspects []soakSuspect
	retired  map[string]bool            // may be, as far as commands have said
	retiring map[string]int             // commands on their way
	passed   map[string]flusso.Position // by the watermark while the lane was, or may have been, retired
	asked    map[string]bool            // indexes whose request was sent
	served   map[string]bool            // and those that an engine or a cancellation took
	files    []string
	counts   map[string]int
}

// soakRange are positions above one and up to another.
type soakRange struct {
	above, upTo flusso.Position
	clock       int // when the command began
	by          string
}

// soakSuspect is a position that was passed and not applied: some command must
// have named it, of which the answer may still be on its way.
type soakSuspect struct {
	sink  string
	at    flusso.Position
	clock int
	what  string
}

func newSoak(t *testing.T, seed uint64) *soak {
	rng := rand.New(rand.NewPCG(seed, 0))
	c := kfaketest.New(t)
	w := &soak{
		t: t, seed: seed, cluster: c, dir: t.TempDir(), begin: time.Now(), lanes: map[string]topics.Lane{},
		sinks: []string{"audit", "search", "store"}[:2+rng.IntN(2)], trim: []time.Duration{-1, time.Second, 20 * time.Second}[rng.IntN(3)],
		applied: map[string]map[flusso.Position]bool{}, named: map[string][]soakRange{},
		retired: map[string]bool{}, retiring: map[string]int{}, passed: map[string]flusso.Position{},
		asked: map[string]bool{}, served: map[string]bool{}, counts: map[string]int{},
	}
	w.admin = c.Client(t, kgo.DisableClientMetrics(), kgo.ClientID("judge"))
	w.store = offsets.New(w.admin)
	p, err := topics.NewPipeline(pipelineName)
	if err != nil {
		t.Fatal(err)
	}
	for _, sink := range w.sinks {
		if w.lanes[sink], err = p.Lane(sink); err != nil {
			t.Fatal(err)
		}
		w.applied[sink] = map[flusso.Position]bool{}
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	t.Cleanup(w.stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with -args -soak.seed=%d -soak.for=%s; what was done:\n%s", seed, *soakFor, strings.Join(w.log, "\n"))
		}
	})
	w.say("sinks %v, trim after %s", w.sinks, w.trim)
	return w
}

func (w *soak) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	w.log = append(w.log, fmt.Sprintf("%5d %10s %s", w.clock, time.Since(w.begin).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

// fail notes what must never be, and ends the run.
func (w *soak) fail(format string, args ...any) {
	w.say("FAILS: "+format, args...)
	w.mu.Lock()
	first := !w.failed
	w.failed = true
	w.mu.Unlock()
	if first {
		w.t.Errorf(format, args...)
	}
	w.stop()
}

func (w *soak) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *soak) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// pass lets time go by, and reports whether the run goes on.
func (w *soak) pass(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return w.ctx.Err() == nil
	case <-w.ctx.Done():
		return false
	}
}

func upToSeconds(rng *rand.Rand, n int) time.Duration {
	return time.Duration(rng.Int64N(int64(n) * int64(time.Second)))
}

func (w *soak) run() {
	s, _ := w.open(soakIncarnation, "first") // creates the topics
	if s == nil {
		w.t.Fatal("the pipeline cannot be opened")
	}
	w.close(s)
	actors := []func(*rand.Rand){w.engine, w.watch, w.weather, w.operator("one"), w.operator("two")}
	for _, sink := range w.sinks {
		actors = append(actors, func(rng *rand.Rand) { w.sink(sink, rng) })
	}
	for i, act := range actors {
		w.all.Go(func() { act(rand.New(rand.NewPCG(w.seed, uint64(i+1)))) })
	}
	w.pass(*soakFor)
	w.stop()
	w.all.Wait()
	if !w.failed {
		w.finish()
	}
	w.resolve()
	w.t.Logf("seed %d: %d positions, %v", w.seed, w.last, w.counts)
	if left, err := filepath.Glob(filepath.Join(w.dir, "*")); err != nil || len(left) != len(w.files) {
		w.fail("files %v are left, and commands spoke of %v: %v", left, w.files, err)
	}
}

// open opens a process, which ends with the link it returns.
func (w *soak) open(incarnation, who string) (flusso.Stream, *soakLink) {
	l := w.link(who, rand.New(rand.NewPCG(w.seed, 99)))
	cfg := kafka.Config{
		Pipeline: pipelineName, Sinks: w.sinks, Incarnation: incarnation, CreateTopics: true, TrimAfter: w.trim, SegmentBytes: 400,
		Client: append(w.cluster.Opts(), kgo.Dialer(l.dial), kgo.DisableClientMetrics(), kgo.ClientID(who)),
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := kafka.Open(ctx, cfg)
	if err != nil {
		w.say("%s does not open: %v", who, err)
		return nil, nil
	}
	return s, l
}

func (w *soak) close(s flusso.Stream) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		w.say("closing: %v", err)
	}
}

// crash ends a process as kill -9 does.
func (w *soak) crash(s flusso.Stream, l *soakLink) {
	l.cut()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Close(gone) // what it says nobody hears
	w.close(s)
}

// end closes a process or crashes it.
func (w *soak) end(rng *rand.Rand, who string, s flusso.Stream, l *soakLink) {
	if rng.IntN(2) == 0 {
		w.say("%s crashes", who)
		w.crash(s, l)
		return
	}
	w.say("%s closes", who)
	w.close(s)
}

// judge holds a watermark against what was applied.
func (w *soak) judge(who string, at flusso.Position) {
	w.mu.Lock()
	var open []soakSuspect
	for _, sink := range w.sinks {
		if w.retired[sink] || w.retiring[sink] > 0 {
			w.passed[sink] = max(w.passed[sink], at)
			continue
		}
		for p := w.passed[sink] + 1; p <= at; p++ {
			if !w.applied[sink][p] && !w.isNamed(sink, p, w.clock) {
				open = append(open, soakSuspect{sink, p, w.clock, fmt.Sprintf("%s read the watermark %s", who, at)})
				break
			}
		}
	}
	w.mu.Unlock()
	for _, o := range open {
		if w.isRetired(o.sink) {
			w.mu.Lock()
			w.passed[o.sink] = max(w.passed[o.sink], at)
			w.retired[o.sink] = true
			w.mu.Unlock()
			continue
		}
		w.suspect(o)
	}
}

func (w *soak) suspect(o soakSuspect) {
	w.say("suspicious: sink %s, position %s: %s", o.sink, o.at, o.what)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.suspects = append(w.suspects, o)
}

// isNamed reports whether a command that had begun gave a position up. The
// caller holds mu.
func (w *soak) isNamed(sink string, at flusso.Position, clock int) bool {
	for _, r := range w.named[sink] {
		if at > r.above && at <= r.upTo && r.clock <= clock {
			return true
		}
	}
	return false
}

func (w *soak) name(sink string, r soakRange) {
	w.say("%s gives up positions above %s and up to %s of sink %s", r.by, r.above, r.upTo, sink)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.named[sink] = append(w.named[sink], r)
}

// resolve looks whether a command explains each suspicion.
func (w *soak) resolve() {
	w.mu.Lock()
	suspects := w.suspects
	w.mu.Unlock()
	for _, o := range suspects {
		w.mu.Lock()
		known := w.isNamed(o.sink, o.at, o.clock)
		w.mu.Unlock()
		if !known {
			w.fail("at %d: %s; sink %s had not applied position %s, and no command gave it up", o.clock, o.what, o.sink, o.at)
		}
	}
}

// isRetired asks the cluster.
func (w *soak) isRetired(sink string) bool {
	c, ok := w.commit(sink)
	return ok && c.Own() && !c.Meta.Retired.IsZero()
}

// commit returns what the group of a sink has committed.
func (w *soak) commit(sink string) (offsets.Commit, bool) {
	lane := w.lanes[sink]
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		got, err := w.store.Commits(ctx, []topics.Lane{lane})
		cancel()
		if err == nil && got[lane].Err == nil {
			return got[lane], true
		}
		if !w.pass(time.Second) {
			break
		}
	}
	return offsets.Commit{}, false
}

// finish ends all faults; then everything must arrive.
func (w *soak) finish() {
	w.say("faults end; everything must arrive")
	w.ctx, w.stop = context.WithCancel(context.Background())
	defer func() { w.stop() }()
	w.pass(2 * time.Minute)
	rng := rand.New(rand.NewPCG(w.seed, 1000))
	for _, sink := range w.sinks {
		w.attachable(sink, rng)
	}
	s, _ := w.open(soakIncarnation, "last engine")
	if s == nil {
		w.fail("no engine opens in the end")
		return
	}
	defer w.close(s)
	p, err := s.Commits(w.ctx)
	if err != nil {
		w.fail("the last engine gets no producer: %v", err)
		return
	}
	mark, err := s.Watermark(w.ctx)
	if err != nil {
		w.fail("the last engine reads no watermark: %v", err)
		return
	}
	w.say("the last engine replays from %s", mark.Position)
	w.grow()
	for at := mark.Position + 1; at <= w.last; at++ {
		if _, err := p.Publish(w.ctx, w.transaction(at)); err != nil {
			w.fail("the last engine publishes %s: %v", at, err)
			return
		}
	}
	for _, sink := range w.sinks {
		w.drain(s, sink)
	}
	for range 120 {
		if mark, err = s.Watermark(w.ctx); err == nil && mark.Position == w.last || !w.pass(time.Second) {
			break
		}
	}
	if mark.Position != w.last {
		w.fail("everything is acked, and the watermark is %s of %s: %+v, %v", mark.Position, w.last, mark, err)
	}
	w.judge("the last engine", mark.Position)
	for _, sink := range w.sinks {
		for at := flusso.Position(1); at <= w.last; at++ {
			if !w.applied[sink][at] && !w.isNamed(sink, at, w.clock) {
				w.fail("sink %s has never received position %s", sink, at)
				return
			}
		}
	}
	w.requestsDone(s)
}

// attachable makes a lane one that a consumer can attach to.
func (w *soak) attachable(sink string, rng *rand.Rand) {
	for range 6 {
		s, l := w.open("", "last "+sink)
		if s == nil {
			w.fail("no process opens in the end")
			return
		}
		lane, err := s.Lane(sink)
		if err == nil {
			_, err = lane.Consumer(w.ctx)
		}
		w.close(s)
		_ = l
		var (
			retired    *flusso.RetiredError
			unverified *flusso.UnverifiedError
			gap        *flusso.GapError
		)
		switch {
		case err == nil:
			return
		case errors.As(err, &retired):
			w.restore("end", rng, sink, "--accept-missing")
		case errors.As(err, &unverified), errors.As(err, &gap):
			w.say("in the end sink %s: %v", sink, err)
			w.accept("end", rng, sink, true)
		default:
			w.fail("sink %s does not attach in the end: %v", sink, err)
			return
		}
		w.pass(15 * time.Second)
	}
	w.fail("no consumer can attach to the lane of %s in the end", sink)
}

// drain takes and acks all that waits.
func (w *soak) drain(s flusso.Stream, sink string) {
	lane, err := s.Lane(sink)
	if err != nil {
		w.fail("%v", err)
		return
	}
	c, err := lane.Consumer(w.ctx)
	if err != nil {
		w.fail("sink %s does not attach to drain: %v", sink, err)
		return
	}
	for {
		ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
		d, err := c.Receive(ctx)
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				w.fail("sink %s: receive in the end: %v", sink, err)
			}
			break
		}
		w.apply("last "+sink, sink, d.Item())
		if err := d.Ack(w.ctx); err != nil {
			w.fail("sink %s: ack in the end: %v", sink, err)
			return
		}
	}
	if err := c.Flush(w.ctx); err != nil {
		w.fail("sink %s: flush in the end: %v", sink, err)
	}
}

// requestsDone serves what waits, and looks that nothing that was asked is
// forgotten.
func (w *soak) requestsDone(s flusso.Stream) {
	c, err := s.Requests().Consumer(w.ctx)
	if err != nil {
		w.fail("nobody can attach to the requests in the end: %v", err)
		return
	}
	for {
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		d, err := c.Receive(ctx)
		cancel()
		if err != nil {
			break
		}
		w.serves(d.Item())
	}
	for index := range w.asked {
		if !w.served[index] {
			w.fail("the request for %s was sent, and neither served nor cancelled", index)
		}
	}
}

// keep notes a file that a command has left.
func (w *soak) keep(file string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = append(w.files, file)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// foreign commits an offset as any other tool does.
func (w *soak) foreign(sink string, at int64) {
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: w.lanes[sink].Topic(), At: at, LeaderEpoch: -1})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	responses, err := kadm.NewClient(w.admin).CommitOffsets(ctx, w.lanes[sink].Group(), os)
	w.say("another tool moves the group of %s to offset %d: %v", sink, at, errors.Join(err, responses.Error()))
}
