package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

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
	described, err := s.topics.Verify(ctx, want)
	if _, unsafe := errors.AsType[*topics.UnsafeError](err); unsafe && s.cfg.CreateTopics {
		if _, err := s.topics.Ensure(ctx, want); err != nil {
			return err
		}
		return s.describeLanes(ctx)
	}
	if err != nil {
		return err
	}
	return s.takeLimits(described)
}

// describeLanes reads the lanes' limits, and finds lanes that are gone.
func (s *Stream) describeLanes(ctx context.Context) error {
	wanted := make([]string, len(s.names.lanes))
	for i, l := range s.names.lanes {
		wanted[i] = l.Topic()
	}
	described, err := s.topics.Describe(ctx, wanted...)
	if err != nil {
		return err
	}
	return s.takeLimits(described)
}

// limitsAge is how old the lanes' limits may be when a writer session opens: the
// first one of a stream begins as a rule right behind the stream.
const limitsAge = 5 * time.Second

// refreshLimits reads the lanes' limits anew, unless that was just done.
func (s *Stream) refreshLimits(ctx context.Context) error {
	s.mu.Lock()
	fresh := s.session == nil && time.Since(s.describedAt) < limitsAge
	s.mu.Unlock()
	if fresh {
		return nil
	}
	return s.describeLanes(ctx)
}

// takeLimits keeps the limits of the lanes.
func (s *Stream) takeLimits(described map[string]topics.Topic) error {
	limits := make(map[topics.Lane]int64, len(s.names.lanes))
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
	defer s.mu.Unlock()
	s.maxRecord, s.describedAt = limits, time.Now()
	return nil
}

// recordLimits returns the bytes that a record alone in its record batch may
// have in each lane.
func (s *Stream) recordLimits() map[topics.Lane]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.maxRecord)
}
