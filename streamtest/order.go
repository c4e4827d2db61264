package streamtest

import (
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

var orderClauses = []clause{
	{"B1_items_arrive_in_publish_order_each_batch_whole", checkB1},
	{"B1_a_crash_while_publishing_leaves_whole_batches_in_order", checkB1Crash},
	{"B2_a_batch_without_envelopes_travels_with_its_position", checkB2},
	{"B3_a_snapshot_batch_carries_no_position_and_its_marker_follows", checkB3},
}

// documents are n ids, for batches of different sizes.
func documents(n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("doc-%d", i))
	}
	return ids
}

func checkB1(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	w, c, r := s.writer("a"), s.commits(), s.reader("a")
	var want []flusso.LaneItem
	var futures []*flusso.Future
	for i := range 60 {
		item := flusso.LaneItem(live(flusso.Position(i+1), documents((i*7)%23)...))
		if i%9 == 4 {
			item = complete(fmt.Sprintf("index-%d", i))
		}
		want = append(want, item)
		if i%3 == 0 {
			futures = append(futures, c.submit(toAll(item, "a", "b")))
		} else {
			futures = append(futures, w.submit(item))
		}
	}
	waitAll(e, futures)
	r.gets(want...)
	r.nothing()
}

func checkB1Crash(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w := s.writer("a")
	w.publish(live(1, "1"))
	const n = 40
	for i := range n {
		w.submit(live(flusso.Position(i+2), documents(1+i%5)...))
	}
	s.crash()

	s = e.open(inc)
	s.writer("a").publish(complete("the end")) // fences the dead one, so that nothing more comes of it
	r := s.reader("a")
	r.acks(live(1, "1"))
	for i := range n + 1 {
		got := text(r.next().Item())
		if got == text(complete("the end")) {
			return // as much as was committed, in order and whole
		}
		e.equal("delivery after the crash", got, text(live(flusso.Position(i+2), documents(1+i%5)...)))
	}
	e.t.Fatal("the marker behind all of it did not come")
}

func checkB2(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	e.equal("receipt", s.writer("a").publish(live(10), live(20, "1"), live(30)), flusso.Receipt{Published: 3})
	r := s.reader("a")
	r.acks(live(10))
	r.flush()
	s.reaches(10)
	r.acks(live(20, "1"), live(30))
	r.flush()
	s.reaches(30)
}

func checkB3(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	items := []flusso.LaneItem{rows("1", "2"), live(10, "9"), rows("3"), rows("1"), complete("orders"), live(20)}
	s.writer("a").publish(items...)
	r := s.reader("a")
	for _, want := range items {
		got := r.gets(want)[0].Item()
		b, ok := got.(*flusso.Batch)
		if !ok || b.Live() {
			continue
		}
		for _, env := range b.Envelopes {
			e.equal("position of a snapshot row", env.Position, flusso.NoPosition)
		}
	}
	// The whole snapshot may be published twice: a row is never a replay.
	e.equal("the same rows again", s.writer("a").publish(rows("1", "2"), complete("orders")), flusso.Receipt{Published: 2})
	r.gets(rows("1", "2"), complete("orders"))
}
