package kafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func (w *caseWorld) ask(s flusso.Stream, sink string, indexes ...string) {
	w.t.Helper()
	p, err := s.Requests().Producer(w.ctx())
	w.do("producer of requests", err)
	_, err = p.Publish(w.ctx(), &flusso.Backfill{Sink: sink, Indexes: indexes})
	w.do("send a request", err)
}

func (w *caseWorld) requests(s flusso.Stream) flusso.Consumer[flusso.Request] {
	w.t.Helper()
	c, err := s.Requests().Consumer(w.ctx())
	w.do("attach to the requests", err)
	return c
}

func (w *caseWorld) request(c flusso.Consumer[flusso.Request]) flusso.Delivery[flusso.Request] {
	w.t.Helper()
	d, err := c.Receive(w.ctx())
	w.do("receive a request", err)
	return d
}

func (w *caseWorld) noRequest(c flusso.Consumer[flusso.Request]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if d, err := c.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		w.t.Fatalf("received %+v, %v, want no request", d, err)
	}
}

func snapshotOf(sink string, ids ...string) (c flusso.Commit) {
	for _, id := range ids {
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: &flusso.Batch{Envelopes: []flusso.Envelope{
			{Index: "order", ID: id, Op: flusso.Upsert, Document: []byte("{}")},
		}}})
	}
	return c
}

func marker(sink string) flusso.Routed {
	return flusso.Routed{Sink: sink, Item: &flusso.SnapshotComplete{Indexes: []string{"order"}}}
}

func TestCase28_ARequestSentWhileTheEngineIsDownIsServed(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		w.ask(w.process(""), "audit", "order")
		s := w.process("db:slot")
		w.request(w.requests(s))
		w.Crash(t, s) // between taking and completing
		s = w.process("db:slot")
		c := w.requests(s)
		d := w.request(c)
		commit := snapshotOf("audit", "row")
		commit.Items, commit.Acks = append(commit.Items, marker("audit")), []flusso.Delivery[flusso.Request]{d}
		_, err := w.commits(s).Publish(w.ctx(), commit)
		w.do("complete", err)
		w.Crash(t, s)
		w.noRequest(w.requests(w.process("db:slot")))
	})
}

func TestCase29_ASecondRequestDuringASnapshotIsNotOrphaned(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p, c := w.commits(s), w.requests(s)
		w.ask(s, "audit", "order")
		first := w.request(c)
		_, err := p.Publish(w.ctx(), snapshotOf("audit", "a"))
		w.do("publish rows", err)
		w.ask(s, "audit", "order")
		second := w.request(c)
		for _, d := range []flusso.Delivery[flusso.Request]{first, second} {
			_, err := p.Publish(w.ctx(), flusso.Commit{Items: []flusso.Routed{marker("audit")}, Acks: []flusso.Delivery[flusso.Request]{d}})
			w.do("complete", err)
		}
		lane, markers := w.attach(s, "audit"), 0
		for range 3 {
			d, err := lane.Receive(w.ctx())
			w.do("receive", err)
			if _, ok := d.Item().(*flusso.SnapshotComplete); ok {
				markers++
			}
			w.ack(d)
		}
		if markers != 2 {
			t.Errorf("%d markers for two requests", markers)
		}
		w.do("close", c.Close(w.ctx()))
		w.noRequest(w.requests(s))
	})
}

func TestCase30_TheMarkerComesBehindItsRowsOrNotAtAll(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p, c := w.commits(s), w.requests(s)
		w.ask(s, "audit", "order")
		d := w.request(c)
		f := w.cluster.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Disconnect, Times: -1})
		var futures []*flusso.Future
		for _, commit := range []flusso.Commit{snapshotOf("audit", "a", "b"), {Items: []flusso.Routed{marker("audit")}, Acks: []flusso.Delivery[flusso.Request]{d}}} {
			future, err := p.Submit(w.ctx(), commit)
			w.do("submit", err)
			futures = append(futures, future)
		}
		<-f.Hit()
		w.Crash(t, s)
		f.Release()
		for _, future := range futures {
			if _, err := future.Wait(w.ctx()); err == nil {
				t.Error("acknowledged by a process that had crashed")
			}
		}
		s = w.process("db:slot")
		p, c = w.commits(s), w.requests(s)
		d = w.request(c) // it runs again
		commit := snapshotOf("audit", "a", "b")
		commit.Items, commit.Acks = append(commit.Items, marker("audit")), []flusso.Delivery[flusso.Request]{d}
		_, err := p.Publish(w.ctx(), commit)
		w.do("complete", err)
		lane := w.attach(s, "audit")
		for i, want := range []string{"a", "b", ""} {
			d, err := lane.Receive(w.ctx())
			w.do("receive", err)
			if b, ok := d.Item().(*flusso.Batch); ok != (want != "") || ok && b.Envelopes[0].ID != want {
				t.Errorf("item %d is %+v", i, d.Item())
			}
		}
	})
}

// Lag through the life of a lane: never negative, 0 when caught up although
// markers own offsets, exact between, clamped to the log start.
func TestCase43_44_45_LagIsExactThroughTheLifeOfALane(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		l := w.Lane(t, "audit")
		store := offsets.New(w.cluster.Client(t))
		lag := func(batches uint64) offsets.Lag {
			t.Helper()
			got, err := store.Lag(w.ctx(), []topics.Lane{l})
			w.do("lag", err)
			if got[l].Batches != batches || got[l].Envelopes != 2*batches {
				t.Fatalf("lag is %+v, want %d batches", got[l], batches)
			}
			return got[l]
		}
		p := w.commits(s)
		w.publish(s, p, 1, 2, 3)
		c := w.attach(s, "audit")
		if got := lag(0); got.Known || got.Retained.Batches != 3 {
			t.Errorf("nothing is committed, but the lag is known: %+v", got)
		}
		w.applies(c, 1)
		lag(2)
		w.applies(c, 2, 3)
		for range 3 {
			w.sleep(time.Hour)
			if got := lag(0); got.Age != 0 {
				t.Errorf("caught up, but %s behind", got.Age)
			}
		}
		w.publish(s, p, 4, 5)
		w.do("close", c.Close(w.ctx()))
		w.Trim(t, "audit", w.LaneEnd(t, "audit")-2) // 4 is gone, 5 is there
		if got := lag(1); got.Gap == nil {
			t.Errorf("the gap is not shown: %+v", got)
		}
	})
}

// One lane is deleted: the others are told as before.
func TestCase49_ADeletedLaneLeavesTheOthers(t *testing.T) {
	story(t, []string{"audit", "search"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		w.publish(s, w.commits(s), 1, 2)
		w.applies(w.attach(s, "search"), 1)
		a, b := w.Lane(t, "audit"), w.Lane(t, "search")
		_, err := kadm.NewClient(w.cluster.Client(t)).DeleteTopics(w.ctx(), a.Topic())
		w.do("delete topic", err)
		w.sleep(time.Minute)
		got, err := offsets.New(w.cluster.Client(t)).Lag(w.ctx(), []topics.Lane{a, b})
		w.do("lag", err)
		if got[a].Err == nil || got[b].Err != nil || got[b].Batches != 1 {
			t.Errorf("got %+v for the deleted lane and %+v for the other", got[a], got[b])
		}
	})
}
