package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	flusso "github.com/flusso/flusso-kafka"
)

const (
	maxEnvelopes  = 100 // of a batch; a larger transaction becomes several
	chunkRows     = 200 // of a snapshot batch
	pipelineDepth = 256 // futures that wait for their turn to be looked at
)

// ingest reads the source's feed, builds the touched documents, publishes them
// to every lane, and serves the backfills that sinks ask for.
type ingest struct {
	stream flusso.Stream
	source *Source
	event  func(format string, args ...any)

	mu      sync.Mutex
	stats   IngestCounts
	durable flusso.Position // everything at or below it is in the lanes
	serving int             // requests received and not yet completed
}

// IngestCounts is what the ingest engine did in this run.
type IngestCounts struct {
	Batches   int // live batches published, over all lanes
	Replayed  int // live batches dropped because their lane held them already
	Snapshots int // backfill requests served
	Sessions  int // writer sessions opened
}

func newIngest(stream flusso.Stream, source *Source, event func(string, ...any)) *ingest {
	return &ingest{stream: stream, source: source, event: event, durable: source.Confirmed()}
}

// run keeps a session going until ctx ends. A session that lost its broker is
// opened again after a growing pause; one that was fenced stays down.
func (g *ingest) run(ctx context.Context) error {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := g.session(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, flusso.ErrFenced) {
			return fmt.Errorf("ingest: %w", err)
		}
		g.event("ingest: %v; trying again", err)
		if err := sleepUntil(ctx, time.Now().Add(jitter(pause))); err != nil {
			return err
		}
	}
}

// pending is a submitted commit whose outcome is not known yet.
type pending struct {
	future  *flusso.Future
	covers  flusso.Position // durable up to here once it resolves; NoPosition for a snapshot
	batches int             // live batches in it
	served  int             // requests it completes
}

// session publishes from the confirmed position on until something fails.
// The lanes drop what they hold already.
func (g *ingest) session(ctx context.Context) error {
	producer, err := g.stream.Commits(ctx)
	if err != nil {
		return fmt.Errorf("open the writer: %w", err)
	}
	requests, err := g.stream.Requests().Consumer(ctx)
	if err != nil {
		return fmt.Errorf("attach to the request lane: %w", err)
	}
	g.mu.Lock()
	g.stats.Sessions++
	g.serving = 0
	g.mu.Unlock()

	incoming := make(chan flusso.Delivery[flusso.Request])
	submitted := make(chan pending, pipelineDepth)
	group, run := errgroup.WithContext(ctx)
	group.Go(func() error { return g.receive(run, requests, incoming) })
	group.Go(func() error { return g.publish(run, producer, incoming, submitted) })
	group.Go(func() error { return g.settle(run, submitted) })
	err = group.Wait()

	closing, cancel := closingContext(ctx)
	defer cancel()
	// The session's error says it all; what a close adds is its echo.
	_ = errors.Join(producer.Close(closing), requests.Close(closing))
	return err
}

// closingContext returns a context for closing what ran under ctx: patient at
// the end of a play, and short after an interrupt, since the demo is to be gone
// within a second of it.
func closingContext(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := 10 * time.Second
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errPlayed) {
		limit = 300 * time.Millisecond
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

func (g *ingest) receive(ctx context.Context, from flusso.Consumer[flusso.Request], to chan<- flusso.Delivery[flusso.Request]) error {
	for {
		d, err := from.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receive a request: %w", err)
		}
		g.mu.Lock()
		g.serving++
		g.mu.Unlock()
		select {
		case to <- d:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settle looks at every outcome in order.
func (g *ingest) settle(ctx context.Context, submitted <-chan pending) error {
	for {
		var p pending
		select {
		case p = <-submitted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		receipt, err := p.future.Wait(ctx)
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		g.mu.Lock()
		g.stats.Batches += min(receipt.Published, p.batches)
		g.stats.Replayed += receipt.Dropped
		g.stats.Snapshots += p.served
		g.serving -= p.served
		g.durable = max(g.durable, p.covers)
		g.mu.Unlock()
	}
}

// publish is the engine's loop: the feed in order, and between two
// transactions a chunk of the snapshot that is being served.
func (g *ingest) publish(ctx context.Context, to flusso.Producer[flusso.Commit], incoming <-chan flusso.Delivery[flusso.Request], submitted chan<- pending) error {
	at := g.source.Confirmed()
	var snap *snapshot
	var waiting []flusso.Delivery[flusso.Request]
	submit := func(c flusso.Commit, p pending) error {
		f, err := to.Submit(ctx, c)
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		p.future = f
		select {
		case submitted <- p:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for {
		if snap == nil && len(waiting) > 0 {
			snap, waiting = newSnapshot(g.source, waiting), nil
		}
		tx, ok, changed := g.source.Next(at)
		switch {
		case snap != nil && snap.ready(at):
			commit, done := snap.next()
			p := pending{}
			if done {
				p.served = len(commit.Acks)
				for _, line := range snap.done() {
					g.event("ingest: %s", line)
				}
				snap = nil
			}
			if err := submit(commit, p); err != nil {
				return err
			}
		case ok:
			for _, b := range batches(tx, time.Now()) {
				p := pending{batches: len(g.stream.Sinks())}
				if !b.More {
					p.covers = tx.Position
				}
				if err := submit(toAll(g.stream.Sinks(), b), p); err != nil {
					return err
				}
			}
			at = tx.Position
		default:
			select {
			case <-changed:
			case d := <-incoming:
				waiting = append(waiting, d)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		// Requests are taken between two commits too, so that those that wait
		// together become one snapshot.
		select {
		case d := <-incoming:
			waiting = append(waiting, d)
		default:
		}
	}
}

// batches builds the documents that a transaction touched, each once and in
// its last state, and cuts them into batches of its position.
func batches(tx Transaction, now time.Time) []*flusso.Batch {
	last := make(map[[2]string]int, len(tx.Changes))
	for i, c := range tx.Changes {
		last[[2]string{c.Table, c.ID}] = i
	}
	var envelopes []flusso.Envelope
	for i, c := range tx.Changes {
		if last[[2]string{c.Table, c.ID}] == i {
			envelopes = append(envelopes, envelope(c, tx.Position, now))
		}
	}
	var out []*flusso.Batch
	changes := uint64(len(tx.Changes))
	for len(envelopes) > maxEnvelopes {
		out = append(out, &flusso.Batch{Envelopes: envelopes[:maxEnvelopes], Position: tx.Position, More: true, Changes: maxEnvelopes})
		envelopes, changes = envelopes[maxEnvelopes:], changes-maxEnvelopes
	}
	return append(out, &flusso.Batch{Envelopes: envelopes, Position: tx.Position, Changes: changes})
}

func envelope(c Change, p flusso.Position, now time.Time) flusso.Envelope {
	e := flusso.Envelope{Index: c.Table, ID: c.ID, Op: flusso.Upsert, Document: c.Row, Position: p, BuiltAt: now}
	if c.Row == nil {
		e.Op, e.Document = flusso.Delete, nil
	}
	return e
}

func toAll(sinks []string, item flusso.LaneItem) flusso.Commit {
	c := flusso.Commit{Items: make([]flusso.Routed, len(sinks))}
	for i, s := range sinks {
		c.Items[i] = flusso.Routed{Sink: s, Item: item}
	}
	return c
}

func (g *ingest) counts() IngestCounts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

// settled reports whether everything at or below p is in the lanes and no
// request is being served.
func (g *ingest) settled(p flusso.Position) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.durable >= p && g.serving == 0
}
