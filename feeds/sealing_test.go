package feeds_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// A session in the middle of a seal is at work for as long as it takes; one
// that died there, and one that gave up, are not.
func TestE17_ASealIsHeldWhileSomebodyIsAtIt(t *testing.T) {
	held := func(t *testing.T, w world, want bool, when string) {
		t.Helper()
		d, err := w.client("onlooker").Describe(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if d.Held() != want || len(d.Streams) != 1 || d.Streams[0].State != "sealed" {
			t.Errorf("%s: held %v, want %v; %+v", when, d.Held(), want, d)
		}
	}
	// sealing begins a seal that waits half an hour for its bucket, and returns how to wait for its end.
	sealing := func(t *testing.T, w world) (*feeds.Session, func() error) {
		t.Helper()
		c := w.client("a")
		c.SetFirstPause(30 * time.Minute)
		s, err := c.Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(w.dir, w.dir+"-away"); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := s.Seal(context.Background(), "m")
			done <- err
		}()
		kfaketest.Pass(time.Second)
		return s, func() error { return <-done }
	}
	t.Run("alive, then committed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, feeds.CreateOptions{})
			_, wait := sealing(t, w)
			held(t, w, true, "at its beginning")
			kfaketest.Pass(20 * time.Minute)
			held(t, w, true, "after twenty minutes")
			if err := os.Rename(w.dir+"-away", w.dir); err != nil {
				t.Fatal(err)
			}
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			if d, err := w.client("onlooker").Describe(t.Context(), feed); err != nil || d.Held() {
				t.Errorf("when it is committed: %+v, %v", d, err)
			}
		})
	})
	t.Run("closed without a commit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, feeds.CreateOptions{})
			s, wait := sealing(t, w)
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := wait(); !errors.As(err, new(*feeds.SealError)) {
				t.Errorf("seal of a session that was closed: %v", err)
			}
			held(t, w, false, "when it was closed")
			if err := verifiedLog(t, w); err != nil {
				t.Errorf("the log: %v", err)
			}
			c := w.client("b")
			if _, err := c.Repair(t.Context(), feed); err == nil {
				t.Error("repaired without a bucket")
			}
			held(t, w, false, "when a repair gave up")
			if err := verifiedLog(t, w); err != nil {
				t.Errorf("the log: %v", err)
			}
		})
	})
	t.Run("dead", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, feeds.CreateOptions{})
			s, wait := sealing(t, w)
			s.Die()
			if err := wait(); err == nil {
				t.Error("sealed by a session that is dead")
			}
			kfaketest.Pass(3 * time.Minute)
			held(t, w, true, "three minutes after")
			kfaketest.Pass(3 * time.Minute)
			held(t, w, false, "six minutes after")
		})
	})
}

// verifiedLog returns what is wrong with the order of the events.
func verifiedLog(t *testing.T, w world) error {
	t.Helper()
	for _, err := range w.client("verifier").Verify(t.Context(), feed) {
		if err != nil {
			return err
		}
	}
	return nil
}
