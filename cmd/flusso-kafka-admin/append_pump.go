package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/status"
)

// gatherFor is how long a batch waits for more records before it is appended
// as it is: a pipe that trickles is durable soon, too.
const gatherFor = 50 * time.Millisecond

// errNotDurable marks an append that was refused or whose outcome is unknown:
// the session is over.
var errNotDurable = errors.New("not all that was read is durable")

// pump appends what comes from a source, and keeps count of what is durable.
type pump struct {
	*appending
	s     *feeds.Session
	match *uint64 // of the next batch; nil for unchecked

	batch  []sourced
	bytes  int
	acks   chan pending
	failed chan struct{} // closed when err is set
	err    error
	stall  *time.Timer

	mu      sync.Mutex
	done    durable
	waiting int
	begun   time.Time
}

// pending is a batch that was submitted.
type pending struct {
	future *feeds.Future
	bytes  uint64
}

// durable is what was acknowledged.
type durable struct {
	feeds.Range

	bytes uint64
}

func newPump(a *appending, s *feeds.Session) *pump {
	p := &pump{appending: a, s: s, acks: make(chan pending, 4096), failed: make(chan struct{}), begun: time.Now()}
	if a.cmd.Flags().Changed("match-sequence") {
		p.match = &a.match
	}
	return p
}

// run appends until the source ends, or it is interrupted, and returns when
// everything that was submitted has its outcome. It returns nil where all that
// was read is durable.
func (p *pump) run(life context.Context, in *inflow) (err error) {
	// An interrupt stops the reading; what was read is appended all the same.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(life))
	defer cancel(nil)
	p.stall = time.AfterFunc(p.timeout, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.waiting > 0 {
			cancel(fmt.Errorf("nothing was acknowledged within %s: allow more time with --timeout", p.timeout))
		}
	})
	defer p.stall.Stop()
	stop := p.progress()
	var acking sync.WaitGroup
	acking.Go(func() { p.acknowledge(ctx) })

	failed := p.read(ctx, life, in)
	if failed == nil || !errors.Is(failed, errNotDurable) {
		// What is gathered comes before what is no record.
		if err := p.flush(ctx); err != nil {
			failed = err
		}
	}
	close(p.acks)
	acking.Wait()
	stop()
	if p.err != nil {
		return p.err
	}
	return failed
}

// read gathers and submits.
func (p *pump) read(ctx, life context.Context, in *inflow) error {
	if in.none {
		return nil
	}
	if err := p.add(ctx, in.head); err != nil {
		return err
	}
	timer := time.NewTimer(gatherFor)
	defer timer.Stop()
	for {
		var late <-chan time.Time
		if len(p.batch) > 0 {
			late = timer.C
		}
		select {
		case next, ok := <-in.out:
			if !ok {
				return nil
			}
			if next.err != nil {
				return p.bad(next.err)
			}
			if len(p.batch) == 0 {
				timer.Reset(gatherFor)
			}
			if err := p.add(ctx, next); err != nil {
				return err
			}
		case <-late:
			if err := p.flush(ctx); err != nil {
				return err
			}
		case <-p.failed:
			return errNotDurable // p.err tells why
		case <-life.Done():
			return nil
		}
	}
}

// add gathers a record, and submits what is enough.
func (p *pump) add(ctx context.Context, next sourced) error {
	size := len(next.record.Key) + len(next.record.Payload)
	if len(p.batch) > 0 && p.bytes+size > p.batchBytes {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	p.batch, p.bytes = append(p.batch, next), p.bytes+size
	if len(p.batch) >= p.batchRecords || p.bytes >= p.batchBytes {
		return p.flush(ctx)
	}
	return nil
}

// flush submits what is gathered. Where a record of it is refused, those before
// it are appended.
func (p *pump) flush(ctx context.Context) error {
	batch := p.batch
	p.batch, p.bytes = nil, 0
	if len(batch) == 0 {
		return nil
	}
	err := p.submit(ctx, batch)
	if err == nil || !refused(err) {
		return err
	}
	for i := range batch {
		if err := p.submit(ctx, batch[i:i+1]); err != nil {
			if refused(err) {
				return p.bad(fmt.Errorf("%s: %w", batch[i].place, err))
			}
			return err
		}
	}
	return nil
}

func (p *pump) submit(ctx context.Context, batch []sourced) error {
	b := feeds.Batch{Records: make([]feeds.Record, len(batch)), FencingToken: p.s.Epoch(), MatchSequence: p.match}
	bytes := uint64(0)
	for i := range batch {
		b.Records[i] = batch[i].record
		bytes += uint64(len(batch[i].record.Key) + len(batch[i].record.Payload))
	}
	p.count(1)
	f, err := p.s.AppendAsync(ctx, b)
	if err != nil {
		p.count(-1)
		if refused(err) || errors.As(err, new(*feeds.MatchError)) || errors.As(err, new(*feeds.FullError)) {
			return err // nothing of it was appended
		}
		return fmt.Errorf("%w: %w", errNotDurable, p.why(ctx, err))
	}
	p.match = nil // ours follow each other
	p.acks <- pending{f, bytes}
	return nil
}

// count notes that something waits for an acknowledgement, or no more.
func (p *pump) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == 0 || n < 0 {
		p.stall.Reset(p.timeout)
	}
	p.waiting += n
}

// why is err, or what ended ctx.
func (p *pump) why(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if fenced, ok := errors.AsType[*feeds.FencedError](err); ok {
		return fenced // it says all of it
	}
	return err
}

// acknowledge takes the outcomes, in their order.
func (p *pump) acknowledge(ctx context.Context) {
	for a := range p.acks {
		if p.err != nil {
			continue // the session is over: none of them is durable
		}
		at, err := a.future.Wait(ctx)
		if err != nil {
			p.err = fmt.Errorf("%w: %w", errNotDurable, p.why(ctx, err))
			close(p.failed)
			continue
		}
		p.count(-1)
		p.mu.Lock()
		if p.done.Records == 0 {
			p.done.First = at.First
		}
		p.done.Last = at.Last
		p.done.Records += at.Records
		p.done.bytes += a.bytes
		p.mu.Unlock()
	}
}

func (p *pump) durable() durable {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// progressEvery is how often a terminal is told.
const progressEvery = 200 * time.Millisecond

// progress shows on a terminal how far it is, until stop is called, which takes
// that away.
func (p *pump) progress() (stop func()) {
	if p.errColumns <= 0 {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		shown := uint64(0)
		for {
			select {
			case <-tick.C:
			case <-end:
				if shown > 0 {
					_, _ = io.WriteString(p.streams.err, "\r"+ansi.EraseLineRight)
				}
				return
			}
			done := p.durable()
			if done.Records == shown {
				continue
			}
			shown = done.Records
			line := fmt.Sprintf("%s, %s durable in stream %d, %s/s", status.Count(shown, "record"), size(done.bytes), p.s.Stream(),
				size(uint64(float64(done.bytes)/max(time.Since(p.begun).Seconds(), 0.001))))
			_, _ = io.WriteString(p.streams.err, "\r"+cut(line, p.errColumns-1)+ansi.EraseLineRight) // only for looking at
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}
