package streamtest

import (
	"context"
	"errors"
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

var commitClauses = []clause{
	{"B11_a_commit_is_in_all_its_lanes", checkB11},
	{"B11_after_a_crash_a_commit_is_in_all_its_lanes_or_in_none", checkB11Crash},
	{"B11_submit_returns_a_future_and_futures_resolve_in_order", checkB11Futures},
	{"B12_a_failed_publish_ends_the_session_for_all_its_producers", checkB12},
	{"B12_nothing_of_a_fenced_writer_is_delivered", checkB12Fenced},
	{"B12_a_new_producer_goes_on_where_the_lanes_are", checkB12Again},
}

// waitAll waits for every future to succeed.
func waitAll(e *env, futures []*flusso.Future) {
	e.t.Helper()
	for i, f := range futures {
		e.do(fmt.Sprintf("wait for future %d of %d", i+1, len(futures)), func(ctx context.Context) error {
			_, err := f.Wait(ctx)
			return err
		})
	}
}

func checkB11(e *env) {
	e.pipeline("a", "b", "c")
	s := e.open(inc)
	c := s.commits()
	e.equal("receipt", c.publish(flusso.Commit{Items: []flusso.Routed{
		{Sink: "a", Item: live(10, "1")},
		{Sink: "b", Item: rows("1")},
		{Sink: "a", Item: complete("orders")},
		{Sink: "b", Item: live(10)},
		{Sink: "a", Item: live(11)},
	}}), flusso.Receipt{Published: 5})
	c.publish(flusso.Commit{}) // of nothing
	c.publish(toAll(live(20), "a", "b", "c"))
	s.reader("a").gets(live(10, "1"), complete("orders"), live(11), live(20))
	s.reader("b").gets(rows("1"), live(10), live(20))
	s.reader("c").gets(live(20))
}

func checkB11Crash(e *env) {
	sinks := []string{"a", "b", "c"}
	e.pipeline(sinks...)
	s := e.open(inc)
	c := s.commits()
	const n = 30
	for i := range n {
		at := flusso.Position(i + 1)
		c.submit(flusso.Commit{Items: []flusso.Routed{
			{Sink: "a", Item: live(at, documents(i%4)...)},
			{Sink: "b", Item: live(at)},
			{Sink: "c", Item: live(at, documents(1)...)},
		}})
	}
	s.crash()

	s = e.open(inc)
	s.commits().publish(toAll(complete("the end"), sinks...))
	counts := make(map[string]int)
	for _, sink := range sinks {
		r := s.reader(sink)
		for {
			b, ok := r.next().Item().(*flusso.Batch)
			if !ok {
				break
			}
			counts[sink]++
			e.equal("position in the lane of "+sink, b.Position, flusso.Position(counts[sink]))
		}
	}
	if counts["a"] != counts["b"] || counts["b"] != counts["c"] {
		e.t.Fatalf("of %d commits the lanes hold %v: want the same in all", n, counts)
	}
}

func checkB11Futures(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	c := s.commits()
	var futures []*flusso.Future
	for i := range 40 {
		futures = append(futures, c.submit(toAll(live(flusso.Position(i+1), documents(i%6)...), "a", "b")))
	}
	for i, f := range futures {
		e.do("wait for a future", func(ctx context.Context) error {
			r, err := f.Wait(ctx)
			if err == nil && r.Published != 2 {
				return fmt.Errorf("receipt %+v, want 2 published", r)
			}
			return err
		})
		for j := range i {
			select {
			case <-futures[j].Done():
			default:
				e.t.Fatalf("future %d is resolved before future %d", i, j)
			}
		}
	}
	// Backwards: when the last one is resolved, all are.
	futures = futures[:0]
	for i := range 40 {
		futures = append(futures, c.submit(toAll(live(flusso.Position(i+100)), "a", "b")))
	}
	waitAll(e, futures[39:])
	for j, f := range futures {
		select {
		case <-f.Done():
		default:
			e.t.Fatalf("the last future is resolved before future %d", j)
		}
	}
}

// ended are the errors with which a writer session ends.
var ended = []error{flusso.ErrFenced, flusso.ErrLost, flusso.ErrUnknownOutcome}

// fenced publishes with p until it notices that another writer took over.
func fenced[T any](e *env, p *producer[T], item T) error {
	e.t.Helper()
	err := p.try(item)
	e.want("publish by a fenced writer", err, ended...)
	return err
}

func checkB12(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	c, w := s.commits(), s.writer("a")
	c.publish(toAll(live(10), "a", "b"))
	other := e.open(inc)
	other.commits().publish(toAll(live(20), "a", "b"))

	first := fenced(e, c, toAll(live(20), "a", "b"))
	// Whatever comes: the same position again is no matter of its order.
	for _, at := range []flusso.Position{20, 20, 20, 30, 30, 31} {
		err := c.try(toAll(live(at), "a", "b"))
		same := false
		for _, kind := range ended {
			same = same || errors.Is(first, kind) && errors.Is(err, kind)
		}
		if !same {
			e.t.Fatalf("publish after the session ended: got %v, want the cause: %v", err, first)
		}
	}
	e.want("publish by another producer of the session", w.try(live(40)), ended...)
	ctx, cancel := e.bounded()
	defer cancel()
	f, err := w.Submit(ctx, live(50))
	if err == nil {
		_, err = f.Wait(ctx)
	}
	e.want("submit by another producer of the session", err, ended...)

	// The newer one is not touched, and nothing lies behind the hole.
	other.writer("a").publish(live(60))
	s.reader("a").gets(live(10), live(20), live(60))
}

func checkB12Fenced(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w := s.writer("a")
	w.publish(live(10))
	other := e.open(inc)
	now := other.writer("a") // the lease is taken here, before anything is published
	err := w.try(live(20))
	e.want("publish by a fenced writer", err, ended...)
	now.publish(live(30))
	r := other.reader("a")
	r.gets(live(10), live(30))
	r.nothing()
}

func checkB12Again(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w := s.writer("a")
	w.publish(live(10))
	other := e.open(inc)
	now := other.writer("a")
	now.publish(live(20))
	_ = fenced(e, w, flusso.LaneItem(live(20)))

	// The superseded process may refuse to take the lease back while it runs.
	// Started again it does.
	s.stop()
	s = e.open(inc)
	again := s.writer("a")
	e.equal("replay", again.publish(live(10), live(20), live(30)), flusso.Receipt{Published: 1, Dropped: 2})
	_ = fenced(e, now, flusso.LaneItem(live(30)))
	s.reader("a").gets(live(10), live(20), live(30))
}
