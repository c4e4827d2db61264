package streamtest

import (
	"context"

	flusso "github.com/flusso/flusso-kafka"
)

var takeoverClauses = []clause{
	{"B4_a_new_consumer_takes_over_at_once_and_the_old_one_stays_away", checkB4Takeover},
	{"B4_another_process_takes_over_the_same_way", checkB4Process},
	{"B4_a_receive_that_waits_ends_when_the_lane_is_taken", checkB4Waiting},
	{"B4_a_restarted_engine_resumes_at_the_first_item_not_acked", checkB4Restart},
	{"B4_a_crashed_engine_resumes_at_the_first_item_not_acked", checkB4Crash},
	{"B5_each_of_several_deliveries_acks_on_its_own", checkB5Own},
	{"B5_a_nack_withdraws_the_item_and_every_later_one", checkB5Nack},
	{"B5_an_older_state_is_never_applied_over_a_newer_one", checkB5Older},
	{"B5_what_a_gone_consumer_never_acked_comes_again_in_order", checkB5Gone},
}

// five are the items of most subtests here.
func five() []flusso.LaneItem {
	return []flusso.LaneItem{live(10, "1"), live(20, "2"), rows("3"), live(40), live(50, "5", "6")}
}

func checkB4Takeover(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	takeover(e, s, s)
}

func checkB4Process(e *env) {
	e.pipeline("a")
	takeover(e, e.open(inc), e.open(inc))
}

func takeover(e *env, first, second *stream) {
	items := five()
	w := first.writer("a")
	w.publish(items...)
	old := first.reader("a")
	out := old.gets(items[:3]...)
	out[0].ack()
	old.flush()

	now := second.reader("a")
	again := now.gets(items[1:3]...)
	if first != second {
		e.want("ack by the old consumer, or its flush", ackOrFlush(out[1], old), flusso.ErrSuperseded)
	}
	e.want("ack by the old consumer", out[1].ackErr(), flusso.ErrSuperseded)
	e.want("nack by the old consumer", out[2].nackErr(), flusso.ErrSuperseded)
	for range 3 {
		e.want("receive by the old consumer", old.fails(), flusso.ErrSuperseded)
	}
	for _, d := range again {
		d.ack() // the old one's nack withdrew nothing
	}
	now.acks(items[3:]...)

	// It does not come back: the new one goes on for as long as items come.
	for i := range 5 {
		at := flusso.Position(60 + i)
		w.publish(live(at))
		now.acks(live(at))
		e.want("receive by the old consumer", old.fails(), flusso.ErrSuperseded)
	}
	now.flush()
	first.reaches(64)
	ctx, cancel := e.bounded()
	defer cancel()
	_ = old.Close(ctx) // whether it says again that it was superseded is its own business
	w.publish(live(70))
	now.acks(live(70)) // and its leaving takes nobody else out
}

// ackOrFlush returns the error of an ack that must not become durable. In
// another process it may be recorded before it is known that the lane is lost.
func ackOrFlush(d *delivery[flusso.LaneItem], c *consumer[flusso.LaneItem]) error {
	ctx, cancel := d.e.bounded()
	defer cancel()
	if err := d.Ack(ctx); err != nil {
		return err
	}
	return c.Flush(ctx)
}

func checkB4Waiting(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	old := s.reader("a")
	failed := make(chan error, 1)
	ctx, cancel := e.bounded()
	defer cancel()
	go func() {
		_, err := old.Receive(ctx)
		failed <- err
	}()
	now := s.reader("a")
	if err := errIs(<-failed, flusso.ErrSuperseded); err != nil {
		e.t.Fatalf("a receive that was waiting when the lane was taken: %v", err)
	}
	s.writer("a").publish(live(10))
	now.acks(live(10))
}

func checkB4Restart(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	items := five()
	s.writer("a").publish(items...)
	r := s.reader("a")
	r.acks(items[:2]...)
	r.gets(items[2:4]...)
	r.shut() // makes the acks durable
	s.reader("a").gets(items[2:]...)
	s.stop()

	s = e.open(inc)
	r = s.reader("a")
	r.acks(items[2:]...)
	r.nothing()
	s.stop() // the stream's close does it as well

	s = e.open(inc)
	s.writer("a").publish(live(60))
	s.reader("a").gets(live(60))
}

func checkB4Crash(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	items := five()
	s.writer("a").publish(items...)
	r := s.reader("a")
	r.acks(items[:2]...)
	r.flush()
	r.gets(items[2:]...)
	s.crash()
	e.open(inc).reader("a").gets(items[2:]...)
}

func checkB5Own(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	items := five()
	s.writer("a").publish(items...)
	r := s.reader("a")
	out := r.gets(items...) // all outstanding at once
	for _, i := range []int{4, 1, 0, 3, 2} {
		out[i].ack()
	}
	r.flush()
	s.reaches(50)
	s.drains()
}

func checkB5Nack(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	items := five()
	w, r := s.writer("a"), s.reader("a")
	w.publish(items...)
	out := r.gets(items[:4]...)
	out[1].nack()
	e.want("ack of the nacked item", out[1].ackErr(), flusso.ErrWithdrawn)
	e.want("ack of a later item", out[2].ackErr(), flusso.ErrWithdrawn)
	e.want("nack of a later item", out[3].nackErr(), flusso.ErrWithdrawn)
	out[0].ack() // an earlier one is not touched
	w.publish(live(60))
	again := r.gets(append(items[1:5:5], live(60))...)
	for _, d := range again {
		d.ack()
	}
	r.flush()
	s.reaches(60)
	e.want("ack of the nacked item's old delivery", out[1].ackErr(), flusso.ErrWithdrawn)

	// The first of all, and more than once.
	w.publish(live(70), live(80))
	for range 3 {
		out = r.gets(live(70), live(80))
		out[0].nack()
	}
	r.acks(live(70), live(80))
	r.flush()
	s.reaches(80)
}

// A later state was applied and acked already; the nacked older one comes
// again and so the later one must, behind it.
func checkB5Older(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	items := five()
	s.writer("a").publish(items...)
	r := s.reader("a")
	out := r.gets(items[:3]...)
	out[0].ack()
	out[2].ack()
	out[1].nack()
	for _, d := range r.gets(items[1:]...) {
		d.ack()
	}
	r.flush()
	s.reaches(50)
}

func checkB5Gone(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	items := five()
	s.writer("a").publish(items...)
	r := s.reader("a")
	out := r.gets(items...)
	out[0].ack()
	out[3].ack() // out of turn: it goes with the consumer
	r.shut()
	e.want("ack after close", out[1].ackErr(), flusso.ErrClosed)
	e.want("nack after close", out[2].nackErr(), flusso.ErrClosed)
	_, err := r.Receive(e.t.Context())
	e.want("receive after close", err, flusso.ErrClosed)
	e.do("close again", func(ctx context.Context) error { return r.Close(ctx) })
	s.reader("a").acks(items[1:]...)
}
