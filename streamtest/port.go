package streamtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	flusso "github.com/flusso/flusso-kafka"
)

var portClauses = []clause{
	{"A1_a_stream_hands_out_lanes_requests_and_watermark", checkA1},
	{"A2_a_lane_carries_batches_and_markers_and_requests_are_backfills", checkA2},
	{"A2_what_is_malformed_is_refused_and_the_producer_goes_on", checkA2Malformed},
	{"A3_both_directions_use_one_producer_and_consumer_pair", checkA3},
	{"A3_the_publisher_owns_its_item_again_once_it_is_published", checkA3Publisher},
	{"A3_the_receiver_owns_what_it_gets", checkA3Receiver},
	{"A4_an_unknown_sink_is_a_typed_error_naming_the_known_ones", checkA4},
	{"A5_caught_up_tells_whether_anything_waits_behind_the_last_delivery", checkA5CaughtUp},
	{"A5_idle_tells_whether_every_lane_is_drained", checkA5Idle},
	{"A5_requests_that_wait_keep_no_stream_from_being_idle", checkA5Requests},
}

func checkA1(e *env) {
	e.pipeline("b", "a")
	s := e.open(inc)
	sinks := s.Sinks()
	e.equal("sinks, sorted", sinks, []string{"a", "b"})
	sinks[0] = "changed"
	e.equal("sinks after the caller changed its slice", s.Sinks(), []string{"a", "b"})
	for _, sink := range s.Sinks() {
		s.reader(sink)
		s.writer(sink)
	}
	consume(e, s.Requests())
	produce(e, s.Requests())
	s.commits()
	w := s.watermark()
	e.equal("watermark of an empty stream", w.Position, flusso.NoPosition)
	e.equal("its incarnation", w.Incarnation, inc)
	if !s.idle() {
		e.t.Error("an empty stream is not idle")
	}
}

// assorted has every shape of lane item.
func assorted() []flusso.LaneItem {
	mixed := live(30, "1", "2")
	mixed.Envelopes[0].Position = 25
	mixed.Envelopes[1].Op, mixed.Envelopes[1].Document = flusso.Delete, nil
	mixed.Envelopes = append(mixed.Envelopes, flusso.Envelope{
		Index: "Ünïcödé index", ID: "id with spaces, ☃ and =", Op: flusso.Upsert,
		Document: []byte{0, 1, 0xff, '\n'}, Position: 30, BuiltAt: built,
	})
	return []flusso.LaneItem{
		live(10, "1"),
		rows("7", "8"),
		more(20, "1"),
		live(20, "1"),
		complete("orders", "Ünïcödé index"),
		mixed,
		live(40),
		live(1<<63+5, "last"),
	}
}

func checkA2(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w, r := s.writer("a"), s.reader("a")
	items := assorted()
	w.publish(items...)
	r.gets(items...)

	want := flusso.Request(backfill("a", "orders", "Ünïcödé index"))
	asks, asked := produce(e, s.Requests()), consume(e, s.Requests())
	asks.publish(want)
	asked.gets(want)
}

func checkA2Malformed(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	w, all, r := s.writer("a"), s.commits(), s.reader("a")
	long := strings.Repeat("x", 1000)
	with := func(change func(b *flusso.Batch)) flusso.LaneItem {
		b := live(10, "1")
		change(b)
		return b
	}
	for what, item := range map[string]flusso.LaneItem{
		"nil":                                 nil,
		"a nil batch":                         (*flusso.Batch)(nil),
		"a nil marker":                        (*flusso.SnapshotComplete)(nil),
		"a marker without an index":           complete(),
		"a batch of neither rows nor changes": rows(),
		"a snapshot batch that says more":     &flusso.Batch{More: true},
		"an upsert without a document":        with(func(b *flusso.Batch) { b.Envelopes[0].Document = nil }),
		"a delete with one":                   with(func(b *flusso.Batch) { b.Envelopes[0].Op = flusso.Delete }),
		"no operation":                        with(func(b *flusso.Batch) { b.Envelopes[0].Op = 0 }),
		"an envelope from the future":         with(func(b *flusso.Batch) { b.Envelopes[0].Position = 11 }),
		"a live envelope without position":    with(func(b *flusso.Batch) { b.Envelopes[0].Position = 0 }),
	} {
		_ = as[*flusso.InvalidError](e, "publish "+what, w.try(item))
		_ = as[*flusso.InvalidError](e, "commit "+what, all.try(flusso.Commit{Items: append(to("b", live(10)), to("a", item)...)}))
	}
	for what, item := range map[string]flusso.LaneItem{
		"a slash in the index": with(func(b *flusso.Batch) { b.Envelopes[0].Index = "a/b" }),
		"a long index":         with(func(b *flusso.Batch) { b.Envelopes[0].Index = long }),
		"a long id":            with(func(b *flusso.Batch) { b.Envelopes[0].ID = long }),
		"an id with a newline": with(func(b *flusso.Batch) { b.Envelopes[0].ID = "a\nb" }),
		"an empty id":          with(func(b *flusso.Batch) { b.Envelopes[0].ID = "" }),
	} {
		_ = as[*flusso.NameError](e, "publish "+what, w.try(item))
	}
	asks := produce(e, s.Requests())
	_ = as[*flusso.InvalidError](e, "a backfill of nothing", asks.try(backfill("a")))
	_ = as[*flusso.InvalidError](e, "no request", asks.try(nil))

	// Nothing of it was published, and nobody's session ended.
	w.publish(live(10, "1"))
	r.gets(live(10, "1"))
	all.publish(flusso.Commit{Items: to("b", live(10))})
	s.reader("b").gets(live(10))
	asks.publish(backfill("a", "orders"))
	consume(e, s.Requests()).gets(backfill("a", "orders"))
}

func checkA3(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	pair(e, s.lane("a"), []flusso.LaneItem{live(10, "1"), complete("orders"), live(20)})
	pair(e, s.Requests(), []flusso.Request{backfill("a", "x"), backfill("a", "y"), backfill("a", "x")})
}

// pair does with three items what both directions can do.
func pair[T any](e *env, l flusso.Lane[T], items []T) {
	p, c := produce(e, l), consume(e, l)
	e.equal("receipt", p.publish(items[0]), flusso.Receipt{Published: 1})
	f := p.submit(items[1])
	e.do("wait for the future", func(ctx context.Context) error {
		_, err := f.Wait(ctx)
		return err
	})
	out := c.gets(items[0], items[1])
	out[0].ack()
	out[0].ack() // again is fine
	e.want("nack what is acked", out[0].nackErr(), flusso.ErrAcked)
	out[1].nack()
	e.want("nack what is withdrawn", out[1].nackErr(), flusso.ErrWithdrawn)
	c.acks(items[1])
	c.flush()
	c.nothing()

	ctx, cancel := context.WithCancel(e.t.Context())
	cancel()
	_, err := c.Receive(ctx)
	e.want("receive under a context that ended", err, context.Canceled)
	p.publish(items[2])
	c.acks(items[2]) // and it took nothing with it
	c.shut()
	p.shut()
}

func checkA3Publisher(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	item := live(10, "1", "2")
	s.commits().publish(toAll(item, "a", "b"))
	item.Envelopes[0].Document[0] = 'X'
	item.Envelopes[1].ID = "changed by the publisher"

	want := live(10, "1", "2")
	r := s.reader("a")
	r.gets(want)[0].nack()
	d := r.gets(want)[0]
	d.ack()
	e.equal("the item of a delivery that is acked", text(d.Item()), text(want))
	s.reader("b").gets(want)
}

// What a receiver does to its item changes nothing for the other lanes, and
// nothing for the delivery that comes after a nack.
func checkA3Receiver(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	want := live(10, "1", "2")
	s.commits().publish(toAll(want, "a", "b"))
	spoil := func(d *delivery[flusso.LaneItem]) {
		got := d.Item().(*flusso.Batch)
		got.Envelopes[0].Document[0] = 'Y'
		got.Envelopes[1].ID = "changed by a receiver"
	}
	want = live(10, "1", "2")
	r := s.reader("a")
	d := r.gets(want)[0]
	spoil(d)
	d.nack()
	spoil(r.gets(want)[0])
	s.reader("a").gets(want)
	s.reader("b").gets(want)
}

func checkA4(e *env) {
	e.pipeline("audit", "search")
	s := e.open(inc)
	known := []string{"audit", "search"}
	unknown := func(what string, err error) {
		e.t.Helper()
		u := as[*flusso.UnknownSinkError](e, what, err)
		slices.Sort(u.Known)
		e.equal(what+": the known sinks", u.Known, known)
		e.equal(what+": the unknown one", u.Sink, "serach")
	}
	_, err := s.Lane("serach")
	unknown("the lane of an unknown sink", err)
	c := s.commits()
	unknown("a commit for an unknown sink", c.try(toAll(live(10), "audit", "serach")))
	unknown("a backfill for an unknown sink", produce(e, s.Requests()).try(backfill("serach", "orders")))

	c.publish(toAll(live(20), "audit", "search")) // nothing is there, and the session goes on
	s.reader("audit").gets(live(20))
	s.reader("search").gets(live(20))
}

func checkA5CaughtUp(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	r := s.reader("a")
	e.eventually("an empty lane is caught up", r.CaughtUp)
	w := s.writer("a")
	for i := range 20 { // readers may see an item some time after its publisher got the ack
		at := flusso.Position(10 * (i + 1))
		w.publish(live(at))
		if r.caughtUp() {
			e.t.Fatalf("caught up, although %s was published and acknowledged before", at)
		}
		d := r.gets(live(at))[0]
		e.eventually("nothing waits behind the last delivery", r.CaughtUp)
		if i%2 == 0 {
			d.ack()
			e.eventually("nothing waits behind the last delivery, which is acked", r.CaughtUp)
		}
	}
	w.publish(live(1000), live(1001))
	r.gets(live(1000))
	if r.caughtUp() {
		e.t.Fatal("caught up, although one of two items was not delivered")
	}
	d := r.gets(live(1001))[0]
	e.eventually("both are delivered", r.CaughtUp)
	d.nack()
	if r.caughtUp() {
		e.t.Fatal("caught up, although a nacked item comes again")
	}
	r.gets(live(1001))

	again := s.reader("a")
	if again.caughtUp() {
		e.t.Fatal("a new consumer is caught up, although items are not acked")
	}
	old := r
	if ok, err := old.CaughtUp(e.t.Context()); err == nil {
		// It may not know yet that it was superseded; it must never say that all is well.
		if ok {
			e.t.Fatal("a superseded consumer is caught up")
		}
	} else {
		e.want("caught up of a superseded consumer", err, flusso.ErrSuperseded)
	}
}

func checkA5Idle(e *env) {
	e.pipeline("a", "b")
	s, other := e.open(inc), e.open(inc)
	if !s.idle() {
		e.t.Fatal("an empty stream is not idle")
	}
	c := s.commits()
	for i := range 10 {
		at := flusso.Position(10 * (i + 1))
		c.publish(toAll(live(at, "1"), "a", "b"))
		for _, view := range []*stream{s, other} {
			if view.idle() {
				e.t.Fatalf("idle, although %s was published and acknowledged before", at)
			}
		}
	}
	a, b := s.reader("a"), other.reader("b")
	for i := range 10 {
		at := flusso.Position(10 * (i + 1))
		a.acks(live(at, "1"))
		b.gets(live(at, "1"))[0].ack()
	}
	a.flush()
	b.flush()
	s.drains()
	other.drains()

	s.writer("a").publish(complete("orders"))
	d := a.gets(complete("orders"))[0]
	for range 5 {
		if s.idle() {
			e.t.Fatal("idle, although a delivery is not acked")
		}
	}
	d.ack()
	a.flush()
	s.drains()
}

func checkA5Requests(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	idle := func(what string) {
		e.t.Helper()
		if !s.idle() {
			e.t.Fatalf("not idle although every lane is drained: %s", what)
		}
	}
	produce(e, s.Requests()).publish(backfill("a", "orders"), backfill("a", "items"))
	idle("two requests wait")
	asked := consume(e, s.Requests())
	d := asked.gets(backfill("a", "orders"))[0]
	idle("a request is delivered and not acked, another waits")

	s.commits().publish(flusso.Commit{Items: to("a", complete("orders")), Acks: []flusso.Delivery[flusso.Request]{d.Delivery}})
	if s.idle() {
		e.t.Fatal("idle, although a marker was published and acknowledged before")
	}
	r := s.reader("a")
	r.acks(complete("orders"))
	r.flush()
	s.drains()
	asked.gets(backfill("a", "items"))
	idle("a request is delivered and not acked")
}

// errIs is for goroutines that must not fail the test themselves.
func errIs(err error, targets ...error) error {
	for _, target := range targets {
		if errors.Is(err, target) {
			return nil
		}
	}
	return fmt.Errorf("got error %w, want %v", err, targets)
}
