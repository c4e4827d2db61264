// Package demo is the pipeline that `flusso-kafka-admin demo` runs: a
// synthetic database, one ingest engine and two sink engines over any
// [flusso.Stream]. It knows no broker; the same code is a short example of how
// engines are written against the port.
//
// The two types to know are [Source], the database with its change feed, and
// [Runner], which plays the demo over a stream and checks at the end that
// every sink holds what the source holds.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	flusso "github.com/flusso/flusso-kafka"
)

// The sinks of the demo: one applies as fast as it can, the other cannot keep
// up while the source is busy.
const (
	FastSink = "search"
	SlowSink = "archive"
)

// Sinks returns the sinks that the stream of a demo must have.
func Sinks() []string { return []string{SlowSink, FastSink} }

// Lag is how far a lane's sink is behind what was published.
type Lag struct {
	Acked     flusso.Position // through of what is acked
	Batches   uint64
	Envelopes uint64
	Age       time.Duration // age of the first unacked item, 0 when caught up
}

// Config is what a demo needs. All fields but Lags are required.
type Config struct {
	Stream flusso.Stream // with exactly the sinks of [Sinks]
	Source *Source
	Dir    string        // directory of the sinks' states, created where missing
	For    time.Duration // how long to run, the final drain included where it fits
	View   View
	// Lags looks up the exact lag of each lane. Nil where the adapter cannot
	// tell; the view then shows positions alone.
	Lags func(ctx context.Context) (map[string]Lag, error)
}

// ErrDifferent is returned when a sink's state is not the source's.
var ErrDifferent = errors.New("a sink's state differs from the source's")

// Runner plays one demo.
type Runner struct {
	cfg    Config
	ingest *ingest
	start  time.Time

	mu        sync.Mutex
	sinks     map[string]*sink // the live engine of each sink
	dead      map[string]bool  // sinks that were killed and are not back yet
	watermark flusso.Watermark
	lags      map[string]Lag
	idle      bool
}

// New checks cfg and returns a runner.
func New(cfg Config) (*Runner, error) {
	if cfg.Stream == nil || cfg.Source == nil || cfg.View == nil || cfg.Dir == "" {
		return nil, errors.New("demo: a stream, a source, a view and a directory are needed")
	}
	if cfg.For <= 0 {
		return nil, fmt.Errorf("demo: run time %s: give a positive one", cfg.For)
	}
	if got := cfg.Stream.Sinks(); !slices.Equal(got, Sinks()) {
		return nil, fmt.Errorf("demo: the stream has sinks %q, the demo plays with %q", got, Sinks())
	}
	r := &Runner{cfg: cfg, sinks: make(map[string]*sink), dead: make(map[string]bool)}
	r.ingest = newIngest(cfg.Stream, cfg.Source, r.event)
	return r, nil
}

// drainLimit bounds the wait for a drained pipeline at the end.
const drainLimit = time.Minute

// Run plays the demo: it writes to the source for most of the run time, lets a
// sink ask for an index again half-way, kills a sink and attaches a fresh one,
// waits until everything is applied and confirmed, and compares. It returns
// nil when every sink holds exactly the source's rows, [ErrDifferent] when one
// does not, and ctx's cause when ctx ends first; everything written so far is
// durable then and another Run over the same data goes on from there.
func (r *Runner) Run(ctx context.Context) (Comparison, error) {
	r.start = time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	engines, run := errgroup.WithContext(ctx)
	engines.Go(func() error { return r.ingest.run(run) })
	engines.Go(func() error { return r.watch(run) })
	for _, name := range Sinks() {
		engines.Go(func() error { return r.runSink(run, name) })
	}
	err := r.play(run)
	if err == nil {
		err = r.look(run)
	}
	if err == nil {
		r.view(true)
	}
	stop(errPlayed)
	if failed := engines.Wait(); failed != nil && !errors.Is(failed, errPlayed) {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return r.compare()
}

// errPlayed ends the engines when the play is over.
var errPlayed = errors.New("the demo is over")

// play is the script: what happens when.
func (r *Runner) play(ctx context.Context) error {
	busy := r.cfg.For * 3 / 4
	script := []struct {
		at time.Duration
		do func(context.Context) error
	}{
		{busy / 2, r.dropIndex},
		{busy * 6 / 10, r.killSink},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	writing := make(chan error, 1)
	writer, halt := context.WithCancel(ctx)
	defer halt()
	go func() { writing <- r.cfg.Source.Write(writer) }()

	for _, step := range script {
		if err := sleepUntil(ctx, r.start.Add(step.at)); err != nil {
			return errors.Join(err, stopWriting(halt, writing))
		}
		if err := step.do(ctx); err != nil {
			return errors.Join(err, stopWriting(halt, writing))
		}
	}
	err := sleepUntil(ctx, r.start.Add(busy))
	if werr := stopWriting(halt, writing); werr != nil || err != nil {
		return errors.Join(err, werr)
	}
	r.event("source: stopped writing at position %s, draining", r.cfg.Source.Position())
	return r.drain(ctx)
}

func stopWriting(halt context.CancelFunc, writing <-chan error) error {
	halt()
	return <-writing
}

// dropIndex has the fast sink lose an index and ask for it again.
func (r *Runner) dropIndex(ctx context.Context) error {
	for {
		s, err := r.attached(ctx, FastSink)
		if err != nil {
			return err
		}
		select {
		case s.drop <- Orders:
			return nil
		case <-s.done: // this engine is gone, the next one is asked
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// killSink abandons the slow sink's engine as a kill -9 would: nothing is
// acked, flushed or closed. runSink attaches a fresh one.
func (r *Runner) killSink(ctx context.Context) error {
	s, err := r.attached(ctx, SlowSink)
	if err != nil {
		return err
	}
	s.kill()
	return nil
}

// attached waits for a sink's engine to be at work.
func (r *Runner) attached(ctx context.Context, name string) (*sink, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, drainLimit, fmt.Errorf("sink %s was not attached within %s", name, drainLimit))
	defer cancel()
	for {
		if s := r.sink(name); s != nil {
			if state, _ := s.status(); state != attaching {
				return s, nil
			}
		}
		if err := sleepUntil(ctx, time.Now().Add(20*time.Millisecond)); err != nil {
			return nil, err
		}
	}
}

// deadFor is how long a killed sink stays dead.
const deadFor = 700 * time.Millisecond

// runSink keeps one engine of the sink attached until ctx ends.
func (r *Runner) runSink(ctx context.Context, name string) error {
	var delay time.Duration
	if name == SlowSink {
		delay = slowEnvelope
	}
	for {
		s, err := openSink(name, filepath.Join(r.cfg.Dir, "sink-"+name), r.cfg.Stream, delay, r.event)
		if err != nil {
			return fmt.Errorf("sink %s: %w", name, err)
		}
		r.setSink(name, s)
		err = s.run(ctx)
		r.setSink(name, nil)
		switch {
		case errors.Is(err, errKilled):
			r.event("%s: killed with %d deliveries unacked", name, s.unacked)
			if err := sleepUntil(ctx, time.Now().Add(deadFor)); err != nil {
				return err
			}
			r.event("%s: a fresh engine takes the lane over", name)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err):
			return fmt.Errorf("sink %s: %w", name, err)
		default:
			r.event("%s: %v; attaching again", name, err)
			if err := sleepUntil(ctx, time.Now().Add(jitter(time.Second))); err != nil {
				return err
			}
		}
	}
}

// final reports whether attaching again would not help a sink: somebody else
// has its lane, a person has to decide, or its own disk refuses.
func final(err error) bool {
	var (
		gap        *flusso.GapError
		unverified *flusso.UnverifiedError
		retired    *flusso.RetiredError
		disk       *fs.PathError
	)
	return errors.Is(err, flusso.ErrSuperseded) || errors.As(err, &gap) || errors.As(err, &unverified) ||
		errors.As(err, &retired) || errors.As(err, &disk)
}

// drain waits until everything written was published, applied, acked, and
// confirmed to the source.
func (r *Runner) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, drainLimit, fmt.Errorf("not drained within %s", drainLimit))
	defer cancel()
	last := r.cfg.Source.Position()
	for {
		idle, err := r.cfg.Stream.Idle(ctx)
		r.mu.Lock()
		r.idle = idle && err == nil
		r.mu.Unlock()
		if err == nil && idle && r.ingest.settled(last) && r.settledSinks() && r.cfg.Source.Confirmed() >= last {
			return nil
		}
		if err := sleepUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return fmt.Errorf("%w: last position %s, confirmed %s", err, last, r.cfg.Source.Confirmed())
		}
	}
}

func (r *Runner) settledSinks() bool {
	for _, name := range Sinks() {
		if s := r.sink(name); s == nil || !s.isWhole() {
			return false
		}
	}
	return true
}

// watch keeps what the view shows, and confirms the source at the watermark.
func (r *Runner) watch(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := r.look(ctx); err != nil {
			return err
		}
		r.view(false)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look reads watermark and lag once. A failed look-up leaves what was there.
func (r *Runner) look(ctx context.Context) error {
	w, err := r.cfg.Stream.Watermark(ctx)
	if err != nil && ctx.Err() == nil {
		r.event("watermark: %v", err)
	}
	if err == nil && w.Position != flusso.NoPosition {
		if err := r.cfg.Source.Confirm(w.Position); err != nil {
			return fmt.Errorf("confirm the source at the watermark: %w", err)
		}
	}
	var lags map[string]Lag
	if r.cfg.Lags != nil {
		l, lerr := r.cfg.Lags(ctx)
		if lerr != nil && ctx.Err() == nil {
			r.event("lag: %v", lerr)
		}
		lags = l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.watermark = w
	}
	r.lags = lags
	return nil
}

// Counts returns what the ingest engine did in this run.
func (r *Runner) Counts() IngestCounts { return r.ingest.counts() }

// view hands the current state to the view.
func (r *Runner) view(final bool) {
	src := r.cfg.Source
	s := State{
		Elapsed:     time.Since(r.start),
		For:         r.cfg.For,
		Incarnation: src.Incarnation(),
		Position:    src.Position(),
		Confirmed:   src.Confirmed(),
		Rows:        src.Rows(),
		Ingest:      r.ingest.counts(),
		Final:       final,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Watermark = r.watermark
	s.Idle = r.idle
	for _, name := range Sinks() {
		lane := LaneState{Sink: name, State: "starting"}
		if r.dead[name] {
			lane.State = "killed"
		}
		if e := r.sinks[name]; e != nil {
			lane.State, lane.Applied = e.status()
		}
		for _, f := range r.watermark.Floors {
			if f.Sink == name {
				lane.Acked = f.Through
			}
		}
		// The watermark's floors are as old as it needs them to be.
		if l, ok := r.lags[name]; ok {
			lane.Lag, lane.Acked = &l, max(lane.Acked, l.Acked)
		}
		s.Lanes = append(s.Lanes, lane)
	}
	r.cfg.View.Show(s)
}

func (r *Runner) event(format string, args ...any) {
	r.cfg.View.Event(time.Since(r.start), fmt.Sprintf(format, args...))
}

func (r *Runner) sink(name string) *sink {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sinks[name]
}

func (r *Runner) setSink(name string, s *sink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sinks[name] = s
	r.dead[name] = s == nil
}

// sleepUntil returns nil at t, or ctx's cause when it ends first.
func sleepUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// jitter returns a random duration in [d/2, d).
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// Comparison is the final check, one row per sink and index.
type Comparison []Compared

// Compared is one index of one sink beside the same table of the source.
type Compared struct {
	Sink, Index string
	Source      int // rows of the source
	Held        int // documents of the sink
	Missing     int // in the source alone
	Extra       int // in the sink alone
	Different   int // in both, with other content
}

// Equal reports whether the sink holds exactly the source's rows.
func (c Compared) Equal() bool { return c.Missing == 0 && c.Extra == 0 && c.Different == 0 }

// WriteTo prints the comparison as a table.
func (c Comparison) WriteTo(w io.Writer) (int64, error) {
	var n int64
	p := func(format string, args ...any) error {
		m, err := fmt.Fprintf(w, format, args...)
		n += int64(m)
		return err
	}
	err := p("%-8s %-9s %11s %10s %8s %8s %9s  %s\n", "sink", "index", "source rows", "documents", "missing", "extra", "different", "result")
	for _, x := range c {
		result := "equal"
		if !x.Equal() {
			result = "DIFFERENT"
		}
		err = errors.Join(err, p("%-8s %-9s %11s %10s %8s %8s %9s  %s\n", x.Sink, x.Index,
			grouped(x.Source), grouped(x.Held), grouped(x.Missing), grouped(x.Extra), grouped(x.Different), result))
	}
	return n, err
}

// compare reads every sink's state back from disk.
func (r *Runner) compare() (Comparison, error) {
	var out Comparison
	var err error
	for _, name := range Sinks() {
		st, oerr := openStore(filepath.Join(r.cfg.Dir, "sink-"+name))
		if oerr != nil {
			return nil, fmt.Errorf("compare sink %s: %w", name, oerr)
		}
		for _, index := range Indexes() {
			c := compareIndex(name, index, r.cfg.Source.Table(index), st.indexes[index])
			if !c.Equal() {
				err = ErrDifferent
			}
			out = append(out, c)
		}
		if cerr := st.close(); cerr != nil {
			return nil, cerr
		}
	}
	return out, err
}

func compareIndex(sink, index string, rows, docs map[string][]byte) Compared {
	c := Compared{Sink: sink, Index: index, Source: len(rows), Held: len(docs)}
	for id, row := range rows {
		doc, ok := docs[id]
		switch {
		case !ok:
			c.Missing++
		case string(doc) != string(row):
			c.Different++
		}
	}
	for id := range docs {
		if _, ok := rows[id]; !ok {
			c.Extra++
		}
	}
	return c
}

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create directory %s: %w", dir, err)
	}
	return nil
}
