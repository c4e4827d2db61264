package streamtest

import (
	"context"
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// pause lets a polling loop breathe.
func pause(ctx context.Context) error {
	tick := time.NewTimer(time.Millisecond)
	defer tick.Stop()
	select {
	case <-tick.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var watermarkClauses = []clause{
	{"C5_it_is_read_after_every_commit_whatever_the_backlog", checkC5},
	{"C6_a_foreign_offset_behind_what_was_acked_counts_as_it_is", checkC6Backward},
	{"C6_a_foreign_offset_ahead_is_unverified_and_stops_the_consumer", checkC6Forward},
	{"C7_the_reader_names_the_incarnation", checkC7Incarnation},
	{"C7_no_reader_sees_it_go_back", checkC7Monotone},
	{"C7_a_failed_lookup_leaves_the_last_value_and_says_so", checkC7Failed},
	{"C7_whoever_asks_learns_why_it_stands_where_it_is", checkC7Why},
}

func checkC5(e *env) {
	var sinks []string
	for i := range 12 {
		sinks = append(sinks, fmt.Sprintf("sink-%02d", i))
	}
	e.pipeline(sinks...)
	s := e.open(inc)
	c := s.commits()
	for i := range 60 { // nobody reads any of it
		c.publish(toAll(live(flusso.Position(i+1), documents(2)...), sinks...))
		w := s.watermark()
		e.equal("watermark of a backlog", w.Position, flusso.NoPosition)
		e.equal("lanes in it", len(w.Floors), len(sinks))
	}
}

func checkC6Backward(e *env) {
	e.pipeline("a")
	mover := need[GroupMover](e, "GroupMover")
	s := e.open(inc)
	w := s.writer("a")
	w.publish(live(10))
	behind10 := mover.LaneEnd(e.t, "a")
	w.publish(live(20), live(30))
	r := s.reader("a")
	r.acks(live(10), live(20), live(30))
	r.flush()
	s.reaches(30)
	r.shut()

	mover.MoveGroup(e.t, "a", behind10)
	s.reaches(30) // this reader saw 30: it does not go back
	fresh := e.open(inc)
	if w := fresh.watermark(); w.Position > 30 {
		e.t.Fatalf("the watermark is at %s, 30 was acked", w.Position)
	}
	r = s.reader("a")
	r.acks(live(20), live(30))
	r.flush()
	fresh.reaches(30)
	w.publish(live(40))
	r.acks(live(40))
	r.flush()
	s.reaches(40)
	fresh.reaches(40)
}

func checkC6Forward(e *env) {
	e.pipeline("a", "b")
	mover := need[GroupMover](e, "GroupMover")
	s := e.open(inc)
	c := s.commits()
	for _, at := range []flusso.Position{10, 20, 30} {
		c.publish(toAll(live(at), "a", "b"))
	}
	a, b := s.reader("a"), s.reader("b")
	a.acks(live(10))
	b.acks(live(10), live(20), live(30))
	a.flush()
	b.flush()
	s.reaches(10)
	a.shut()

	mover.MoveGroup(e.t, "a", mover.LaneEnd(e.t, "a"))
	s.stays(10)
	r, err := attachFails(e, s.lane("a"))
	u := as[*flusso.UnverifiedError](e, "attach behind a jump", err)
	e.equal("its sink", u.Sink, "a")
	if r != nil {
		_ = as[*flusso.UnverifiedError](e, "receive again", r.fails())
	}
	s.stays(10)
	e.equal("who holds it", s.watermark().Holders, []string{"a"})
	for _, f := range s.watermark().Floors {
		if f.Sink == "a" && f.State != flusso.FloorUnverified {
			e.t.Fatalf("the floor of lane a is %+v, want it unverified", f)
		}
	}
	b.nothing() // and the other lane is not touched
}

func checkC7Incarnation(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	s.writer("a").publish(live(10))
	r := s.reader("a")
	r.acks(live(10))
	r.flush()
	s.reaches(10)
	other := e.open("pg-7001.restored")
	w := other.watermark()
	e.equal("watermark in another incarnation", w.Position, flusso.NoPosition)
	e.equal("its name", w.Incarnation, "pg-7001.restored")
	if w.Floors[0].State == flusso.FloorAcked {
		e.t.Fatalf("the floor is %+v: acked, but in another incarnation", w.Floors[0])
	}
	e.equal("and in the old one", s.watermark().Position, flusso.Position(10))
}

func checkC7Monotone(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	s.writer("a").publish(live(10), live(20))
	r := s.reader("a")
	r.acks(live(10), live(20))
	r.flush()
	s.reaches(20)
	s.stop()

	// The lane goes on in another incarnation; who asks for the old one with a
	// view that had seen 20 still sees 20.
	old := e.open(inc)
	old.reaches(20)
	s = e.open("pg-7001.restored")
	s.writer("a").publish(live(5))
	r = s.reader("a")
	r.acks(live(5))
	r.flush()
	s.reaches(5)
	for range 3 {
		e.equal("watermark in the old incarnation", old.watermark().Position, flusso.Position(20))
		e.equal("watermark in the new incarnation", s.watermark().Position, flusso.Position(5))
	}
}

func checkC7Failed(e *env) {
	e.pipeline("a")
	stopper := need[Stopper](e, "Stopper")
	s := e.open(inc)
	s.writer("a").publish(live(10))
	r := s.reader("a")
	r.acks(live(10))
	r.flush()
	before := s.reaches(10)

	restart := stopper.Stop(e.t)
	ctx, cancel := context.WithTimeout(e.t.Context(), min(e.h.Wait, 3*time.Second))
	defer cancel()
	w, err := s.Watermark(ctx)
	if err == nil || !w.Stale || w.Position != 10 || !w.Since.Equal(before.Since) {
		e.t.Fatalf("with nothing reachable: got %s since %s and error %v; want 10 since %s, stale, and an error",
			text(w), w.Since, err, before.Since)
	}
	restart()
	e.eventually("the watermark is fresh again", func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		w, err := s.Watermark(ctx)
		return err == nil && !w.Stale && w.Position == 10, nil
	})
}

func checkC7Why(e *env) {
	e.pipeline("c", "a", "b")
	s := e.open(inc)
	w := s.watermark()
	e.equal("holders of an empty stream", w.Holders, []string{"a", "b", "c"})
	for i, sink := range []string{"a", "b", "c"} {
		e.equal("floor", w.Floors[i].Sink, sink)
		if w.Floors[i].State == flusso.FloorAcked {
			e.t.Fatalf("floor %+v of a lane that acked nothing", w.Floors[i])
		}
	}
	c := s.commits()
	for _, at := range []flusso.Position{10, 20, 30} {
		c.publish(toAll(live(at), "a", "b", "c"))
	}
	a, b := s.reader("a"), s.reader("b")
	a.acks(live(10), live(20), live(30))
	a.flush()
	b.acks(live(10))
	b.flush()
	e.eventually("a and b have reported", func(ctx context.Context) (bool, error) {
		var err error
		w, err = s.Watermark(ctx)
		return w.Floors[0].State == flusso.FloorAcked && w.Floors[1].State == flusso.FloorAcked, err
	})
	e.equal("holders while c has acked nothing", w.Holders, []string{"c"})
	e.equal("its floor", w.Floors[2].Through, flusso.NoPosition)

	r := s.reader("c")
	r.acks(live(10), live(20))
	r.flush()
	first := s.reaches(10)
	e.equal("holders", first.Holders, []string{"b"})
	e.eventually("the highest floor is known", func(ctx context.Context) (bool, error) {
		w, err := s.Watermark(ctx)
		return w.Behind == 20, err
	})
	again := s.watermark()
	if first.Since.IsZero() || !again.Since.Equal(first.Since) {
		e.t.Fatalf("since %s, then %s: want the time at which the reader first saw 10", first.Since, again.Since)
	}
	if again.ReadAt.Before(first.ReadAt) || again.Stale {
		e.t.Fatalf("read at %s, then at %s, stale %v", first.ReadAt, again.ReadAt, again.Stale)
	}
	b.acks(live(20))
	b.flush()
	next := s.reaches(20)
	if next.Since.Before(first.Since) {
		e.t.Fatalf("at 20 since %s, at 10 since %s", next.Since, first.Since)
	}
	e.equal("holders", next.Holders, []string{"b", "c"})
}
