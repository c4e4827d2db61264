package offsets_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// TestFailover: one store answers on, and the same, while leaders and
// coordinators move and brokers go.
func TestFailover(t *testing.T) {
	c := kfaketest.NewTCP(t, kfake.NumBrokers(4)) // in memory a missing listener is no network error
	s := newScribe(t, c, "audit")
	s.segment(true, live(1, 2), live(2, 0), snapshot(3))
	s.segment(false, live(3, 2))
	s.segment(true, live(3, 1))
	st := offsets.New(c.Client(t))
	tr := s.read()
	ack(t, s, st, tr.items[1])
	check := func(what string) {
		t.Helper()
		floor := must(st.Floors(within(t), s.lane.Pipeline, inc, []topics.Lane{s.lane}))(t)[0]
		want := flusso.LaneFloor{Sink: "audit", State: flusso.FloorAcked, Through: 2, Offset: tr.items[1].Next()}
		if d := cmp.Diff(want, floor); d != "" {
			t.Errorf("%s: %s", what, d)
		}
		for off := flusso.Offset(0); off <= tr.high; off++ {
			f, err := st.Below(within(t), s.lane, off)
			checkFound(t, what, f, err, tr.below(off))
		}
		if l := lagOf(t, st, s.lane); l.Batches != 2 || l.Err != nil {
			t.Errorf("%s: got %+v", what, l)
		}
	}
	check("at first")
	k := c.Kfake()
	for _, node := range []int32{0, 1, 2, 3, 0} {
		if err := k.MoveTopicPartition(s.lane.Topic(), 0, node); err != nil {
			t.Fatal(err)
		}
		check("leader moved")
	}
	for range 4 {
		k.RehashCoordinators()
		check("coordinators moved")
	}
	for range 3 {
		if err := k.RemoveNode(k.LeaderFor(s.lane.Topic(), 0)); err != nil {
			t.Fatal(err)
		}
		check("leader gone")
	}
}
