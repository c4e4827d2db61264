package offsets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// CommitState says whether a group has an offset for a lane.
type CommitState uint8

// The states of a commit.
const (
	Failed  CommitState = iota // the look-up failed: see Commit.Err
	Missing                    // no group, or a group without an offset for the lane
	Present
)

// String returns the state in lower case.
func (s CommitState) String() string {
	switch s {
	case Failed:
		return "failed"
	case Missing:
		return "missing"
	case Present:
		return "present"
	}
	return fmt.Sprintf("CommitState(%d)", uint8(s))
}

// Commit is what a group committed for a lane. The zero value is a failed
// look-up.
type Commit struct {
	State       CommitState
	Offset      flusso.Offset // NoOffset unless Present
	LeaderEpoch int32         // -1 when the committer gave none
	Meta        *Metadata     // nil when it is not ours: set by another tool
	Raw         string        // the metadata as it was committed
	Err         error         // why the look-up failed
}

// Own reports whether the commit carries our metadata, and that metadata was
// written for this very offset.
func (c Commit) Own() bool {
	return c.State == Present && c.Meta != nil && c.Meta.Offset == c.Offset
}

// Commits returns what the sinks' groups committed for their lanes, with one
// OffsetFetch for each broker that coordinates any of them. A group that does
// not exist and one without an offset are both [Missing].
func (s *Store) Commits(ctx context.Context, lanes []topics.Lane) (map[topics.Lane]Commit, error) {
	lanes = unique(lanes)
	got, err := s.fetchOffsets(ctx, sinkWants(lanes))
	if err != nil {
		return each(lanes, noCommit(err)), err
	}
	out := make(map[topics.Lane]Commit, len(lanes))
	for _, l := range lanes {
		out[l] = got[want{l.Group(), l}]
	}
	s.remember(out)
	return out, everyErr(lanes, out, commitErr)
}

// Mirror returns what the pipeline's ingest group holds of its lanes: the
// last offsets that were verified to be acked. See [Judge].
func (s *Store) Mirror(ctx context.Context, p topics.Pipeline, lanes []topics.Lane) (map[topics.Lane]Commit, error) {
	lanes = unique(lanes)
	got, err := s.fetchOffsets(ctx, mirrorWants(p, lanes))
	if err != nil {
		return each(lanes, noCommit(err)), err
	}
	out := make(map[topics.Lane]Commit, len(lanes))
	for _, l := range lanes {
		out[l] = got[want{p.IngestGroup(), l}]
	}
	return out, everyErr(lanes, out, commitErr)
}

func commitErr(c Commit) error {
	if c.State == Failed {
		return c.Err
	}
	return nil
}

// want is one offset to fetch.
type want struct {
	group string
	lane  topics.Lane
}

func sinkWants(lanes []topics.Lane) []want {
	wants := make([]want, len(lanes))
	for i, l := range lanes {
		wants[i] = want{l.Group(), l}
	}
	return wants
}

func mirrorWants(p topics.Pipeline, lanes []topics.Lane) []want {
	wants := make([]want, len(lanes))
	for i, l := range lanes {
		wants[i] = want{p.IngestGroup(), l}
	}
	return wants
}

// remember keeps commits for [Store.PositionAt] and marks them in the indexes.
func (s *Store) remember(commits map[topics.Lane]Commit) {
	for l, c := range commits {
		if c.State == Present {
			s.Index(l).Mark(c.Offset)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l, c := range commits {
		if c.Own() {
			s.commits[l] = c
		} else if c.State != Failed {
			delete(s.commits, l)
		}
	}
}

func missing() Commit {
	return Commit{State: Missing, Offset: flusso.NoOffset, LeaderEpoch: -1}
}

func failed(w want, err error) Commit {
	op := fmt.Sprintf("fetch offset of group %s in topic %s", w.group, w.lane.Topic())
	return noCommit(kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Describe", w.group), kafkaerr.OnTopic("Describe", w.lane.Topic())))
}

func noCommit(err error) Commit {
	return Commit{State: Failed, Offset: flusso.NoOffset, LeaderEpoch: -1, Err: err}
}

func newCommit(w want, p *kmsg.OffsetFetchResponseGroupTopicPartition) Commit {
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return failed(w, err)
	}
	if p.Offset < 0 {
		return missing()
	}
	c := Commit{State: Present, Offset: flusso.Offset(p.Offset), LeaderEpoch: p.LeaderEpoch}
	if p.Metadata != nil {
		c.Raw = *p.Metadata
	}
	if m, err := wire.ParseMetadata(c.Raw); err == nil {
		c.Meta = &m
	}
	return c
}

// fetchOffsets asks for the offsets, all those of one coordinator in one
// request. It goes past kgo's sharding of OffsetFetch, which looks up topics
// of the answer under the client's context instead of ours.
func (s *Store) fetchOffsets(ctx context.Context, wants []want) (map[want]Commit, error) {
	out := make(map[want]Commit, len(wants))
	age := identityAge
	pending := wants
	for n := 0; len(pending) > 0; n++ {
		if n > 0 && backoff(ctx, n) != nil {
			break // each has its error already
		}
		began := time.Now()
		ids, err := s.identify(ctx, lanesOf(pending), age)
		if err != nil {
			return nil, err
		}
		nodes, err := s.coordinatorsOf(ctx, groupsOf(pending))
		if err != nil {
			return nil, err
		}
		byNode := make(map[int32][]want)
		for _, w := range pending {
			id := ids[w.lane]
			switch c := nodes[w.group]; {
			case kafkaerr.Classify(id.err) == kafkaerr.Missing:
				out[w] = missing() // offsets go with their topic
			case id.err != nil && id.id == [16]byte{}:
				out[w] = failed(w, id.err)
			case c.err != nil:
				out[w] = failed(w, c.err)
			default:
				byNode[c.node] = append(byNode[c.node], w)
			}
		}
		var (
			wg sync.WaitGroup
			mu sync.Mutex
		)
		for node, ws := range byNode {
			wg.Go(func() {
				got := s.offsetFetch(ctx, node, ws, ids)
				mu.Lock()
				defer mu.Unlock()
				maps.Copy(out, got)
			})
		}
		wg.Wait()
		var left, doubted []want
		for _, w := range pending {
			id := ids[w.lane]
			switch c := out[w]; {
			case n+1 >= attempts || ctx.Err() != nil:
			case c.State == Failed && s.retryGroup(w.group, c.Err):
				left = append(left, w)
			case c.State == Missing && id.err == nil && id.at.Before(began):
				doubted = append(doubted, w)
			}
		}
		recreated, err := s.recreated(ctx, doubted, ids)
		if err != nil {
			return nil, err
		}
		pending, age = append(left, recreated...), 0
	}
	return out, nil //nolint:nilerr // each offset has its own error
}

// recreated returns those of wants whose lane has another topic ID than the
// one that was asked for: "no offset" was the answer to an ID that is gone.
func (s *Store) recreated(ctx context.Context, wants []want, asked map[topics.Lane]identity) ([]want, error) {
	if len(wants) == 0 {
		return nil, nil
	}
	ids, err := s.identify(ctx, lanesOf(wants), 0)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(wants, func(w want) bool {
		return ids[w.lane].err != nil || ids[w.lane].id == asked[w.lane].id
	}), nil
}

// doubtAge is how old a topic ID may be to be believed when a commit is judged
// not to be ours.
const doubtAge = time.Second

func lanesOf(wants []want) []topics.Lane {
	lanes := make([]topics.Lane, len(wants))
	for i, w := range wants {
		lanes[i] = w.lane
	}
	return unique(lanes)
}

func groupsOf(wants []want) []string {
	groups := make([]string, len(wants))
	for i, w := range wants {
		groups[i] = w.group
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// offsetFetch asks one coordinator once.
func (s *Store) offsetFetch(ctx context.Context, node int32, wants []want, ids map[topics.Lane]identity) map[want]Commit {
	out := make(map[want]Commit, len(wants))
	req := kmsg.NewPtrOffsetFetchRequest()
	at := make(map[string]int)
	for _, w := range wants {
		i, ok := at[w.group]
		if !ok {
			i = len(req.Groups)
			at[w.group] = i
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group = w.group
			req.Groups = append(req.Groups, g)
		}
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID, t.Partitions = w.lane.Topic(), ids[w.lane].id, []int32{0}
		req.Groups[i].Topics = append(req.Groups[i].Topics, t)
	}
	kresp, err := s.cl.Broker(int(node)).Request(ctx, req)
	if err != nil {
		for _, w := range wants {
			out[w] = failed(w, err)
		}
		return out
	}
	resp := kresp.(*kmsg.OffsetFetchResponse)
	type key struct {
		group string
		topic string
		id    [16]byte
	}
	byID := resp.Version >= 10
	partitions := make(map[key]*kmsg.OffsetFetchResponseGroupTopicPartition)
	groupErrs := make(map[string]error, len(resp.Groups))
	for i := range resp.Groups {
		g := &resp.Groups[i]
		groupErrs[g.Group] = kerr.ErrorForCode(g.ErrorCode)
		for j := range g.Topics {
			k := key{group: g.Group, topic: g.Topics[j].Topic}
			if byID {
				k = key{group: g.Group, id: g.Topics[j].TopicID}
			}
			for p := range g.Topics[j].Partitions {
				partitions[k] = &g.Topics[j].Partitions[p]
			}
		}
	}
	for _, w := range wants {
		k := key{group: w.group, topic: w.lane.Topic()}
		if byID {
			k = key{group: w.group, id: ids[w.lane].id}
		}
		gerr, answered := groupErrs[w.group]
		p := partitions[k]
		switch {
		case resp.Version < 8:
			out[w] = failed(w, kerr.UnsupportedVersion) // no batches before Kafka 3.0
		case errors.Is(gerr, kerr.GroupIDNotFound):
			out[w] = missing()
		case gerr != nil:
			out[w] = failed(w, gerr)
		case kerr.ErrorForCode(resp.ErrorCode) != nil:
			out[w] = failed(w, kerr.ErrorForCode(resp.ErrorCode))
		case !answered:
			out[w] = failed(w, errShort)
		case p == nil:
			out[w] = missing()
		default:
			out[w] = newCommit(w, p)
		}
	}
	return out
}

// errShort: a broker answered less than it was asked.
var errShort = errors.New("left out of the broker's answer")

// retryGroup reports whether to ask for a group again, and forgets a
// coordinator that seems to have moved.
func (s *Store) retryGroup(group string, err error) bool {
	if !stale(err) && !errors.Is(err, errShort) {
		return false
	}
	if !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		s.mu.Lock()
		delete(s.coordinators, group)
		s.mu.Unlock()
	}
	return true
}

// coordinator is the node that answers for a group.
type coordinator struct {
	node int32
	err  error
}

// coordinatorsOf returns the coordinators of groups, with one request for
// those it does not know.
func (s *Store) coordinatorsOf(ctx context.Context, groups []string) (map[string]coordinator, error) {
	out := make(map[string]coordinator, len(groups))
	var ask []string
	s.mu.Lock()
	for _, g := range groups {
		if node, ok := s.coordinators[g]; ok {
			out[g] = coordinator{node: node}
		} else {
			ask = append(ask, g)
		}
	}
	s.mu.Unlock()
	if len(ask) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = 0
	req.CoordinatorKeys = ask
	var resp *kmsg.FindCoordinatorResponse
	if err := again(ctx, func() (err error) {
		resp, err = req.RequestWith(ctx, s.cl)
		return err
	}); err != nil {
		return nil, kafkaerr.Wrap("find coordinators of groups", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range resp.Coordinators {
		c := &resp.Coordinators[i]
		if err := kerr.ErrorForCode(c.ErrorCode); err != nil {
			out[c.Key] = coordinator{err: err}
			continue
		}
		s.coordinators[c.Key] = c.NodeID
		out[c.Key] = coordinator{node: c.NodeID}
	}
	for _, g := range ask {
		if _, ok := out[g]; !ok {
			out[g] = coordinator{err: errShort}
		}
	}
	return out, nil
}
