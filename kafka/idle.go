package kafka

import (
	"context"
	"errors"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// Idle implements [flusso.Stream].
func (s *Stream) Idle(ctx context.Context) (bool, error) {
	commits, err := s.store.Commits(ctx, s.names.lanes)
	if err != nil {
		return false, fmt.Errorf("idle: %w", err)
	}
	tails, err := s.store.Tails(ctx, s.names.lanes)
	if err != nil {
		return false, fmt.Errorf("idle: %w", err)
	}
	for _, l := range s.names.lanes {
		c, t := commits[l], tails[l]
		if err := errors.Join(c.Err, t.Err); err != nil {
			return false, fmt.Errorf("idle: lane of sink %q: %w", l.Sink, err)
		}
		drained, err := s.drained(ctx, l, c, t)
		if !drained || err != nil {
			return false, err
		}
	}
	return true, nil
}

// drained compares items, never offsets: markers and aborted records own
// offsets too.
func (s *Stream) drained(ctx context.Context, l topics.Lane, c offsets.Commit, t offsets.Tail) (bool, error) {
	switch {
	case c.Own() && c.Meta.TopicID == t.TopicID && !c.Meta.Retired.IsZero():
		return true, nil // nobody consumes it
	case t.Stable < t.High:
		return false, nil // acknowledged but not yet readable, or being written
	case !t.Found:
		return true, nil
	case c.Own():
		return c.Meta.TopicID == t.TopicID && c.Meta.Sequence == t.Header.Sequence, nil
	}
	// Nothing committed, and maybe a retired lane whose group expired; or set by
	// another tool, and what lies below it counts only where it was acked.
	one := []topics.Lane{l}
	mirror, err := s.store.Mirror(ctx, s.names.pipeline, one)
	if err != nil {
		return false, err
	}
	switch offsets.Judge(c, mirror[l], t.TopicID, t.Header.Incarnation).State {
	case flusso.FloorRetired:
		return true, nil
	case flusso.FloorUnverified, flusso.FloorMissing:
		return false, nil
	default:
	}
	found, err := s.store.Below(ctx, l, c.Offset)
	if errors.Is(err, offsets.ErrUnknown) {
		return false, nil
	}
	return err == nil && found.Header.Sequence == t.Header.Sequence, err
}
