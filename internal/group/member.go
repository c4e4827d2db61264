package group

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Identity is who a member is in its group: what a commit must carry.
type Identity struct {
	MemberID   string
	Generation int32
	Instance   *string // nil in standby mode
}

// events is what a member tells its owner. The calls come from the client's
// own goroutines, with none of its locks held.
type events interface {
	// attach decides where to begin. apply must be called with the decision
	// taken, before any record of it can be polled.
	attach(ctx context.Context, m *member, c Committed) (at flusso.Offset, leaderEpoch int32, apply func() error, err error)
	// detach is told that the member lost the partition: in a rebalance (a
	// last commit may be tried) or for good.
	detach(m *member, cause error, last bool)
}

// member is one client in the group, from joining to its end. It is never
// revived: whoever wants the partition again makes another, which gets
// another member id, so that late bytes of this one are refused.
type member struct {
	cfg     *Config
	topicID [16]byte
	cl      *kgo.Client
	ready   chan struct{}   // closed when cl is set: the client joins while it is being made
	life    context.Context //nolint:containedctx // the client's own, ended by kill
	kill    context.CancelFunc
	on      events

	owner atomic.Bool   // the newest assignment gave it the partition
	ended chan struct{} // closed with cause set

	poll chan struct{} // holds one while polling and while what was polled is handed on

	mu        sync.Mutex
	cause     error
	fetched   Committed // what the offset fetch of this assignment said
	fetchErr  error
	identity  Identity
	attaching chan struct{} // not nil while an attach waits for poll; closed after it
	interrupt context.CancelFunc
	polling   context.Context //nolint:containedctx // it lives as long as an attach and is handed to the poll in flight

	closing atomic.Bool
	closed  chan struct{} // closed when close has done its work

	coordinator int32 // broker id, -1 unknown; used by whoever holds the commit turn
	fetches     int32 // bytes that the client fetches at a time; used by whoever polls
}

func newMember(cfg *Config, topicID [16]byte, on events) *member {
	life, kill := context.WithCancel(context.Background())
	m := &member{
		cfg: cfg, topicID: topicID, on: on, life: life, kill: kill,
		ready: make(chan struct{}), ended: make(chan struct{}), closed: make(chan struct{}), poll: make(chan struct{}, 1), coordinator: -1,
		fetches: partitionBytes(cfg.Budget),
	}
	m.polling, m.interrupt = context.WithCancel(life)
	return m
}

// open creates the client, which joins by itself from then on.
func (m *member) open() error {
	cfg := m.cfg
	own := []kgo.Opt{
		kgo.WithContext(m.life),
		kgo.ConsumerGroup(cfg.Group),
		kgo.ConsumeTopics(cfg.Topic),
		kgo.Balancers(balancers(cfg.Mode, &m.owner)...),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeatEvery),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.FetchMaxPartitionBytes(m.fetches),
		kgo.WithPools(recordPool),
		kgo.DisableClientMetrics(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) { m.owner.Store(len(assigned) > 0) }),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) { m.on.detach(m, errRebalance, true) }),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {}), // the hook below has the reason
		kgo.OnOffsetsFetched(m.offsetsFetched),
		kgo.AdjustFetchOffsetsFn(m.adjust),
		kgo.WithHooks((*manageErrors)(m)),
	}
	if id := cfg.instance(); id != nil {
		own = append(own, kgo.InstanceID(*id))
	}
	cl, err := kgo.NewClient(append(append([]kgo.Opt(nil), cfg.Opts...), own...)...)
	if err != nil {
		m.kill()
		return fmt.Errorf("attach to group %s: configure the Kafka client: %w", cfg.Group, err)
	}
	m.cl = cl
	close(m.ready)
	return nil
}

// partitionBytes bounds a fetch. The client buffers one beside what we hold,
// and it is compressed: so a fraction of the budget.
func partitionBytes(budget int64) int32 {
	const smallest, largest, part = 64 << 10, 8 << 20, 4
	return int32(min(max(budget/part, smallest), largest))
}

// manageErrors is told why the client lost its membership.
type manageErrors member

// OnGroupManageError implements [kgo.HookGroupManageError]. It runs on the
// goroutine that would join again: ending the client's context here, and not
// a moment later, is what keeps a superseded member from taking the lane back.
func (h *manageErrors) OnGroupManageError(err error) {
	m := (*member)(h)
	m.end(kafkaerr.Wrap("keep membership in group "+m.cfg.Group, err, kafkaerr.OnGroup("Read", m.cfg.Group)))
	m.kill()
}

// end ends the member with a cause; the first counts. The client goes on
// until [member.close], so that it can leave the group.
func (m *member) end(cause error) {
	m.mu.Lock()
	if m.cause != nil {
		m.mu.Unlock()
		return
	}
	m.cause = cause
	m.interrupt()
	close(m.ended)
	m.mu.Unlock()
	m.on.detach(m, cause, false)
}

// endedBy returns what ended the member, nil while it lives.
func (m *member) endedBy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cause
}

func (m *member) offsetsFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	c, ferr := Committed{Offset: flusso.NoOffset, LeaderEpoch: -1}, error(nil)
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if p.Partition != 0 || t.Topic != m.cfg.Topic && t.Topic != "" {
					continue
				}
				if ferr = kerr.ErrorForCode(p.ErrorCode); ferr != nil || p.Offset < 0 {
					continue
				}
				c = Committed{Found: true, Offset: flusso.Offset(p.Offset), LeaderEpoch: p.LeaderEpoch}
				if p.Metadata != nil {
					c.Metadata = *p.Metadata
				}
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetched, m.fetchErr = c, ferr
	return nil
}

// adjust starts an attach epoch. It assigns nothing when it fails and ends the
// member instead: an error to the client would make it join again.
func (m *member) adjust(ctx context.Context, all map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	none := map[string]map[int32]kgo.Offset{}
	<-m.ready
	m.mu.Lock()
	committed, ferr, ended := m.fetched, m.fetchErr, m.cause != nil
	m.mu.Unlock()
	if ended {
		return none, nil //nolint:nilerr // the end has its cause already
	}
	op := "attach to topic " + m.cfg.Topic + " in group " + m.cfg.Group
	if _, ok := all[m.cfg.Topic][0]; !ok {
		if ferr == nil {
			ferr = errors.New("the coordinator does not name the partition's offset")
		}
		m.end(kafkaerr.Wrap(op, ferr))
		return none, nil
	}
	committed.TopicID = m.topicID
	memberID, generation := m.cl.GroupMetadata()
	m.mu.Lock()
	m.identity = Identity{MemberID: memberID, Generation: generation, Instance: m.cfg.instance()}
	m.mu.Unlock()

	at, leaderEpoch, apply, err := m.on.attach(ctx, m, committed)
	if err == nil {
		err = m.between(apply)
	}
	switch {
	case ctx.Err() != nil:
		return none, ctx.Err() // the next assignment is on its way, or the end
	case err != nil:
		m.end(err)
		return none, nil
	}
	return map[string]map[int32]kgo.Offset{m.cfg.Topic: {0: kgo.NewOffset().At(int64(at)).WithEpoch(leaderEpoch)}}, nil
}

// between runs apply between two polls: after what was polled in the epoch
// before is handed on, and before anything of the new one can be.
func (m *member) between(apply func() error) error {
	done := make(chan struct{})
	m.mu.Lock()
	m.attaching = done
	m.interrupt()
	m.mu.Unlock()

	m.poll <- struct{}{}
	defer func() { <-m.poll }()
	err := apply()

	m.mu.Lock()
	m.polling, m.interrupt = context.WithCancel(m.life)
	if m.cause != nil {
		m.interrupt()
	}
	m.attaching = nil
	m.mu.Unlock()
	close(done)
	return err
}

// wake ends the poll in flight; [member.seek] lets others begin.
func (m *member) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interrupt()
}

// seek has the client read on somewhere else: where says so between two polls,
// and done is called before another. What was fetched and not polled is gone.
func (m *member) seek(where func() (at flusso.Offset, leaderEpoch int32, ok bool), done func()) {
	m.poll <- struct{}{}
	defer func() { <-m.poll }()
	if at, leaderEpoch, ok := where(); ok {
		m.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{m.cfg.Topic: {0: {Epoch: leaderEpoch, Offset: int64(at)}}})
		done()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.polling, m.interrupt = context.WithCancel(m.life)
	if m.cause != nil {
		m.interrupt()
	}
}

// pollOnce waits for records, at most so many (0: what the client has), or
// errors and hands them on. It returns when it did, or was interrupted.
func (m *member) pollOnce(records int, take func(kgo.Fetches)) {
	m.mu.Lock()
	attaching := m.attaching
	m.mu.Unlock()
	if attaching != nil {
		select {
		case <-attaching:
		case <-m.ended:
			return
		}
	}
	m.poll <- struct{}{}
	defer func() { <-m.poll }()
	m.mu.Lock()
	ctx, ended := m.polling, m.cause != nil
	m.mu.Unlock()
	if ended || ctx.Err() != nil {
		return
	}
	fetches := m.cl.PollRecords(ctx, records)
	if ctx.Err() != nil {
		// Errors that were polled must not be lost; records of an epoch that
		// is over are dropped by their receiver.
		fetches = withoutError(fetches, ctx.Err())
	}
	take(fetches)
}

// withoutError drops the one fetch that stands for the poll's own context.
func withoutError(fs kgo.Fetches, err error) kgo.Fetches {
	out := fs[:0]
	for _, f := range fs {
		if len(f.Topics) == 1 && f.Topics[0].Topic == "" && len(f.Topics[0].Partitions) == 1 && errors.Is(f.Topics[0].Partitions[0].Err, err) {
			continue
		}
		out = append(out, f)
	}
	return out
}

// who returns the identity of the current attach.
func (m *member) who() Identity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.identity
}

// commit sends one plain OffsetCommit with the identity of the attach, and no
// retries: a client's retry of a request whose reply was lost could land
// after a later commit and take the offset back. It must be called by one
// goroutine at a time.
//
// Errors: [*RefusedError] when it was certainly not committed,
// [*UnknownCommitError] when that can't be told; the member must then be
// given up.
func (m *member) commit(ctx context.Context, id Identity, commits []topicCommit) error {
	if err := m.findCoordinator(ctx); err != nil {
		return &RefusedError{m.cfg.Group, commits[0].Offset, err}
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = m.cfg.Group
	req.MemberID, req.Generation, req.InstanceID = id.MemberID, id.Generation, id.Instance
	for _, c := range commits {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset, p.LeaderEpoch, p.Metadata = int64(c.Offset), c.LeaderEpoch, new(c.Metadata)
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.TopicID = c.topic, c.topicID
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	answer, err := m.cl.Broker(int(m.coordinator)).Request(ctx, req)
	if err != nil {
		m.coordinator = -1
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
			return &RefusedError{m.cfg.Group, commits[0].Offset, err} // it never left
		}
		return &UnknownCommitError{m.cfg.Group, commits[0].Offset, err}
	}
	resp := answer.(*kmsg.OffsetCommitResponse)
	answered := 0
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				switch {
				case errors.Is(err, kerr.NotCoordinator), errors.Is(err, kerr.CoordinatorNotAvailable):
					m.coordinator = -1
				case errors.Is(err, kerr.UnknownServerError), errors.Is(err, kerr.RequestTimedOut):
					return &UnknownCommitError{m.cfg.Group, commits[0].Offset, err}
				}
				return &RefusedError{m.cfg.Group, commits[0].Offset, err}
			}
			answered++
		}
	}
	if answered != len(commits) {
		return &UnknownCommitError{m.cfg.Group, commits[0].Offset, fmt.Errorf("the answer names %d of %d partitions", answered, len(commits))}
	}
	return nil
}

type topicCommit struct {
	topic   string
	topicID [16]byte
	Commit
}

func (m *member) findCoordinator(ctx context.Context) error {
	if m.coordinator >= 0 {
		return nil
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = m.cfg.Group, []string{m.cfg.Group}
	resp, err := req.RequestWith(ctx, m.cl)
	if err != nil {
		return fmt.Errorf("find the coordinator: %w", err)
	}
	code, node := resp.ErrorCode, resp.NodeID
	if len(resp.Coordinators) > 0 {
		code, node = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].NodeID
	}
	if err := kerr.ErrorForCode(code); err != nil {
		return fmt.Errorf("find the coordinator: %w", err)
	}
	m.coordinator = node
	return nil
}

// close ends the client, leaving the group first when leave is set. It returns
// when the client's goroutines are done; ctx bounds the leaving only, since
// nothing of the rest waits for a broker. A second call waits for the first, or
// until its own ctx ends: what it does next could cut the leaving short.
func (m *member) close(ctx context.Context, leave bool) {
	m.end(flusso.ErrClosed)
	if !m.closing.CompareAndSwap(false, true) {
		select {
		case <-m.closed:
		case <-ctx.Done():
		}
		return
	}
	defer close(m.closed)
	if leave {
		m.leave(ctx)
	}
	m.kill()
	m.cl.Close()
}

func (m *member) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	// This ends the client's own handling of the group, so that it does not
	// join again; a dynamic member leaves with it.
	if err := m.cl.LeaveGroupContext(ctx); err != nil || m.cfg.Mode == Standby {
		return
	}
	memberID, _ := m.cl.GroupMetadata()
	if memberID == "" {
		return
	}
	// With the instance id alone the broker would throw out the new owner.
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.cfg.Group
	lm := kmsg.NewLeaveGroupRequestMember()
	lm.MemberID, lm.InstanceID = memberID, m.cfg.instance()
	lm.Reason = new("detached")
	req.MemberID = memberID // brokers before 2.4
	req.Members = append(req.Members, lm)
	if _, err := req.RequestWith(ctx, m.cl); err != nil {
		m.cfg.Logger.Debug("leaving a group", "group", m.cfg.Group, "err", err)
	}
}
