package offsets_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// TestPlanTrim: the header of the item before an offset stays, everything below
// it goes and is counted, and never what was not acked.
func TestPlanTrim(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	client := c.Client(t)
	store, admin := offsets.New(client), topics.New(client)
	acked := tr.items[7]
	s.acks(&acked)
	beyond := (*offsets.BeyondFloorError)(nil)
	if _, err := store.PlanTrim(within(t), s.lane, acked.Next()+1); !errors.As(err, &beyond) || beyond.Floor != acked.Next() {
		t.Fatalf("beyond the floor: got %v", err)
	}
	from := 0 // the first item that is there
	for _, at := range []int{2, 2, 5, 7, 3} {
		to := tr.items[at].Next()
		plan := must(store.PlanTrim(within(t), s.lane, to))(t)
		want := max(tr.items[at].At, tr.start)
		if plan.UpTo != want || plan.Start != tr.start || plan.Floor != acked.Next() {
			t.Fatalf("to item %d: got %+v, want up to %s", at, plan, want)
		}
		if items := uint64(max(0, at-from)); plan.Items != items {
			t.Errorf("to item %d: got %d items, want %d", at, plan.Items, items)
		}
		if wantBytes := tr.items[max(at, from)].Header.Totals.Bytes - tr.items[from].Header.Totals.Bytes; plan.Items > 0 && (plan.Bytes == 0 || wantBytes == 0) {
			t.Errorf("to item %d: got %d bytes", at, plan.Bytes)
		}
		if start := must(admin.Trim(within(t), s.lane, plan.TopicID, plan.UpTo))(t); start != want {
			t.Fatalf("to item %d: the log begins at %s, want %s", at, start, want)
		}
		tr.start, from = want, max(from, at)
	}
	if plan := must(store.PlanTrim(within(t), s.lane, flusso.NoOffset))(t); plan.UpTo != plan.Start || plan.Items != 0 || plan.Bytes != 0 {
		t.Errorf("nothing left to trim: got %+v", plan)
	}
	if d, _ := start(t, store, s.lane); d.Err != nil || d.Offset != acked.Next() {
		t.Errorf("after trimming an attach gets %+v", d)
	}
}

// TestPlanTrimCountsWhatGoes exactly, from the very first item on.
func TestPlanTrimCountsWhatGoes(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	store := offsets.New(c.Client(t))
	s.acks(&tr.items[7])
	plan := must(store.PlanTrim(within(t), s.lane, flusso.NoOffset))(t)
	before := tr.items[6].Header.Totals
	if plan.UpTo != tr.items[7].At || plan.Items != before.Batches || plan.Bytes != before.Bytes {
		t.Errorf("got %+v, want %d items and %d bytes", plan, before.Batches, before.Bytes)
	}
}

// TestPlanTrimBesideAnother: the log start moves on while a trim is planned, as
// the engine does that, too. It is planned anew.
func TestPlanTrimBesideAnother(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	client := c.Client(t)
	store, admin := offsets.New(client), topics.New(c.Client(t))
	s.acks(&tr.items[7])
	other := must(offsets.New(c.Client(t)).PlanTrim(within(t), s.lane, tr.items[5].Next()))(t)
	hang := c.Fault(t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Hang, Skip: 1})
	type planned struct {
		offsets.Trim
		err error
	}
	ended := make(chan planned, 1)
	go func() {
		plan, err := store.PlanTrim(within(t), s.lane, flusso.NoOffset)
		ended <- planned{plan, err}
	}()
	<-hang.Hit() // the counts of the first item
	must(admin.Trim(within(t), s.lane, other.TopicID, other.UpTo))(t)
	hang.Release()
	plan := <-ended
	if plan.err != nil || plan.Start != other.UpTo || plan.UpTo != tr.items[7].At || plan.Items != 2 {
		t.Errorf("got %+v, want a plan from %s on", plan, other.UpTo)
	}
}

// TestPlanTrimRefusesWhatNobodyVouchesFor.
func TestPlanTrimRefusesWhatNobodyVouchesFor(t *testing.T) {
	c := newCluster(t)
	s, tr := ten(t, c)
	store := offsets.New(c.Client(t))
	beyond := (*offsets.BeyondFloorError)(nil)
	if _, err := store.PlanTrim(within(t), s.lane, flusso.NoOffset); !errors.As(err, &beyond) || beyond.State != flusso.FloorMissing {
		t.Errorf("nothing committed: got %v", err)
	}
	commit(t, c, s.lane.Group(), s.lane, tr.items[5].Next(), "set by hand")
	if _, err := store.PlanTrim(within(t), s.lane, 1); !errors.As(err, &beyond) || beyond.State != flusso.FloorUnverified {
		t.Errorf("set by hand: got %v", err)
	}
}
