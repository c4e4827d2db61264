package offsets

import (
	"context"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// Floors returns the acked floor of each lane for the watermark, sorted by
// sink: see [Judge]. While every commit carries our metadata it costs one
// OffsetFetch for each broker that coordinates any of the groups, and reads
// nothing, for any number of lanes and whatever their backlog. The mirror is
// asked about lanes that did not carry it at the last look; a lane that carries
// it no more costs a second request. A lane whose look-up failed is
// FloorUnknown; the error is for the case that all failed.
//
// Topic IDs are believed for a minute: an old one can only say of a recreated
// lane that what was acked of it before is acked, which stays true.
func (s *Store) Floors(ctx context.Context, p topics.Pipeline, incarnation string, lanes []topics.Lane) ([]flusso.LaneFloor, error) {
	began := time.Now()
	j := judgement{lanes: bySink(lanes)}
	n := len(j.lanes)
	j.mirrors = make([]Commit, n)
	others, at := s.ours(j.lanes)
	got, err := s.fetchOffsets(ctx, append(sinkWants(j.lanes), mirrorWants(p, others)...))
	if err != nil {
		return nil, err
	}
	j.commits = got[:n:n]
	for i, m := range got[n:] {
		j.mirrors[at[i]] = m
	}
	s.remember(j.lanes, j.commits)
	if err := s.mirrorOf(ctx, p, j, at); err != nil {
		return nil, err
	}
	return s.floors(ctx, began, incarnation, j)
}

// mirrorOf asks the mirror about lanes whose commit turned out not to be ours,
// apart from those that it was asked about.
func (s *Store) mirrorOf(ctx context.Context, p topics.Pipeline, j judgement, asked []int) error {
	var lanes []topics.Lane
	var at []int
	for i, l := range j.lanes {
		if len(asked) > 0 && asked[0] == i {
			asked = asked[1:]
			continue
		}
		if c := &j.commits[i]; c.State != Failed && !c.Own() {
			lanes, at = append(lanes, l), append(at, i)
		}
	}
	if len(lanes) == 0 {
		return nil
	}
	got, err := s.fetchOffsets(ctx, mirrorWants(p, lanes))
	for i, k := range at {
		if err != nil {
			j.mirrors[k] = noCommit(err)
		} else {
			j.mirrors[k] = got[i]
		}
	}
	if err != nil {
		return context.Cause(ctx) // without one, each lane has its error
	}
	return nil
}

// judgement is what floors are told from, in the order of lanes. The mirror of
// a lane whose commit is ours may be left out.
type judgement struct {
	lanes            []topics.Lane
	commits, mirrors []Commit
}

// floors judges commits.
func (s *Store) floors(ctx context.Context, began time.Time, incarnation string, j judgement) ([]flusso.LaneFloor, error) {
	verdicts, err := s.judge(ctx, began, incarnation, j)
	if err != nil {
		return nil, err
	}
	var reads []*search
	var at []int
	for i, l := range j.lanes {
		if verdicts[i].Read {
			reads, at = append(reads, below(l, j.commits[i].Offset, 1)), append(at, i)
		}
	}
	_ = s.run(ctx, identityAge, reads...) // each search has its error
	for i, q := range reads {
		verdicts[at[i]] = verdicts[at[i]].resolve(q, incarnation)
	}
	out := make([]flusso.LaneFloor, len(j.lanes))
	every := len(j.lanes) > 0 // every look-up failed
	for i, l := range j.lanes {
		out[i] = verdicts[i].Floor(l.Sink)
		every = every && j.commits[i].State == Failed && j.commits[i].Err != nil
	}
	if every {
		return out, j.commits[0].Err
	}
	return out, nil
}

// judge applies [Judge]. Before it calls a lane recreated it looks the topic
// IDs up again.
func (s *Store) judge(ctx context.Context, began time.Time, incarnation string, j judgement) ([]Verdict, error) {
	verdicts := make([]Verdict, len(j.lanes))
	pending, age := j.lanes, identityAge
	var at []int // where the pending are; nil for all
	for range 2 {
		ids, err := s.identifyEach(ctx, pending, age)
		if err != nil {
			return nil, err
		}
		var doubted []topics.Lane
		var doubtedAt []int
		for k, l := range pending {
			i := k
			if at != nil {
				i = at[k]
			}
			id := &ids[k]
			if id.err != nil && j.commits[i].State == Present {
				verdicts[i] = Verdict{State: flusso.FloorUnknown, Offset: j.commits[i].Offset, Detail: id.err.Error()}
				continue
			}
			v := Judge(j.commits[i], j.mirrors[i], id.id, incarnation)
			verdicts[i] = v
			if age := began.Sub(id.at); age > 0 && v.State == flusso.FloorRecreated ||
				age > doubtAge && (v.State == flusso.FloorUnverified || v.Read) {
				doubted, doubtedAt = append(doubted, l), append(doubtedAt, i)
			}
		}
		if len(doubted) == 0 {
			break
		}
		pending, at, age = doubted, doubtedAt, 0
	}
	return verdicts, nil
}
