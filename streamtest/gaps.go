package streamtest

import (
	flusso "github.com/flusso/flusso-kafka"
)

var gapClauses = []clause{
	{"B8_what_was_not_acked_is_still_there", checkB8Kept},
	{"B8_a_gap_is_a_typed_error_and_nothing_is_skipped", checkB8Gap},
	{"B8_a_gap_ahead_of_an_attached_consumer_is_an_error_as_well", checkB8Attached},
	{"B8_a_lane_recreated_behind_its_consumer_is_a_gap", checkB8Behind},
	{"B8_a_lane_that_was_recreated_is_a_gap_or_made_whole_by_the_replay", checkB8Recreated},
}

func checkB8Kept(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	c := s.commits()
	var want []flusso.LaneItem
	for i := range 50 {
		at := flusso.Position(i + 1)
		want = append(want, live(at, "1"))
		c.publish(toAll(live(at, "1"), "a", "b"))
	}
	a := s.reader("a")
	a.acks(want...) // what one lane acked is not the other's
	a.flush()
	s.stop()
	s = e.open(inc)
	s.reader("b").acks(want...)
}

func checkB8Gap(e *env) {
	e.pipeline("a")
	trimmer := need[Trimmer](e, "Trimmer")
	s := e.open(inc)
	w := s.writer("a")
	w.publish(live(10))
	r := s.reader("a")
	r.acks(live(10))
	r.flush()
	r.shut()
	w.publish(live(20))
	behind := trimmer.LaneEnd(e.t, "a")
	w.publish(live(30))
	trimmer.Trim(e.t, "a", behind)

	c, err := attachFails(e, s.lane("a"))
	gap := as[*flusso.GapError](e, "attach behind a gap", err)
	if gap.Sink != "a" || gap.From >= gap.To || gap.To > behind || gap.From < 0 {
		e.t.Fatalf("the gap is from %s to %s in lane %s; offset %s is the first that is there", gap.From, gap.To, gap.Sink, behind)
	}
	e.equal("acked before the gap", gap.Acked, flusso.Position(10))
	if c != nil {
		_ = as[*flusso.GapError](e, "receive again", c.fails())
	}
	s.stays(10)
	// It is no matter of one process's memory.
	again := e.open(inc)
	_, err = attachFails(e, again.lane("a"))
	_ = as[*flusso.GapError](e, "attach behind a gap in another process", err)
	s.stays(10)
}

func checkB8Attached(e *env) {
	e.pipeline("a")
	trimmer := need[Trimmer](e, "Trimmer")
	s := e.open(inc)
	w := s.writer("a")
	w.publish(live(10))
	r := s.reader("a")
	out := r.gets(live(10))
	out[0].nack() // what is there for certain is what it can still deliver
	var want []flusso.LaneItem
	for i := range 10 {
		want = append(want, live(flusso.Position(20+i)))
	}
	w.publish(want...)
	trimmer.Trim(e.t, "a", trimmer.LaneEnd(e.t, "a"))
	w.publish(live(99))
	want = append([]flusso.LaneItem{live(10)}, append(want, live(99))...)
	// What was read ahead of the trim may be delivered, in order; then comes
	// the rest, or the gap: never an item behind a missing one.
	for _, item := range want {
		ctx, cancel := e.bounded()
		d, err := r.Receive(ctx)
		cancel()
		if err != nil {
			_ = as[*flusso.GapError](e, "receive into a gap", err)
			return
		}
		e.equal("delivery", text(d.Item()), text(item))
	}
}

func checkB8Recreated(e *env) {
	e.pipeline("a")
	recreator := need[Recreator](e, "Recreator")
	s := e.open(inc)
	w := s.writer("a")
	w.publish(live(10), live(20))
	r := s.reader("a")
	r.acks(live(10))
	r.flush()
	r.shut()
	s.reaches(10)
	s.stop()
	recreator.RecreateLane(e.t, "a")

	// Nothing may be left of what the lane had acked: brokers forget a topic's
	// committed offsets with the topic. Then the replay makes it whole again.
	s = e.open(inc)
	if w := s.watermark(); w.Position > 10 {
		e.t.Fatalf("the watermark is at %s, the lane had acked 10", w.Position)
	}
	s.writer("a").publish(live(20), live(30)) // what the source has not confirmed
	ctx, cancel := e.bounded()
	defer cancel()
	in, err := s.lane("a").Consumer(ctx)
	var d flusso.Delivery[flusso.LaneItem]
	if err == nil {
		d, err = in.Receive(ctx)
	}
	if err != nil {
		_ = as[*flusso.GapError](e, "attach to a lane that was recreated", err)
		return
	}
	e.equal("first delivery of a lane that was recreated", text(d.Item()), text(live(20)))
	if w := s.watermark(); w.Position > 10 {
		e.t.Fatalf("the watermark is at %s before 20 was acked", w.Position)
	}
}

// checkB8Behind recreates a lane behind the back of its consumer, with
// something in it that was never acked.
func checkB8Behind(e *env) {
	e.pipeline("a")
	recreator := need[Recreator](e, "Recreator")
	s := e.open(inc)
	s.writer("a").publish(live(10), live(20), live(30))
	r := s.reader("a")
	r.acks(live(10))
	r.flush()
	r.gets(live(20))
	recreator.RecreateLane(e.t, "a")
	for {
		ctx, cancel := e.bounded()
		d, err := r.Receive(ctx)
		cancel()
		if err != nil {
			_ = as[*flusso.GapError](e, "receive from a lane that was recreated", err)
			return
		}
		e.equal("delivery before it is noticed", text(d.Item()), text(live(30)))
	}
}
