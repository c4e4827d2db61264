package offsets_test

import (
	"errors"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// TestPlanRetire: whatever the group has, the lane is retired where it was acked
// for certain, and restored to that: nothing that was not acked is lost by it.
func TestPlanRetire(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stand func(s *scribe, tr truth)
		at    int // the item that is acked for certain, -1 for none
	}{
		{"nothing committed", func(*scribe, truth) {}, -1},
		{"attached, nothing acked", func(s *scribe, _ truth) { s.acks(nil) }, -1},
		{"acked", func(s *scribe, tr truth) { s.acks(&tr.items[5]) }, 5},
		{"expired", func(s *scribe, tr truth) { s.mirrors(&tr.items[4]) }, 4},
		{"jumped forward, no mirror", func(s *scribe, tr truth) { commit(s.t, s.c, s.lane.Group(), s.lane, tr.items[7].Next(), "x") }, -1},
		{"jumped forward", func(s *scribe, tr truth) {
			s.mirrors(&tr.items[3])
			commit(s.t, s.c, s.lane.Group(), s.lane, tr.items[7].Next(), "x")
		}, 3},
		{"rewound by hand", func(s *scribe, tr truth) {
			s.mirrors(&tr.items[8])
			commit(s.t, s.c, s.lane.Group(), s.lane, tr.items[2].Next(), "x")
		}, 2},
		{"rewound by hand to the beginning", func(s *scribe, tr truth) {
			s.mirrors(&tr.items[8])
			commit(s.t, s.c, s.lane.Group(), s.lane, 0, "x")
		}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t)
			s, tr := ten(t, c)
			tt.stand(s, tr)
			store := offsets.New(c.Client(t))
			want := wire.Metadata{}
			if tt.at >= 0 {
				h := tr.items[tt.at].Header
				want = wire.Metadata{Offset: tr.items[tt.at].Next(), Through: h.Through, Sequence: h.Sequence, Epoch: h.Epoch, Incarnation: h.Incarnation}
			}
			m := must(store.PlanRetire(within(t), s.lane, retirement()))(t)
			want.TopicID, want.Retired = m.Meta.TopicID, retirement()
			if m.Meta != want || m.Offset != want.Offset {
				t.Fatalf("got %+v, want %+v", m, want)
			}
			if retired := (*flusso.RetiredError)(nil); !errors.As(m.Attach, &retired) {
				t.Errorf("an attach would be told %v", m.Attach)
			}
			if err := store.Apply(within(t), m); err != nil {
				t.Fatal(err)
			}
			floors := must(store.Floors(within(t), s.lane.Pipeline, s.incarnation, []topics.Lane{s.lane}))(t)
			if floors[0].State != flusso.FloorRetired || floors[0] != m.Floor(s.incarnation) {
				t.Errorf("got floor %+v, planned %+v", floors[0], m.Floor(s.incarnation))
			}
			_, err := store.PlanRetire(within(t), s.lane, retirement())
			if retired := (*flusso.RetiredError)(nil); !errors.As(err, &retired) || retired.By != "ana@ops-1" {
				t.Errorf("retired twice: got %v", err)
			}

			back := must(store.PlanRestore(within(t), s.lane))(t)
			want.Retired = offsets.Retirement{}
			if back.Meta != want || back.Attach != nil || back.GivenUp() != 0 || back.Again() != 0 {
				t.Fatalf("restore: got %+v, want %+v", back, want)
			}
			if err := store.Apply(within(t), back); err != nil {
				t.Fatal(err)
			}
			d, _ := start(t, store, s.lane)
			if d.Err != nil || d.Offset != want.Offset || d.Sequence != want.Sequence+1 {
				t.Errorf("restored: an attach gets %+v, want to begin at %s", d, want.Offset)
			}
			_, err = store.PlanRestore(within(t), s.lane)
			if not := (*offsets.NotRetiredError)(nil); !errors.As(err, &not) {
				t.Errorf("restored twice: got %v", err)
			}
		})
	}
}

// TestPlanRestore_ThroughTheMirror: the group of a retired lane expired.
func TestPlanRestore_ThroughTheMirror(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	store := offsets.New(c.Client(t))
	s.mirrors(&tr.items[5])
	mirror := must(store.Mirror(within(t), s.lane.Pipeline, []topics.Lane{s.lane}))(t)[s.lane]
	meta := *mirror.Meta
	meta.Retired = retirement()
	commit(t, c, s.lane.Pipeline.IngestGroup(), s.lane, mirror.Offset, wire.FormatMetadata(meta))
	m := must(store.PlanRestore(within(t), s.lane))(t)
	if m.Offset != mirror.Offset || m.Meta != *mirror.Meta || m.Before.State != offsets.Missing {
		t.Fatalf("got %+v, want what the mirror has", m)
	}
}

// TestPlanRestore_SaysWhatAConsumerIsTold: a gap is not hidden by retiring a lane
// and restoring it.
func TestPlanRestore_SaysWhatAConsumerIsTold(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	store := offsets.New(c.Client(t))
	s.acks(&tr.items[3])
	if err := store.Apply(within(t), must(store.PlanRetire(within(t), s.lane, retirement()))(t)); err != nil {
		t.Fatal(err)
	}
	s.trim(tr.items[6].Next())
	m := must(store.PlanRestore(within(t), s.lane))(t)
	if gap := (*flusso.GapError)(nil); m.Offset != tr.items[3].Next() || !errors.As(m.Attach, &gap) {
		t.Fatalf("got %+v, want the gap in what an attach is told", m)
	}
}

func TestPlanRetireRefuses(t *testing.T) {
	c := newCluster(t)
	s, _ := ten(t, c)
	store := offsets.New(c.Client(t))
	r := retirement()
	r.Why = ""
	_, err := store.PlanRetire(within(t), s.lane, r)
	if invalid := (*flusso.InvalidError)(nil); !errors.As(err, &invalid) {
		t.Errorf("without a reason: got %v", err)
	}
}

// TestMissed: what a lane was not given while the feed went on without it.
func TestMissed(t *testing.T) {
	tail := func(newest, through flusso.Position, incarnation string) offsets.Tail {
		return offsets.Tail{Found: true, Header: offsets.Header{Newest: newest, Through: through, Incarnation: incarnation}}
	}
	for _, tt := range []struct {
		name      string
		tail      offsets.Tail
		confirmed flusso.Position
		from      flusso.Position
		missed    bool
	}{
		{"it was given everything", tail(90, 90, inc), 80, 90, false},
		{"just everything", tail(80, 80, inc), 80, 80, false},
		{"the others have none", tail(80, 80, inc), 0, 80, false},
		{"it was left out", tail(40, 40, inc), 80, 40, true},
		{"left out within a position", tail(80, 40, inc), 80, 40, true},
		{"of another incarnation", tail(90, 90, "db0:slot"), 80, 0, true},
		{"empty", offsets.Tail{}, 80, 0, true},
		{"empty, and the others have none", offsets.Tail{}, 0, 0, false},
	} {
		if from, missed := offsets.Missed(tt.tail, tt.confirmed, inc); from != tt.from || missed != tt.missed {
			t.Errorf("%s: got %s, %v, want %s, %v", tt.name, from, missed, tt.from, tt.missed)
		}
	}
}
