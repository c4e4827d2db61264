package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/flusso/flusso-kafka/topics"
)

// laneInfo is what a session needs to know of a lane's topic.
type laneInfo struct {
	topicID   [16]byte
	maxRecord int64 // bytes of a record on the wire, below the topic's limit on a record batch
}

// batchOverhead is what a record batch adds to its records, with room for a
// record's own length fields: the limit of a topic is on the batch.
const batchOverhead = 61 + 64

// prepareTopics creates what is missing, where it may, and refuses what is
// unsafe.
func (s *Stream) prepareTopics(ctx context.Context) error {
	if err := topics.RequireBroker(ctx, s.client); err != nil {
		return err
	}
	if s.cfg.CreateTopics {
		if err := topics.Ensure(ctx, s.admin, s.names.pipeline, s.names.sinks, s.cfg.Topics); err != nil {
			return err
		}
	}
	if err := topics.Verify(ctx, s.admin, s.names.pipeline, s.names.sinks, s.cfg.Topics); err != nil {
		return err
	}
	return s.describeLanes(ctx)
}

// describeLanes reads the lanes' identities and limits. A new session reads
// them anew: a topic may have been created again, or its limit changed.
func (s *Stream) describeLanes(ctx context.Context) error {
	wanted := make([]string, len(s.names.lanes))
	for i, l := range s.names.lanes {
		wanted[i] = l.Topic()
	}
	described, err := topics.Describe(ctx, s.admin, wanted...)
	if err != nil {
		return err
	}
	infos := make(map[topics.Lane]laneInfo, len(wanted))
	var errs []error
	for _, l := range s.names.lanes {
		d := described[l.Topic()]
		if d.Err != nil {
			errs = append(errs, fmt.Errorf("topic %s of sink %q: %w", l.Topic(), l.Sink, d.Err))
			continue
		}
		infos[l] = laneInfo{topicID: d.TopicID, maxRecord: d.MaxMessageBytes - batchOverhead}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.mu.Lock()
	s.infos = infos
	s.mu.Unlock()
	return nil
}

func (s *Stream) laneInfos() map[topics.Lane]laneInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.infos)
}
