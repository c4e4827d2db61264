package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// fullReadEvery is the time between reads of all lanes' floors; in between only
// the lanes that hold the watermark are read.
const fullReadEvery = 30 * time.Second

// Watermark implements [flusso.Stream]. It costs one request per group
// coordinator; one refresh is in flight at a time and callers that come
// meanwhile wait for their own turn.
func (s *Stream) Watermark(ctx context.Context) (flusso.Watermark, error) {
	if s.cfg.Incarnation == "" {
		return flusso.Watermark{}, &flusso.InvalidError{What: "config of pipeline " + s.cfg.Pipeline, Reason: "the watermark needs an Incarnation: name the source's change feed"}
	}
	select {
	case s.marks.refresh <- struct{}{}:
		defer func() { <-s.marks.refresh }()
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		last := s.marks.last
		last.Stale = true
		last.Holders, last.Floors = slices.Clone(last.Holders), slices.Clone(last.Floors)
		return last, context.Cause(ctx)
	}
	w, err := s.marks.tracker.Refresh(time.Now(), func(sinks []string) ([]flusso.LaneFloor, error) {
		lanes := make([]topics.Lane, len(sinks))
		for i, sink := range sinks {
			lanes[i] = s.names.bySink[sink]
		}
		return s.store.Floors(ctx, s.names.pipeline, s.cfg.Incarnation, lanes)
	})
	s.mu.Lock()
	s.marks.last = s.marks.tracker.Last() // a copy: w is the caller's
	s.mu.Unlock()
	s.metrics.watermark(w)
	if err != nil {
		return w, fmt.Errorf("watermark of pipeline %s: %w", s.cfg.Pipeline, err)
	}
	return w, nil
}
