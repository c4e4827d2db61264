package offsets

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/topics"
)

// Ends is where a lane's log begins and ends. Start ≤ Stable ≤ High always
// holds; between Stable and High lies what is not decided yet, because a
// transaction in it is open.
type Ends struct {
	TopicID     [16]byte
	Start       flusso.Offset // first offset that is retained
	Stable      flusso.Offset // end for readers of committed data (last stable offset)
	High        flusso.Offset // end of what is replicated (high watermark)
	LeaderEpoch int32
	Err         error
}

// Ends returns the log start, last stable offset and high watermark of lanes:
// one Metadata request, then three ListOffsets for each leader.
func (s *Store) Ends(ctx context.Context, lanes []topics.Lane) (map[topics.Lane]Ends, error) {
	return s.ends(ctx, unique(lanes), 0)
}

// ends believes identities up to age.
func (s *Store) ends(ctx context.Context, lanes []topics.Lane, age time.Duration) (map[topics.Lane]Ends, error) {
	out := make(map[topics.Lane]Ends, len(lanes))
	pending := lanes
	for n := 0; len(pending) > 0; n++ {
		if n > 0 {
			age = 0
			if err := backoff(ctx, n); err != nil {
				return out, kafkaerr.Wrap("list offsets of lanes", err) // each has its error already
			}
		}
		ids, err := s.identify(ctx, pending, age)
		if err != nil {
			for _, l := range pending {
				out[l] = noEnds([16]byte{}, err)
			}
			break
		}
		var ask []place
		for _, l := range pending {
			if id := ids[l]; id.err != nil {
				out[l] = noEnds(id.id, id.err)
			} else {
				ask = append(ask, place{l, id})
			}
		}
		var mu sync.Mutex
		byLeader(ask, func(leader int32, ps []place) {
			got := s.listEnds(ctx, leader, ps)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(out, got)
		})
		var left []topics.Lane
		for _, l := range pending {
			err := out[l].Err
			if err == nil {
				continue
			}
			if n+1 < attempts && ctx.Err() == nil && stale(err) && kafkaerr.Classify(ids[l].err) != kafkaerr.Missing {
				left = append(left, l)
			}
		}
		pending = left
	}
	for _, l := range lanes {
		if e := out[l]; e.Err == nil {
			s.Index(l).see(e)
		}
	}
	return out, everyErr(lanes, out, func(e Ends) error { return e.Err })
}

func noEnds(id [16]byte, err error) Ends {
	return Ends{TopicID: id, Start: flusso.NoOffset, Stable: flusso.NoOffset, High: flusso.NoOffset, LeaderEpoch: -1, Err: err}
}

// Special timestamps of ListOffsets.
const (
	latest   = -1
	earliest = -2
)

// listEnds asks one leader three times, start first and high watermark last,
// since each can only grow: so Start ≤ Stable ≤ High whatever happens between.
func (s *Store) listEnds(ctx context.Context, leader int32, ps []place) map[topics.Lane]Ends {
	out := make(map[topics.Lane]Ends, len(ps))
	for _, p := range ps {
		out[p.lane] = Ends{TopicID: p.id, Start: flusso.NoOffset, Stable: flusso.NoOffset, High: flusso.NoOffset, LeaderEpoch: p.epoch}
	}
	for _, look := range [...]struct {
		timestamp int64
		isolation int8
		set       func(*Ends, flusso.Offset)
	}{
		{earliest, 0, func(e *Ends, o flusso.Offset) { e.Start = o }},
		{latest, 1, func(e *Ends, o flusso.Offset) { e.Stable = o }},
		{latest, 0, func(e *Ends, o flusso.Offset) { e.High = o }},
	} {
		got, err := s.listOffsets(ctx, leader, ps, look.timestamp, look.isolation)
		for _, p := range ps {
			e := out[p.lane]
			if e.Err != nil {
				continue
			}
			switch a, ok := got[p.lane.Topic()]; {
			case err != nil:
				e.Err = err
			case !ok:
				e.Err = kafkaerr.Wrap("list offsets of topic "+p.lane.Topic(), kerr.UnknownTopicOrPartition)
			case a.err != nil:
				e.Err = kafkaerr.Wrap("list offsets of topic "+p.lane.Topic(), a.err, kafkaerr.OnTopic("Describe", p.lane.Topic()))
			default:
				look.set(&e, a.offset)
			}
			out[p.lane] = e
		}
		if err != nil {
			break
		}
	}
	return out
}

type listed struct {
	offset flusso.Offset
	err    error
}

func (s *Store) listOffsets(ctx context.Context, leader int32, ps []place, timestamp int64, isolation int8) (map[string]listed, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = isolation
	for _, p := range ps {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = p.lane.Topic()
		tp := kmsg.NewListOffsetsRequestTopicPartition()
		tp.CurrentLeaderEpoch = p.epoch
		tp.Timestamp = timestamp
		t.Partitions = append(t.Partitions, tp)
		req.Topics = append(req.Topics, t)
	}
	kresp, err := s.cl.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return nil, kafkaerr.Wrap("list offsets of lanes", err)
	}
	resp := kresp.(*kmsg.ListOffsetsResponse)
	out := make(map[string]listed, len(resp.Topics))
	for i := range resp.Topics {
		for _, p := range resp.Topics[i].Partitions {
			if p.Partition == 0 {
				out[resp.Topics[i].Topic] = listed{flusso.Offset(p.Offset), kerr.ErrorForCode(p.ErrorCode)}
			}
		}
	}
	return out, nil
}
