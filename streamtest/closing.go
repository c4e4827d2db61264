package streamtest

import (
	"context"
	"errors"

	flusso "github.com/flusso/flusso-kafka"
)

var closeClauses = []clause{
	{"F1_closing_a_producer_drains_what_it_accepted", checkF1Producer},
	{"F1_closing_the_stream_drains_and_ends_both_directions", checkF1Stream},
	{"F1_closing_never_hangs_past_its_context", checkF1Context},
	{"F2_names_are_checked_before_anything_is_sent", checkF2Names},
	{"F2_an_item_above_the_limit_is_an_error_naming_it", checkF2Limit},
}

func checkF1Producer(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	c := s.commits()
	var futures []*flusso.Future
	for i := range 50 {
		futures = append(futures, c.submit(toAll(live(flusso.Position(i+1), "drain"), "a", "b")))
	}
	c.shut()
	for i, f := range futures {
		select {
		case <-f.Done():
		default:
			e.t.Fatalf("the producer is closed, future %d of %d is not resolved", i+1, len(futures))
		}
	}
	waitAll(e, futures)
	e.want("publish after close", c.try(toAll(live(60), "a")), flusso.ErrClosed)
	c.shut() // again
	s.commits().publish(toAll(live(60), "a", "b"))
	r := s.reader("a")
	for i := range 50 {
		r.gets(live(flusso.Position(i+1), "drain"))
	}
	r.gets(live(60))
}

func checkF1Stream(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w, r, asks, asked := s.writer("a"), s.reader("a"), produce(e, s.Requests()), consume(e, s.Requests())
	w.publish(live(1))
	d := r.gets(live(1))[0]
	waiting := make(chan error, 1)
	ctx, cancel := e.bounded()
	defer cancel()
	go func() {
		_, err := asked.Receive(ctx)
		waiting <- err
	}()
	var futures []*flusso.Future
	for i := range 20 {
		futures = append(futures, w.submit(live(flusso.Position(i+2), "1")))
	}
	d.ack()
	s.stop()
	waitAll(e, futures)
	if err := errIs(<-waiting, flusso.ErrClosed); err != nil {
		e.t.Fatalf("a receive that was waiting when the stream was closed: %v", err)
	}
	e.want("publish", w.try(live(99)), flusso.ErrClosed)
	e.want("a request", asks.try(backfill("a", "orders")), flusso.ErrClosed)
	e.want("receive", r.fails(), flusso.ErrClosed)
	if _, err := s.Commits(ctx); !errors.Is(err, flusso.ErrClosed) {
		e.t.Fatalf("a producer of a closed stream: %v", err)
	}
	if _, err := s.lane("a").Consumer(ctx); !errors.Is(err, flusso.ErrClosed) {
		e.t.Fatalf("a consumer of a closed stream: %v", err)
	}
	s.stop() // again

	s = e.open(inc)
	s.reaches(1) // close made the ack durable
	r = s.reader("a")
	for i := range 20 {
		r.gets(live(flusso.Position(i+2), "1"))
	}
}

func checkF1Context(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w, r := s.writer("a"), s.reader("a")
	for i := range 20 {
		w.submit(live(flusso.Position(i+1), "1"))
	}
	r.next()
	over, cancel := context.WithCancel(e.t.Context())
	cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Nil, when there was nothing left to drain, or what was not drained.
		_ = w.Close(over)
		_ = r.Close(over)
		_ = s.Close(over)
	}()
	ctx, stop := e.bounded()
	defer stop()
	select {
	case <-done:
	case <-ctx.Done():
		e.t.Fatalf("Close under a context that ended did not return in %s", e.h.Wait)
	}
}

func checkF2Names(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w := s.writer("a")
	for kind, change := range map[string]func(env *flusso.Envelope){
		"index":       func(env *flusso.Envelope) { env.Index = string(make([]byte, flusso.MaxIndex+1)) },
		"document id": func(env *flusso.Envelope) { env.ID = string(make([]byte, flusso.MaxID+1)) },
	} {
		b := live(10, "1")
		change(&b.Envelopes[0])
		name := as[*flusso.NameError](e, "a long "+kind, w.try(b))
		e.equal("kind of the name", name.Kind, kind)
	}
	w.publish(live(20))
	s.reader("a").gets(live(20))
}

func checkF2Limit(e *env) {
	e.pipeline("a")
	limited := need[Limited](e, "Limited")
	s := e.open(inc)
	w, c := s.writer("a"), s.commits()
	large := limited.TooLarge(e.t)
	for _, err := range []error{w.try(large), c.try(flusso.Commit{Items: append(to("a", live(10)), to("a", large)...)})} {
		limit := as[*flusso.LimitError](e, "an item above the limit", err)
		if limit.Value <= limit.Max || limit.Limit == "" || limit.Setting == "" || limit.What == "" {
			e.t.Fatalf("the error is %+v: want the limit, the value above it and the setting", *limit)
		}
	}
	w.publish(rows("1")) // the session goes on
	s.reader("a").gets(rows("1"))
}
