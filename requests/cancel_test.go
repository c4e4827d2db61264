package requests

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// plan plans to cancel the requests at offsets; none stand for all.
func (w *world) plan(offsets ...flusso.Offset) Cancellation {
	w.t.Helper()
	c, err := PlanCancel(ctxOf(w.t), w.lookup, w.pipeline, func(r Waiting) bool {
		return len(offsets) == 0 || slices.Contains(offsets, r.Offset)
	})
	if err != nil {
		w.t.Fatalf("plan: %v", err)
	}
	return c
}

// cancel carries out a plan as an operator with a client id.
func (w *world) cancel(operator string, c Cancellation) error {
	return Cancel(ctxOf(w.t), Config{
		Pipeline: w.pipeline, Client: append(w.k.Opts(), kgo.ClientID(operator)), Lookup: w.lookup,
	}, c)
}

func (w *world) wantCancelled(c Cancellation) {
	w.t.Helper()
	if err := w.cancel("operator", c); err != nil {
		w.t.Fatalf("cancel: %v", err)
	}
}

func wantAcked(t *testing.T, what string, got Acked, offset flusso.Offset, above ...flusso.Offset) {
	t.Helper()
	if got.Offset != offset || !slices.Equal(got.Above, above) {
		t.Errorf("%s: got %s, want %s", what, got, Acked{offset, above})
	}
}

func TestCancel_IsNotServedAnyMore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a", "b", "c", "d", "e")
		c := w.plan(1, 3)
		wantAcked(t, "before", c.Before, flusso.NoOffset)
		wantAcked(t, "after", c.After, 0, 1, 3)
		if len(c.Requests) != 2 || len(c.Left) != 3 || c.Gone != nil {
			t.Errorf("got %+v", c)
		}
		w.wantWaiting("a", "b", "c", "d", "e") // planned, not done
		w.wantCancelled(c)
		w.wantWaiting("a", "c", "e")

		c = w.plan(0)
		wantAcked(t, "before", c.Before, 0, 1, 3)
		wantAcked(t, "after", c.After, 2, 3)
		w.wantCancelled(c)
		engine := w.attach()
		w.ack(w.receive(engine, "c"), w.receive(engine, "e"))
		w.flush(engine)
		w.close(engine)
		w.wantWaiting()
	})
}

func TestCancel_All(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a", "b")
		c := w.plan()
		wantAcked(t, "after", c.After, 2)
		w.wantCancelled(c)
		w.wantWaiting()
		w.send("c")
		w.receive(w.attach(), "c")
	})
}

// A request of a version to come stops the engine of today; it has a way out.
func TestCancel_RepairsALaneThatStopsItsEngine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.pipeline.RequestsTopic()
		cl := w.k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		w.send("a")
		for _, value := range []string{`{"v":2,"kind":"rebuild"}`, "garbage"} {
			if err := cl.ProduceSync(ctxOf(t), &kgo.Record{Topic: topic, Key: []byte("audit"), Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		w.send("b")
		w.wantWaiting("a", "unreadable", "unreadable", "b")
		engine := w.attach()
		w.receive(engine, "a")
		if _, err := engine.Receive(ctxOf(t)); err == nil || !strings.Contains(err.Error(), "version") {
			t.Fatalf("got %v, want the version that is not known", err)
		}
		w.close(engine)
		c, err := PlanCancel(ctxOf(t), w.lookup, w.pipeline, func(r Waiting) bool { return r.Err != nil })
		if err != nil {
			t.Fatal(err)
		}
		wantAcked(t, "after", c.After, 0, 1, 2)
		w.wantCancelled(c)
		engine = w.attach()
		w.receive(engine, "a")
		w.receive(engine, "b")
	})
}

func TestCancel_LeavesARunningEngineAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a")
		engine := w.attach()
		d := w.receive(engine, "a")
		c := w.plan()
		var active *group.ActiveError
		for what, err := range map[string]error{"cancel": w.cancel("operator", c), "look": Memberless(ctxOf(t), w.lookup, w.pipeline)} {
			if !errors.As(err, &active) || len(active.Members) != 1 || active.Members[0].Since.IsZero() || active.Members[0].Instance != w.pipeline.IngestGroup() {
				t.Errorf("%s: got %v", what, err)
			}
		}
		w.ack(d) // it is still the engine's
		w.flush(engine)
		w.close(engine)
		if err := Memberless(ctxOf(t), w.lookup, w.pipeline); err != nil {
			t.Errorf("left, and got %v", err)
		}
		var changed *ChangedError
		if err := w.cancel("operator", c); !errors.As(err, &changed) || changed.Is.Offset != 1 || changed.Was.Offset != flusso.NoOffset {
			t.Errorf("got %v, want what the engine did", err)
		}
	})
}

// Requests that retention took are given up by name; the lane of a topic that
// was created anew begins at its start.
func TestCancel_GivesUpWhatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a", "b", "c", "d")
		w.wantCancelled(w.plan(0, 2))
		admin := kadm.NewClient(w.lookup)
		var to kadm.Offsets
		to.AddOffset(w.pipeline.RequestsTopic(), 0, 3, -1)
		if _, err := admin.DeleteRecords(ctxOf(t), to); err != nil {
			t.Fatal(err)
		}
		w.wantWaiting("d")
		c := w.plan(99) // nothing that waits
		if c.Gone == nil || c.Gone.From != 1 || c.Gone.To != 3 || len(c.Requests) != 0 {
			t.Fatalf("got %+v", c)
		}
		wantAcked(t, "after", c.After, 3)
		w.wantCancelled(c)
		w.receive(w.attach(), "d")
	})
	bubble(t, func(t *testing.T, w *world) {
		w.send("a", "b")
		w.wantCancelled(w.plan())
		topic := w.pipeline.RequestsTopic()
		admin := kadm.NewClient(w.lookup)
		before, err := admin.FetchOffsets(ctxOf(t), w.pipeline.IngestGroup())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.DeleteTopics(ctxOf(t), topic); err != nil {
			t.Fatal(err)
		}
		w.k.CreateTopic(t, topic)
		w.send("x", "y", "z")
		// The brokers dropped the commit with the topic; one that came late did not know.
		was, _ := before.Lookup(topic, 0)
		var late kadm.Offsets
		late.Add(kadm.Offset{Topic: topic, At: was.At, LeaderEpoch: -1, Metadata: was.Metadata})
		if err := kadm.NewClient(w.k.Client(t)).CommitAllOffsets(ctxOf(t), w.pipeline.IngestGroup(), late); err != nil {
			t.Fatal(err)
		}
		w.wantWaiting("x", "y", "z")
		c := w.plan(0)
		if c.Gone == nil || c.Gone.Cause != "topic recreated" {
			t.Fatalf("got %+v", c)
		}
		w.wantCancelled(c)
		w.receive(w.attach(), "y")
	})
}

func TestCancel_WhatDoesNotFitIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var names []string
		for i := range 400 {
			names = append(names, fmt.Sprint("ix", i))
		}
		w.send(names...)
		_, err := PlanCancel(ctxOf(t), w.lookup, w.pipeline, func(r Waiting) bool { return r.Offset%2 == 1 })
		if limit := (*flusso.LimitError)(nil); !errors.As(err, &limit) || limit.Value != 200 || limit.Max < 20 {
			t.Fatalf("got %v", err)
		}
		w.wantCancelled(w.plan(1, 3, 5))
	})
}

// Of two operators who planned the same, one does it and the other is told.
func TestCancel_TwoOperators(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a", "b", "c")
		first, second := w.plan(0), w.plan(1)
		w.wantCancelled(first)
		var changed *ChangedError
		if err := w.cancel("other", second); !errors.As(err, &changed) || changed.Is.Offset != 1 {
			t.Errorf("got %v, want what the first did", err)
		}
		w.wantWaiting("b", "c")
	})
	// At the very same moment: what any of them was told to be done is done.
	for round := range 20 {
		bubble(t, func(t *testing.T, w *world) {
			w.send("a", "b", "c", "d")
			plans := []Cancellation{w.plan(0), w.plan(1), w.plan(2)}
			errs := make([]error, len(plans))
			if round%2 == 1 { // all find the group empty, and join one after the other
				w.k.Fault(t, kmsg.JoinGroup, kfaketest.Fault{Mode: kfaketest.Hang, Times: 2, After: round%4 == 1})
			}
			var wg sync.WaitGroup
			for i, p := range plans {
				wg.Go(func() { errs[i] = w.cancel(fmt.Sprint("operator-", i), p) })
			}
			wg.Wait()
			kfaketest.Pass(time.Minute)
			done := 0
			list, _, err := List(ctxOf(t), w.lookup, w.pipeline)
			if err != nil {
				t.Fatal(err)
			}
			for i, err := range errs {
				waits := slices.ContainsFunc(list, func(r Waiting) bool { return r.Offset == flusso.Offset(i) })
				if err == nil {
					done++
				}
				if (err == nil) == waits {
					t.Errorf("round %d: operator %d was told %v, and its request waits: %t", round, i, err, waits)
				}
			}
			if done > 1 {
				t.Errorf("round %d: %d operators did what only one of them could have seen right", round, done)
			}
		})
	}
}

// An engine that attaches while an operator is about to commit wins.
func TestCancel_AnEngineThatAttachesMeanwhileWins(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a")
		f := w.k.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "operator"})
		c := w.plan()
		told := make(chan error, 1)
		go func() { told <- w.cancel("operator", c) }()
		<-f.Hit()
		engine := w.attach()
		f.Release()
		if err := <-told; err == nil || !strings.Contains(err.Error(), "nothing was committed") {
			t.Errorf("got %v, want to be told that the engine won", err)
		}
		w.ack(w.receive(engine, "a"))
		w.flush(engine)
	})
}

func TestList_RequestsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var names []string
		for i := range 1000 {
			names = append(names, fmt.Sprint("ix", i))
		}
		w.send(names...)
		seen := w.count()
		list := func(what string, n int, want map[kmsg.Key]int) {
			t.Helper()
			got, more, err := List(ctxOf(t), w.lookup, w.pipeline)
			if err != nil || more || len(got) != n {
				t.Fatalf("%s: got %d requests, %v", what, len(got), err)
			}
			if counts := seen.take(); !maps.Equal(counts, want) {
				t.Errorf("%s: got requests %v, want %v", what, counts, want)
			}
		}
		list("first", 1000, map[kmsg.Key]int{kmsg.FindCoordinator: 1, kmsg.Metadata: 1, kmsg.OffsetFetch: 1, kmsg.Fetch: 1})
		list("again", 1000, map[kmsg.Key]int{kmsg.Metadata: 1, kmsg.OffsetFetch: 1, kmsg.Fetch: 1})
		w.wantCancelled(w.plan())
		seen.take()
		list("none waits", 0, map[kmsg.Key]int{kmsg.Metadata: 1, kmsg.OffsetFetch: 1, kmsg.Fetch: 1})
	})
}

func TestList_EndsAtTheMostThatIsListed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cl := w.k.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		var records []*kgo.Record
		for range MaxListed + 5 {
			records = append(records, &kgo.Record{Topic: w.pipeline.RequestsTopic(), Value: []byte("garbage")})
		}
		if err := cl.ProduceSync(ctxOf(t), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		c := w.plan()
		if len(c.Requests) != MaxListed || !c.More {
			t.Fatalf("got %d, more %t", len(c.Requests), c.More)
		}
		if list, more, err := List(ctxOf(t), w.lookup, w.pipeline); err != nil || len(list) != MaxListed || !more {
			t.Errorf("got a list of %d, more %t, %v", len(list), more, err)
		}
		wantAcked(t, "after", c.After, MaxListed)
		w.wantCancelled(c)
		if c = w.plan(); len(c.Requests) != 5 || c.More {
			t.Errorf("got %d more, and more %t", len(c.Requests), c.More)
		}
	})
}

// counter counts the requests that a cluster gets, by kind.
type counter struct {
	mu   sync.Mutex
	seen map[kmsg.Key]int
}

func (w *world) count() *counter {
	n := &counter{seen: make(map[kmsg.Key]int)}
	w.k.Kfake().Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.k.Kfake().KeepControl()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.seen[kmsg.Key(r.Key())]++
		return nil, nil, false
	})
	return n
}

func (n *counter) take() map[kmsg.Key]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen
	n.seen = make(map[kmsg.Key]int)
	delete(seen, kmsg.ApiVersions)
	delete(seen, kmsg.GetTelemetrySubscriptions)
	return seen
}
