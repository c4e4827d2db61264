package streamtest

import (
	flusso "github.com/flusso/flusso-kafka"
)

var replayClauses = []clause{
	{"B9_what_a_lane_holds_is_dropped_and_counted_when_replayed", checkB9},
	{"B9_an_engine_that_restarts_on_the_same_stream_replays_as_well", checkB9Same},
	{"B9_each_lane_is_judged_by_what_it_holds_itself", checkB9PerLane},
	{"B9_behind_an_unfinished_position_all_of_it_is_published_again", checkB9More},
	{"B9_another_incarnation_replays_nothing", checkB9Incarnation},
	{"B10_positions_strictly_increase", checkB10},
	{"B10_behind_more_the_same_position_is_allowed_and_required", checkB10More},
	{"B10_holds_from_one_session_to_the_next", checkB10Sessions},
	{"B10_a_commit_with_one_wrong_position_publishes_nothing", checkB10Commit},
}

func checkB9(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	s.writer("a").publish(live(10, "1"), live(20), live(30, "3"))
	s.crash()

	s = e.open(inc)
	w := s.writer("a")
	e.equal("replay of 10", w.publish(live(10, "1")), flusso.Receipt{Dropped: 1})
	e.equal("replay of what lies between", w.publish(live(15)), flusso.Receipt{Dropped: 1})
	e.equal("replay of 20 and 30, then 40", w.publish(live(20), live(30, "3"), live(40)), flusso.Receipt{Published: 1, Dropped: 2})
	r := s.reader("a")
	r.acks(live(10, "1"), live(20), live(30, "3"), live(40))
	r.nothing()
	r.flush()
	s.reaches(40)
	s.stop()

	// Acked or not, and whatever came behind it.
	s = e.open(inc)
	w = s.writer("a")
	w.publish(rows("1"), complete("orders"))
	e.equal("replay of all", w.publish(live(10, "1"), live(40)), flusso.Receipt{Dropped: 2})
	s.reader("a").gets(rows("1"), complete("orders"))
}

func checkB9Same(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	c := s.commits()
	for _, at := range []flusso.Position{10, 20, 30} {
		c.publish(toAll(live(at), "a", "b"))
	}
	c.shut()

	c = s.commits()
	for _, at := range []flusso.Position{20, 30} {
		e.equal("replay by a new producer of the stream", c.publish(toAll(live(at), "a", "b")), flusso.Receipt{Dropped: 2})
	}
	e.equal("what is new", c.publish(toAll(live(40), "a", "b")), flusso.Receipt{Published: 2})
	r := s.reader("b")
	r.gets(live(10), live(20), live(30), live(40))
	r.nothing()
}

func checkB9PerLane(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	s.writer("a").publish(live(10), live(20))
	s.writer("b").publish(live(10))
	s.crash()

	s = e.open(inc)
	c := s.commits()
	e.equal("replay of 10", c.publish(toAll(live(10), "a", "b")), flusso.Receipt{Dropped: 2})
	e.equal("replay of 20", c.publish(toAll(live(20), "a", "b")), flusso.Receipt{Published: 1, Dropped: 1})
	s.reader("a").gets(live(10), live(20))
	s.reader("b").gets(live(10), live(20))
}

func checkB9More(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	s.writer("a").publish(live(10), more(20, "1"), more(20, "2"))
	s.crash()

	s = e.open(inc)
	w := s.writer("a")
	e.equal("replay", w.publish(live(10), more(20, "1"), more(20, "2"), live(20, "3")), flusso.Receipt{Published: 3, Dropped: 1})
	r := s.reader("a")
	for _, item := range []flusso.LaneItem{live(10), more(20, "1"), more(20, "2"), more(20, "1"), more(20, "2")} {
		r.acks(item)
	}
	r.flush()
	s.stays(10)
	r.acks(live(20, "3"))
	r.flush()
	s.reaches(20)
	s.stop()

	w = e.open(inc).writer("a") // now it is complete
	e.equal("replay of the whole", w.publish(more(20, "1"), more(20, "2"), live(20, "3")), flusso.Receipt{Dropped: 3})
}

func checkB9Incarnation(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	s.writer("a").publish(live(10), live(20))
	s.stop()
	s = e.open("pg-7001.restored")
	w := s.writer("a")
	e.equal("lower positions of another incarnation", w.publish(live(5), live(10)), flusso.Receipt{Published: 2})
	s.reader("a").gets(live(10), live(20), live(5), live(10))
}

func checkB10(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w, other := s.writer("a"), s.commits()
	w.publish(live(10), live(20))
	for _, wrong := range []flusso.LaneItem{live(20), live(20, "another"), more(20), live(15), live(1)} {
		p := as[*flusso.PositionError](e, "publish "+text(wrong)+" behind 20", w.try(wrong))
		e.equal("the error", *p, flusso.PositionError{Sink: "a", Last: 20, Got: wrong.(*flusso.Batch).Position})
	}
	_ = as[*flusso.PositionError](e, "the other producer of the session", other.try(toAll(live(20), "a")))
	w.publish(rows("1"), live(30)) // the producer goes on
	r := s.reader("a")
	r.gets(live(10), live(20), rows("1"), live(30))
	r.nothing()
}

func checkB10More(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w := s.writer("a")
	w.publish(more(10, "1"))
	for _, wrong := range []flusso.LaneItem{live(11), more(20), live(9)} {
		p := as[*flusso.PositionError](e, "publish "+text(wrong)+" behind an unfinished 10", w.try(wrong))
		e.equal("the error", *p, flusso.PositionError{Sink: "a", Last: 10, LastMore: true, Got: wrong.(*flusso.Batch).Position})
	}
	items := []flusso.LaneItem{more(10, "2"), rows("3"), complete("orders"), live(10, "4"), live(11)}
	w.publish(items...)
	r := s.reader("a")
	r.acks(more(10, "1"))
	r.acks(items[:3]...)
	r.flush()
	s.stays(flusso.NoPosition) // no part of it confirms the whole [C1]
	r.acks(items[3:]...)
	r.flush()
	s.reaches(11)
}

func checkB10Sessions(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	s.writer("a").publish(live(10), more(20, "1"))
	s.crash()
	s = e.open(inc)
	w := s.writer("a")
	p := as[*flusso.PositionError](e, "30 behind an unfinished 20", w.try(live(30)))
	e.equal("the error", *p, flusso.PositionError{Sink: "a", Last: 20, LastMore: true, Got: 30})
	w.publish(live(20, "1"), live(30))
	_ = as[*flusso.PositionError](e, "30 again", w.try(live(30)))
	s.reader("a").gets(live(10), more(20, "1"), live(20, "1"), live(30))
}

func checkB10Commit(e *env) {
	e.pipeline("a", "b", "c")
	s := e.open(inc)
	c := s.commits()
	c.publish(flusso.Commit{Items: to("b", live(10))})
	p := as[*flusso.PositionError](e, "10 again in one of three lanes", c.try(toAll(live(10), "a", "b", "c")))
	e.equal("the lane it names", p.Sink, "b")
	_ = as[*flusso.PositionError](e, "a commit that goes back in itself", c.try(flusso.Commit{Items: to("a", live(12), live(11))}))
	e.equal("receipt", c.publish(toAll(live(11), "a", "b", "c")), flusso.Receipt{Published: 3})
	s.reader("a").gets(live(11))
	s.reader("b").gets(live(10), live(11))
	s.reader("c").gets(live(11))
}
