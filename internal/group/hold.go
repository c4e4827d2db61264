package group

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/members"
)

// ActiveError says that a group has members, and what it has committed is theirs
// to change. One that was killed stays a member until its session times out.
type ActiveError struct {
	Group   string
	Members []members.Member
}

func (e *ActiveError) Error() string {
	names := make([]string, len(e.Members))
	for i, m := range e.Members {
		names[i] = m.String()
	}
	return fmt.Sprintf("group %s has members (%s): stop them first; one that was killed leaves the group after its session timeout (%.0f s): wait so long and try again",
		e.Group, strings.Join(names, ", "), sessionTimeout.Seconds())
}

// Memberless returns nil when the group has no member, and an [*ActiveError]
// when it has some.
func Memberless(ctx context.Context, cl *kgo.Client, group string) error {
	op := "look for members of group " + group
	described, err := kadm.NewClient(cl).DescribeGroups(ctx, group)
	if err == nil {
		err = described[group].Err
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return kafkaerr.Wrap(op, err, kafkaerr.OnGroup("Describe", group))
	}
	if in := members.Of(described[group]); len(in) > 0 {
		return &ActiveError{group, in}
	}
	return nil
}

// Held is a group whose one member is the caller, who consumes nothing and may
// change what is committed. Whoever joins after it in takeover mode fences it:
// of two that change a group, and of one and a consumer that attaches, only the
// newer one commits, and it has seen what the other did.
type Held struct {
	m         *member
	committed Committed
	lost      bool // another has the name by now
}

// Hold joins a group that has no members. On a group that was empty brokers let
// a join wait (group.initial.rebalance.delay.ms, 3 s by default).
//
// Errors: an [*ActiveError]; what the brokers answered, wrapped; ctx's.
func Hold(ctx context.Context, cfg Config) (*Held, error) {
	cfg.prepare()
	cfg.Mode, cfg.Budget = Takeover, 0 // nothing is read
	if err := Memberless(ctx, cfg.Lookup, cfg.Group); err != nil {
		return nil, err
	}
	id, err := checkTopic(ctx, cfg.Lookup, cfg.Topic, cfg.TopicID)
	if err != nil {
		return nil, err
	}
	on := &holding{at: make(chan Committed, 1)}
	m := newMember(&cfg, id, on)
	if err := m.open(); err != nil {
		return nil, err
	}
	m.cl.PauseFetchTopics(cfg.Topic)
	select {
	case c := <-on.at:
		return &Held{m: m, committed: c}, nil
	case <-m.ended:
		err = m.endedBy()
	case <-ctx.Done():
		err = fmt.Errorf("join group %s: %w", cfg.Group, context.Cause(ctx))
	}
	m.close(context.WithoutCancel(ctx), kafkaerr.Classify(err) != kafkaerr.Superseded)
	return nil, err
}

// Committed is what the group had committed when it became the caller's.
func (h *Held) Committed() Committed { return h.committed }

// Commit commits as the group's member.
//
// Errors: a [*RefusedError] when it was certainly not committed, as when another
// joined since, and an [*UnknownCommitError] when that can't be told.
func (h *Held) Commit(ctx context.Context, c Commit) error {
	err := h.m.endedBy()
	if err != nil {
		err = &RefusedError{h.m.cfg.Group, c.Offset, err}
	} else {
		err = h.m.commit(ctx, h.m.who(), []topicCommit{{h.m.cfg.Topic, h.m.topicID, c}})
	}
	h.lost = kafkaerr.Classify(err) == kafkaerr.Superseded
	return err
}

// Close leaves the group, unless it is somebody else's by now.
func (h *Held) Close(ctx context.Context) {
	lost := h.lost || kafkaerr.Classify(h.m.endedBy()) == kafkaerr.Superseded
	h.m.close(ctx, !lost)
}

// holding is told when the group is ours.
type holding struct{ at chan Committed }

func (h *holding) attach(_ context.Context, _ *member, c Committed) (flusso.Offset, int32, func() error, error) {
	return max(c.Offset, 0), -1, func() error {
		select {
		case h.at <- c:
		default: // a rebalance: what counts is what the commit says
		}
		return nil
	}, nil
}

func (*holding) detach(*member, error, bool) {}
