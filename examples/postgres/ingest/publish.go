package ingest

import (
	"context"
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// publish submits what the loop queued, in order. At the first error it
// stops: nothing is published behind a hole.
func (s *session) publish(ctx context.Context) error {
	for {
		var o outgoing
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case o = <-s.out:
		}
		future, err := s.commits.Submit(ctx, o.commit)
		if err != nil {
			return publishError(o.commit, err)
		}
		select {
		case s.pending <- pendingPublish{o, future}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if o.alone {
			if _, err := future.Wait(ctx); err != nil {
				return publishError(o.commit, err)
			}
		}
	}
}

// settle waits for the outcomes, in order.
func (s *session) settle(ctx context.Context) error {
	for {
		var p pendingPublish
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case p = <-s.pending:
		}
		receipt, err := p.future.Wait(ctx)
		if p.done != nil {
			p.done(err)
		}
		if err != nil {
			return publishError(p.commit, err)
		}
		if n := uint64(receipt.Dropped); n > 0 && s.dropped.Add(n) == n {
			s.log.Info("the feed replays what the lanes hold already; it is dropped until the new begins")
		}
		if b, ok := p.commit.Items[0].Item.(*flusso.Batch); ok && b.Live() && !b.More {
			s.newest.Store(max(s.newest.Load(), uint64(b.Position)))
		}
	}
}

func publishError(c flusso.Commit, err error) error {
	what := "a snapshot marker"
	if b, ok := c.Items[0].Item.(*flusso.Batch); ok {
		if what = "a snapshot batch"; b.Live() {
			what = "the batch at " + lsnOf(b.Position).String()
		}
	}
	return fmt.Errorf("publish %s: %w", what, err)
}

// watch follows the watermark and hands it to the loop, which confirms the
// slot there.
func (s *session) watch(ctx context.Context) error {
	const (
		often  = 200 * time.Millisecond // while something is not confirmed
		seldom = 5 * time.Second        // else; also how often trouble is told
	)
	var at flusso.Position
	var looked, told time.Time
	for {
		if err := pause(ctx, often); err != nil {
			return err
		}
		if at >= flusso.Position(s.newest.Load()) && time.Since(looked) < seldom {
			continue
		}
		looked = time.Now()
		mark, err := s.stream.Watermark(ctx)
		if err != nil && time.Since(told) > seldom {
			told = time.Now()
			s.log.Warn("the watermark cannot be read; the slot stays where it is", "error", err)
		}
		if mark.Incarnation != s.src.incarnation || mark.Position <= at {
			continue
		}
		at = mark.Position
		select {
		case s.marks <- at:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
