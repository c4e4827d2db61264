package feeds_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// A batch that is wrong in every way is refused for one thing after the other, in
// the order that callers rely on: what ends a session before what a batch is.
func TestE4_ChecksComeInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{MaxUnsealedBytes: 4})
		s := w.opened("a")
		wrong := func() feeds.Batch {
			seven := uint64(7)
			return feeds.Batch{FencingToken: s.Epoch() + 1, MatchSequence: &seven, Records: []feeds.Record{
				{Key: []byte("k"), Fingerprint: []byte("short"), Payload: []byte("payload")},
				{Payload: make([]byte, 2<<20)},
			}}
		}
		b := wrong()
		for _, step := range []struct {
			name string
			is   func(error) bool
			mend func()
		}{
			{"size", func(err error) bool {
				return errorAs(err, func(e *flusso.LimitError) bool { return e.Limit == "record size" })
			}, func() { b.Records[1].Payload = nil }},
			{"key", func(err error) bool { return errorAs(err, func(e *feeds.KeyError) bool { return e.Record == 0 }) }, func() { b.Records[0].Key = nil }},
			{"fingerprint", func(err error) bool {
				return errorAs(err, func(e *feeds.FingerprintError) bool { return e.Record == 0 && e.Length == 5 })
			}, func() { b.Records[0].Fingerprint = nil }},
			{"token", func(err error) bool { return errorAs(err, func(*feeds.TokenError) bool { return true }) }, func() { b.FencingToken = s.Epoch() }},
			{"match", func(err error) bool { return errorAs(err, func(e *feeds.MatchError) bool { return e.Last == 0 }) }, func() { b.MatchSequence = nil }},
			{"space", func(err error) bool { return errorAs(err, func(e *feeds.FullError) bool { return e.Limit == 4 }) }, func() { b.Records[0].Payload = nil }},
		} {
			if _, err := s.Append(t.Context(), b); !step.is(err) {
				t.Errorf("refused for another thing than its %s: %v", step.name, err)
			}
			step.mend()
		}
		if got, err := s.Append(t.Context(), b); err != nil || got.First != 1 {
			t.Errorf("mended: %+v, %v", got, err)
		}

		b = wrong()
		next := w.opened("b") // which fences the first
		if _, err := s.Append(t.Context(), batch("x")); !errors.Is(err, flusso.ErrFenced) {
			t.Fatalf("the first session: %v", err)
		}
		if _, err := s.Append(t.Context(), b); !errors.Is(err, flusso.ErrFenced) {
			t.Errorf("fenced, and a batch that is wrong: %v", err)
		}
		if _, err := next.Seal(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if err := next.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := next.Append(t.Context(), b); !errors.Is(err, feeds.ErrSealed) {
			t.Errorf("sealed and closed, and a batch that is wrong: %v", err)
		}
	})
}

// Where the highest version of a key decides, each record with a key has one.
func TestE10_LatestByVersionNeedsVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{Keyed: true, Latest: feeds.LatestVersion})
		s := w.opened("a")
		zero := uint64(0)
		b := feeds.Batch{Records: []feeds.Record{{Payload: []byte("keyless")}, {Key: []byte("k"), Version: &zero}, {Key: []byte("k")}}}
		if _, err := s.Append(t.Context(), b); !errorAs(err, func(e *flusso.InvalidError) bool {
			return strings.HasPrefix(e.What, "record 2 ") && strings.HasPrefix(e.Reason, "no version")
		}) {
			t.Errorf("a key without a version: %v", err)
		}
		b.Records[2].Version = &zero
		if got, err := s.Append(t.Context(), b); err != nil || got.Last != 3 {
			t.Errorf("with versions: %+v, %v", got, err)
		}
	})
}

// The window is 16 MiB unless it is chosen.
func TestE3_TheWindowIsOf16MiB(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		for i := range 32 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := s.AppendAsync(ctx, feeds.Batch{Records: []feeds.Record{{Payload: make([]byte, 1<<19)}}}); err != nil {
				t.Fatalf("append %d of 32 of 512 KiB: %v", i, err)
			}
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.AppendAsync(ctx, batch("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a byte more: %v", err)
		}
		in.Release()
	})
}

// Age and size of a segment can be set.
func TestE5_AgeAndSizeOfASegmentCanBeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a", func(c *feeds.Config) { c.SegmentAge, c.SegmentBytes = time.Second, 10_000 })
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		produced := w.counted(kmsg.Produce)
		// sent appends, lets time pass, and tells whether something was sent.
		sent := func(size int, pass time.Duration) bool {
			t.Helper()
			before := produced.Load()
			if _, err := s.AppendAsync(t.Context(), batch(strings.Repeat("x", size))); err != nil {
				t.Fatal(err)
			}
			kfaketest.Pass(pass)
			return produced.Load() > before
		}
		if !sent(1, 10*time.Millisecond) {
			t.Fatal("the first was not sent: nothing is in flight")
		}
		if sent(1, 990*time.Millisecond) {
			t.Error("a segment went before its age")
		}
		if before := produced.Load(); true {
			kfaketest.Pass(20 * time.Millisecond)
			if produced.Load() == before {
				t.Error("a segment did not go at its age")
			}
		}
		if sent(9_000, 10*time.Millisecond) {
			t.Error("a segment went below its size")
		}
		if !sent(1_000, 10*time.Millisecond) {
			t.Error("a segment did not go at its size")
		}
		in.Release()
	})
}

// A seal that did not mark the stream does not say that it did.
func TestE12_ASealThatMarkedNothingSaysSo(t *testing.T) {
	unsealed := func(t *testing.T, what string, err error, is error) {
		t.Helper()
		if !errors.Is(err, is) || errorAs(err, func(*feeds.SealError) bool { return true }) {
			t.Errorf("%s: %v, want %v, and no SealError: the stream is open", what, err, is)
		}
	}
	t.Run("closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, feeds.CreateOptions{})
			s := w.opened("a")
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err := s.Seal(t.Context(), "")
			unsealed(t, "seal of a session that is closed", err, flusso.ErrClosed)
		})
	})
	t.Run("fenced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, feeds.CreateOptions{})
			s := w.opened("a")
			if _, err := s.Append(t.Context(), batch("x")); err != nil {
				t.Fatal(err)
			}
			b, err := w.client("b").Resume(t.Context(), feed)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				_, err := s.Seal(t.Context(), "")
				unsealed(t, fmt.Sprintf("seal %d of a session that is fenced", i), err, flusso.ErrFenced)
			}
			if c, err := b.Seal(t.Context(), "m"); err != nil || c.Records != 1 {
				t.Errorf("sealed by its holder: %+v, %v", c, err)
			}
		})
	})
}

// A WAL that can't be trimmed takes nothing from the commit: it is told beside it.
func TestE12_ATrimThatFailsIsAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		now := func(c *feeds.Config) { c.TrimGrace = -1 }
		s := w.opened("a", now)
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		in := w.Fault(t, kmsg.DeleteRecords, kfaketest.Fault{Code: kerr.TopicAuthorizationFailed, Times: -1})
		c, err := s.Seal(t.Context(), "")
		if err != nil || c.Number != 1 || !errors.Is(c.Warning, kerr.TopicAuthorizationFailed) || !strings.Contains(c.Warning.Error(), "feed repair orders") {
			t.Errorf("sealed where the WAL can't be trimmed: %+v, %v", c, err)
		}
		if got := w.history(); len(got) != 1 {
			t.Errorf("history %q", got)
		}
		in.Release()
		if _, err := w.client("admin", now).Repair(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if got := w.wal(); len(got) != 0 {
			t.Errorf("behind a repair the WAL holds %q", got)
		}
	})
}

// A bucket whose marker is another feed's, or nobody's, is neither read nor
// written.
func TestE12_AMarkerOfAnotherFeedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("marker")
		w := newWorld(t, feeds.CreateOptions{Bucket: address})
		w.stream(seal) // without a record: packs can't be read in here
		s := w.opened("a")
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		mark := func(content string) (before string) {
			store.mu.Lock()
			defer store.mu.Unlock()
			for name, have := range store.objects {
				if strings.HasSuffix(name, "/feed.json") {
					before = string(have)
					store.objects[name] = []byte(content)
				}
			}
			return before
		}
		refused := func(err error) bool { return errorAs(err, func(e *feeds.MarkerError) bool { return e.Feed == feed }) }
		names := len(store.names())
		own := mark("{")
		for _, content := range []string{"{", strings.Replace(own, `"id":"`, `"id":"another`, 1)} {
			mark(content)
			for _, err := range w.client("reader").Verify(t.Context(), feed) {
				if !refused(err) {
					t.Errorf("read from a bucket with the marker %s: %v", content, err)
				}
			}
			if _, err := s.Seal(t.Context(), ""); !refused(err) || !errorAs(err, func(*feeds.SealError) bool { return true }) {
				t.Errorf("sealed into a bucket with the marker %s: %v", content, err)
			}
		}
		if got := store.names(); len(got) != names {
			t.Errorf("something was written: %q", got)
		}
		mark(own)
		if c, err := s.Seal(t.Context(), ""); err != nil || c.Number != 2 {
			t.Errorf("sealed with the marker back: %+v, %v", c, err)
		}
	})
}

// A bucket that is slow, or does not answer, is nothing that opening waits for.
func TestE1_OpenAndResumeDoNotWaitForTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("open")
		w := newWorld(t, feeds.CreateOptions{Bucket: address})
		store.pause.Store(int64(time.Hour))
		store.be(slow)
		began := time.Now()
		s := w.opened("a")
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client("b").Resume(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 10*time.Second { // of the bubble's time
			t.Errorf("opened, appended and resumed in %s, while the bucket needs an hour", took)
		}
		store.be(sound)
		kfaketest.Pass(2 * time.Hour)
	})
}

// However far the flusher is behind, it holds no more of the WAL: it asks for
// nothing while it waits for the bucket.
func TestE11_AFlusherThatIsBehindHoldsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("behind")
		w := newWorld(t, feeds.CreateOptions{Bucket: address})
		s := w.opened("a", func(c *feeds.Config) { c.PackBytes = 1 << 20 })
		if _, err := s.Append(t.Context(), feeds.Batch{Records: []feeds.Record{{Payload: make([]byte, 1<<19)}, {Payload: make([]byte, 1<<19)}}}); err != nil {
			t.Fatal(err)
		}
		store.be(away)
		fetched := w.counted(kmsg.Fetch)
		const most = 32
		for range most {
			b := feeds.Batch{Records: make([]feeds.Record, 2)}
			for i := range b.Records {
				b.Records[i].Payload = noise(1 << 19)
			}
			if _, err := s.Append(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		kfaketest.Pass(time.Minute)
		early := fetched.Load()
		kfaketest.Pass(time.Hour)
		if got := s.Backlog(); got.Bytes < (most-2)<<20 {
			t.Errorf("the flusher is %d bytes behind: the test shows nothing", got.Bytes)
		}
		// A fetch takes 2 MiB at most.
		if early > 10 || fetched.Load() > early {
			t.Errorf("%d fetches of %d MiB, and %d more within an hour, want a handful and none: it reads ahead of a bucket that is away", early, most, fetched.Load()-early)
		}
		store.be(sound)
		if c, err := s.Seal(t.Context(), ""); err != nil || c.Records != 2*(most+1) {
			t.Errorf("sealed with the bucket back: %+v, %v", c, err)
		}
	})
}

// noise is what no compression makes smaller.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}
