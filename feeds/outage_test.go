package feeds_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/pack"
)

// Buckets and brokers that fail half-way: appends fail or wait by their
// context, seals are finished later, nothing is half visible.

// verified returns what is wrong with each commit.
func (w world) verified() (bad []error) {
	w.t.Helper()
	for v, err := range w.client("verifier").Verify(w.t.Context(), feed) {
		if err != nil {
			w.t.Fatal(err)
		}
		bad = append(bad, v.Err)
	}
	return bad
}

func TestE11E12_ABucketThatFailsInASeal(t *testing.T) {
	for m, cause := range map[mode]error{
		readOnly: errStore, full: syscall.ENOSPC, halfway: errStore, away: errStore, unreadable: errStore, unlisted: nil, lostReply: nil, slow: nil,
	} {
		t.Run(m.String(), func(t *testing.T) {
			store, address := newStore(fmt.Sprint("seal-", int(m)))
			w := newWorld(t, feeds.CreateOptions{Keyed: true, Bucket: address})
			c := w.client("a", func(c *feeds.Config) { c.PackBytes = 10 })
			c.SetFirstPause(time.Millisecond)
			s, err := c.Open(t.Context(), feed)
			if err != nil {
				t.Fatal(err)
			}
			store.be(m)
			var want []string
			for i := range 4 {
				b := batch(fmt.Sprint("ten bytes", i))
				b.Records[0].Key = []byte("k")
				if _, err := s.Append(t.Context(), b); err != nil {
					t.Fatalf("append: %v", err)
				}
				want = append(want, fmt.Sprintf("1/%d ten bytes%d (commit 1)", i+1, i))
			}
			_, err = s.Seal(t.Context(), "m")
			store.whole(t)
			if cause == nil {
				if err != nil {
					t.Fatalf("sealed: %v", err)
				}
			} else {
				if !errors.Is(err, cause) || !errorAs(err, func(e *feeds.SealError) bool { return e.Stream == 1 }) ||
					!errorAs(err, func(e *bucket.Error) bool { return e.Bucket != "" && (e.Object != "" || e.Op == "open") }) {
					t.Errorf("sealed: %v", err)
				}
				if got := w.history(); len(got) != 0 {
					t.Errorf("a commit is visible: %q", got)
				}
				if got := w.read(feeds.ReadOptions{}); len(got) != 4 || got[0] != "1/1 ten bytes0" {
					t.Errorf("sealed and not committed: %q is read", got)
				}
				store.be(sound)
				if _, err = s.Seal(t.Context(), "another"); err != nil {
					t.Fatalf("sealed again: %v", err)
				}
			}
			store.be(sound)
			if got := w.read(feeds.ReadOptions{}); !slices.Equal(got, want) {
				t.Errorf("%q is read, want %q", got, want)
			}
			if got := w.verified(); !slices.Equal(got, []error{nil}) {
				t.Errorf("verified: %v", got)
			}
		})
	}
}

func TestE11_ASlowBucketDelaysNoAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("slow")
		w := newWorld(t, feeds.CreateOptions{Bucket: address})
		s := w.opened("a", func(c *feeds.Config) { c.PackBytes = 10 })
		store.pause.Store(int64(20 * time.Second))
		store.be(slow)
		began := time.Now()
		for range 20 {
			if _, err := s.Append(t.Context(), batch("ten bytes.")); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 10*time.Second { // of the bubble's time
			t.Errorf("20 appends took %s while the bucket needs 20 s for an object", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Seal(ctx, ""); !errors.Is(err, context.DeadlineExceeded) || !errorAs(err, func(*feeds.SealError) bool { return true }) {
			t.Errorf("sealed 20 packs of 20 s in a minute: %v", err)
		}
		if c, err := s.Seal(t.Context(), ""); err != nil || c.Records != 20 {
			t.Errorf("and when it may take its time: %+v, %v", c, err)
		}
	})
}

func TestE6_ABucketThatCannotBeReadIsAnErrorAndNoEnd(t *testing.T) {
	store, address := newStore("unreadable")
	w := newWorld(t, feeds.CreateOptions{Keyed: true, Bucket: address})
	key := func(k, payload string) feeds.Batch {
		return feeds.Batch{Records: []feeds.Record{{Key: []byte(k), Payload: []byte(payload)}}}
	}
	w.streamOf(seal, key("a", "1"), key("b", "2"))
	w.streamOf(seal, key("a", "3"))
	w.streamOf(leave, key("c", "4"))
	c := w.client("reader")
	want := []string{"1/1 1 (commit 1)", "1/2 2 (commit 1)", "2/1 3 (commit 2)", "3/1 4"}
	for what, test := range map[string]struct {
		hurt, mend func()
		is         func(error) bool
	}{
		"reads fail": {func() { store.be(unreadable) }, func() { store.be(sound) }, func(err error) bool {
			return errors.Is(err, errStore) && errorAs(err, func(e *bucket.Error) bool { return e.Op == "read" && e.Object != "" })
		}},
		"nothing answers": {func() { store.be(away) }, func() { store.be(sound) }, func(err error) bool {
			return errorAs(err, func(e *bucket.Error) bool { return e.Op == "open" })
		}},
		"what is read is cut off": {func() { store.cut.Store(true) }, func() { store.cut.Store(false) }, func(err error) bool {
			return errors.Is(err, bucket.ErrDiffers) || errorAs(err, func(*pack.DamagedError) bool { return true }) ||
				errorAs(err, func(*feeds.MarkerError) bool { return true })
		}},
	} {
		test.hurt()
		var got []string
		var end error
		for item, err := range c.Read(t.Context(), feed, feeds.ReadOptions{}) {
			if end = err; err == nil {
				got = append(got, text(item))
			}
		}
		if len(got) != 0 || !test.is(end) {
			t.Errorf("%s: read %q, then %v", what, got, end)
		}
		for _, k := range []string{"a", "absent"} {
			if item, found, err := c.Latest(t.Context(), feed, []byte(k)); !test.is(err) || found {
				t.Errorf("%s: latest of %s: %s, %t, %v", what, k, item.Payload, found, err)
			}
		}
		if item, found, err := c.Latest(t.Context(), feed, []byte("c")); err != nil || !found || string(item.Payload) != "4" {
			t.Errorf("%s: latest of what is in the WAL alone: %s, %t, %v", what, item.Payload, found, err)
		}
		n := 0
		for v, err := range c.Verify(t.Context(), feed) {
			if !test.is(errors.Join(v.Err, err)) {
				t.Errorf("%s: verified: %v, %v", what, v.Err, err)
			}
			n++
		}
		if n == 0 {
			t.Errorf("%s: verify says nothing", what)
		}
		test.mend()
		if got := w.read(feeds.ReadOptions{}); !slices.Equal(got, want) {
			t.Errorf("behind it: %s: %q is read, want %q", what, got, want)
		}
	}
	store.be(unlisted)
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); !errorAs(err, func(e *bucket.Error) bool { return e.Op == "list" }) {
		t.Errorf("deleted where the bucket can't be listed: %v", err)
	}
	store.be(sound)
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil || len(store.names()) != 0 {
		t.Errorf("deleted again: %v, %q is left", err, store.names())
	}
}

func TestE6_LatestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{Keyed: true})
		key := func(k string) feeds.Batch { return feeds.Batch{Records: []feeds.Record{{Key: []byte(k)}}} }
		w.streamOf(leave, key("old"), key("both"))
		w.streamOf(leave, key("both"))
		c := w.client("reader")
		item, found, err := c.Latest(t.Context(), feed, []byte("both"))
		if err != nil || !found || item.Stream != 2 {
			t.Fatalf("latest of what two streams hold: %d/%d, %t, %v", item.Stream, item.Sequence, found, err)
		}
		in := w.Fault(t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1, Skip: 3}) // the log can be read
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, found, err := c.Latest(ctx, feed, []byte("old")); found || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("latest while the WAL does not answer: %t, %v: want the context's error, and never an absent key", found, err)
		}
		if in.Hits() == 0 {
			t.Error("nothing was asked for: the test shows nothing")
		}
		in.Release()
		if _, found, err := c.Latest(t.Context(), feed, []byte("old")); !found || err != nil {
			t.Errorf("and when it does: %t, %v", found, err)
		}
	})
}

func TestE11_AStagingFolderThatCannotBeUsedDelaysTheSealAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		dir := filepath.Join(t.TempDir(), "staging")
		s := w.opened("a", func(c *feeds.Config) { c.StagingDir = dir })
		for range 3 {
			if _, err := s.Append(t.Context(), batch("x")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Seal(t.Context(), ""); !errors.Is(err, os.ErrNotExist) || !errorAs(err, func(*feeds.SealError) bool { return true }) {
			t.Fatalf("sealed without a staging folder: %v", err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if c, err := s.Seal(t.Context(), ""); err != nil || c.Records != 3 {
			t.Errorf("sealed again: %+v, %v", c, err)
		}
	})
}

// TestE12_ABrokerThatGoesAwayAnywhereInASeal lets the broker go away before
// every second request of a seal in turn, for as long as its session lives, or
// for longer.
func TestE12_ABrokerThatGoesAwayAnywhereInASeal(t *testing.T) {
	for how, away := range map[kfaketest.Mode]time.Duration{kfaketest.Disconnect: 5 * time.Second, kfaketest.Hang: 2 * time.Minute} {
		t.Run(fmt.Sprint(how, " for ", away), func(t *testing.T) {
			hit, again, others := 0, 0, 0
			for n := 0; n < 10; n += 2 {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, feeds.CreateOptions{})
					s := w.opened("a", func(c *feeds.Config) { c.TrimGrace = time.Hour })
					if _, err := s.Append(t.Context(), batch("acked", "too")); err != nil {
						t.Fatal(err)
					}
					kfaketest.Pass(time.Second)
					in := w.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: how, Times: -1, Skip: n})
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					_, err := s.Seal(ctx, "m")
					cancel()
					if in.Hits() > 0 && err != nil {
						hit++
						if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, flusso.ErrLost) && !errorAs(err, func(*feeds.SealError) bool { return true }) {
							t.Errorf("%d requests, then nothing: %v", n, err)
						}
						kfaketest.Pass(away)
					}
					in.Release()
					if _, err := s.Append(t.Context(), batch("late")); err == nil {
						t.Errorf("%d requests, then nothing: appended behind a seal", n)
					}
					if _, err = s.Seal(t.Context(), "m"); err == nil {
						again++
					} else {
						others++
						b := w.client("b")
						if _, err := b.Repair(t.Context(), feed); err != nil {
							t.Errorf("%d requests, then nothing: repaired: %v", n, err)
						}
						if r, err := b.Resume(t.Context(), feed); err == nil { // it was never marked
							if _, err := r.Seal(t.Context(), "m"); err != nil {
								t.Errorf("%d requests, then nothing: resumed and sealed: %v", n, err)
							}
						} else if !errors.Is(err, feeds.ErrNoOpenStream) {
							t.Errorf("%d requests, then nothing: resumed: %v", n, err)
						}
					}
					if got, want := w.history(), []string{"1: stream 1, 2 records, m"}; !slices.Equal(got, want) {
						t.Errorf("%d requests, then nothing: history %q, want %q", n, got, want)
					}
					if got, want := w.wal(), []string{"1/1 acked", "1/2 too"}; !slices.Equal(got, want) {
						t.Errorf("%d requests, then nothing: the WAL holds %q, want %q", n, got, want)
					}
				})
			}
			t.Logf("of 5 seals %d failed; %d sessions finished theirs, %d were finished by another", hit, again, others)
			if hit < 2 || again == 0 {
				t.Errorf("of 5 seals %d failed, %d were finished by their session: the test shows too little", hit, again)
			}
		})
	}
}

func TestE12_MessagesComeBackAsTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		c := w.client("a")
		messages := []string{"", " ", "hourly poll ☕", "\x00\x01\x1f\x7f", "\u2028\u2029<script>&amp;", "\U0010ffff\ufffd\ufeff", `"\" \u0041 \\`, "a\r\nb\tc", "e\u0301 \u202e rtl"}
		for _, m := range messages {
			s, err := c.Open(t.Context(), feed)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.Seal(t.Context(), m); err != nil || got.Message != m {
				t.Errorf("sealed by %q: %q, %v", m, got.Message, err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		i := 0
		for commit, err := range c.History(t.Context(), feed) {
			if err != nil || commit.Message != messages[i] {
				t.Errorf("commit %d says %q, %v; want %q", commit.Number, commit.Message, err, messages[i])
			}
			i++
		}
		if i != len(messages) {
			t.Errorf("%d commits of %d", i, len(messages))
		}
		s := w.opened("b")
		for _, bad := range []string{"\xff", "a\xc3", "\xed\xa0\x80"} { // no UTF-8, cut off, half of a pair
			invalid := func(e *flusso.InvalidError) bool {
				return e.What == "message of a seal of feed orders" && e.Reason == "not UTF-8"
			}
			if _, err := s.Seal(t.Context(), bad); !errorAs(err, invalid) {
				t.Errorf("sealed by %q: %v", bad, err)
			}
			if err := c.Discard(t.Context(), feed, s.Stream(), bad); !errorAs(err, invalid) {
				t.Errorf("discarded by %q: %v", bad, err)
			}
		}
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Errorf("append behind a seal that was refused: %v", err)
		}
	})
}
