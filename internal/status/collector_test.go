package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

func TestCollect(t *testing.T) {
	w := newWorld(t)
	w.add("archive", "search")
	w.publish(5, "archive", "search")
	w.ack("archive", 2)
	w.ack("search", 5)
	w.sink("archive")
	w.sink("search")
	w.engine()
	r := w.collect(w.collector(status.Options{}))
	if !r.Healthy || len(r.Findings) != 0 {
		t.Errorf("got findings %+v", r.Findings)
	}
	if r.Watermark.Position != 20 || !slices.Equal(r.Watermark.Holders, []string{"archive"}) || r.Watermark.Behind != "30" || r.Watermark.HoldsForSeconds == nil {
		t.Errorf("watermark: got %+v", r.Watermark)
	}
	a, s := laneOf(t, r, "archive"), laneOf(t, r, "search")
	if a.State != status.Behind || *a.Batches != 3 || *a.Envelopes != 6 || *a.Changes != 6 || a.Acked != 20 || a.Tail != 50 {
		t.Errorf("archive: got %+v", a)
	}
	if a.AckedTotals.Batches != 2 || a.TailTotals.Batches != 5 || a.AckedTotals.Bytes+*a.Bytes != a.TailTotals.Bytes {
		t.Errorf("archive: got totals %+v and %+v, %d bytes wait", a.AckedTotals, a.TailTotals, *a.Bytes)
	}
	if a.First == nil || a.First.Position != 30 || a.First.Sequence != 3 || a.First.Kind != "live" {
		t.Errorf("archive: got first %+v", a.First)
	}
	if s.State != status.CaughtUp || *s.Batches != 0 || *s.Seconds != 0 || s.First != nil || *s.AckedTotals != *s.TailTotals {
		t.Errorf("search: got %+v", s)
	}
	if s.Consumer != status.Attached || len(s.Members) != 1 || !s.Members[0].Owner || s.Members[0].ClientID != "engine" {
		t.Errorf("search: got consumer %s, members %+v", s.Consumer, s.Members)
	}
	if h := r.Writer.Holder; h == nil || h.ClientID != "engine" || r.Writer.WroteAt == nil || r.Writer.Epoch != 1 {
		t.Errorf("writer: got %+v", r.Writer)
	}
	if a.Retention.Milliseconds == nil || *a.Retention.Milliseconds != -1 || a.Retention.RiskSeconds != nil {
		t.Errorf("retention: got %+v", a.Retention)
	}
}

// The report survives its JSON.
func TestReportJSON(t *testing.T) {
	w := newWorld(t)
	w.add("archive", "search")
	w.publish(2, "archive")
	w.ack("archive", 1)
	r := w.collect(w.collector(status.Options{}))
	text := must(json.Marshal(r))(t)
	var back status.Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &back, cmpopts.IgnoreUnexported(status.Report{})); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(string(text), ":null,\"findings\"") || strings.Contains(string(text), `"members":null`) {
		t.Errorf("a list is null: %s", text)
	}
}

// requestsOf collects a first and a second report, and returns what each cost.
func requestsOf(w *world, lanes int) (cold, warm int64) {
	c := w.collector(status.Options{})
	r := w.collect(c)
	if len(r.Lanes) != lanes {
		w.t.Fatalf("got %d lanes, want %d", len(r.Lanes), lanes)
	}
	for _, l := range r.Lanes {
		if l.Error != "" || !l.Known {
			w.t.Fatalf("lane %s: got %+v", l.Sink, l)
		}
	}
	return r.Cost.Requests, w.collect(c).Cost.Requests
}

// The ceilings of requests for one report, on a cluster of one broker and of
// three: what docs/operating.md says.
const (
	coldOne, warmOne     = 28, 16
	coldThree, warmThree = 44, 32
)

// TestRequests_DoNotGrowWithLanes: one report costs as much for a thousand
// lanes as for one.
func TestRequests_DoNotGrowWithLanes(t *testing.T) {
	for _, brokers := range []int{1, 3} {
		for _, lanes := range []int{1, 100, 1000} {
			t.Run(fmt.Sprintf("%d lanes on %d brokers", lanes, brokers), func(t *testing.T) {
				w := newWorld(t, kfake.NumBrokers(brokers))
				sinks := make([]string, lanes)
				for i := range sinks {
					sinks[i] = fmt.Sprintf("s%04d", i)
				}
				w.add(sinks...)
				w.publish(3, sinks...)
				for i, s := range sinks {
					w.ack(s, i%4)
				}
				cold, warm := requestsOf(w, lanes)
				t.Logf("%d lanes on %d brokers: %d requests for the first report, %d for the next", lanes, brokers, cold, warm)
				most := [2]int64{coldOne, warmOne}
				if brokers == 3 {
					most = [2]int64{coldThree, warmThree}
				}
				if cold > most[0] || warm > most[1] || cold == 0 || warm == 0 {
					t.Errorf("want at most %d and %d", most[0], most[1])
				}
			})
		}
	}
}

// TestRequests_DoNotGrowWithBacklog: what waits in a lane costs nothing.
func TestRequests_DoNotGrowWithBacklog(t *testing.T) {
	for _, batches := range []int{10, 20_000} {
		t.Run(fmt.Sprint(batches), func(t *testing.T) {
			w := newWorld(t)
			w.add("archive", "search")
			for n := batches; n > 0; n -= min(n, 1000) {
				w.publish(min(n, 1000), "archive", "search")
			}
			w.ack("archive", 1)
			w.ack("search", batches/2)
			cold, warm := requestsOf(w, 2)
			t.Logf("%d batches: %d requests for the first report, %d for the next", batches, cold, warm)
			if cold > coldOne || warm > warmOne {
				t.Errorf("want at most %d and %d", coldOne, warmOne)
			}
		})
	}
}

// A failed look-up of one kind is an error in its place; the others answer.
func TestCollect_EachPartFailsByItself(t *testing.T) {
	for key, check := range map[kmsg.Key]func(*testing.T, *status.Report){
		kmsg.OffsetFetch: func(t *testing.T, r *status.Report) {
			l := laneOf(t, r, "archive")
			if l.State != status.Errored || l.Batches != nil || l.Known || l.Acked != 0 || l.Consumer != status.Attached || r.RequestsError == "" {
				t.Errorf("got %+v, requests: %q", l, r.RequestsError)
			}
		},
		kmsg.ListOffsets: func(t *testing.T, r *status.Report) {
			if l := laneOf(t, r, "archive"); l.State != status.Errored || l.Batches != nil || r.Watermark.Position != 10 {
				t.Errorf("got %+v with watermark %+v", l, r.Watermark)
			}
		},
		kmsg.DescribeGroups: func(t *testing.T, r *status.Report) {
			l := laneOf(t, r, "archive")
			if l.Consumer != status.UnknownConsumer || l.ConsumerError == "" || *l.Batches != 1 || l.State != status.Behind || r.Writer.Error == "" {
				t.Errorf("got %+v", l)
			}
		},
		kmsg.DescribeConfigs: func(t *testing.T, r *status.Report) {
			l := laneOf(t, r, "archive")
			if l.Retention.Milliseconds != nil || *l.Batches != 1 || l.Retention.OffsetsSeconds != nil {
				t.Errorf("got %+v", l)
			}
		},
	} {
		t.Run(key.Name(), func(t *testing.T) {
			w := newWorld(t)
			w.add("archive")
			w.publish(2, "archive")
			w.ack("archive", 1)
			w.sink("archive")
			w.engine()
			c := w.collector(status.Options{})
			if r := w.collect(c); !r.Healthy {
				t.Fatalf("before: got %+v", r.Findings)
			}
			f := w.c.Fault(t, key, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.GroupAuthorizationFailed, Times: -1})
			c = w.collector(status.Options{})
			r := w.collect(c)
			check(t, r)
			if r.Healthy || !slices.ContainsFunc(r.Findings, func(f status.Finding) bool { return f.Code == status.CodeLookup }) {
				t.Errorf("got findings %+v", r.Findings)
			}
			f.Release()
			if r := w.collect(c); !r.Healthy {
				t.Errorf("afterwards: got %+v", r.Findings)
			}
		})
	}
}

func TestCollect_NothingAnswers(t *testing.T) {
	w := newWorld(t)
	none := (*status.NoLanesError)(nil)
	if r, err := w.collector(status.Options{}).Collect(within(t)); !errors.As(err, &none) || r != nil {
		t.Errorf("no lane: got %+v, %v", r, err)
	}
	w.add("archive")
	other := must(topics.NewPipeline("other"))(t)
	wrong := must(status.New(w.c.Client(t, kgo.WithHooks(new(status.Counter))), other, status.Options{}))(t)
	if _, err := wrong.Collect(within(t)); !errors.As(err, &none) || len(none.Others) != 1 || none.Others[0] != w.p {
		t.Errorf("no lane, where another pipeline has one: got %v", err)
	}
	c := w.collector(status.Options{Sinks: []string{"archive"}})
	w.c.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Disconnect, Times: -1})
	ctx, cancel := context.WithTimeout(within(t), 500*time.Millisecond)
	defer cancel()
	if r, err := c.Collect(ctx); err == nil {
		t.Errorf("no broker: got %+v", r)
	}
}

// TestCase49_OneDeletedTopicLeavesTheOthers.
func TestCase49_OneDeletedTopicLeavesTheOthers(t *testing.T) {
	w := newWorld(t)
	w.add("archive", "search")
	w.publish(3, "archive", "search")
	w.ack("archive", 1)
	w.ack("search", 3)
	w.engine()
	c := w.collector(status.Options{})
	w.collect(c)
	must(w.admin.DeleteTopics(within(t), w.lanes["archive"].Topic()))(t)
	r := w.collect(c)
	a, s := laneOf(t, r, "archive"), laneOf(t, r, "search")
	if a.State != status.Errored || !a.TopicMissing || a.Batches != nil || a.Error == "" {
		t.Errorf("archive: got %+v", a)
	}
	if s.State != status.CaughtUp || *s.Batches != 0 {
		t.Errorf("search: got %+v", s)
	}
	if got := codes(r); !slices.Contains(got, "failure lane-missing archive") {
		t.Errorf("got findings %v", got)
	}
}

// TestCase45_AnIdleTransactionalLaneHasNoLag: the markers of transactions are
// not items.
func TestCase45_AnIdleTransactionalLaneHasNoLag(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	plain := w.writer
	w.writer = w.c.Client(t, kgo.TransactionalID("w"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := w.writer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	w.publish(2, "archive")
	if err := kfaketest.EndTransaction(within(t), w.writer, true, w.lanes["archive"].Topic()); err != nil {
		t.Fatal(err)
	}
	w.writer = plain
	w.ack("archive", 2)
	l := laneOf(t, w.collect(w.collector(status.Options{})), "archive")
	if l.State != status.CaughtUp || *l.Batches != 0 || *l.Seconds != 0 || *l.Bytes != 0 {
		t.Errorf("got %+v", l)
	}
}

// TestCase43_BelowTheLogStart: what is gone is a gap, not lag.
func TestCase43_BelowTheLogStart(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	w.publish(6, "archive")
	w.ack("archive", 1)
	w.trim("archive", 4)
	r := w.collect(w.collector(status.Options{}))
	l := laneOf(t, r, "archive")
	if l.State != status.Gap || l.Gap == nil || *l.Gap.Items != 3 || *l.Batches != 2 || l.AckedTotals != nil {
		t.Errorf("got %+v, gap %+v", l, l.Gap)
	}
	if got := codes(r); got[0] != "failure gap archive" {
		t.Errorf("got findings %v", got)
	}
	if !strings.Contains(r.Findings[0].Text, "3 items") || r.Findings[0].Help != "flusso-kafka-admin lane accept archive --dry-run --pipeline shop" {
		t.Errorf("got %+v", r.Findings[0])
	}
}

// TestCase44_NeverNegative: producer and consumer race with the collector.
func TestCase44_NeverNegative(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	c := w.collector(status.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 100 {
			w.publish(1, "archive")
			w.ack("archive", i+1)
		}
	}()
	var before status.Position
	var last *status.Report
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		r := w.collect(c)
		l := laneOf(t, r, "archive")
		if l.Error != "" {
			t.Fatalf("got %+v", l)
		}
		if l.Batches != nil && *l.Batches > 100 || l.Seconds != nil && *l.Seconds < 0 {
			t.Fatalf("got %+v", l)
		}
		if r.Watermark.Position < before {
			t.Fatalf("the watermark went from %d to %d", before, r.Watermark.Position)
		}
		if l.Known && l.Acked != r.Watermark.Position {
			t.Fatalf("acked %d, watermark %d: the two are not of one look", l.Acked, r.Watermark.Position)
		}
		for sink, rate := range status.Rates(last, r) {
			for _, f := range []*status.Flow{rate.Delivered, rate.Published} {
				if f != nil && (f.Batches < 0 || f.Envelopes < 0 || f.Bytes < 0) {
					t.Fatalf("rate of %s: got %+v", sink, f)
				}
			}
		}
		before, last = r.Watermark.Position, r
	}
	if l := laneOf(t, last, "archive"); *l.Batches != 0 || l.Acked != 1000 {
		t.Errorf("at last: got %+v", l)
	}
}

// A missing commit is unknown: neither 0 nor the whole lane.
func TestCollect_MissingCommitIsUnknown(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	w.publish(3, "archive")
	r := w.collect(w.collector(status.Options{}))
	l := laneOf(t, r, "archive")
	if l.Known || l.Batches != nil || l.Seconds != nil || l.AckedTotals != nil || l.State != "group-missing" || l.Retained.Batches != 3 {
		t.Errorf("got %+v", l)
	}
	if got := codes(r); got[0] != "failure group-missing archive" || r.Watermark.Position != 0 {
		t.Errorf("got findings %v, watermark %+v", got, r.Watermark)
	}
}

// A stopped sink keeps its row and its numbers.
func TestCollect_AStoppedSinkKeepsItsRow(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	w.publish(3, "archive")
	w.ack("archive", 1)
	leave := w.sink("archive")
	w.engine()
	c := w.collector(status.Options{})
	if l := laneOf(t, w.collect(c), "archive"); l.Consumer != status.Attached || l.StandsSeconds != nil {
		t.Errorf("attached: got %+v", l)
	}
	leave()
	r := w.collect(c)
	l := laneOf(t, r, "archive")
	if l.Consumer != status.Detached || *l.Batches != 2 || l.Acked != 10 || l.StandsSeconds == nil {
		t.Errorf("stopped: got %+v", l)
	}
	if got := codes(r); got[0] != "failure no-consumer archive" {
		t.Errorf("got findings %v", got)
	}
}

// Consumers that come and go while the offset stands are told.
func TestCollect_Poison(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	w.publish(3, "archive")
	w.ack("archive", 1)
	w.engine()
	c := w.collector(status.Options{})
	for i := range 3 {
		leave := w.sink("archive")
		r := w.collect(c)
		if got, want := slices.Contains(codes(r), "failure poison archive"), i == 2; got != want {
			t.Errorf("attach %d: got findings %v", i+1, codes(r))
		}
		leave()
	}
	w.ack("archive", 2)
	leave := w.sink("archive")
	if r := w.collect(c); !r.Healthy || laneOf(t, r, "archive").Attaches != 1 {
		t.Errorf("after an ack: got %v", codes(r))
	}
	// Restarts while nothing waits say nothing of what comes next.
	leave()
	w.ack("archive", 3)
	for range 3 {
		leave := w.sink("archive")
		w.collect(c)
		leave()
	}
	w.sink("archive")
	w.collect(c)
	w.publish(1, "archive")
	if r := w.collect(c); !r.Healthy {
		t.Errorf("after restarts of an idle sink: got %v", codes(r))
	}
}

// An offset that another tool moved is unverified, and one in a recreated
// topic is told by name.
func TestCollect_WhatDoesNotCount(t *testing.T) {
	w := newWorld(t)
	w.add("moved", "anew")
	w.publish(4, "moved", "anew")
	w.commit(w.lanes["moved"].Group(), w.lanes["moved"].Topic(), w.lanes["moved"].items[2].next, "set by hand")
	m := wire.Metadata{TopicID: [16]byte{1}, Incarnation: incarnation, Offset: 2, Through: 10, Sequence: 1, Epoch: 1}
	w.commit(w.lanes["anew"].Group(), w.lanes["anew"].Topic(), m.Offset, wire.FormatMetadata(m))
	r := w.collect(w.collector(status.Options{}))
	if got := codes(r)[:2]; !slices.Equal(got, []string{"failure unverified moved", "failure lane-recreated anew"}) {
		t.Errorf("got findings %v", codes(r))
	}
	if l := laneOf(t, r, "moved"); l.State != "unverified" || *l.Batches != 1 || l.Problem == "" {
		t.Errorf("got %+v", l)
	}
	if l := laneOf(t, r, "anew"); l.State != "lane-recreated" || l.Batches != nil || l.Error == "" {
		t.Errorf("got %+v", l)
	}
}

func TestCollect_FiniteRetention(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	w.publish(2, "archive")
	w.ack("archive", 1)
	leave := w.sink("archive")
	w.engine()
	w.set("archive", "retention.ms", "3600000")
	r := w.collect(w.collector(status.Options{}))
	if got := codes(r); !slices.Equal(got, []string{"failure finite-retention archive"}) {
		t.Errorf("got %v", got)
	}
	l := laneOf(t, r, "archive")
	if risk := l.Retention.RiskSeconds; risk == nil || *risk > 3600 || *risk < 3600-deadline.Seconds()*4 {
		t.Errorf("got %+v", l.Retention)
	}
	leave()
	w.ack("archive", 2)
	w.sink("archive")
	r = w.collect(w.collector(status.Options{}))
	if got := codes(r); !slices.Equal(got, []string{"warning finite-retention archive"}) || laneOf(t, r, "archive").Retention.RiskSeconds != nil {
		t.Errorf("caught up: got %v", got)
	}
}

// Collectors are for concurrent use.
func TestCollect_Concurrently(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	w.publish(2, "archive")
	w.ack("archive", 1)
	c := w.collector(status.Options{})
	errs := make(chan error)
	for range 4 {
		go func() {
			r, err := c.Collect(within(t))
			if err == nil && *r.Lanes[0].Batches != 1 {
				err = fmt.Errorf("got %+v", r.Lanes[0])
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestNew_Refuses(t *testing.T) {
	w := newWorld(t)
	for _, o := range []status.Options{{Sinks: []string{"no/slash"}}, {Incarnation: "no/slash"}} {
		if _, err := status.New(w.writer, w.p, o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

// A retired lane is a note: the watermark does not wait for it.
func TestCollect_ARetiredLaneIsANote(t *testing.T) {
	w := newWorld(t)
	w.add("archive", "search")
	w.publish(4, "archive", "search")
	w.ack("search", 3)
	l := w.lanes["archive"]
	it := l.items[0]
	at := time.Now().Add(-time.Hour).Truncate(time.Millisecond).UTC()
	w.commit(l.Group(), l.Topic(), it.next, wire.FormatMetadata(wire.Metadata{
		TopicID: l.id, Incarnation: incarnation, Offset: it.next, Through: 10, Sequence: 1, Epoch: 1,
		Retired: wire.Retirement{By: "ann@desk", At: at, Why: "replaced by search"},
	}))
	w.sink("search")
	w.engine()
	r := w.collect(w.collector(status.Options{}))
	if got := codes(r); !slices.Equal(got, []string{"note retired archive"}) || !r.Healthy {
		t.Errorf("got %v", got)
	}
	if r.Watermark.Position != 30 || !slices.Equal(r.Watermark.Holders, []string{"search"}) {
		t.Errorf("got %+v", r.Watermark)
	}
	a := laneOf(t, r, "archive")
	if a.State != status.Retired || *a.Batches != 3 || a.Retired == nil || *a.Retired != (status.Retirement{By: "ann@desk", At: at, Why: "replaced by search"}) {
		t.Errorf("got %+v, retired %+v", a, a.Retired)
	}
	for _, want := range []string{"ann@desk", "1.0 h ago", "replaced by search", "3 batches"} {
		if !strings.Contains(r.Findings[0].Text, want) {
			t.Errorf("%q does not say %q", r.Findings[0].Text, want)
		}
	}
}

// A snapshot that is not acked is told from a backlog.
func TestCollect_Seeding(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	w.publish(2, "archive")
	w.write("archive", &flusso.SnapshotComplete{Indexes: []string{"orders"}})
	w.ack("archive", 2)
	w.sink("archive")
	w.engine()
	r := w.collect(w.collector(status.Options{}))
	l := laneOf(t, r, "archive")
	if l.State != status.Seeding || *l.Batches != 1 || *l.Envelopes != 0 || l.First.Kind != "complete" || !slices.Equal(l.First.Indexes, []string{"orders"}) || !r.Healthy {
		t.Errorf("got %+v, first %+v", l, l.First)
	}
}

// Lag and watermark ask for less.
func TestCollect_LanesOnly(t *testing.T) {
	w := newWorld(t)
	w.add("archive")
	w.publish(3, "archive")
	w.ack("archive", 1)
	all, lanes := w.collector(status.Options{}), w.collector(status.Options{LanesOnly: true})
	w.c.Fault(t, kmsg.DescribeGroups, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.GroupAuthorizationFailed, Times: -1})
	r := w.collect(lanes)
	if l := laneOf(t, r, "archive"); *l.Batches != 2 || !r.Healthy || len(r.Findings) != 0 || r.Watermark.Position != 10 {
		t.Errorf("got %+v with %v", l, codes(r))
	}
	if more := w.collect(all); more.Healthy || more.Cost.Requests <= r.Cost.Requests {
		t.Errorf("all of it costs %d requests, lanes alone %d; found %v", more.Cost.Requests, r.Cost.Requests, codes(more))
	}
}
