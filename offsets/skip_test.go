package offsets_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
)

// TestPlanSkip: it is the item that the sink would get first, and the move ends
// right behind it, whatever the lane is acked by.
func TestPlanSkip(t *testing.T) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	s.segment(true, live(10, 2), live(20, 3))
	s.segment(false, live(30, 2))
	s.segment(true, snapshot(2), live(30, 1))
	store := offsets.New(c.Client(t))
	tr := s.read()
	for i, item := range tr.items {
		skip := must(store.PlanSkip(within(t), s.lane))(t)
		if skip.Item.At != item.At || skip.Item.Header.Sequence != item.Header.Sequence || skip.From > item.At {
			t.Fatalf("item %d: got %+v, want %+v", i, skip, item)
		}
		m := skip.Move
		if m.Offset != item.Next() || m.GivenUp() != 1 || m.Again() != 0 || m.Between.Batches != 1 ||
			m.Between.Envelopes != uint64(item.Header.Envelopes) || m.Meta.Through != item.Header.Through {
			t.Fatalf("item %d: got %+v", i, m)
		}
		if err := store.Apply(within(t), m); err != nil {
			t.Fatal(err)
		}
		if d, _ := start(t, store, s.lane); d.Err != nil || d.Offset != item.Next() || d.Sequence != item.Header.Sequence+1 {
			t.Fatalf("after item %d: got %+v", i, d)
		}
	}
	_, err := store.PlanSkip(within(t), s.lane)
	if nothing := (*offsets.NothingWaitsError)(nil); !errors.As(err, &nothing) || nothing.At != tr.items[len(tr.items)-1].Next() {
		t.Fatalf("at the end: got %v", err)
	}
}

// TestPlanSkipRefuses what a consumer would be refused.
func TestPlanSkipRefuses(t *testing.T) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	s.segment(true, live(10, 2), live(20, 3), live(30, 1))
	store := offsets.New(c.Client(t))
	tr := s.read()
	commit(t, c, s.lane.Group(), s.lane, tr.items[1].Next(), "set by hand")
	_, err := store.PlanSkip(within(t), s.lane)
	if unverified := (*flusso.UnverifiedError)(nil); !errors.As(err, &unverified) {
		t.Fatalf("a forward jump: got %v", err)
	}
	_, ends := start(t, store, s.lane)
	first := tr.items[0].Header
	meta := wire.Metadata{
		Offset: tr.items[0].Next(), Through: first.Through, Sequence: first.Sequence, Epoch: first.Epoch,
		TopicID: ends.TopicID, Incarnation: first.Incarnation,
	}
	commit(t, c, s.lane.Group(), s.lane, meta.Offset, wire.FormatMetadata(meta))
	s.trim(tr.items[1].Next())
	_, err = store.PlanSkip(within(t), s.lane)
	if gap := (*flusso.GapError)(nil); !errors.As(err, &gap) {
		t.Fatalf("a gap: got %v", err)
	}
}

// TestPlanSkipBehindACutItem: a lane is trimmed up to the last record of an
// acked item. What is left of that is nothing that a sink gets: the item behind
// it is the one that goes.
func TestPlanSkipBehindACutItem(t *testing.T) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	s.segment(true, live(10, 3), live(20, 3), live(30, 1))
	store := offsets.New(c.Client(t))
	tr := s.read()
	s.mirrors(&tr.items[1])
	s.trim(tr.items[0].At)
	commit(t, c, s.lane.Group(), s.lane, tr.items[0].At, "set by hand")
	skip := must(store.PlanSkip(within(t), s.lane))(t)
	if skip.Item.At != tr.items[1].At || skip.From != tr.items[0].Next() || skip.Move.Offset != tr.items[1].Next() {
		t.Fatalf("got %+v, want the item at %s", skip, tr.items[1].At)
	}
	s.trim(tr.items[2].Next())
	s.segment(true, live(40, 1))
	s.trim(s.read().high)
	commit(t, c, s.lane.Group(), s.lane, 0, "set by hand")
	if skip, err := store.PlanSkip(within(t), s.lane); err == nil {
		t.Fatalf("in an empty log: got %+v", skip)
	}
}

// TestApplyRefusedButCarriedOut: a broker that cannot replicate a commit in time
// says that the coordinator is not available, or that it is not the coordinator
// any more, and may have written it. The move is then made, and neither made twice nor
// called somebody else's.
func TestApplyRefusedButCarriedOut(t *testing.T) {
	for _, code := range []error{kerr.CoordinatorNotAvailable, kerr.NotCoordinator} {
		for _, times := range []int{1, 3} {
			c := newCluster(t)
			s := newScribe(t, c, "audit")
			s.segment(true, live(10, 2), live(20, 3))
			store := offsets.New(c.Client(t))
			skip := must(store.PlanSkip(within(t), s.lane))(t)
			c.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{After: true, Times: times, Code: code})
			if err := store.Apply(within(t), skip.Move); err != nil {
				t.Errorf("%v, %d times: %v", code, times, err)
			}
			if d, _ := start(t, store, s.lane); d.Err != nil || d.Offset != skip.Item.Next() {
				t.Errorf("%v, %d times: got %+v", code, times, d)
			}
		}
	}
}
