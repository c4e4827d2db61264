package offsets_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func lagOf(t *testing.T, st *offsets.Store, lane topics.Lane) offsets.Lag {
	t.Helper()
	return must(st.Lag(within(t), []topics.Lane{lane}))(t)[lane]
}

// ack commits as a sink does after acking f.
func ack(t *testing.T, s *scribe, st *offsets.Store, f offsets.Found) {
	t.Helper()
	commit(t, s.c, s.lane.Group(), s.lane, f.Next(), wire.FormatMetadata(metaOf(f, topicID(t, st, s.lane))))
}

func TestCase43_BelowTheLogStart(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	for i := range 10 {
		s.segment(true, live(flusso.Position(i+1), 2))
	}
	st := offsets.New(s.c.Client(t))
	tr := s.read()
	ack(t, s, st, tr.items[2])
	if l := lagOf(t, st, s.lane); l.Batches != 7 || l.Gap != nil || !l.Known || l.Through != 3 {
		t.Errorf("before the trim: got %+v", l)
	}
	s.trim(tr.items[5].Next())
	l := lagOf(t, st, s.lane)
	if l.Gap == nil || l.Gap.From != tr.items[2].Next() || l.Gap.To != tr.items[5].Next() || !l.Gap.Known || l.Gap.Items != 3 {
		t.Errorf("gap: got %+v", l.Gap)
	}
	if l.Batches != 4 || l.Envelopes != 8 || !l.Known || l.Start != tr.items[5].Next() {
		t.Errorf("clamped to the log start: got %+v", l)
	}
	var items uint64
	for _, f := range tr.items[6:] {
		items += f.Header.Totals.Bytes / f.Header.Totals.Batches
	}
	if l.Bytes != items {
		t.Errorf("bytes: got %d, want %d", l.Bytes, items)
	}
}

// Seeding is told from the first item that was not acked.
func TestLagSeeding(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(1, 1), snapshot(2), marker(), live(2, 1))
	st := offsets.New(s.c.Client(t))
	if l := lagOf(t, st, s.lane); l.Seeding || l.Known {
		t.Errorf("nothing committed, live first: got %+v", l)
	}
	tr := s.read()
	for i, seeding := range []bool{true, true, false, false} {
		ack(t, s, st, tr.items[i])
		if l := lagOf(t, st, s.lane); l.Seeding != seeding {
			t.Errorf("%d items acked: seeding is %t, want %t", i+1, l.Seeding, seeding)
		}
	}
}

// TestCase44_NeverNegative: producer and consumer race, and the lag is never
// below what is certain, nor huge by an underflow.
func TestCase44_NeverNegative(t *testing.T) {
	const n = 150
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(1, 1))
	st := offsets.New(s.c.Client(t))
	acker := offsets.New(s.c.Client(t))
	id := topicID(t, st, s.lane)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range n {
			s.segment(true, live(flusso.Position(i+2), 1))
		}
	})
	wg.Go(func() {
		adm := kadm.NewClient(s.c.Client(t))
		for ctx.Err() == nil {
			tails, err := acker.Tails(ctx, []topics.Lane{s.lane})
			if err != nil {
				continue
			}
			tail := tails[s.lane]
			f := offsets.Found{At: tail.At, Header: tail.Header}
			os := make(kadm.Offsets)
			os.Add(kadm.Offset{Topic: s.lane.Topic(), At: int64(f.Next()), LeaderEpoch: -1, Metadata: wire.FormatMetadata(metaOf(f, id))})
			if _, err := adm.CommitOffsets(ctx, s.lane.Group(), os); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	looks := 0
	for running := true; running; looks++ {
		select {
		case <-done:
			running = false
		default:
		}
		lags, err := st.Lag(within(t), []topics.Lane{s.lane})
		l := lags[s.lane]
		if err != nil || l.Batches > n+1 || l.Envelopes > n+1 || l.Age < 0 || l.Known && l.Tail < l.Committed && l.Batches > 0 {
			t.Fatalf("look %d: got %+v, %v", looks, l, err)
		}
	}
	cancel()
	wg.Wait()
	tr := s.read()
	ack(t, s, st, tr.items[len(tr.items)-1])
	if l := lagOf(t, st, s.lane); l.Batches != 0 || l.Age != 0 || !l.Known {
		t.Errorf("caught up: got %+v", l)
	}
	t.Logf("%d looks at %d segments", looks, n)
}

func TestCase45_CaughtUpOnAnIdleTransactionalTopic(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(1, 3))
	s.segment(true, live(2, 0))
	s.segment(false, live(3, 100))
	s.segment(false, live(3, 1))
	st := offsets.New(s.c.Client(t))
	tr := s.read()
	ack(t, s, st, tr.items[1])
	if tr.high-tr.items[1].Next() < 100 {
		t.Fatalf("the log ends at %s, only %s is committed: nothing tested", tr.high, tr.items[1].Next())
	}
	requests := count(s.c)
	if l := lagOf(t, st, s.lane); l.Batches != 0 || l.Age != 0 || l.Bytes != 0 || !l.Known || l.Through != 2 || l.Undecided {
		t.Errorf("got %+v", l)
	}
	if got := requests.take()[kmsg.Fetch]; got > 3 {
		t.Errorf("%d fetches behind aborted transactions", got)
	}
	// Also for another tool's offset, and with a transaction in flight.
	commit(t, s.c, s.lane.Group(), s.lane, tr.high, "a tool")
	end := s.begin(live(3, 2))
	if l := lagOf(t, st, s.lane); l.Batches != 0 || l.Age != 0 || !l.Known || l.Through != 2 || !l.Undecided {
		t.Errorf("in flight: got %+v", l)
	}
	end(true)
	if l := lagOf(t, st, s.lane); l.Batches != 1 || l.Envelopes != 2 || l.Age <= 0 {
		t.Errorf("committed: got %+v", l)
	}
}

func TestLagWithoutCommit(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	st := offsets.New(s.c.Client(t))
	if l := lagOf(t, st, s.lane); l.Known || l.Err != nil || l.Tail != flusso.NoOffset || l.Retained != (wire.Totals{}) {
		t.Errorf("empty lane: got %+v", l)
	}
	s.segment(true, live(1, 3), snapshot(2))
	s.segment(true, live(2, 1))
	l := lagOf(t, st, s.lane)
	if l.Known || l.Batches != 0 || l.Retained != s.last.Totals || l.Age != 0 {
		t.Errorf("got %+v, want all retained: %+v", l, s.last.Totals)
	}
	tr := s.read()
	s.trim(tr.items[0].Next())
	l = lagOf(t, st, s.lane)
	if want := (wire.Totals{Batches: 2, Envelopes: 3, Bytes: s.last.Totals.Bytes - tr.items[0].Header.Totals.Bytes, Changes: 5}); l.Retained != want {
		t.Errorf("trimmed: got %+v, want %+v", l.Retained, want)
	}
}

// TestCase49_DeletedLane: the others keep their numbers.
func TestCase49_DeletedLane(t *testing.T) {
	c := newCluster(t)
	a, b := newScribe(t, c, "a"), newScribe(t, c, "b")
	a.segment(true, live(1, 1), live(2, 1))
	b.segment(true, live(1, 1))
	st := offsets.New(c.Client(t))
	ack(t, a, st, a.read().items[0])
	ack(t, b, st, b.read().items[0])
	lanes := []topics.Lane{a.lane, b.lane, newLane(t, "never")}
	must(st.Lag(within(t), lanes))(t)
	if _, err := kadm.NewClient(c.Client(t)).DeleteTopics(within(t), b.lane.Topic()); err != nil {
		t.Fatal(err)
	}
	got := must(st.Lag(within(t), lanes))(t)
	if l := got[a.lane]; l.Err != nil || l.Batches != 1 || !l.Known {
		t.Errorf("the lane that lives: got %+v", l)
	}
	for _, l := range lanes[1:] {
		if got[l].Known || kafkaerr.Classify(got[l].Err) != kafkaerr.Missing {
			t.Errorf("lane %s: got %+v", l.Sink, got[l])
		}
	}
	if _, err := st.Lag(within(t), lanes[1:]); kafkaerr.Classify(err) != kafkaerr.Missing {
		t.Errorf("all deleted: got %v", err)
	}
}

// TestLagSeconds: the age of the first item not acked, whatever came after.
func TestLagSeconds(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	for i := range 5 {
		s.builtAt = time.Now().Add(-time.Duration(5-i) * time.Hour).Truncate(time.Millisecond)
		s.segment(true, live(flusso.Position(i+1), 1))
	}
	st := offsets.New(s.c.Client(t))
	tr := s.read()
	for i, f := range tr.items {
		ack(t, s, st, f)
		l := lagOf(t, st, s.lane)
		want := time.Duration(0)
		if i+1 < len(tr.items) {
			want = l.ReadAt.Sub(tr.items[i+1].Header.BuiltAt)
		}
		if l.Age != want {
			t.Errorf("after item %d: got %s, want %s", i, l.Age, want)
		}
	}
}

// TestLagPastTheEnd: an offset past the end is not "caught up".
func TestLagPastTheEnd(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(1, 1))
	commit(t, s.c, s.lane.Group(), s.lane, 1000, "a tool")
	lags, err := offsets.New(s.c.Client(t)).Lag(within(t), []topics.Lane{s.lane})
	if l := lags[s.lane]; !errors.Is(err, offsets.ErrUnknown) || l.Known || l.Err == nil {
		t.Errorf("got %+v, %v", l, err)
	}
}
