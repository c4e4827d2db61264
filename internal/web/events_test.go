package web

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flusso/flusso-kafka/internal/status"
)

// serving runs a server in a bubble; stop ends it and waits.
func serving(t *testing.T, cfg Config) (p *pipes, stop func()) {
	t.Helper()
	s := newServer(t, cfg)
	p = newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, p) }()
	synctest.Wait()
	return p, func() {
		t.Helper()
		began := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took >= time.Second {
			t.Errorf("Run wound up within %s, want less than a second", took)
		}
	}
}

func TestEvents_OneForEachReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{report: newReport(900)}
		p, stop := serving(t, Config{Source: source})
		defer stop()
		s := follow(t, p)
		defer s.conn.Close() //nolint:errcheck // it only frees the pipe

		if got := s.answer.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("Content-Type %q", got)
		}
		if e := s.must(); e.retry != "2000" {
			t.Errorf("first %+v, want when to retry", e)
		}
		ids := make(map[string]bool)
		for i := range 3 {
			e := s.must()
			var r status.Report
			if err := json.Unmarshal([]byte(e.data), &r); err != nil || e.event != "report" || r.Watermark.Position != status.Position(900+i) {
				t.Fatalf("event %d: %+v: %v", i, e, err)
			}
			ids[e.id] = true
			source.set(newReport(status.Position(901+i)), nil)
		}
		if len(ids) != 3 {
			t.Errorf("ids %v, want one for each event", ids)
		}
		source.set(nil, errDown)
		s.must() // what was collected before
		e := s.must()
		var st stale
		if err := json.Unmarshal([]byte(e.data), &st); err != nil || e.event != "stale" || st.Error != errDown.Error() || st.LastAt == nil {
			t.Errorf("event %+v: %v, want why it is stale", e, err)
		}
	})
}

func TestEvents_ComingBackRepeatsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serving(t, Config{Source: &fake{report: newReport(900)}, Interval: time.Hour})
		defer stop()
		first := follow(t, p)
		first.must()
		id := first.must().id
		_ = first.conn.Close()

		s := follow(t, p, "Last-Event-ID: "+id)
		defer s.conn.Close() //nolint:errcheck // it only frees the pipe
		s.must()
		if e := s.must(); e.comment == "" || e.event != "" {
			t.Errorf("got %+v, want a heartbeat and no event again", e)
		}
	})
}

func TestEvents_BriefOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report := newReport(900)
		p, stop := serving(t, Config{Source: &fake{report: report}})
		defer stop()
		conn := p.dial()
		defer conn.Close() //nolint:errcheck // it only frees the pipe
		s := followOn(t, conn, "/events?brief")
		s.must()
		var got struct{ At time.Time }
		if e := s.must(); e.event != "report" || json.Unmarshal([]byte(e.data), &got) != nil || !got.At.Equal(report.At) || len(e.data) > 60 {
			t.Errorf("got %+v", e)
		}
	})
}

// A client that reads nothing neither delays another nor gathers events, and
// is let go; one that is slow goes on with the newest.
func TestEvents_SlowClientsMissAndBlockNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &counting{}
		p, stop := serving(t, Config{Source: source, Interval: 100 * time.Millisecond})
		defer stop()
		stuck, slow, quick := follow(t, p), follow(t, p), follow(t, p)
		defer quick.conn.Close() //nolint:errcheck // it only frees the pipe
		defer slow.conn.Close()  //nolint:errcheck // it only frees the pipe
		slow.must()
		slow.must()
		for quick.must().event == "" {
		}
		last := uint64(0)
		for range 40 {
			n := position(t, quick.must())
			if last > 0 && n != last+1 {
				t.Fatalf("the quick client got %d after %d", n, last)
			}
			last = n
		}
		// One event was under way to the slow one when it stopped reading.
		_ = position(t, slow.must())
		if n := position(t, slow.must()); n < last {
			t.Errorf("the slow client got %d, want the newest, %d, and none between", n, last)
		}
		go func() {
			for {
				if _, ok := slow.next(); !ok {
					return
				}
			}
		}()
		for range 2 * int(takeWithin/(100*time.Millisecond)) {
			quick.must()
		}
		// Its write timed out long ago, so nobody writes to it any more.
		for {
			if _, ok := stuck.next(); !ok {
				break
			}
		}
		_ = slow.conn.Close()
	})
}

// counting gives a report at a position of its own each time.
type counting struct{ n atomic.Uint64 }

func (c *counting) Collect(context.Context) (*status.Report, error) {
	r := newReport(900)
	r.Watermark.Position = status.Position(c.n.Add(1))
	return r, nil
}

func position(t *testing.T, e sent) uint64 {
	t.Helper()
	var r status.Report
	if err := json.Unmarshal([]byte(e.data), &r); err != nil {
		t.Fatalf("event %+v: %v", e, err)
	}
	return uint64(r.Watermark.Position)
}

func TestEvents_LimitOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serving(t, Config{Source: &fake{report: newReport(900)}, Clients: 2})
		defer stop()
		one, two := follow(t, p), follow(t, p)
		defer two.conn.Close() //nolint:errcheck // it only frees the pipe
		over := follow(t, p, "Connection: close")
		if over.answer.StatusCode != http.StatusServiceUnavailable || over.answer.Header.Get("Retry-After") == "" {
			t.Errorf("a third of two: %s", over.answer.Status)
		}
		_ = over.conn.Close()
		_ = one.conn.Close()
		synctest.Wait()
		again := follow(t, p)
		defer again.conn.Close() //nolint:errcheck // it only frees the pipe
		if again.answer.StatusCode != http.StatusOK {
			t.Errorf("after one has left: %s", again.answer.Status)
		}
	})
}

// stop fails the test when it takes a second.
func TestRun_EndsAtOnceWithClientsThatFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serving(t, Config{Source: &fake{report: newReport(900)}})
		reads, ignores := follow(t, p), follow(t, p)
		idle := p.dial()
		reads.must()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				if _, ok := reads.next(); !ok {
					return
				}
			}
		}()
		synctest.Wait()
		stop()
		<-ended
		_ = ignores.conn.Close()
		_ = idle.Close()
		_ = reads.conn.Close()
	})
}

// hanging never answers by itself.
type hanging struct{}

func (hanging) Collect(ctx context.Context) (*status.Report, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestRun_ACollectionHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &observed{}
		p, stop := serving(t, Config{Source: hanging{}, Observer: seen})
		defer stop()
		s := follow(t, p)
		defer s.conn.Close() //nolint:errcheck // it only frees the pipe
		s.must()
		s.must() // nothing is known yet
		if e := s.must(); e.event != "stale" || !strings.Contains(e.data, "no report within 5s") {
			t.Errorf("got %+v", e)
		}
		if seen.failed.Load() != 1 {
			t.Errorf("the observer was told of %d failures, want 1", seen.failed.Load())
		}
	})
}

type observed struct{ failed, set atomic.Int64 }

func (o *observed) Set(*status.Report) { o.set.Add(1) }
func (o *observed) Fail(error)         { o.failed.Add(1) }
