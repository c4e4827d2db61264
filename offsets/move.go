package offsets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/members"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Move is a change of what a sink's group has committed, planned and not made:
// [Store.Apply] makes it. Every move carries our metadata, since an offset
// without it would stop the lane.
type Move struct {
	Lane   topics.Lane
	Before Commit        // what the group has
	Offset flusso.Offset // what it gets: the end of a whole item, or the log start
	Meta   Metadata      // committed with it

	// What had been acked for certain before: Acked is its through, NoPosition
	// when it has none or nothing tells; AckedItems is the sequence of its last
	// item, 0 for none; AckedOffset is the offset after that.
	Acked       flusso.Position
	AckedItems  uint64
	AckedOffset flusso.Offset // NoOffset for none

	// Between counts what is retained between AckedOffset, or the log start
	// where that is gone, and Offset.
	Between Totals

	// Attach is what a consumer is told that attaches afterwards: nil when it
	// goes on at Offset, else as in [StartDecision].
	Attach error
}

// After returns what the group has once the move is made.
func (m Move) After() Commit {
	return Commit{State: Present, Offset: m.Offset, LeaderEpoch: -1, Meta: &m.Meta, Raw: wire.FormatMetadata(m.Meta)}
}

// Floor returns the lane's floor once the move is made, for the watermark of an
// incarnation.
func (m Move) Floor(incarnation string) flusso.LaneFloor {
	return Judge(m.After(), missing(), m.Meta.TopicID, incarnation).Floor(m.Lane.Sink)
}

// Again returns how many acked items come again.
func (m Move) Again() uint64 { return m.AckedItems - min(m.AckedItems, m.Meta.Sequence) }

// GivenUp returns how many items the move takes as acked that never were; those
// that are gone from the log are among them. Their positions are above Acked
// and up to Meta.Through.
func (m Move) GivenUp() uint64 { return m.Meta.Sequence - min(m.AckedItems, m.Meta.Sequence) }

// GroupActiveError says that a group has members, and moving its offset under them
// would be undone or lose what they have in flight. A consumer that was killed
// stays a member until its session times out.
type GroupActiveError struct {
	Group   string
	Members []string // client ids, hosts and since when
}

func (e *GroupActiveError) Error() string {
	return fmt.Sprintf("group %s has members (%s): stop the sink first; a consumer that was killed leaves the group after its session timeout (10 s): wait so long and try again",
		e.Group, strings.Join(e.Members, ", "))
}

// MovedError says that a group was moved between the plan and now, by another
// operator or by a consumer that came and went. Look again, and plan anew.
type MovedError struct {
	Lane         topics.Lane
	Planned, Now Commit
	After        bool // ours was committed, and overwritten at once
}

func (e *MovedError) Error() string {
	what := fmt.Sprintf("it was %s when this was planned and is %s now; nothing was committed", where(e.Planned), where(e.Now))
	if e.After {
		what = fmt.Sprintf("the offset was committed, and somebody else committed offset %s right after it", e.Now.Offset)
	}
	return fmt.Sprintf("group %s was moved by somebody else meanwhile: %s: look at it with `flusso-kafka-admin status`, and run the command again if it is still wanted",
		e.Lane.Group(), what)
}

// where says where a group stands: a retirement moves nothing but the metadata.
func where(c Commit) string {
	if c.Own() && !c.Meta.Retired.IsZero() {
		return fmt.Sprintf("at offset %s, retired %s,", c.Offset, retiredText(c.Meta.Retired))
	}
	return "at offset " + c.Offset.String()
}

// OutcomeError says that nobody knows whether a move was made: the broker's
// answer was lost. Now is what the group had when it was looked at afterwards;
// the request may still arrive after that.
type OutcomeError struct {
	Move Move
	Now  Commit
	Err  error
}

func (e *OutcomeError) Error() string {
	now := "what it has now could not be read either"
	if e.Now.State != Failed {
		now = fmt.Sprintf("right after that it was at offset %s", e.Now.Offset)
	}
	return fmt.Sprintf("commit offset %s to group %s: the answer was lost, so it may have been committed, or may be yet; %s: look again with `flusso-kafka-admin status` before running the command again: %s",
		e.Move.Offset, e.Move.Lane.Group(), now, e.Err)
}

// Unwrap returns what happened to the answer.
func (e *OutcomeError) Unwrap() error { return e.Err }

func retiredError(lane topics.Lane, r Retirement) error {
	return &flusso.RetiredError{Sink: lane.Sink, By: r.By, At: r.At, Why: r.Why}
}

// standing is where a lane stands: all that a move is planned from.
type standing struct {
	lane           topics.Lane
	commit, mirror Commit
	ends           Ends
}

// stand looks at a lane.
func (s *Store) stand(ctx context.Context, lane topics.Lane) (standing, error) {
	one := []topics.Lane{lane}
	commits, err := s.Commits(ctx, one)
	if err != nil {
		return standing{}, err
	}
	mirrors, err := s.Mirror(ctx, lane.Pipeline, one)
	if err != nil {
		return standing{}, err
	}
	ends, err := s.Ends(ctx, one)
	if err != nil {
		return standing{}, err
	}
	return standing{lane, commits[lane], mirrors[lane], ends[lane]}, nil
}

// acked returns the commit that says what was acked for certain of the topic
// of today, and nil where none does. For a group that another tool moved that
// is the mirror: at or below it everything was acked.
func (st standing) acked() *Commit {
	switch {
	case st.commit.Own():
		if st.commit.Meta.TopicID == st.ends.TopicID {
			return &st.commit
		}
	case anchors(st.mirror, st.ends.TopicID):
		return &st.mirror
	}
	return nil
}

// retirement returns that of the lane, zero where it has none.
func (st standing) retirement() Retirement {
	if c := st.acked(); c != nil && (st.commit.Own() || st.commit.State == Missing) {
		return c.Meta.Retired
	}
	return Retirement{}
}

// move returns the move to what m says, which was written for an offset of the
// topic of today.
func (st standing) move(off flusso.Offset, m Metadata) Move {
	m.Offset, m.TopicID = off, st.ends.TopicID
	out := Move{Lane: st.lane, Before: st.commit, Offset: off, Meta: m, AckedOffset: flusso.NoOffset}
	if c := st.acked(); c != nil {
		out.Acked, out.AckedItems, out.AckedOffset = c.Meta.Through, c.Meta.Sequence, c.Offset
	}
	return st.attach(out)
}

// attach fills in what a consumer is told afterwards.
func (st standing) attach(m Move) Move {
	m.Attach = Start(st.lane, m.After(), st.mirror, st.ends).Err
	return m
}

// upTo is the metadata of a lane acked up to and including an item.
func upTo(h Header) Metadata {
	return Metadata{Through: h.Through, Sequence: h.Sequence, Epoch: h.Epoch, Incarnation: h.Incarnation}
}

// moveTo plans that the lane goes on at an offset: at the end of the newest
// whole item below it, or at the log start where nothing is below.
func (s *Store) moveTo(ctx context.Context, st standing, off flusso.Offset) (Move, error) {
	at, meta := st.ends.Start, Metadata{}
	below, err := s.Below(ctx, st.lane, off)
	switch {
	case err == nil:
		at, meta = below.Next(), upTo(below.Header)
	case !errors.Is(err, ErrUnknown):
		return Move{}, err
	default:
		first, err := s.From(ctx, st.lane, st.ends.Start)
		switch {
		case errors.Is(err, ErrUnknown): // an empty lane: whatever comes next begins it
		case err != nil:
			return Move{}, err
		case first.cut(st.ends.Start):
			// The log begins within an item: what is left of it is of no use.
			at, meta = first.Next(), upTo(first.Header)
		case first.Header.Sequence > 1:
			meta = st.before(first.Header)
		}
	}
	m := st.move(at, meta)
	m.Between, err = s.between(ctx, st, m)
	return m, err
}

// before is the metadata of a lane acked up to an item, without it, where what
// was before it is gone. The through of that can't be known for certain where
// the item is a complete live batch: it is taken as what was acked, as far as
// that lies below the item. The next ack corrects it.
func (st standing) before(h Header) Metadata {
	m := Metadata{Sequence: h.Sequence - 1, Epoch: h.Epoch, Incarnation: h.Incarnation}
	if c := st.acked(); c != nil && c.Meta.Incarnation == h.Incarnation {
		most := h.Through
		if h.Kind == wire.Live && !h.More {
			most = h.Position - 1
		}
		m.Through = min(c.Meta.Through, most)
	}
	return m
}

// between counts what is retained between what was acked and where a move goes.
func (s *Store) between(ctx context.Context, st standing, m Move) (Totals, error) {
	low, high := min(m.AckedOffset, m.Offset), max(m.AckedOffset, m.Offset)
	low = max(low, st.ends.Start)
	if high <= low {
		return Totals{}, nil
	}
	to, err := s.Below(ctx, st.lane, high)
	if errors.Is(err, ErrUnknown) {
		return Totals{}, nil
	}
	if err != nil {
		return Totals{}, err
	}
	from, err := s.totalsAt(ctx, st.lane, low)
	if err != nil {
		return Totals{}, err
	}
	got, ok := minus(to.Header.Totals, from)
	if !ok {
		return Totals{}, fmt.Errorf("count items of topic %s between offsets %s and %s: running totals go back: two writers, or a foreign one",
			st.lane.Topic(), low, high)
	}
	return got, nil
}

// totalsAt returns the running totals of what ends below an offset that is not
// below the log start.
func (s *Store) totalsAt(ctx context.Context, lane topics.Lane, off flusso.Offset) (Totals, error) {
	below, err := s.Below(ctx, lane, off)
	if err == nil {
		return below.Header.Totals, nil
	}
	if !errors.Is(err, ErrUnknown) {
		return Totals{}, err
	}
	q := above(lane, off)
	q.weigh = true // its own bytes must be read
	first, err := s.one(ctx, q)
	if err != nil {
		return Totals{}, err
	}
	return without(first.Header, q.payload), nil
}

// without returns the totals before an item of that size.
func without(h Header, payload uint64) Totals {
	t := h.Totals
	t.Batches--
	t.Envelopes -= min(t.Envelopes, uint64(h.Envelopes))
	t.Changes -= min(t.Changes, h.Changes)
	t.Bytes -= min(t.Bytes, payload)
	return t
}

// Apply makes a move. Right before it commits it compares what the group has
// with what the plan was made from, and afterwards it looks whether its own
// commit is there. Two operators at the very same moment can so both commit: the
// later one stands, and the other is told.
//
// Errors: a [*GroupActiveError] with the group's members, [*MovedError],
// [*OutcomeError], else what the broker refused it with; only with the middle
// two can anything have been committed.
func (s *Store) Apply(ctx context.Context, m Move) error {
	op := fmt.Sprintf("commit offset %s to group %s", m.Offset, m.Lane.Group())
	// A broker that could not replicate a commit in time, or stopped to be the
	// coordinator before it had, refuses it, and may have written it all the same.
	maybe := false
	fail := func(err error) error {
		if maybe {
			return s.settleMove(ctx, m, err)
		}
		return err
	}
	for n := 1; ; n++ {
		if err := s.Memberless(ctx, m.Lane); err != nil {
			return fail(err)
		}
		now, err := s.committed(ctx, m.Lane)
		if err != nil {
			return fail(err)
		}
		if maybe && m.is(now) {
			return nil
		}
		if !same(now, m.Before) {
			return &MovedError{Lane: m.Lane, Planned: m.Before, Now: now}
		}
		lost, err := s.commit(ctx, m)
		maybe = maybe || errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.NotCoordinator)
		switch {
		case err == nil:
			return s.confirm(ctx, m)
		case lost:
			return s.settleMove(ctx, m, kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Read", m.Lane.Group()), kafkaerr.OnTopic("Read", m.Lane.Topic())))
		case n >= attempts || !s.retryGroup(m.Lane.Group(), err) && kafkaerr.Classify(err) != kafkaerr.Superseded:
			return fail(kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Read", m.Lane.Group()), kafkaerr.OnTopic("Read", m.Lane.Topic())))
		}
		// Refused for now; where a member has come, the next look names it.
		if backoff(ctx, n) != nil {
			return fail(kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Read", m.Lane.Group()), kafkaerr.OnTopic("Read", m.Lane.Topic())))
		}
	}
}

func (s *Store) committed(ctx context.Context, lane topics.Lane) (Commit, error) {
	got, err := s.Commits(ctx, []topics.Lane{lane})
	return got[lane], err
}

// same reports whether two looks at a group saw the same commit.
func same(a, b Commit) bool { return a.State == b.State && a.Offset == b.Offset && a.Raw == b.Raw }

// is reports whether a commit is what a move commits.
func (m Move) is(c Commit) bool {
	return same(c, m.After())
}

// commit sends the commit once, and without a client's retries: a late second
// one could overwrite what somebody did since. lost says that the outcome is
// not known.
func (s *Store) commit(ctx context.Context, m Move) (lost bool, err error) {
	group := m.Lane.Group()
	nodes, err := s.coordinatorsOf(ctx, []string{group})
	if err != nil {
		return false, err
	}
	if c := nodes[0]; c.err != nil {
		return false, c.err
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = m.Lane.Topic(), m.Meta.TopicID
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.LeaderEpoch, p.Metadata = int64(m.Offset), -1, new(wire.FormatMetadata(m.Meta))
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	answer, err := s.cl.Broker(int(nodes[0].node)).Request(ctx, req)
	if err != nil {
		op := (*net.OpError)(nil)
		neverLeft := errors.As(err, &op) && op.Op == "dial" || strings.Contains(err.Error(), unknownBroker)
		return !neverLeft, err
	}
	resp := answer.(*kmsg.OffsetCommitResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return true, errShort
	}
	err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	return errors.Is(err, kerr.UnknownServerError) || errors.Is(err, kerr.RequestTimedOut), err
}

// confirm looks whether the move that was answered with success is there.
func (s *Store) confirm(ctx context.Context, m Move) error {
	now, err := s.committed(ctx, m.Lane)
	if err != nil || m.is(now) {
		return nil //nolint:nilerr // it was committed, whatever became of the look
	}
	return &MovedError{Lane: m.Lane, Planned: m.Before, Now: now, After: true}
}

// lookBack bounds the look at the group after an answer was lost, which is made
// even where the caller has given up.
const lookBack = 500 * time.Millisecond

// settleMove finds out what became of a move whose answer was lost.
func (s *Store) settleMove(ctx context.Context, m Move, lost error) error {
	s.mu.Lock()
	delete(s.coordinators, m.Lane.Group())
	s.mu.Unlock()
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lookBack)
		defer cancel()
	}
	now, err := s.committed(ctx, m.Lane)
	if err == nil && m.is(now) {
		return nil
	}
	return &OutcomeError{Move: m, Now: now, Err: lost}
}

// Memberless returns nil when the lane's group has no member, so that
// [Store.Apply] would commit now, and a [*GroupActiveError] when it has some.
// It changes nothing.
func (s *Store) Memberless(ctx context.Context, lane topics.Lane) error {
	described, err := kadm.NewClient(s.cl).DescribeGroups(ctx, lane.Group())
	if err != nil {
		return kafkaerr.Wrap("look for members of group "+lane.Group(), err, kafkaerr.OnGroup("Describe", lane.Group()))
	}
	group := described[lane.Group()]
	if err := group.Err; err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return kafkaerr.Wrap("look for members of group "+lane.Group(), err, kafkaerr.OnGroup("Describe", lane.Group()))
	}
	in := members.Of(group)
	if len(in) == 0 {
		return nil
	}
	active := &GroupActiveError{Group: lane.Group()}
	for _, m := range in {
		active.Members = append(active.Members, m.String())
	}
	return active
}
