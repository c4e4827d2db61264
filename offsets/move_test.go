package offsets_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// acks commits as the lane's consumer does once it has acked an item; nil for
// one that has attached and acked nothing.
func (s *scribe) acks(item *offsets.Found, change ...func(*wire.Metadata)) wire.Metadata {
	s.t.Helper()
	ends := must(offsets.New(s.c.Client(s.t)).Ends(within(s.t), []topics.Lane{s.lane}))(s.t)[s.lane]
	m := wire.Metadata{TopicID: ends.TopicID}
	if item != nil {
		h := item.Header
		m.Offset, m.Through, m.Sequence, m.Epoch, m.Incarnation = item.Next(), h.Through, h.Sequence, h.Epoch, h.Incarnation
	}
	for _, f := range change {
		f(&m)
	}
	commit(s.t, s.c, s.lane.Group(), s.lane, m.Offset, wire.FormatMetadata(m))
	return m
}

func (s *scribe) mirrors(item *offsets.Found) {
	s.t.Helper()
	ends := must(offsets.New(s.c.Client(s.t)).Ends(within(s.t), []topics.Lane{s.lane}))(s.t)[s.lane]
	h := item.Header
	commit(s.t, s.c, s.lane.Pipeline.IngestGroup(), s.lane, item.Next(), wire.FormatMetadata(wire.Metadata{
		Offset: item.Next(), Through: h.Through, Sequence: h.Sequence, Epoch: h.Epoch, TopicID: ends.TopicID, Incarnation: h.Incarnation,
	}))
}

// ten is a lane with ten items at positions 10 to 100, aborted ones and a
// snapshot between them.
func ten(t *testing.T, c *kfaketest.Cluster) (*scribe, truth) {
	t.Helper()
	s := newScribe(t, c, "audit")
	for i := range flusso.Position(10) {
		if i%3 == 1 {
			s.segment(false, live(10*(i+1), 2))
		}
		if i == 5 {
			s.segment(true, snapshot(3), marker())
		}
		s.segment(true, live(10*(i+1), int(i%4)))
	}
	return s, s.read()
}

// TestPlanRewind against a plain look at all items: every target of every kind
// is the boundary that a person would pick, what comes again is counted, and
// forward is refused.
func TestPlanRewind(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, at := range []int{11, 6, 4, 2} { // the acked item
		acked := tr.items[at]
		s.acks(&acked)
		for range 60 {
			var target offsets.Target
			var keeps func(offsets.Found) bool
			switch rng.IntN(3) {
			case 0:
				pos := flusso.Position(rng.IntN(110))
				target, keeps = offsets.ToPosition(pos), func(f offsets.Found) bool { return f.Header.Through <= pos }
			case 1:
				off := flusso.Offset(rng.IntN(int(tr.stable) + 1))
				target, keeps = offsets.ToOffset(off), func(f offsets.Found) bool { return f.At < off }
			default:
				when := tr.items[rng.IntN(len(tr.items))].Header.BuiltAt.Add(time.Duration(rng.IntN(3)-1) * time.Millisecond)
				target, keeps = offsets.ToTime(when), func(f offsets.Found) bool { return f.Header.BuiltAt.Before(when) }
			}
			kept := -1 // index of the last item that stays acked
			for i, f := range tr.items {
				if keeps(f) {
					kept = i
				}
			}
			m, err := offsets.New(c.Client(t)).PlanRewind(within(t), s.lane, target)
			if kept > at && strings.HasPrefix(target.String(), "position") && tr.items[kept].Header.Through == acked.Header.Through {
				kept = at // snapshot items add nothing to a position
			}
			if kept > at {
				forward := (*offsets.ForwardError)(nil)
				if !errors.As(err, &forward) || forward.Move.GivenUp() != uint64(kept-at) || forward.Move.Acked != acked.Header.Through ||
					!strings.Contains(err.Error(), "lane accept audit --to "+forward.Move.Offset.String()) {
					t.Fatalf("acked item %d, to %s: got %v, want it refused with %d items given up", at, target, err, kept-at)
				}
				continue
			}
			if err != nil {
				t.Fatalf("acked item %d, to %s: %v", at, target, err)
			}
			want, through, sequence := flusso.Offset(0), flusso.NoPosition, uint64(0)
			var between offsets.Totals
			if kept >= 0 {
				h := tr.items[kept].Header
				want, through, sequence = tr.items[kept].Next(), h.Through, h.Sequence
				between.Envelopes = acked.Header.Totals.Envelopes - h.Totals.Envelopes
				between.Bytes = acked.Header.Totals.Bytes - h.Totals.Bytes
			} else {
				between.Envelopes, between.Bytes = acked.Header.Totals.Envelopes, acked.Header.Totals.Bytes
			}
			if m.Offset != want || m.Meta.Through != through || m.Meta.Sequence != sequence || m.Meta.Offset != want ||
				m.Again() != uint64(at-kept) || m.GivenUp() != 0 || m.Attach != nil ||
				m.Between.Batches != uint64(at-kept) || m.Between.Envelopes != between.Envelopes || m.Between.Bytes != between.Bytes {
				t.Fatalf("acked item %d, to %s: got %+v, want offset %s through %s, %d items again, %+v", at, target, m, want, through, at-kept, between)
			}
		}
	}
}

// TestPlanRewindIsApplied: a consumer begins right there, and the watermark of
// whoever reads for the first time is that of the place.
func TestPlanRewindIsApplied(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	store := offsets.New(c.Client(t))
	s.acks(&tr.items[8])
	m := must(store.PlanRewind(within(t), s.lane, offsets.ToPosition(30)))(t)
	if err := store.Apply(within(t), m); err != nil {
		t.Fatal(err)
	}
	d, _ := start(t, store, s.lane)
	if d.Err != nil || d.Offset != tr.items[2].Next() || d.Sequence != 4 || d.Through != 30 {
		t.Errorf("got %+v, want to begin behind item 3", d)
	}
	floors := must(store.Floors(within(t), s.lane.Pipeline, s.incarnation, []topics.Lane{s.lane}))(t)
	if f := floors[0]; f.State != flusso.FloorAcked || f.Through != 30 || f != m.Floor(s.incarnation) {
		t.Errorf("got floor %+v, planned %+v", f, m.Floor(s.incarnation))
	}
}

// TestPlanRewindOfATrimmedLane: what is gone is named with the earliest there
// is, and the earliest is behind what is left of an item at the log start.
func TestPlanRewindOfATrimmedLane(t *testing.T) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	for i := range flusso.Position(6) {
		s.segment(true, live(10*(i+1), 3))
	}
	tr := s.read()
	s.acks(&tr.items[4])
	s.trim(tr.items[2].At) // the header of item 3 is kept, as the engine does
	store := offsets.New(c.Client(t))
	for _, target := range []offsets.Target{
		offsets.ToPosition(20), offsets.ToOffset(1), offsets.ToTime(tr.items[1].Header.BuiltAt),
	} {
		_, err := store.PlanRewind(within(t), s.lane, target)
		gone := (*offsets.GoneError)(nil)
		if !errors.As(err, &gone) || gone.Earliest != tr.items[2].At || gone.First != 30 || !gone.BuiltAt.Equal(tr.items[2].Header.BuiltAt) {
			t.Errorf("to %s: got %v, want it gone", target, err)
			continue
		}
		if !strings.Contains(err.Error(), "--to-earliest") {
			t.Errorf("%q does not name the way out", err)
		}
	}
	m := must(store.PlanRewind(within(t), s.lane, offsets.ToEarliest()))(t)
	if m.Offset != tr.items[2].Next() || m.Meta.Through != 30 || m.Meta.Sequence != 3 || m.Again() != 2 {
		t.Errorf("to the earliest: got %+v, want behind item 3", m)
	}
	s.trim(tr.items[2].Next()) // by another tool, between two items: sequence 4 begins the log
	m = must(store.PlanRewind(within(t), s.lane, offsets.ToEarliest()))(t)
	if m.Meta.Sequence != 3 || m.Meta.Through != 39 || m.Again() != 2 {
		t.Errorf("to the earliest: got %+v, want all that can be known below position 40", m)
	}
	if err := store.Apply(within(t), m); err != nil {
		t.Fatal(err)
	}
	if d, _ := start(t, store, s.lane); d.Err != nil || d.Sequence != 4 {
		t.Errorf("got %+v, want to begin with sequence 4", d)
	}
}

// TestPlanRewindTrustsOnlyWhatWasAcked: an offset that another tool set, or
// none, says nothing of what may come again without a gap.
func TestPlanRewindTrustsOnlyWhatWasAcked(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	store := offsets.New(c.Client(t))
	forward := (*offsets.ForwardError)(nil)
	jump := tr.items[9].Next()

	commit(t, c, s.lane.Group(), s.lane, jump, "set by hand")
	if _, err := store.PlanRewind(within(t), s.lane, offsets.ToPosition(30)); !errors.As(err, &forward) {
		t.Errorf("a jump and no mirror: got %v, want it refused", err)
	}
	if m := must(store.PlanRewind(within(t), s.lane, offsets.ToEarliest()))(t); m.Offset != 0 || m.Meta.Sequence != 0 {
		t.Errorf("a jump and no mirror: got %+v, want the beginning", m)
	}
	s.mirrors(&tr.items[4])
	if _, err := store.PlanRewind(within(t), s.lane, offsets.ToPosition(60)); !errors.As(err, &forward) {
		t.Errorf("past the mirror: got %v, want it refused", err)
	}
	m := must(store.PlanRewind(within(t), s.lane, offsets.ToPosition(50)))(t)
	if m.Offset != tr.items[4].Next() || m.Before.Offset != jump || m.Again() != 0 {
		t.Errorf("to the mirror: got %+v", m)
	}
	if err := store.Apply(within(t), m); err != nil {
		t.Fatal(err)
	}
	if d, _ := start(t, store, s.lane); d.Err != nil || d.From != "commit" || d.Offset != m.Offset {
		t.Errorf("the jump is undone, and an attach gets %+v", d)
	}
}

func TestPlanRewindRefuses(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	store := offsets.New(c.Client(t))
	s.acks(&tr.items[4])
	invalid, retired, recreated, forward := (*flusso.InvalidError)(nil), (*flusso.RetiredError)(nil), (*offsets.RecreatedError)(nil), (*offsets.ForwardError)(nil)
	if _, err := store.PlanRewind(within(t), s.lane, offsets.ToOffset(tr.high+1)); !errors.As(err, &invalid) {
		t.Errorf("beyond the end: got %v", err)
	}
	s.trim(tr.items[6].Next())
	if _, err := store.PlanRewind(within(t), s.lane, offsets.ToEarliest()); !errors.As(err, &forward) || forward.Move.GivenUp() != 2 {
		t.Errorf("over a gap: got %v, want the two items named that it gives up", err)
	}
	s.acks(&tr.items[8], func(m *wire.Metadata) { m.Retired = retirement() })
	if _, err := store.PlanRewind(within(t), s.lane, offsets.ToEarliest()); !errors.As(err, &retired) {
		t.Errorf("a retired lane: got %v", err)
	}
	if _, err := store.PlanAccept(within(t), s.lane, flusso.NoOffset); !errors.As(err, &retired) {
		t.Errorf("accept of a retired lane: got %v", err)
	}
	s.acks(&tr.items[8], func(m *wire.Metadata) { m.TopicID = [16]byte{9} })
	if _, err := store.PlanRewind(within(t), s.lane, offsets.ToEarliest()); !errors.As(err, &recreated) {
		t.Errorf("a recreated lane: got %v", err)
	}
}

func retirement() offsets.Retirement {
	return offsets.Retirement{At: time.UnixMilli(1_764_452_184_123).UTC(), By: "ana@ops-1", Why: "moved away"}
}

// TestApply_AMoveBetweenPlanAndCommitIsRefused, whoever made it.
func TestApply_AMoveBetweenPlanAndCommitIsRefused(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	one, two := offsets.New(c.Client(t)), offsets.New(c.Client(t))
	moved := (*offsets.MovedError)(nil)
	plan := must(one.PlanRewind(within(t), s.lane, offsets.ToEarliest()))(t) // the group does not exist
	for i, other := range []func(){
		func() { s.acks(&tr.items[4]) },
		func() { s.acks(&tr.items[4], func(m *wire.Metadata) { m.Retired = retirement() }) }, // same offset
		func() { commit(t, c, s.lane.Group(), s.lane, tr.items[4].Next(), "set by hand") },
		func() {
			s.acks(&tr.items[4])
			m := must(two.PlanSkip(within(t), s.lane))(t).Move
			if err := two.Apply(within(t), m); err != nil {
				t.Fatal(err)
			}
		},
	} {
		other()
		before := must(two.Commits(within(t), []topics.Lane{s.lane}))(t)[s.lane]
		err := one.Apply(within(t), plan)
		if !errors.As(err, &moved) || moved.After || moved.Now.Raw != before.Raw {
			t.Fatalf("move %d: got %v, want it refused with what the group has now", i, err)
		}
		if got := must(two.Commits(within(t), []topics.Lane{s.lane}))(t)[s.lane]; got.Raw != before.Raw {
			t.Fatalf("move %d: a refused move changed the group to %+v", i, got)
		}
		plan.Before = before
	}
	if err := one.Apply(within(t), plan); err != nil {
		t.Fatalf("planned anew: %v", err)
	}
}

// TestApply_TwoOperatorsAtOnce: whatever they do at the same time, what stands is
// what one of them planned, and whoever else thinks that his does is told.
func TestApply_TwoOperatorsAtOnce(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	for round := range 20 {
		s.acks(&tr.items[8])
		var plans [4]offsets.Move
		var stores [4]*offsets.Store
		for i := range plans {
			stores[i] = offsets.New(c.Client(t))
			plans[i] = must(stores[i].PlanRewind(within(t), s.lane, offsets.ToPosition(flusso.Position(10*(i+1)))))(t)
		}
		var wg sync.WaitGroup
		var errs [4]error
		for i := range plans {
			wg.Go(func() { errs[i] = stores[i].Apply(context.Background(), plans[i]) })
		}
		wg.Wait()
		got := must(stores[0].Commits(within(t), []topics.Lane{s.lane}))(t)[s.lane]
		stands := -1
		for i, m := range plans {
			moved := (*offsets.MovedError)(nil)
			switch {
			case got.Raw == wire.FormatMetadata(m.Meta):
				stands = i
				if errs[i] != nil {
					t.Errorf("round %d: operator %d's move stands, and it got %v", round, i, errs[i])
				}
			case errs[i] != nil && !errors.As(errs[i], &moved):
				t.Errorf("round %d: operator %d got %v", round, i, errs[i])
			}
		}
		if stands < 0 {
			t.Fatalf("round %d: the group has %+v, which nobody planned", round, got)
		}
	}
}

// TestApply_AnEngineThatJoinsMeanwhileKeepsItsLane: the broker refuses the commit
// however late the engine comes.
func TestApply_AnEngineThatJoinsMeanwhileKeepsItsLane(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	s.acks(&tr.items[8])
	store := offsets.New(c.Client(t, kgo.ClientID("operator")))
	plan := must(store.PlanRewind(within(t), s.lane, offsets.ToEarliest()))(t)
	held := c.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "operator"})
	result := make(chan error, 1)
	go func() { result <- store.Apply(within(t), plan) }()
	<-held.Hit() // it has looked for members and found none
	assigned := make(chan struct{}, 1)
	member := c.Client(t, kgo.ClientID("the-sink"), kgo.ConsumerGroup(s.lane.Group()), kgo.ConsumeTopics(s.lane.Topic()), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}))
	<-assigned
	held.Release()
	active := (*offsets.GroupActiveError)(nil)
	if err := <-result; !errors.As(err, &active) || len(active.Members) != 1 || !strings.Contains(active.Members[0], "the-sink") {
		t.Errorf("got %v, want the engine named that came meanwhile", err)
	}
	if got := must(store.Commits(within(t), []topics.Lane{s.lane}))(t)[s.lane]; got.Offset != tr.items[8].Next() {
		t.Errorf("the group is at %s, want it where it was", got.Offset)
	}
	if err := member.LeaveGroupContext(within(t)); err != nil {
		t.Fatal(err)
	}
}

// TestApply_Faults: what the broker says, and what happens when its answer is
// lost: then the group is read back.
func TestApply_Faults(t *testing.T) {
	for _, tt := range []struct {
		name    string
		fault   kfaketest.Fault
		read    bool // the look afterwards fails as well
		err     string
		outcome bool // *OutcomeError
		moved   bool // the group has the new offset afterwards
	}{
		{name: "the answer is lost", fault: kfaketest.Fault{Mode: kfaketest.Disconnect, After: true}, moved: true},
		{name: "the request is lost", fault: kfaketest.Fault{Mode: kfaketest.Disconnect}, outcome: true, err: "right after that it was at offset"},
		{
			name: "the answer is lost, and the look as well", fault: kfaketest.Fault{Mode: kfaketest.Disconnect, After: true}, read: true,
			outcome: true, moved: true, err: "could not be read either",
		},
		{name: "it timed out in the broker", fault: kfaketest.Fault{Code: kerr.RequestTimedOut}, outcome: true, err: "may have been committed"},
		{name: "it timed out in the broker, and is in", fault: kfaketest.Fault{Code: kerr.RequestTimedOut, After: true}, moved: true},
		{name: "not the coordinator", fault: kfaketest.Fault{Code: kerr.NotCoordinator, Times: 2}, moved: true},
		{name: "not ready", fault: kfaketest.Fault{Code: kerr.CoordinatorLoadInProgress}, moved: true},
		{name: "not allowed", fault: kfaketest.Fault{Code: kerr.GroupAuthorizationFailed}, err: "commit offset 0 to group orders.sink.audit"},
		{name: "metadata too large", fault: kfaketest.Fault{Code: kerr.OffsetMetadataTooLarge}, err: "commit offset 0 to group orders.sink.audit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t)
			s, tr := ten(t, c)
			s.acks(&tr.items[8])
			store := offsets.New(c.Client(t, kgo.ClientID("operator")))
			plan := must(store.PlanRewind(within(t), s.lane, offsets.ToEarliest()))(t)
			tt.fault.ClientID = "operator"
			c.Fault(t, kmsg.OffsetCommit, tt.fault)
			if tt.read {
				c.Fault(t, kmsg.OffsetFetch, kfaketest.Fault{Code: kerr.GroupAuthorizationFailed, Times: -1, Skip: 1, ClientID: "operator"})
			}
			err := store.Apply(within(t), plan)
			outcome := (*offsets.OutcomeError)(nil)
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.As(err, &outcome) != tt.outcome {
				t.Errorf("got %v", err)
			}
			want := tr.items[8].Next()
			if tt.moved {
				want = 0
			}
			if got := must(offsets.New(c.Client(t)).Commits(within(t), []topics.Lane{s.lane}))(t)[s.lane]; got.Offset != want {
				t.Errorf("the group is at %s, want %s", got.Offset, want)
			}
		})
	}
}

// TestApply_WhoeverGivesUpIsToldThatNobodyKnows.
func TestApply_WhoeverGivesUpIsToldThatNobodyKnows(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	s.acks(&tr.items[8])
	store := offsets.New(c.Client(t, kgo.ClientID("operator")))
	plan := must(store.PlanRewind(within(t), s.lane, offsets.ToEarliest()))(t)
	held := c.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "operator"})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-held.Hit(); cancel() }()
	err := store.Apply(ctx, plan)
	if outcome := (*offsets.OutcomeError)(nil); !errors.As(err, &outcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}
