package offsets

import (
	"context"
	"errors"
	"fmt"
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
	s.remember(lanes, got)
	out := byLane(lanes, got)
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
	out := byLane(lanes, got)
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
	topic string
	lane  topics.Lane
}

func sinkWants(lanes []topics.Lane) []want {
	wants := make([]want, len(lanes))
	for i, l := range lanes {
		wants[i] = want{l.Group(), l.Topic(), l}
	}
	return wants
}

func mirrorWants(p topics.Pipeline, lanes []topics.Lane) []want {
	wants := make([]want, len(lanes))
	group := p.IngestGroup()
	for i, l := range lanes {
		wants[i] = want{group, l.Topic(), l}
	}
	return wants
}

// byLane returns values by the lanes that they are of.
func byLane[V any](lanes []topics.Lane, values []V) map[topics.Lane]V {
	out := make(map[topics.Lane]V, len(lanes))
	for i, l := range lanes {
		out[l] = values[i]
	}
	return out
}

// remember keeps commits of lanes for [Store.PositionAt] and marks them in the
// indexes.
func (s *Store) remember(lanes []topics.Lane, commits []Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range lanes {
		c := commits[i]
		if c.State == Failed {
			continue
		}
		last, known := s.commits[l]
		if c.State == Present && (!known || last.Offset != c.Offset) {
			s.index(l).Mark(c.Offset)
		}
		switch {
		case c.Own():
			s.commits[l] = c
		case known:
			delete(s.commits, l)
		}
	}
}

// ours tells the lanes whose commit was ours when it was last read from the
// others, in their order.
func (s *Store) ours(lanes []topics.Lane) (others []topics.Lane, at []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range lanes {
		if _, ours := s.commits[l]; !ours {
			others, at = append(others, l), append(at, i)
		}
	}
	return others, at
}

func missing() Commit {
	return Commit{State: Missing, Offset: flusso.NoOffset, LeaderEpoch: -1}
}

func failed(w want, err error) Commit {
	op := fmt.Sprintf("fetch offset of group %s in topic %s", w.group, w.topic)
	return noCommit(kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Describe", w.group), kafkaerr.OnTopic("Describe", w.topic)))
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

// question is a want that is not answered yet.
type question struct {
	want
	at int // among the wants
	id identity
}

// fetchOffsets asks for the offsets, all those of one coordinator in one
// request, and returns them in the order of wants. Wants of one group must
// follow each other. It goes past kgo's sharding of OffsetFetch, which looks up
// topics of the answer under the client's context instead of ours.
func (s *Store) fetchOffsets(ctx context.Context, wants []want) ([]Commit, error) {
	out := make([]Commit, len(wants))
	age := identityAge
	pending := make([]question, len(wants))
	for i, w := range wants {
		pending[i] = question{want: w, at: i}
	}
	for n := 0; len(pending) > 0; n++ {
		if n > 0 && backoff(ctx, n) != nil {
			break // each has its error already
		}
		began := time.Now()
		ids, err := s.identifyEach(ctx, lanesOf(pending), age)
		if err != nil {
			return nil, err
		}
		nodes, err := s.coordinatorsOf(ctx, groupsOf(pending))
		if err != nil {
			return nil, err
		}
		byNode := make(map[int32][]int) // among the pending
		group := -1
		for i := range pending {
			q := &pending[i]
			q.id = ids[i]
			if i == 0 || q.group != pending[i-1].group {
				group++
			}
			switch c := &nodes[group]; {
			case q.id.err != nil && kafkaerr.Classify(q.id.err) == kafkaerr.Missing:
				out[q.at] = missing() // offsets go with their topic
			case q.id.err != nil && q.id.id == [16]byte{}:
				out[q.at] = failed(q.want, q.id.err)
			case c.err != nil:
				out[q.at] = failed(q.want, c.err)
			default:
				byNode[c.node] = append(byNode[c.node], i)
			}
		}
		var wg sync.WaitGroup
		for node, at := range byNode {
			wg.Go(func() { s.offsetFetch(ctx, node, pending, at, out) }) // each answers its own
		}
		wg.Wait()
		var left, doubted []question
		for i := range pending {
			q := &pending[i]
			switch c := &out[q.at]; {
			case n+1 >= attempts || ctx.Err() != nil:
			case c.State == Failed && s.retryGroup(q.group, c.Err):
				left = append(left, *q)
			case c.State == Missing && q.id.err == nil && q.id.at.Before(began):
				doubted = append(doubted, *q)
			}
		}
		recreated, err := s.recreated(ctx, doubted)
		if err != nil {
			return nil, err
		}
		pending, age = append(left, recreated...), 0
	}
	return out, nil //nolint:nilerr // each offset has its own error
}

// recreated returns those of the questions whose lane has another topic ID than
// the one that was asked for: "no offset" was the answer to an ID that is gone.
func (s *Store) recreated(ctx context.Context, qs []question) ([]question, error) {
	if len(qs) == 0 {
		return nil, nil
	}
	ids, err := s.identifyEach(ctx, lanesOf(qs), 0)
	if err != nil {
		return nil, err
	}
	var out []question
	for i, q := range qs {
		if ids[i].err == nil && ids[i].id != q.id.id {
			out = append(out, q)
		}
	}
	return out, nil
}

// doubtAge is how old a topic ID may be to be believed when a commit is judged
// not to be ours.
const doubtAge = time.Second

func lanesOf(qs []question) []topics.Lane {
	lanes := make([]topics.Lane, len(qs))
	for i := range qs {
		lanes[i] = qs[i].lane
	}
	return lanes
}

// groupsOf returns the groups in the order in which they are asked about.
func groupsOf(qs []question) []string {
	groups := make([]string, 0, len(qs))
	for i := range qs {
		if i == 0 || qs[i].group != qs[i-1].group {
			groups = append(groups, qs[i].group)
		}
	}
	return groups
}

var partitionZero = []int32{0}

// offsetFetch asks one coordinator once, about the questions at some places, and
// puts the answers where they belong.
func (s *Store) offsetFetch(ctx context.Context, node int32, qs []question, at []int, out []Commit) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = make([]kmsg.OffsetFetchRequestGroup, 0, len(at))
	slab := make([]kmsg.OffsetFetchRequestGroupTopic, len(at))
	for i := range at {
		q := &qs[at[i]]
		slab[i] = kmsg.NewOffsetFetchRequestGroupTopic()
		slab[i].Topic, slab[i].TopicID, slab[i].Partitions = q.topic, q.id.id, partitionZero
		if i == 0 || q.group != qs[at[i-1]].group {
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group, g.Topics = q.group, slab[i:i]
			req.Groups = append(req.Groups, g)
		}
		g := &req.Groups[len(req.Groups)-1]
		g.Topics = g.Topics[:len(g.Topics)+1]
	}
	kresp, err := s.cl.Broker(int(node)).Request(ctx, req)
	if err != nil {
		for _, i := range at {
			out[qs[i].at] = failed(qs[i].want, err)
		}
		return
	}
	resp := kresp.(*kmsg.OffsetFetchResponse)
	all := kerr.ErrorForCode(resp.ErrorCode)
	if resp.Version < 8 {
		all = kerr.UnsupportedVersion // no batches before Kafka 3.0
	}
	a := offsetAnswers{resp: resp}
	var g *kmsg.OffsetFetchResponseGroup
	var gerr error
	group, topic := -1, 0 // of the request
	for i := range at {
		q := &qs[at[i]]
		if topic++; i == 0 || q.group != qs[at[i-1]].group {
			group, topic = group+1, 0
			if g = a.group(q.group, group); g != nil {
				gerr = kerr.ErrorForCode(g.ErrorCode)
			}
		}
		switch {
		case all != nil:
			out[q.at] = failed(q.want, all)
		case g == nil:
			out[q.at] = failed(q.want, errShort)
		case errors.Is(gerr, kerr.GroupIDNotFound):
			out[q.at] = missing()
		case gerr != nil:
			out[q.at] = failed(q.want, gerr)
		default:
			if p := a.partition(g, q, topic); p != nil {
				out[q.at] = newCommit(q.want, p)
			} else {
				out[q.at] = missing()
			}
		}
	}
}

// offsetAnswers finds answers in a response, which as a rule has them in the
// order of the request.
type offsetAnswers struct {
	resp   *kmsg.OffsetFetchResponse
	groups map[string]*kmsg.OffsetFetchResponseGroup // made when the order is another
	of     *kmsg.OffsetFetchResponseGroup            // the group that topics are of
	topics map[topicKey]*kmsg.OffsetFetchResponseGroupTopic
}

type topicKey struct {
	name string
	id   [16]byte
}

// group returns the answer for a group that was asked about as the nth, nil for none.
func (a *offsetAnswers) group(name string, n int) *kmsg.OffsetFetchResponseGroup {
	if gs := a.resp.Groups; n < len(gs) && gs[n].Group == name {
		return &gs[n]
	}
	if a.groups == nil {
		a.groups = make(map[string]*kmsg.OffsetFetchResponseGroup, len(a.resp.Groups))
		for i := range a.resp.Groups {
			a.groups[a.resp.Groups[i].Group] = &a.resp.Groups[i]
		}
	}
	return a.groups[name]
}

// partition returns the answer for the topic that a group was asked about as
// the nth, nil for none.
func (a *offsetAnswers) partition(g *kmsg.OffsetFetchResponseGroup, q *question, n int) *kmsg.OffsetFetchResponseGroupTopicPartition {
	keyOf := func(name string, id [16]byte) topicKey {
		if a.resp.Version >= 10 {
			return topicKey{id: id}
		}
		return topicKey{name: name}
	}
	key := keyOf(q.topic, q.id.id)
	var t *kmsg.OffsetFetchResponseGroupTopic
	if n < len(g.Topics) && keyOf(g.Topics[n].Topic, g.Topics[n].TopicID) == key {
		t = &g.Topics[n]
	} else {
		if a.of != g {
			a.of, a.topics = g, make(map[topicKey]*kmsg.OffsetFetchResponseGroupTopic, len(g.Topics))
			for i := range g.Topics {
				a.topics[keyOf(g.Topics[i].Topic, g.Topics[i].TopicID)] = &g.Topics[i]
			}
		}
		t = a.topics[key]
	}
	if t == nil || len(t.Partitions) == 0 {
		return nil
	}
	return &t.Partitions[len(t.Partitions)-1]
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

// coordinatorsOf returns the coordinators of groups, in their order, with one
// request for those it does not know.
func (s *Store) coordinatorsOf(ctx context.Context, groups []string) ([]coordinator, error) {
	out := make([]coordinator, len(groups))
	var ask []string
	var at []int // where they are among the groups
	s.mu.Lock()
	for i, g := range groups {
		if node, ok := s.coordinators[g]; ok {
			out[i].node = node
		} else {
			ask, at = append(ask, g), append(at, i)
		}
	}
	s.mu.Unlock()
	if len(ask) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = 0
	req.CoordinatorKeys = slices.Compact(slices.Sorted(slices.Values(ask)))
	var resp *kmsg.FindCoordinatorResponse
	if err := again(ctx, func() (err error) {
		resp, err = req.RequestWith(ctx, s.cl)
		return err
	}); err != nil {
		return nil, kafkaerr.Wrap("find coordinators of groups", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[string]coordinator, len(resp.Coordinators))
	for i := range resp.Coordinators {
		c := &resp.Coordinators[i]
		err := kerr.ErrorForCode(c.ErrorCode)
		if err == nil {
			s.coordinators[c.Key] = c.NodeID
		}
		found[c.Key] = coordinator{node: c.NodeID, err: err}
	}
	for i, g := range ask {
		c, answered := found[g]
		if !answered {
			c.err = errShort
		}
		out[at[i]] = c
	}
	return out, nil
}
