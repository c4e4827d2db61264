package feeds_test

import (
	"context"
	"errors"
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
