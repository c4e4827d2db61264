package offsets

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/topics"
)

// identityAge is how long a topic's ID and leader are believed without asking.
const identityAge = time.Minute

// identity is what Metadata says of a lane's topic.
type identity struct {
	id     [16]byte
	leader int32 // node
	epoch  int32 // leader epoch
	at     time.Time
	err    error // the topic is missing, forbidden or without a leader
}

// place is a lane and where to ask about it.
type place struct {
	lane topics.Lane
	identity
}

// identify returns the identities of lanes that are not older than age, with
// one Metadata request for those it does not know. A lane's own failure is in
// its identity.
func (s *Store) identify(ctx context.Context, lanes []topics.Lane, age time.Duration) (map[topics.Lane]identity, error) {
	ids, err := s.identifyEach(ctx, lanes, age)
	if err != nil {
		return nil, err
	}
	return byLane(lanes, ids), nil
}

// identifyEach is identify in the order of lanes.
func (s *Store) identifyEach(ctx context.Context, lanes []topics.Lane, age time.Duration) ([]identity, error) {
	out := make([]identity, len(lanes))
	var ask []topics.Lane
	var at []int // where they are among the lanes
	now := time.Now()
	s.mu.Lock()
	for i, l := range lanes {
		if known, ok := s.identities[l]; ok && known.err == nil && now.Sub(known.at) < age {
			out[i] = known
		} else {
			ask, at = append(ask, l), append(at, i)
		}
	}
	s.mu.Unlock()
	if len(ask) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	for _, l := range unique(ask) {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(l.Topic())
		req.Topics = append(req.Topics, t)
	}
	var resp *kmsg.MetadataResponse
	if err := again(ctx, func() (err error) {
		resp, err = req.RequestWith(ctx, s.cl)
		return err
	}); err != nil {
		return nil, kafkaerr.Wrap("look up lane topics", err)
	}
	got := make(map[string]identity, len(resp.Topics))
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil {
			got[*t.Topic] = newIdentity(t, now)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range ask {
		id, ok := got[l.Topic()]
		if !ok {
			id = identity{err: kafkaerr.Wrap("look up topic "+l.Topic(), kerr.UnknownTopicOrPartition)}
		}
		if id.err == nil {
			s.identities[l] = id
		} else {
			delete(s.identities, l)
		}
		out[at[i]] = id
	}
	return out, nil
}

func newIdentity(t *kmsg.MetadataResponseTopic, now time.Time) identity {
	op := "look up topic " + *t.Topic
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return identity{err: kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Describe", *t.Topic))}
	}
	at := slices.IndexFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == 0 })
	if at < 0 {
		return identity{err: kafkaerr.Wrap(op, kerr.UnknownTopicOrPartition)}
	}
	p := t.Partitions[at]
	if p.Leader < 0 {
		return identity{id: t.TopicID, err: kafkaerr.Wrap(op, kerr.LeaderNotAvailable)}
	}
	return identity{id: t.TopicID, leader: p.Leader, epoch: p.LeaderEpoch, at: now}
}

// unknownBroker is kgo's text for a broker number that it learnt from one answer
// and does not find in the next.
const unknownBroker = "unknown broker"

// stale reports whether an answer says that leader or topic ID may have
// changed, or that the broker wants to be asked again.
func stale(err error) bool {
	switch kafkaerr.Classify(err) {
	case kafkaerr.Retriable, kafkaerr.Recreated, kafkaerr.Missing, kafkaerr.Unreachable:
		return true
	default:
		return err != nil && (errors.Is(err, kerr.FencedLeaderEpoch) || errors.Is(err, kerr.UnknownLeaderEpoch) ||
			strings.Contains(err.Error(), unknownBroker))
	}
}

// byLeader calls send once for each leader of places, concurrently when there
// are several, and returns when all have returned.
func byLeader(places []place, send func(leader int32, places []place)) {
	groups := make(map[int32][]place)
	for _, p := range places {
		groups[p.leader] = append(groups[p.leader], p)
	}
	if len(groups) == 1 {
		for leader, ps := range groups {
			send(leader, ps)
		}
		return
	}
	var wg sync.WaitGroup
	for leader, ps := range groups {
		wg.Go(func() { send(leader, ps) })
	}
	wg.Wait()
}
