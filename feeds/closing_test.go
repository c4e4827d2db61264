package feeds_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

func TestClient_CloseWaitsForSessionsThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		c := w.client("a")
		s, err := c.Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		s.Background(func() { <-release })
		s.Die()
		<-s.Done()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed while something runs: %v", err)
		}
		closed := make(chan error, 1)
		go func() { closed <- c.Close(t.Context()) }()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("closed while something runs")
		}
		close(release)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// A feed that could not be created leaves nothing in its bucket; one of which
// that is not known keeps its marker.
func TestClient_CreateThatFailsLeavesNoMarker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		markers := func(dir string) (n int) {
			t.Helper()
			err := fs.WalkDir(os.DirFS(dir), ".", func(_ string, d fs.DirEntry, err error) error {
				if d.Name() == "feed.json" {
					n++
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		c, dir := w.client("a"), t.TempDir()
		o := feeds.CreateOptions{Bucket: "file://" + dir}
		for _, request := range []kmsg.Key{kmsg.CreateTopics, kmsg.InitProducerID} {
			in := w.Fault(t, request, kfaketest.Fault{Times: -1})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := c.Create(ctx, "other", o); err == nil {
				t.Error("created")
			}
			cancel()
			in.Release()
			if n := markers(dir); n != 0 {
				t.Errorf("%d markers after %v failed", n, request)
			}
		}
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Create(ctx, "other", o); err == nil {
			t.Error("created by an event that was not acknowledged")
		}
		in.Release()
		if n := markers(dir); n != 1 {
			t.Errorf("%d markers where the feed may be created, want 1", n)
		}
	})
}

// An append that waits for the window has no sequence, so nobody need wait for
// it to know the last one. Whoever waits behind it is counted as it is.
func TestE4_LastDoesNotWaitForTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		reg := prometheus.NewPedanticRegistry()
		s := w.opened("a", func(c *feeds.Config) { c.MaxUnackedBytes, c.Registerer = 1000, reg })
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := s.AppendAsync(t.Context(), batch(strings.Repeat("x", 700)))
				errs <- err
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if last, err := s.Last(ctx); err != nil || last != 1 {
			t.Errorf("last is %d, %v, want 1: two wait for the window", last, err)
		}
		kfaketest.Pass(2 * time.Second)
		in.Release()
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "flusso_kafka_feed_window_wait_seconds_total" {
				if got := f.GetMetric()[0].GetCounter().GetValue(); got < 4 || got > 5 {
					t.Errorf("%v seconds waited, want those of both that did", got)
				}
				return
			}
		}
		t.Error("no such metric")
	})
}

// closeAtMost is how long closing may take without any deadline, whatever the
// brokers do: the event that says so is produced within 10 s and committed within
// 45 s, then a session that is lost aborts what else is under way, for 3 s each,
// and looks for 10 s at who took the lease. Each of the clients that are closed
// waits a second or two for what it tells brokers at last.
const closeAtMost = 90 * time.Second

// Closing ends by itself, also when brokers answer nothing any more, from
// whatever request on.
func TestClosingEndsWhateverBrokersDo(t *testing.T) {
	for _, how := range []kfaketest.Mode{kfaketest.Hang, kfaketest.Disconnect} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			hit, longest := 0, time.Duration(0)
			for n := range 12 {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, feeds.CreateOptions{})
					c := w.client("a")
					s, err := c.Open(t.Context(), feed)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.Append(t.Context(), batch("acked")); err != nil {
						t.Fatal(err)
					}
					kfaketest.Pass(time.Second)
					in := w.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: how, Times: -1, Skip: n})
					f, err := s.AppendAsync(t.Context(), batch("under way"))
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					err = c.Close(context.Background())
					took := time.Since(began)
					longest = max(longest, took)
					if took > closeAtMost {
						t.Errorf("%d requests, then nothing: closing took %s, and returned %v", n, took, err)
					}
					select {
					case <-f.Done():
					default:
						t.Errorf("%d requests, then nothing: closed, and nobody knows what became of a batch", n)
					}
					if in.Hits() > 0 {
						hit++
					}
					in.Release()
				})
			}
			t.Logf("brokers were asked in vain in %d of 12, closing took %s at most", hit, longest)
			if hit == 0 {
				t.Error("nothing was asked for: the test shows nothing")
			}
		})
	}
}
