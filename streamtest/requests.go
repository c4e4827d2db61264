package streamtest

import (
	"context"

	flusso "github.com/flusso/flusso-kafka"
)

var requestClauses = []clause{
	{"D1_a_request_is_redelivered_until_acked", checkD1},
	{"D1_a_crash_between_marker_and_ack_redelivers_the_request", checkD1Crash},
	{"D1_a_request_sent_while_no_engine_runs_is_served_later", checkD1Down},
	{"D1_requests_acked_out_of_turn_leave_the_others", checkD1Order},
	{"D2_the_marker_and_the_ack_are_one_step", checkD2},
	{"D2_a_marker_whose_ack_is_refused_stays_out", checkD2Refused},
	{"D2_a_refused_ack_fails_its_commit_alone", checkD2Alone},
	{"D2_a_live_batch_does_not_go_with_acks", checkD2Live},
	{"D3_waiting_requests_for_an_index_become_one_snapshot", checkD3},
	{"D4_snapshot_batches_go_only_to_the_lanes_that_asked", checkD4},
}

func checkD1(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	want := backfill("a", "orders")
	produce(e, s.Requests()).publish(want)
	asked := consume(e, s.Requests())
	asked.gets(want)
	s.crash()
	for range 2 {
		s = e.open(inc)
		consume(e, s.Requests()).gets(want)
		s.stop() // a clean end acks nothing either
	}
	s = e.open(inc)
	asked = consume(e, s.Requests())
	d := asked.gets(want)[0]
	d.nack()
	asked.acks(want)
	asked.flush()
	asked.nothing()
	s.crash()

	s = e.open(inc)
	asked = consume(e, s.Requests())
	asked.nothing()
}

func checkD1Crash(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	want := backfill("a", "orders")
	produce(e, s.Requests()).publish(want)
	w := s.writer("a")
	consume(e, s.Requests()).gets(want)
	w.publish(rows("1"), complete("orders"))
	s.crash()

	s = e.open(inc)
	w = s.writer("a")
	asked := consume(e, s.Requests())
	d := asked.gets(want)[0]
	w.publish(rows("1"), complete("orders"))
	d.ack()
	asked.flush()
	s.crash()

	s = e.open(inc)
	consume(e, s.Requests()).nothing()
	s.reader("a").gets(rows("1"), complete("orders"), rows("1"), complete("orders"))
}

func checkD1Down(e *env) {
	e.pipeline("a", "b")
	sink := e.open(inc)
	asks := produce(e, sink.Requests())
	asks.publish(backfill("a", "orders"), backfill("b", "orders", "items"))
	sink.stop()
	s := e.open(inc)
	s.writer("a").publish(live(10)) // live batches first, as an engine starts
	consume(e, s.Requests()).acks(backfill("a", "orders"), backfill("b", "orders", "items"))
}

func checkD1Order(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	asks := produce(e, s.Requests())
	asks.publish(backfill("a", "x"), backfill("a", "y"), backfill("a", "z"))
	asked := consume(e, s.Requests())
	out := asked.gets(backfill("a", "x"), backfill("a", "y"), backfill("a", "z"))
	out[0].ack()
	out[2].ack() // above the floor: may come again, may not
	asked.flush()
	s.crash()
	s = e.open(inc)
	asked = consume(e, s.Requests())
	asked.gets(backfill("a", "y"))
}

func checkD2(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	asks := produce(e, s.Requests())
	asks.publish(backfill("a", "orders"), backfill("b", "orders"), backfill("a", "items"))
	c := s.commits()
	asked := consume(e, s.Requests())
	out := asked.gets(backfill("a", "orders"), backfill("b", "orders"), backfill("a", "items"))
	c.publish(flusso.Commit{
		Items: append(to("a", rows("1"), complete("orders")), to("b", rows("1"), complete("orders"))...),
		Acks:  []flusso.Delivery[flusso.Request]{out[0].Delivery, out[1].Delivery},
	})
	s.crash() // at once: there was one step, and it is done

	s = e.open(inc)
	asked = consume(e, s.Requests())
	d := asked.gets(backfill("a", "items"))[0]
	asked.nothing()
	s.reader("a").gets(rows("1"), complete("orders"))
	s.reader("b").gets(rows("1"), complete("orders"))
	s.commits().publish(flusso.Commit{
		Items: to("a", complete("items")), Acks: []flusso.Delivery[flusso.Request]{d.Delivery},
	})
	d.ack() // again is fine
	asked.flush()
	asked.nothing()
	s.crash()
	consume(e, e.open(inc).Requests()).nothing()
}

func checkD2Refused(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	produce(e, s.Requests()).publish(backfill("a", "orders"))
	c := s.commits()
	d := consume(e, s.Requests()).gets(backfill("a", "orders"))[0]
	again := consume(e, s.Requests()) // another engine took the requests over
	err := c.try(flusso.Commit{
		Items: to("a", complete("orders")), Acks: []flusso.Delivery[flusso.Request]{d.Delivery},
	})
	e.want("a commit with an ack of a superseded consumer", err, flusso.ErrSuperseded)
	again.gets(backfill("a", "orders"))

	// The marker is not there for the next session either.
	s.stop()
	s = e.open(inc)
	s.writer("a").publish(live(10))
	r := s.reader("a")
	r.gets(live(10))
	consume(e, s.Requests()).gets(backfill("a", "orders"))
}

// Whether acks are refused at once or when the commit's turn comes: it is the
// error of that commit, of which nothing is published, and of nobody else.
func checkD2Alone(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	produce(e, s.Requests()).publish(backfill("a", "late"), backfill("a", "items"))
	c, w := s.commits(), s.writer("a")
	asked := consume(e, s.Requests())
	out := asked.gets(backfill("a", "late"), backfill("a", "items"))

	// between submits a marker with an ack between two live batches, and
	// returns the marker's error.
	between := func(before, behind flusso.Position, index string, d *delivery[flusso.Request], then func()) error {
		e.t.Helper()
		ctx, cancel := e.bounded()
		defer cancel()
		futures := []*flusso.Future{c.submit(toAll(live(before), "a", "b"))}
		f, err := c.Submit(ctx, flusso.Commit{
			Items: append(to("a", rows("1"), complete(index)), to("b", complete(index))...),
			Acks:  []flusso.Delivery[flusso.Request]{d.Delivery},
		})
		futures = append(futures, c.submit(toAll(live(behind), "a", "b")))
		then()
		if err == nil {
			_, err = f.Wait(ctx)
		}
		waitAll(e, futures)
		return err
	}
	// One that is withdrawn while its commit is on its way is refused late, or
	// was in already.
	late := between(10, 20, "late", out[0], func() {
		ctx, cancel := e.bounded()
		defer cancel()
		_ = out[0].Nack(ctx)
	})
	if late != nil {
		e.want("a commit with an ack that is withdrawn meanwhile", late, flusso.ErrWithdrawn)
	}
	asked = consume(e, s.Requests())
	d := asked.next()
	if text(d.Item()) == text(backfill("a", "late")) {
		d = asked.next()
	}
	e.equal("the request behind", text(d.Item()), text(backfill("a", "items")))
	d.nack()
	e.want("a commit with an ack that was withdrawn", between(30, 40, "items", d, func() {}), flusso.ErrWithdrawn)
	d = asked.gets(backfill("a", "items"))[0]
	consume(e, s.Requests())
	e.want("a commit with an ack of a consumer that was superseded", between(50, 60, "items", d, func() {}), flusso.ErrSuperseded)

	w.publish(live(70))
	c.publish(flusso.Commit{Items: to("b", live(70))})
	want := []flusso.LaneItem{live(20), live(30), live(40), live(50), live(60), live(70)}
	for _, sink := range []string{"a", "b"} {
		r := s.reader(sink)
		r.acks(live(10))
		if late == nil && sink == "a" {
			r.acks(rows("1"))
		}
		if late == nil {
			r.acks(complete("late"))
		}
		r.acks(want...)
		r.nothing()
		r.flush()
	}
	s.reaches(70)
}

func checkD2Live(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	produce(e, s.Requests()).publish(backfill("a", "orders"))
	s.writer("b").publish(live(10))
	asked := consume(e, s.Requests())
	d := asked.gets(backfill("a", "orders"))[0]
	c := s.commits()
	for _, at := range []flusso.Position{10, 20} { // a replay, too
		ctx, cancel := e.bounded()
		_, err := c.Submit(ctx, flusso.Commit{
			Items: append(to("a", complete("orders")), to("b", live(at))...),
			Acks:  []flusso.Delivery[flusso.Request]{d.Delivery},
		})
		cancel()
		_ = as[*flusso.InvalidError](e, "submit a live batch and acks in one commit", err)
	}

	// Nothing of it was published or acked, and the session goes on.
	c.publish(toAll(live(20), "a", "b"))
	c.publish(flusso.Commit{Items: to("a", complete("orders")), Acks: []flusso.Delivery[flusso.Request]{d.Delivery}})
	s.reader("a").gets(live(20), complete("orders"))
	b := s.reader("b")
	b.gets(live(10), live(20))
	b.nothing()
	asked.flush()
	asked.nothing()
}

func checkD3(e *env) {
	e.pipeline("a", "b", "c")
	s := e.open(inc)
	asks := produce(e, s.Requests())
	wanted := []flusso.Request{
		backfill("b", "orders"), backfill("a", "items", "orders"), backfill("b", "orders"), backfill("c", "items"),
	}
	asks.publish(wanted...)
	c := s.commits()
	asked := consume(e, s.Requests())
	out := asked.gets(wanted...) // all of them wait together
	var requests []flusso.Request
	commit := flusso.Commit{}
	for _, d := range out {
		requests = append(requests, d.Item())
		commit.Acks = append(commit.Acks, d.Delivery)
	}
	snapshots := flusso.Coalesce(requests)
	e.equal("snapshots", snapshots, []flusso.Snapshot{
		{Index: "orders", Sinks: []string{"a", "b"}}, {Index: "items", Sinks: []string{"a", "c"}},
	})
	for _, snap := range snapshots {
		for _, sink := range snap.Sinks {
			commit.Items = append(commit.Items, to(sink, rows("1"), complete(snap.Index))...)
		}
	}
	c.publish(commit)
	if _, err := c.Publish(e.t.Context(), flusso.Commit{Acks: commit.Acks}); err != nil {
		e.t.Fatalf("acks that are in already: %v", err)
	}
	s.reader("a").gets(rows("1"), complete("orders"), rows("1"), complete("items"))
	s.reader("b").gets(rows("1"), complete("orders"))
	s.reader("c").gets(rows("1"), complete("items"))
	asked.flush()
	s.crash()
	consume(e, e.open(inc).Requests()).nothing() // one marker for each, nothing orphaned, nothing left
}

func checkD4(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	produce(e, s.Requests()).publish(backfill("a", "orders"))
	c := s.commits()
	asked := consume(e, s.Requests())
	d := asked.gets(backfill("a", "orders"))[0]

	// Document 1 changes while the snapshot runs: first behind its row, then
	// the row of a newer state behind a change.
	c.publish(toAll(live(10, "1"), "a", "b"))
	c.publish(flusso.Commit{Items: to("a", rows("1", "2"))})
	c.publish(toAll(live(20, "1", "2"), "a", "b"))
	c.publish(flusso.Commit{Items: to("a", rows("3"))})
	c.publish(flusso.Commit{Items: append(to("a", rows("4"), live(30, "4")), to("b", live(30, "4"))...)})
	c.publish(flusso.Commit{Items: to("a", complete("orders")), Acks: []flusso.Delivery[flusso.Request]{d.Delivery}})
	c.publish(toAll(live(40), "a", "b"))

	a, b := s.reader("a"), s.reader("b")
	a.acks(
		live(10, "1"), rows("1", "2"), live(20, "1", "2"), rows("3"), rows("4"), live(30, "4"), complete("orders"), live(40))
	b.acks(live(10, "1"), live(20, "1", "2"), live(30, "4"), live(40))
	b.nothing()
	a.flush()
	b.flush()
	s.reaches(40)
	asked.nothing()
	ctx, cancel := context.WithCancel(e.t.Context())
	cancel()
	_, err := c.Submit(ctx, toAll(live(50), "a", "b"))
	e.want("submit under a context that ended", err, context.Canceled)
}
