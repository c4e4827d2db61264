package offsets_test

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// TestPlanDelete: what goes is counted, what was not acked apart.
func TestPlanDelete(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	client := c.Client(t)
	store, admin := offsets.New(client), topics.New(client)
	lanes := []topics.Lane{s.lane}
	_, err := store.PlanDelete(within(t), s.lane, lanes)
	if not := (*offsets.NotRetiredError)(nil); !errors.As(err, &not) {
		t.Fatalf("a lane that is not retired: got %v", err)
	}
	for _, at := range []int{11, 4, -1} {
		var acked wire.Totals
		through := flusso.NoPosition
		if at < 0 {
			s.acks(nil, func(m *wire.Metadata) { m.Retired = retirement() })
		} else {
			s.acks(&tr.items[at], func(m *wire.Metadata) { m.Retired = retirement() })
			acked, through = tr.items[at].Header.Totals, tr.items[at].Header.Through
		}
		d := must(store.PlanDelete(within(t), s.lane, lanes))(t)
		all := tr.items[11].Header.Totals
		if d.Retained != all || d.GivenUp.Batches != all.Batches-acked.Batches || d.GivenUp.Bytes != all.Bytes-acked.Bytes ||
			d.Acked != through || d.Newest != 100 || d.Retired != retirement() {
			t.Errorf("acked item %d: got %+v, want %+v without %+v given up", at, d, all, acked)
		}
	}
	// Trimmed, all that is left is what counts.
	s.acks(&tr.items[8], func(m *wire.Metadata) { m.Retired = retirement() })
	s.trim(tr.items[8].At)
	d := must(store.PlanDelete(within(t), s.lane, lanes))(t)
	if d.Retained.Batches != 4 || d.GivenUp.Batches != 3 {
		t.Errorf("trimmed: got %+v", d)
	}

	// It is restored, or retired again, right before it is deleted.
	other := must(offsets.New(client).PlanRestore(within(t), s.lane))(t)
	if err := store.Apply(within(t), other); err != nil {
		t.Fatal(err)
	}
	if moved := (*offsets.MovedError)(nil); !errors.As(store.StillRetired(within(t), d), &moved) {
		t.Errorf("restored meanwhile: it would be deleted")
	}
	if err := store.Apply(within(t), must(store.PlanRetire(within(t), s.lane, retirement()))(t)); err != nil {
		t.Fatal(err)
	}
	d = must(store.PlanDelete(within(t), s.lane, lanes))(t)
	if err := store.StillRetired(within(t), d); err != nil {
		t.Fatal(err)
	}
	if err := admin.DeleteLane(within(t), s.lane, d.TopicID); err != nil {
		t.Fatal(err)
	}
	_, err = offsets.New(client).PlanDelete(within(t), s.lane, lanes)
	if unknown := (*flusso.UnknownSinkError)(nil); !errors.As(err, &unknown) {
		t.Errorf("deleted: got %v", err)
	}
}

// TestPlanDelete_WhatIsLeftOfARunThatGotHalfWay is the group.
func TestPlanDelete_WhatIsLeftOfARunThatGotHalfWay(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	client := c.Client(t)
	store, admin := offsets.New(client), topics.New(client)
	s.acks(&tr.items[4], func(m *wire.Metadata) { m.Retired = retirement() })
	if _, err := kadm.NewClient(client).DeleteTopic(within(t), s.lane.Topic()); err != nil {
		t.Fatal(err)
	}
	fresh := offsets.New(client)
	d := must(fresh.PlanDelete(within(t), s.lane, nil))(t)
	if d.TopicID != [16]byte{} {
		t.Fatalf("got %+v, want the group alone", d)
	}
	if err := fresh.StillRetired(within(t), d); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := admin.DeleteLane(within(t), s.lane, d.TopicID); err != nil {
			t.Fatal(err)
		}
	}
	_, err := store.PlanDelete(within(t), s.lane, nil)
	if unknown := (*flusso.UnknownSinkError)(nil); !errors.As(err, &unknown) {
		t.Errorf("got %v", err)
	}
}

// TestPlanDelete_OfALaneThatIsWrittenToIsRefused, until a writer without it has
// published something, or no engine runs.
func TestPlanDelete_OfALaneThatIsWrittenToIsRefused(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	other := newScribe(t, c, "search")
	other.segment(true, live(10, 1))
	lanes := []topics.Lane{s.lane, other.lane}
	store := offsets.New(c.Client(t))
	s.acks(&tr.items[4], func(m *wire.Metadata) { m.Retired = retirement() })
	must(store.PlanDelete(within(t), s.lane, lanes))(t)

	requests := s.lane.Pipeline.RequestsTopic()
	c.CreateTopic(t, requests)
	assigned := make(chan struct{})
	engine := c.Client(t, kgo.ClientID("the-engine"), kgo.ConsumerGroup(s.lane.Pipeline.IngestGroup()), kgo.ConsumeTopics(requests), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(assigned) }))
	written := (*offsets.StillWrittenError)(nil)
	<-assigned
	if _, err := store.PlanDelete(within(t), s.lane, lanes); !errors.As(err, &written) {
		t.Fatalf("got %v, want it refused", err)
	}
	if written.Epoch != 1 || len(written.Members) != 1 {
		t.Errorf("got %+v, want the engine named", written)
	}
	other.epoch = 2 // of a writer without the sink
	other.segment(true, live(20, 1))
	must(store.PlanDelete(within(t), s.lane, lanes))(t)
	if err := engine.LeaveGroupContext(within(t)); err != nil {
		t.Fatal(err)
	}
}
