package offsets

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/members"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Acceptance is an operator's decision to go on at an offset although items
// below it were never acked.
type Acceptance struct {
	Before Commit        // what the group has
	Offset flusso.Offset // where the lane goes on: behind a whole item, or at the log start
	Meta   Metadata      // what is committed with it
	// Acked is the through that was acked before, NoPosition when nothing
	// tells: positions above it and up to Meta.Through are given up.
	Acked flusso.Position
}

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

// PlanAccept says what accepting would commit so that the lane goes on at an
// offset: at the end of the newest whole item below it, or at the log start
// where nothing is below it. With [flusso.NoOffset] the place is that of the
// group's commit, moved up to the log start where it lies below. It changes
// nothing.
//
// Errors: a [*flusso.InvalidError] for an offset beyond the lane; what the
// brokers answered.
func (s *Store) PlanAccept(ctx context.Context, lane topics.Lane, to flusso.Offset) (Acceptance, error) {
	one := []topics.Lane{lane}
	commits, err := s.Commits(ctx, one)
	if err != nil {
		return Acceptance{}, err
	}
	ends, err := s.Ends(ctx, one)
	if err != nil {
		return Acceptance{}, err
	}
	mirrors, err := s.Mirror(ctx, lane.Pipeline, one)
	if err != nil {
		return Acceptance{}, err
	}
	a := Acceptance{Before: commits[lane], Offset: to}
	e := ends[lane]
	if a.Offset < 0 {
		a.Offset = max(a.Before.Offset, e.Start)
	}
	if a.Offset < e.Start || a.Offset > e.Stable {
		return Acceptance{}, &flusso.InvalidError{
			What:   fmt.Sprintf("offset %s for the lane of sink %q", a.Offset, lane.Sink),
			Reason: fmt.Sprintf("topic %s goes from %s to %s", lane.Topic(), e.Start, e.Stable),
		}
	}
	acked := a.Before.Meta
	if !a.Before.Own() {
		acked = nil
		if m := mirrors[lane]; m.Own() {
			acked = m.Meta
		}
	}
	return s.planAt(ctx, lane, a, e, acked)
}

// planAt fills in what goes with the offset. acked is what was verified last.
func (s *Store) planAt(ctx context.Context, lane topics.Lane, a Acceptance, e Ends, acked *Metadata) (Acceptance, error) {
	if acked != nil {
		a.Acked = acked.Through
	}
	below, err := s.Below(ctx, lane, a.Offset)
	switch {
	case err == nil:
		a.Offset, a.Meta = below.Next(), upTo(below.Header)
	case !errors.Is(err, ErrUnknown):
		return Acceptance{}, err
	default:
		// Nothing is left below. The through of what is gone can't be known:
		// what was acked before is a safe one, and the next ack corrects it.
		a.Offset = e.Start
		first, err := s.From(ctx, lane, e.Start)
		switch {
		case errors.Is(err, ErrUnknown): // an empty lane: whatever comes next begins it
		case err != nil:
			return Acceptance{}, err
		case first.At-e.Start+1 < flusso.Offset(first.Header.Records):
			// The log begins within an item: what is left of it is of no use.
			a.Offset, a.Meta = first.Next(), upTo(first.Header)
		case first.Header.Sequence > 1:
			h := first.Header
			a.Meta = Metadata{Sequence: h.Sequence - 1, Epoch: h.Epoch, Incarnation: h.Incarnation}
			if acked != nil && acked.Incarnation == h.Incarnation {
				a.Meta.Through = min(acked.Through, h.Through)
			}
		}
	}
	a.Meta.Offset, a.Meta.TopicID = a.Offset, e.TopicID
	return a, nil
}

// upTo is the metadata of a lane acked up to and including an item.
func upTo(h Header) Metadata {
	return Metadata{Through: h.Through, Sequence: h.Sequence, Epoch: h.Epoch, Incarnation: h.Incarnation}
}

// Accept commits what [Store.PlanAccept] returned. The group must be empty: a
// [*GroupActiveError] names its members.
func (s *Store) Accept(ctx context.Context, lane topics.Lane, a Acceptance) error {
	if err := s.Memberless(ctx, lane); err != nil {
		return err
	}
	op := fmt.Sprintf("commit offset %s to group %s", a.Offset, lane.Group())
	var o kadm.Offsets
	o.Add(kadm.Offset{
		Topic: lane.Topic(), Partition: 0, At: int64(a.Offset), LeaderEpoch: -1, Metadata: wire.FormatMetadata(a.Meta),
	})
	got, err := kadm.NewClient(s.cl).CommitOffsets(ctx, lane.Group(), o)
	if err == nil {
		err = got.Error()
	}
	return kafkaerr.Wrap(op, err)
}

// Memberless returns nil when the lane's group has no member, so that
// [Store.Accept] would commit now, and a [*GroupActiveError] when it has some.
// It changes nothing.
func (s *Store) Memberless(ctx context.Context, lane topics.Lane) error {
	described, err := kadm.NewClient(s.cl).DescribeGroups(ctx, lane.Group())
	if err != nil {
		return kafkaerr.Wrap("look for members of group "+lane.Group(), err)
	}
	group := described[lane.Group()]
	if err := group.Err; err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return kafkaerr.Wrap("look for members of group "+lane.Group(), err)
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
