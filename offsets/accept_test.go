package offsets_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// start judges where an attach of the lane begins, as a consumer does.
func start(t *testing.T, s *offsets.Store, lane topics.Lane) (offsets.StartDecision, offsets.Ends) {
	t.Helper()
	one := []topics.Lane{lane}
	commits := must(s.Commits(within(t), one))(t)
	mirrors := must(s.Mirror(within(t), lane.Pipeline, one))(t)
	ends := must(s.Ends(within(t), one))(t)
	return offsets.Start(lane, commits[lane], mirrors[lane], ends[lane]), ends[lane]
}

// TestB8_AcceptedGap: what was not acked is gone, and an operator goes on
// behind it. The watermark stays at what was acked until the next ack.
func TestB8_AcceptedGap(t *testing.T) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	for i := range 6 {
		s.segment(true, live(flusso.Position(10*(i+1)), 2))
	}
	store := offsets.New(c.Client(t))
	tr := s.read()
	acked := tr.below(tr.high / 3)
	_, ends := start(t, store, s.lane)
	meta := wire.Metadata{
		Offset: acked.Next(), Through: acked.Header.Through, Sequence: acked.Header.Sequence, Epoch: 1,
		TopicID: ends.TopicID, Incarnation: s.incarnation,
	}
	commit(t, c, s.lane.Group(), s.lane, acked.Next(), wire.FormatMetadata(meta))
	gone := tr.below(tr.high - 4)
	s.trim(gone.Next())

	before, ends := start(t, store, s.lane)
	if gap := (*flusso.GapError)(nil); !errors.As(before.Err, &gap) {
		t.Fatalf("before: got %v, want a gap", before.Err)
	}
	plan := must(store.PlanAccept(within(t), s.lane, flusso.NoOffset))(t)
	first := must(store.From(within(t), s.lane, ends.Start))(t)
	if plan.Offset != ends.Start || plan.Meta.Sequence != first.Header.Sequence-1 ||
		plan.Meta.Through != acked.Header.Through || plan.Acked != acked.Header.Through {
		t.Fatalf("got plan %+v, want to go on at %s before sequence %d, acked through %s as before",
			plan, ends.Start, first.Header.Sequence, acked.Header.Through)
	}
	if err := store.Apply(within(t), plan); err != nil {
		t.Fatal(err)
	}
	after, _ := start(t, store, s.lane)
	if after.Err != nil || after.Offset != ends.Start || after.Sequence != first.Header.Sequence {
		t.Fatalf("after: got %+v, want to begin at %s with sequence %d", after, ends.Start, first.Header.Sequence)
	}
	floors := must(store.Floors(within(t), s.lane.Pipeline, s.incarnation, []topics.Lane{s.lane}))(t)
	if f := floors[0]; f.State != flusso.FloorAcked || f.Through != acked.Header.Through {
		t.Fatalf("got floor %+v, want acked through %s: what was given up moves it with the next ack", f, acked.Header.Through)
	}
}

// TestCase50_AcceptOfAnActiveGroup is refused, with the members named.
func TestCase50_AcceptOfAnActiveGroup(t *testing.T) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	s.segment(true, live(10, 1), live(20, 1))
	member := c.Client(t, kgo.ClientID("the-sink"), kgo.ConsumerGroup(s.lane.Group()), kgo.ConsumeTopics(s.lane.Topic()), kgo.DisableAutoCommit())
	if err := member.PollFetches(within(t)).Err(); err != nil {
		t.Fatal(err)
	}
	store := offsets.New(c.Client(t))
	plan := must(store.PlanAccept(within(t), s.lane, 2))(t)
	err := store.Apply(within(t), plan)
	active := (*offsets.GroupActiveError)(nil)
	if !errors.As(err, &active) || len(active.Members) != 1 {
		t.Fatalf("got %v, want the one member named", err)
	}
	if !strings.Contains(err.Error(), "killed leaves the group after its session timeout (10 s)") {
		t.Errorf("%q does not say that a killed consumer leaves by itself", err)
	}
	if err := store.Memberless(within(t), s.lane); !errors.As(err, &active) {
		t.Errorf("asked beforehand: got %v, want the same refusal", err)
	}
	if err := member.LeaveGroupContext(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := store.Memberless(within(t), s.lane); err != nil {
		t.Errorf("after the member left: %v", err)
	}
	if got := must(store.Commits(within(t), []topics.Lane{s.lane}))(t)[s.lane]; got.State != offsets.Missing {
		t.Fatalf("got commit %+v, want none", got)
	}
}

// TestB8_AcceptedGapWithinAnItem: what is left of an item whose first records
// are gone is given up with it.
func TestB8_AcceptedGapWithinAnItem(t *testing.T) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	for i := range 3 {
		s.segment(true, live(flusso.Position(10*(i+1)), 3))
	}
	store := offsets.New(c.Client(t))
	tr := s.read()
	second := tr.from(tr.below(tr.high).At - 4)
	s.trim(second.At - 1) // two of its three records are left
	plan := must(store.PlanAccept(within(t), s.lane, flusso.NoOffset))(t)
	if plan.Offset != second.Next() || plan.Meta.Sequence != second.Header.Sequence || plan.Meta.Through != second.Header.Through {
		t.Fatalf("got plan %+v, want to go on behind %+v", plan, second)
	}
	if err := store.Apply(within(t), plan); err != nil {
		t.Fatal(err)
	}
	if after, _ := start(t, store, s.lane); after.Err != nil || after.Offset != second.Next() {
		t.Fatalf("after: got %+v, want to begin at %s", after, second.Next())
	}
}

// TestAcceptOutsideTheLog: whatever a group has committed, there is a place to
// go on at. What another tool skipped is given up, and nothing that is there of a
// topic that was recreated or of a log that was truncated.
func TestAcceptOutsideTheLog(t *testing.T) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	s.segment(true, live(10, 2), live(20, 3), live(30, 1))
	store := offsets.New(c.Client(t))
	tr := s.read()
	far := tr.high + 100
	_, ends := start(t, store, s.lane)
	check := func(what string, want flusso.Offset, through flusso.Position, givenUp uint64) {
		t.Helper()
		m, err := store.PlanAccept(within(t), s.lane, flusso.NoOffset)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if m.Offset != want || m.Meta.Through != through || m.GivenUp() != givenUp || m.Meta.TopicID != ends.TopicID || m.Attach != nil {
			t.Fatalf("%s: got %+v, want offset %s through %s, %d given up", what, m, want, through, givenUp)
		}
	}
	s.mirrors(&tr.items[0])
	commit(t, c, s.lane.Group(), s.lane, far, "set by hand")
	check("a foreign commit beyond the end", tr.items[2].Next(), 30, 2)

	truncated := func(m *wire.Metadata) { m.Offset, m.Sequence = far, 50 }
	s.acks(&tr.items[1], truncated)
	check("a truncated log", tr.items[1].Next(), 20, 0)
	s.acks(&tr.items[1], truncated, func(m *wire.Metadata) { m.Incarnation = "db:other" })
	check("a truncated log that goes on in another incarnation", tr.start, flusso.NoPosition, 0)
	s.acks(&tr.items[1], truncated, func(m *wire.Metadata) { m.Through = flusso.NoPosition })
	check("a truncated log of which nothing with a position was acked", tr.start, flusso.NoPosition, 0)

	for _, off := range []flusso.Offset{tr.items[1].Next(), far} {
		s.acks(&tr.items[1], func(m *wire.Metadata) { m.Offset, m.TopicID = off, [16]byte{1} })
		check("a recreated topic", tr.start, flusso.NoPosition, 0)
	}
}
