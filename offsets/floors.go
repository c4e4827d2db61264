package offsets

import (
	"context"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// Floors returns the acked floor of each lane for the watermark, sorted by
// sink: see [Judge]. While every commit carries our metadata it costs one
// OffsetFetch for each broker that coordinates any of the groups, the mirror's
// included, and reads nothing, for any number of lanes and whatever their
// backlog. A lane whose look-up failed is FloorUnknown; the error is for the
// case that all failed.
//
// Topic IDs are believed for a minute: an old one can only say of a recreated
// lane that what was acked of it before is acked, which stays true.
func (s *Store) Floors(ctx context.Context, p topics.Pipeline, incarnation string, lanes []topics.Lane) ([]flusso.LaneFloor, error) {
	began := time.Now()
	lanes = bySink(lanes)
	commits, mirrors, err := s.fetchFloors(ctx, p, lanes)
	if err != nil {
		return nil, err
	}
	return s.floors(ctx, began, incarnation, lanes, commits, mirrors)
}

// judge applies [Judge]. Before it calls a lane recreated it looks the topic
// IDs up again.
func (s *Store) judge(ctx context.Context, began time.Time, incarnation string, lanes []topics.Lane, commits, mirrors map[topics.Lane]Commit) (map[topics.Lane]Verdict, error) {
	verdicts := make(map[topics.Lane]Verdict, len(lanes))
	pending, age := lanes, identityAge
	for range 2 {
		ids, err := s.identify(ctx, pending, age)
		if err != nil {
			return nil, err
		}
		var doubted []topics.Lane
		for _, l := range pending {
			id := ids[l]
			if id.err != nil && commits[l].State == Present {
				verdicts[l] = Verdict{State: flusso.FloorUnknown, Offset: commits[l].Offset, Detail: id.err.Error()}
				continue
			}
			v := Judge(commits[l], mirrors[l], id.id, incarnation)
			verdicts[l] = v
			if age := began.Sub(id.at); age > 0 && v.State == flusso.FloorRecreated ||
				age > doubtAge && (v.State == flusso.FloorUnverified || v.Read) {
				doubted = append(doubted, l)
			}
		}
		if len(doubted) == 0 {
			break
		}
		pending, age = doubted, 0
	}
	return verdicts, nil
}
