package segment_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/segment"
)

func TestCommit(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t), newLedger()
		for i := range 10 {
			submit(t, s, entry(l, fmt.Sprint(i), "a", "b"))
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "0 1 2 3 4 5 6 7 8 9"
		if got := l.String(); got != want {
			t.Errorf("resolved %q, want %q", got, want)
		}
		for _, topic := range []string{"a", "b"} {
			if got := w.read(t, topic); got != want {
				t.Errorf("topic %s holds %q, want %q", topic, got, want)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Submit(t.Context(), entry(l, "late", "a")); !errors.Is(err, flusso.ErrClosed) || errors.Is(err, flusso.ErrLost) {
			t.Errorf("submit after close: %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("second close: %v", err)
		}
		<-s.Done()
		if err := s.Err(); !errors.Is(err, flusso.ErrClosed) {
			t.Errorf("Err after close: %v", err)
		}
	})
}

// TestTurns checks that segment n goes under id n mod 4, beginning at 0, and
// that what gathers behind a segment in flight goes as one.
func TestTurns(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t), newLedger()
		var (
			mu  sync.Mutex
			ids []string
		)
		see := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Match: func(r kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, r.(*kmsg.EndTxnRequest).TransactionalID)
			return false
		}})
		defer see.Release()
		for i := range 6 {
			submit(t, s, entry(l, fmt.Sprint(i), "a"))
			l.wait(i + 1)
		}
		want := "[orders.writer.0 orders.writer.1 orders.writer.2 orders.writer.3 orders.writer.0 orders.writer.1]"
		if got := fmt.Sprint(ids); got != want {
			t.Errorf("ended %v, want %v", got, want)
		}
		ids = nil
		slow := w.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang})
		submit(t, s, entry(l, "first", "a"))
		<-slow.Hit()
		for i := range 5 {
			submit(t, s, entry(l, fmt.Sprint("gathered", i), "a"))
		}
		slow.Release()
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(ids) != 2 {
			t.Errorf("%d segments, want 2: %v", len(ids), ids)
		}
	})
}

func sized(e segment.Entry, bytes int) segment.Entry {
	e.Bytes = bytes
	return e
}

// TestLimits checks that a segment closes at MaxBytes, that a larger entry
// goes alone, and that age closes a segment that gathers.
func TestLimits(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t, func(c *segment.Config) { c.MaxBytes = 100_000 }), newLedger()
		hang := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Match: func(r kmsg.Request) bool {
			return r.(*kmsg.EndTxnRequest).TransactionalID == lease+".0"
		}})
		// Segments, by their transactional id: the client may send one in several requests.
		var produced atomic.Int32
		var seen sync.Map
		see := w.Fault(t, kmsg.Produce, kfaketest.Fault{Match: func(r kmsg.Request) bool {
			if _, again := seen.LoadOrStore(*r.(*kmsg.ProduceRequest).TransactionID, true); !again {
				produced.Add(1)
			}
			return false
		}})
		defer see.Release()
		submit(t, s, sized(entry(l, "first", "a"), 1))
		<-hang.Hit()
		submit(t, s, sized(entry(l, "x", "a"), 60_000))
		submit(t, s, sized(entry(l, "y", "a"), 30_000))
		synctest.Wait()
		if n := produced.Load(); n != 1 {
			t.Fatalf("%d produced while gathering, want 1", n)
		}
		submit(t, s, sized(entry(l, "large", "a"), 1_000_000)) // closes x, y; goes alone as the third
		synctest.Wait()
		if n := produced.Load(); n != 3 {
			t.Fatalf("%d produced, want 3", n)
		}
		submit(t, s, sized(entry(l, "aged", "a"), 1))
		synctest.Wait()
		if n := produced.Load(); n != 3 {
			t.Fatalf("%d produced before its age, want 3", n)
		}
		kfaketest.Pass(segment.DefaultMaxAge)
		synctest.Wait()
		if n := produced.Load(); n != 4 {
			t.Fatalf("%d produced at its age, want 4", n)
		}
		if got := l.String(); got != "" {
			t.Errorf("resolved %q while the first commit hangs", got)
		}
		hang.Release()
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := w.read(t, "a"), "first x y large aged"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	})
}

// TestWindow checks that Submit blocks only for the window, in order, honours
// its context, and lets one larger entry in alone.
func TestWindow(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t, func(c *segment.Config) { c.MaxUnackedBytes = 100_000 }), newLedger()
		hang := w.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang})
		submit(t, s, sized(entry(l, "larger", "a"), 500_000))
		<-hang.Hit()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Submit(ctx, entry(l, "impatient", "a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("submit with a full window: %v", err)
		}
		accepted := make(chan error, 3)
		for _, e := range []segment.Entry{
			sized(entry(l, "p", "a"), 90_000), sized(entry(l, "q", "a"), 20_000), sized(entry(l, "r", "a"), 10_000),
		} {
			go func() { accepted <- s.Submit(t.Context(), e) }()
			synctest.Wait()
		}
		if len(accepted) != 0 {
			t.Fatalf("accepted %d beyond the window", len(accepted))
		}
		hang.Release()
		for range 3 {
			if err := <-accepted; err != nil {
				t.Error(err)
			}
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := w.read(t, "a"), "larger p q r"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	})
}

// TestWindowClosesSegment checks that a segment does not wait for its age when
// what comes next waits for the window, and would not fit into it.
func TestWindowClosesSegment(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t, func(c *segment.Config) { c.MaxBytes, c.MaxUnackedBytes = 80_000, 160_000 }), newLedger()
		commit := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
		submit(t, s, sized(entry(l, "first", "a"), 60_000))
		<-commit.Hit()
		var produced atomic.Int32
		see := w.Fault(t, kmsg.Produce, kfaketest.Fault{Match: func(kmsg.Request) bool {
			produced.Add(1)
			return false
		}})
		defer see.Release()
		submit(t, s, sized(entry(l, "gathered", "a"), 60_000))
		synctest.Wait()
		if n := produced.Load(); n != 0 {
			t.Errorf("%d requests to produce while more could come", n)
		}
		third := make(chan error, 1)
		go func() { third <- s.Submit(t.Context(), sized(entry(l, "waits", "a"), 60_000)) }()
		synctest.Wait()
		if produced.Load() == 0 {
			t.Error("the full segment waits")
		}
		commit.Release()
		if err := <-third; err != nil {
			t.Error(err)
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := w.read(t, "a"), "first gathered waits"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	})
}

// TestEncode checks that entries are encoded in submit order and that an error
// rejects its entry alone, resolved in its turn.
func TestEncode(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t), newLedger()
		bad := entry(l, "bad", "a")
		broken := errors.New("broken")
		bad.Encode = func() ([]*kgo.Record, error) { return nil, broken }
		submit(t, s, entry(l, "1", "a"))
		submit(t, s, bad)
		submit(t, s, entry(l, "2", "a"))
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		submit(t, s, bad) // alone in its segment
		submit(t, s, entry(l, "3", "a"))
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := l.String(), "1 bad=rejected 2 bad=rejected 3"; got != want {
			t.Errorf("resolved %q, want %q", got, want)
		}
		if err := l.all()[1].err; !errors.Is(err, broken) || errors.Is(err, flusso.ErrLost) {
			t.Errorf("got %v", err)
		}
		if got, want := w.read(t, "a"), "1 2 3"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
		if err := s.Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestIdle checks that a session that rested for a day ends before it publishes.
func TestIdle(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t), newLedger()
		submit(t, s, entry(l, "1", "a"))
		l.wait(1)
		kfaketest.Pass(segment.MaxIdle - time.Second)
		submit(t, s, entry(l, "2", "a"))
		l.wait(2)
		kfaketest.Pass(segment.MaxIdle + time.Second)
		err := s.Submit(t.Context(), entry(l, "3", "a"))
		if !errors.Is(err, segment.ErrIdle) || !errors.Is(err, flusso.ErrLost) || !errors.Is(err, flusso.ErrRejected) {
			t.Errorf("got %v", err)
		}
		<-s.Done()
		s = w.open(t)
		submit(t, s, entry(l, "4", "a"))
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := w.read(t, "a"), "1 2 4"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	})
}

// TestE14_Fenced checks that a second open ends the first session, whatever it
// has under way, and that nothing it produced afterwards shows.
func TestE14_Fenced(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		l := newLedger()
		first := w.open(t)
		submit(t, first, entry(l, "1", "a"))
		l.wait(1)
		hang := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
		submit(t, first, entry(l, "caught", "a"))
		<-hang.Hit()
		second := w.open(t)
		hang.Release()
		submit(t, second, entry(l, "3", "a"))
		if err := second.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-first.Done()
		if err := first.Err(); !errors.Is(err, flusso.ErrLost) || errors.Is(err, flusso.ErrFenced) {
			t.Errorf("first session ended with %v", err)
		}
		err := first.Submit(t.Context(), entry(l, "late", "a"))
		if !errors.Is(err, flusso.ErrLost) || !errors.Is(err, flusso.ErrRejected) {
			t.Errorf("submit to the fenced session: %v", err)
		}
		if got, want := w.read(t, "a"), "1 3"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	})
}

// TestOpenFails checks that an id that cannot be fenced fails the open within
// its deadline, by name, and leaves no client behind.
func TestOpenFails(t *testing.T) {
	for i := range segment.IDs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, func(t *testing.T, w world) {
				id := fmt.Sprintf("%s.%d", lease, i)
				match := func(r kmsg.Request) bool { return *r.(*kmsg.InitProducerIDRequest).TransactionalID == id }
				hang := w.Fault(t, kmsg.InitProducerID, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1, Match: match})
				start := time.Now()
				_, err := w.tryOpen(t)
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, flusso.ErrLost) || !strings.Contains(err.Error(), id) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took != segment.DefaultFenceTimeout {
					t.Errorf("took %s", took) // the bubble's clock
				}
				hang.Release()
				w.Fault(t, kmsg.InitProducerID, kfaketest.Fault{Match: match, Code: kerr.TransactionalIDAuthorizationFailed})
				if _, err := w.tryOpen(t); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) || !strings.Contains(err.Error(), id) {
					t.Errorf("got %v", err)
				}
				// The tries fenced the ids before; a session still opens.
				s, l := w.open(t), newLedger()
				submit(t, s, entry(l, "1", "a"))
				if err := s.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestF1_CloseOnHungBroker checks that Close returns when its context ends,
// with what was not resolved, and that everything is resolved and all
// goroutines end (the bubble sees to that).
func TestF1_CloseOnHungBroker(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.EndTxn, kmsg.AddPartitionsToTxn, kfaketest.Any} {
		t.Run(key.Name(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w world) {
				if key == kmsg.AddPartitionsToTxn && w.version > 1 {
					return // not sent
				}
				s, l := w.open(t, func(c *segment.Config) { c.MaxUnackedBytes = 100_000 }), newLedger()
				hang := w.Fault(t, key, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
				submit(t, s, sized(entry(l, "flying", "a", "b"), 50_000))
				submit(t, s, sized(entry(l, "queued", "a"), 50_000))
				<-hang.Hit()
				blocked := make(chan error)
				go func() { blocked <- s.Submit(t.Context(), entry(l, "blocked", "a")) }()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				start := time.Now()
				err := s.Close(ctx)
				if took := time.Since(start); took != 3*time.Second {
					t.Errorf("Close took %s", took)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 entries") {
					t.Errorf("Close: %v", err)
				}
				if err := <-blocked; !errors.Is(err, flusso.ErrClosed) {
					t.Errorf("blocked submit: %v", err)
				}
				results := l.wait(2)
				if len(results) != 2 || results[0].err == nil || results[1].err == nil {
					t.Errorf("resolved %v", l)
				}
				hang.Release()
				w.open(t)
				_ = w.read(t, "a") // nothing is left open
			})
		})
	}
}

// TestCloseDrains checks that Close commits what was accepted.
func TestCloseDrains(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t), newLedger()
		for i := range 5 {
			submit(t, s, entry(l, fmt.Sprint(i), "a"))
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := w.read(t, "a"), "0 1 2 3 4"; got != want || l.String() != want {
			t.Errorf("read %q, resolved %q, want %q", got, l, want)
		}
	})
}

// TestEnd checks that the owner's reason reaches everyone.
func TestEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t), newLedger()
		hang := w.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		submit(t, s, entry(l, "1", "a"))
		<-hang.Hit()
		submit(t, s, entry(l, "2", "a"))
		fenced := &flusso.FencedError{Lease: lease, Epoch: 1, Newer: 2}
		s.End(fenced)
		if err := s.Submit(t.Context(), entry(l, "3", "a")); !errors.Is(err, flusso.ErrFenced) || errors.Is(err, flusso.ErrLost) {
			t.Errorf("got %v", err)
		}
		for _, r := range l.wait(2) {
			if !errors.Is(r.err, flusso.ErrFenced) || !errors.Is(r.err, flusso.ErrRejected) {
				t.Errorf("entry %s: %v", r.name, r.err)
			}
		}
	})
}

// TestReinitialized checks that a segment does not commit when the client
// fetched a new producer epoch on the way: kgo does so in silence when the log
// start has passed its last record, and what it had produced is aborted.
func TestReinitialized(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t), newLedger()
		for i := range segment.IDs {
			submit(t, s, entry(l, fmt.Sprint(i), "a"))
			l.wait(i + 1)
		}
		if err := w.Kfake().DeleteRecords("a", 0, 5); err != nil {
			t.Fatal(err)
		}
		f := w.Fault(t, kmsg.Produce, kfaketest.Fault{Code: kerr.InvalidProducerEpoch, After: true})
		submit(t, s, entry(l, "again", "a")) // under the id of segment 0
		<-s.Done()
		// By the rules of version 1 the broker notices: nothing was added to a
		// transaction of the new epoch.
		if f.Hits() != 1 || w.version == transactions2 && !errors.Is(s.Err(), segment.ErrReinitialized) {
			t.Errorf("%d hits, ended with %v", f.Hits(), s.Err())
		}
		synctest.Wait()
		if got, want := l.String(), "0 1 2 3 again=rejected"; got != want {
			t.Errorf("resolved %q, want %q", got, want)
		}
		next := w.open(t)
		submit(t, next, entry(l, "next", "a"))
		if err := next.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := w.read(t, "a"), "next"; !strings.HasSuffix(got, want) || strings.Contains(got, "again") {
			t.Errorf("read %q", got)
		}
	})
}

// TestMinEntryBytes checks that entries without bytes fill the window as well.
func TestMinEntryBytes(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t, func(c *segment.Config) { c.MaxUnackedBytes = 10 * segment.MinEntryBytes }), newLedger()
		hang := w.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang})
		for i := range 10 {
			submit(t, s, sized(entry(l, fmt.Sprint(i), "a"), 0))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Submit(ctx, entry(l, "more", "a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		hang.Release()
	})
}

// TestUnavailable checks that a segment that is not acknowledged ends the
// session within the transaction timeout, naming the partition.
func TestUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l := w.open(t), newLedger()
		w.Fault(t, kmsg.Produce, kfaketest.Fault{Code: kerr.NotEnoughReplicas, Times: -1, ClientID: "writer"})
		start := time.Now()
		submit(t, s, entry(l, "1", "a"))
		<-s.Done()
		if took := time.Since(start); took > segment.DefaultTransactionTimeout {
			t.Errorf("took %s", took)
		}
		if err := s.Err(); !strings.Contains(err.Error(), "topic a partition 0") || !errors.Is(err, flusso.ErrLost) {
			t.Errorf("got %v", err)
		}
		if got, want := fmt.Sprint(outcome(l.wait(1)[0].err)), "=rejected"; got != want {
			t.Errorf("resolved %q, want %q", got, want)
		}
	})
}

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]segment.Config{
		"Lease":              {},
		"MaxBytes":           {Lease: lease, MaxBytes: -1},
		"MaxAge":             {Lease: lease, MaxAge: -1},
		"MaxUnackedBytes":    {Lease: lease, MaxUnackedBytes: -1},
		"TransactionTimeout": {Lease: lease, TransactionTimeout: time.Hour},
		"FenceTimeout":       {Lease: lease, FenceTimeout: -1},
	} {
		if _, err := segment.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("bad %s: %v", name, err)
		}
	}
	// What kgo refuses is an error too, and leaves nothing behind.
	if _, err := segment.Open(t.Context(), segment.Config{Lease: lease, Opts: []kgo.Opt{kgo.SeedBrokers("")}}); err == nil {
		t.Error("opened without brokers")
	}
}

// TestUpgrade checks that a running session survives the upgrade of its
// cluster to the newer rules of transactions, and one in which the broker
// falls silent just then is given up on.
func TestUpgrade(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("silent=", silent), func(t *testing.T) {
			bubble(t, func(t *testing.T, w world) {
				s, l := w.open(t), newLedger()
				n := 0
				give := func(count int) {
					for range count {
						n++
						if s.Submit(t.Context(), entry(l, fmt.Sprint(n), "a", "b")) != nil {
							return
						}
						_ = s.Drain(t.Context())
					}
				}
				give(5)
				w.setVersion(t, 2)
				// Clients learn of it with the next connection to a broker.
				kfaketest.Pass(time.Minute)
				if silent {
					w.Fault(t, kmsg.InitProducerID, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
				}
				give(30)
				if silent {
					if s.Err() == nil {
						t.Error("the session goes on")
					}
					return
				}
				if err := s.Err(); err != nil {
					t.Fatal(err)
				}
				want := strings.Join(strings.Fields(l.String()), " ")
				if got := w.read(t, "a"); got != want || n != 35 {
					t.Errorf("read %q, want %q", got, want)
				}
			}, transactions1)
		})
	}
}

// TestFirstUse commits the first segment of many sessions, each to a topic that
// its client sees for the first time: its commit must reach the broker, however
// the client's goroutines are scheduled (see known).
func TestFirstUse(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		var commits atomic.Int32
		w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Match: func(r kmsg.Request) bool {
			if r.(*kmsg.EndTxnRequest).Commit {
				commits.Add(1)
			}
			return false
		}})
		l := newLedger()
		const sessions = 20
		for i := range sessions {
			s := w.open(t)
			for turn := range segment.IDs {
				submit(t, s, entry(l, fmt.Sprint(i, ".", turn), "a", "b"))
				if err := s.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := commits.Load(), int32(sessions*segment.IDs); got != want {
			t.Errorf("%d commits reached the broker, want %d", got, want)
		}
		if got, want := w.read(t, "a"), l.String(); got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	})
}
