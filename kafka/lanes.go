package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/flusso/flusso-kafka/topics"
)

// recordAtMost bounds a record whatever its topic allows: it must fit a
// request of the client with room to spare.
const recordAtMost = 64 << 20

// prepareTopics creates what is missing, where it may, and refuses what is
// unsafe.
func (s *Stream) prepareTopics(ctx context.Context) error {
	if err := s.topics.RequireBroker(ctx); err != nil {
		return err
	}
	want, err := s.names.pipeline.Specs(s.names.sinks, s.cfg.Topics)
	if err != nil {
		return err
	}
	if s.cfg.CreateTopics {
		if _, err := s.topics.Ensure(ctx, want); err != nil {
			return err
		}
	} else if err := s.topics.Verify(ctx, want); err != nil {
		return err
	}
	return s.describeLanes(ctx)
}

// describeLanes reads the lanes' limits, and finds lanes that are gone. A new
// session reads them anew.
func (s *Stream) describeLanes(ctx context.Context) error {
	wanted := make([]string, len(s.names.lanes))
	for i, l := range s.names.lanes {
		wanted[i] = l.Topic()
	}
	described, err := s.topics.Describe(ctx, wanted...)
	if err != nil {
		return err
	}
	limits := make(map[topics.Lane]int64, len(wanted))
	var errs []error
	for _, l := range s.names.lanes {
		d := described[l.Topic()]
		if d.Err != nil {
			errs = append(errs, fmt.Errorf("topic %s of sink %q: %w", l.Topic(), l.Sink, d.Err))
			continue
		}
		limits[l] = min(int64(d.MaxMessageBytes), recordAtMost)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.mu.Lock()
	s.maxRecord = limits
	s.mu.Unlock()
	return nil
}

// recordLimits returns the bytes that a record alone in its record batch may
// have in each lane.
func (s *Stream) recordLimits() map[topics.Lane]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.maxRecord)
}
