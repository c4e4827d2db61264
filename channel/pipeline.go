package channel

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/watermark"
)

var errStreamClosed = fmt.Errorf("channel stream: %w", flusso.ErrClosed)

// pipeline is what all views share: the lanes, and the line of entries that
// were accepted and wait for room in them.
type pipeline struct {
	sinks    []string // sorted
	maxBytes int64

	mu       sync.Mutex
	lanes    []*lane // parallel to sinks
	requests log[flusso.Request]
	line     []*entry // accepted, in the order of acceptance
	pumping  bool     // pump is at work further down the stack
	again    bool     // something changed while it was
	pumps    uint64   // counts its rounds
	epoch    uint64   // of the newest writer session
	writer   *session // the newest writer session
	changed  chan struct{}
}

// session is the writer lease of one view. Guarded by pipeline.mu.
type session struct {
	epoch uint64
	cause error // why it ended; nil while it is alive
}

// entry is an accepted publish: it goes into all its lanes in one step.
type entry struct {
	by      *origin
	parts   []part
	put     func() error // runs when there is room, with the lock held
	receipt flusso.Receipt
	bytes   int64
	resolve func(flusso.Receipt, error)
}

// part is the room that an entry takes in one lane.
type part struct {
	gate  *gate
	items int
}

// gate bounds what a lane holds.
type gate struct {
	capacity, held int
	waiting        int    // entries in line for it
	closedAt       uint64 // the pump in which an earlier entry is held up here
}

func (g *gate) room(items int) bool {
	return items == 0 || g.held == 0 || g.held+items <= g.capacity
}

func newPipeline(cfg Config) *pipeline {
	p := &pipeline{sinks: slices.Sorted(slices.Values(cfg.Sinks)), maxBytes: cfg.MaxUnackedBytes}
	p.requests = log[flusso.Request]{
		p: p, name: "request lane", gate: gate{capacity: cfg.Capacity}, clone: cloneRequest,
	}
	for _, sink := range p.sinks {
		p.lanes = append(p.lanes, &lane{sink: sink, log: log[flusso.LaneItem]{
			p: p, name: fmt.Sprintf("lane of sink %q", sink), gate: gate{capacity: cfg.Capacity}, clone: cloneItem,
		}})
	}
	return p
}

func (p *pipeline) view(incarnation string) *Stream {
	return &Stream{
		p: p, incarnation: incarnation,
		tracker:   watermark.NewTracker(incarnation, p.sinks, time.Duration(0)),
		producers: make(map[closer]struct{}),
		consumers: make(map[closer]struct{}),
	}
}

// lease returns the live session of a view, or opens one and fences whoever
// held the lease.
func (p *pipeline) lease(s *Stream) *session {
	if s.session != nil && s.session.cause == nil {
		return s.session
	}
	p.epoch++
	if old := p.writer; old != nil && old.cause == nil {
		p.endSession(old, &flusso.FencedError{Lease: "writer of the channel stream", Epoch: old.epoch, Newer: p.epoch})
	}
	s.session = &session{epoch: p.epoch}
	p.writer = s.session
	return s.session
}

// endSession ends a session for good: nothing it accepted gets into a lane
// any more, so that nothing is ever behind a hole [B12].
func (p *pipeline) endSession(old *session, cause error) {
	if old.cause != nil {
		return
	}
	old.cause = cause
	for _, l := range p.lanes {
		l.planned = l.tail
	}
	p.pump()
}

// enqueue takes an accepted entry into the line.
func (p *pipeline) enqueue(e *entry) {
	e.by.pending++
	e.by.bytes += e.bytes
	for _, part := range e.parts {
		part.gate.waiting++
	}
	p.line = append(p.line, e)
	p.pump()
}

// pump puts every entry into its lanes that is first in line for all of them,
// and first of its producer, where all have room. An entry holds nothing while
// it waits, and the oldest is behind nobody: so producers cannot deadlock.
func (p *pipeline) pump() {
	p.again = true
	if p.pumping {
		return // what put made room for, or ended, is seen to by the caller below us
	}
	p.pumping = true
	for p.again && len(p.line) > 0 {
		p.again = false
		p.pumps++
		line := p.line
		kept := line[:0]
		for _, e := range line {
			if !p.admit(e) {
				kept = append(kept, e)
			}
		}
		clear(line[len(kept):])
		p.line = kept
	}
	p.pumping, p.again = false, false
}

// admit resolves an entry if it can be, and reports whether it did.
func (p *pipeline) admit(e *entry) bool {
	if cause := e.by.lost(); cause != nil {
		p.leave(e, flusso.Receipt{}, cause)
		return true
	}
	if !p.ready(e) {
		e.by.heldAt = p.pumps
		for _, part := range e.parts {
			part.gate.closedAt = p.pumps
		}
		return false
	}
	if err := e.put(); err != nil {
		// It alone stays out. What is in line behind it was checked as if it
		// were published, but what can be refused here moves no position.
		p.leave(e, flusso.Receipt{}, err)
		return true
	}
	p.leave(e, e.receipt, nil)
	return true
}

func (p *pipeline) ready(e *entry) bool {
	if e.by.heldAt == p.pumps {
		return false
	}
	for _, part := range e.parts {
		if part.gate.closedAt == p.pumps || !part.gate.room(part.items) {
			return false
		}
	}
	return true
}

// leave takes an entry off the books and resolves it.
func (p *pipeline) leave(e *entry, r flusso.Receipt, err error) {
	e.by.pending--
	e.by.bytes -= e.bytes
	for _, part := range e.parts {
		part.gate.waiting--
	}
	e.resolve(r, err)
	p.announce()
}

// await waits, with the lock held at call and return, until done or ctx ends.
func (p *pipeline) await(ctx context.Context, done func() bool) error {
	for !done() {
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			return context.Cause(ctx)
		}
	}
	return nil
}

// announce wakes everybody in await.
func (p *pipeline) announce() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *pipeline) pendingOf(s *Stream) int {
	n := 0
	for _, e := range p.line {
		if e.by.s == s {
			n++
		}
	}
	return n
}

func (p *pipeline) floors(incarnation string) []flusso.LaneFloor {
	out := make([]flusso.LaneFloor, len(p.lanes))
	for i, l := range p.lanes {
		out[i] = l.floorIn(incarnation)
	}
	return out
}

// drained looks at the lanes of the sinks alone: a request that waits for an
// ingest engine is nothing that a sink has left to do.
func (p *pipeline) drained() bool {
	for _, l := range p.lanes {
		if l.held+l.waiting > 0 {
			return false
		}
	}
	return true
}
