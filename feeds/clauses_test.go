package feeds_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/flusso/flusso-kafka/topics"
)

// opened returns a session of a process of its own.
func (w world) opened(holder string, change ...func(*feeds.Config)) *feeds.Session {
	w.t.Helper()
	s, err := w.client(holder, change...).Open(w.t.Context(), feed)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// counted counts requests of a kind that reach the broker from now on.
func (w world) counted(key kmsg.Key) *atomic.Int64 {
	var n atomic.Int64
	w.Fault(w.t, key, kfaketest.Fault{Match: func(kmsg.Request) bool {
		n.Add(1)
		return false
	}})
	return &n
}

func TestE3_TheWindowBlocksAndALargerBatchGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a", func(c *feeds.Config) { c.MaxUnackedBytes = 1000 })
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		async := func(size int) (chan *feeds.Future, chan error) {
			futures, errs := make(chan *feeds.Future, 1), make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				f, err := s.AppendAsync(ctx, batch(strings.Repeat("x", size)))
				futures <- f
				errs <- err
			}()
			synctest.Wait()
			return futures, errs
		}
		for range 2 {
			if f, errs := async(500); len(f) != 1 || <-errs != nil {
				t.Fatal("an append within the window blocked")
			}
		}
		if f, errs := async(500); len(f) != 0 || !errors.Is(<-errs, context.DeadlineExceeded) {
			t.Error("an append beyond the window did not block until its context ended")
		}
		large, errs := async(2000)
		if len(large) != 0 {
			t.Fatal("a batch larger than the window did not wait until it is alone")
		}
		in.Release()
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		got, err := (<-large).Wait(t.Context())
		if want := (feeds.Range{Stream: 1, First: 3, Last: 3, Records: 1}); err != nil || got != want {
			t.Errorf("the large one: %+v, %v; want %+v: what was given up took no sequence", got, err, want)
		}
	})
}

func TestE5_ASegmentGoesByAgeOrBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		produced := w.counted(kmsg.Produce)
		appended := func(size int) {
			t.Helper()
			var b feeds.Batch
			for ; size > 0; size -= 1 << 19 {
				b.Records = append(b.Records, feeds.Record{Payload: make([]byte, min(size, 1<<19))})
			}
			if _, err := s.AppendAsync(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		appended(1) // nothing is in flight: it goes at once
		kfaketest.Pass(time.Millisecond)
		before := produced.Load()
		if before == 0 {
			t.Fatal("the first append was not sent")
		}
		appended(1)
		kfaketest.Pass(245 * time.Millisecond)
		if got := produced.Load(); got != before {
			t.Errorf("a small segment went before it was 250 ms old: %d requests", got-before)
		}
		kfaketest.Pass(10 * time.Millisecond)
		if got := produced.Load(); got == before {
			t.Error("a segment of 250 ms did not go")
		}
		before = produced.Load()
		appended(7 << 20)
		kfaketest.Pass(10 * time.Millisecond)
		if got := produced.Load(); got != before {
			t.Errorf("a segment of 7 MiB went at once: %d requests", got-before)
		}
		appended(1 << 20)
		kfaketest.Pass(10 * time.Millisecond)
		if got := produced.Load(); got == before {
			t.Error("a segment of 8 MiB did not go at once")
		}
		in.Release()
	})
}

func TestE5_ARejectedSegmentFailsWholeWithOneError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
		first, err := s.AppendAsync(t.Context(), batch("fine"))
		if err != nil {
			t.Fatal(err)
		}
		<-in.Hit()
		w.Fault(t, kmsg.Produce, kfaketest.Fault{Code: kerr.MessageTooLarge, Times: -1})
		var futures []*feeds.Future
		for i := range 3 { // they gather in one segment
			f, err := s.AppendAsync(t.Context(), batch(fmt.Sprint("bad", i), "more"))
			if err != nil {
				t.Fatal(err)
			}
			futures = append(futures, f)
		}
		kfaketest.Pass(300 * time.Millisecond)
		in.Release()
		if _, err := first.Wait(t.Context()); err != nil {
			t.Errorf("the segment before: %v", err)
		}
		var cause error
		for i, f := range futures {
			_, err := f.Wait(t.Context())
			var failed *feeds.AppendError
			if !errors.As(err, &failed) || failed.Unknown || !errors.Is(err, flusso.ErrRejected) || errors.Is(err, flusso.ErrUnknownOutcome) || failed.First != uint64(2+2*i) {
				t.Fatalf("batch %d: %v", i, err)
			}
			if i > 0 && failed.Cause != cause { //nolint:errorlint // the very same, not one like it
				t.Errorf("batch %d has the cause %v, the one before %v", i, failed.Cause, cause)
			}
			cause = failed.Cause
		}
		if got := w.wal(); len(got) != 1 || got[0] != "1/1 fine" {
			t.Errorf("the WAL holds %q", got)
		}
	})
}

func TestE5_AnUnknownOutcomeIsSaidAndResumeTells(t *testing.T) {
	for _, carriedOut := range []bool{false, true} {
		t.Run(fmt.Sprint("carried out=", carriedOut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, feeds.CreateOptions{})
				s := w.opened("a")
				if _, err := s.Append(t.Context(), batch("one")); err != nil {
					t.Fatal(err)
				}
				in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1, After: carriedOut})
				unknown, err := s.AppendAsync(t.Context(), batch("two", "three"))
				if err != nil {
					t.Fatal(err)
				}
				<-in.Hit()
				behind, err := s.AppendAsync(t.Context(), batch("four"))
				if err != nil {
					t.Fatal(err)
				}
				_, err = unknown.Wait(t.Context())
				if !errors.Is(err, flusso.ErrUnknownOutcome) || errors.Is(err, flusso.ErrRejected) {
					t.Errorf("the commit that was not answered: %v", err)
				}
				_, err = behind.Wait(t.Context())
				if !errors.Is(err, flusso.ErrRejected) || errors.Is(err, flusso.ErrUnknownOutcome) {
					t.Errorf("the batch behind it: %v", err)
				}
				if _, err := s.Append(t.Context(), batch("five")); !errors.Is(err, flusso.ErrLost) || errors.Is(err, flusso.ErrUnknownOutcome) {
					t.Errorf("an append after it: %v", err)
				}
				kfaketest.Pass(time.Minute) // a request that hung before the broker saw it must not reach it late
				if carriedOut {
					in.Release()
				}
				b := w.client("b")
				if !carriedOut {
					w.ReleaseFaults()
				}
				r, err := b.Resume(t.Context(), feed)
				if err != nil {
					t.Fatal(err)
				}
				last, err := r.Last(t.Context())
				want := []string{"1/1 one"}
				if carriedOut {
					want = append(want, "1/2 two", "1/3 three")
				}
				if err != nil || last != uint64(len(want)) || strings.Join(w.wal(), ",") != strings.Join(want, ",") {
					t.Errorf("resumed behind %d, %v; the WAL holds %q, want %q", last, err, w.wal(), want)
				}
			})
		})
	}
}

func TestE8_PipelinedAppendsNameTheTailBeforeThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		match := func(n uint64, payloads ...string) (*feeds.Future, error) {
			b := batch(payloads...)
			b.MatchSequence = &n
			return s.AppendAsync(t.Context(), b)
		}
		if _, err := match(0, "one", "two"); err != nil {
			t.Fatal(err)
		}
		f, err := match(2, "three") // nothing is durable yet
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []uint64{0, 2, 4} {
			if _, err := match(wrong, "no"); !errorAs(err, func(e *feeds.MatchError) bool { return e.Last == 3 && e.Want == wrong }) {
				t.Errorf("match %d: %v", wrong, err)
			}
		}
		in.Release()
		if got, err := f.Wait(t.Context()); err != nil || got.First != 3 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestE9_FingerprintsAreTheHashOrWhatWasGiven(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	given := bytes.Repeat([]byte{7}, 32)
	sum := sha256.Sum256([]byte("hashed"))
	empty := sha256.Sum256(nil)
	w.streamOf(seal, feeds.Batch{Records: []feeds.Record{{Payload: []byte("hashed")}, {Payload: []byte("given"), Fingerprint: given}, {}}})
	w.streamOf(leave, feeds.Batch{Records: []feeds.Record{{Payload: []byte("hashed")}, {Payload: []byte("given"), Fingerprint: given}, {}}})
	want := [][]byte{sum[:], given, empty[:]}
	i := 0
	for item, err := range w.client("reader").Read(t.Context(), feed, feeds.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(item.Fingerprint, want[i%3]) {
			t.Errorf("%d/%d has fingerprint %x, want %x", item.Stream, item.Sequence, item.Fingerprint, want[i%3])
		}
		i++
	}
	if i != 6 {
		t.Errorf("%d records are read", i)
	}
}

// streamOf is stream, of batches.
func (w world) streamOf(end func(*feeds.Session) error, batches ...feeds.Batch) {
	w.t.Helper()
	s := w.opened("writer")
	for _, b := range batches {
		if _, err := s.Append(w.t.Context(), b); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := errors.Join(end(s), s.Close(w.t.Context())); err != nil {
		w.t.Fatal(err)
	}
}

func TestE10_OnlyKeyedRecordsAreIndexed(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		store, address := newStore(fmt.Sprint("index-", keyed))
		w := newWorld(t, feeds.CreateOptions{Keyed: keyed, Bucket: address})
		w.stream(seal, "keyless", "keyless too")
		if got := strings.Join(store.names(), " "); strings.Contains(got, "/index-") {
			t.Errorf("keyed=%v: a stream without keys has an index: %s", keyed, got)
		}
		if !keyed {
			continue
		}
		w.streamOf(seal, feeds.Batch{Records: []feeds.Record{{Key: []byte("k")}, {Payload: []byte("keyless")}}})
		if got := strings.Join(store.names(), " "); strings.Count(got, "/index-") != 1 {
			t.Errorf("a stream where one of two has a key: %s", got)
		}
	}
}

func TestE11_TheFlusherBeginsAnewWhateverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("anew")
		w := newWorld(t, feeds.CreateOptions{Bucket: address})
		s := w.opened("a", func(c *feeds.Config) { c.PackBytes = 10 })
		for i := range int(modes) {
			store.be(mode(i))
			if _, err := s.Append(t.Context(), batch("ten bytes.")); err != nil {
				t.Fatalf("append while the bucket is %s: %v", mode(i), err)
			}
			kfaketest.Pass(10 * time.Second)
		}
		in := w.Fault(t, kmsg.Fetch, kfaketest.Fault{Code: kerr.TopicAuthorizationFailed, Times: -1})
		kfaketest.Pass(time.Minute)
		in.Release()
		store.be(sound)
		kfaketest.Pass(5 * time.Minute)
		packs := strings.Count(strings.Join(store.names(), " "), "/pack-")
		if packs != int(modes) {
			t.Errorf("%d packs are in the bucket while the stream is open, want %d", packs, modes)
		}
		if c, err := s.Seal(t.Context(), ""); err != nil || c.Records != uint64(modes) {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

func TestE12_ASealThatWasGivenUpIsCommittedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		// First the event that marks the stream waits, then the one that commits it.
		for skip := range 2 {
			in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Skip: skip})
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			if _, err := s.Seal(ctx, "m"); err == nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("sealed while event %d waits: %v", skip, err)
			}
			cancel()
			<-in.Hit()
			in.Release()
			if skip == 0 {
				if _, err := s.Append(t.Context(), batch("late")); !errors.Is(err, feeds.ErrSealed) {
					t.Errorf("append behind a seal that was given up: %v", err)
				}
				break // the next call finds it marked
			}
		}
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := s.Seal(ctx, "m"); err == nil {
			t.Fatal("sealed while the commit waits")
		}
		<-in.Hit()
		in.Release()
		c, err := s.Seal(t.Context(), "m")
		if err != nil || c.Number != 1 || c.Message != "m" {
			t.Errorf("%+v, %v", c, err)
		}
		if got := w.history(); len(got) != 1 {
			t.Errorf("history %q", got)
		}
	})
}

func TestE13_ACommitIsVisibleWholeOrNotAtAll(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	ctx, cancel := context.WithCancel(t.Context())
	// The writer goes on when a look has seen what it committed, so that there are
	// looks between any two commits.
	done, looked := make(chan error, 1), make(chan int, 1)
	reader := w.client("reader")
	go func() {
		defer close(done)
		for seen := 0; ctx.Err() == nil; {
			n := 0
			for v, err := range reader.Verify(ctx, feed) {
				if err = errors.Join(err, v.Err); err != nil && ctx.Err() == nil {
					done <- fmt.Errorf("commit %d is visible and not whole: %w", v.Commit.Number, err)
					return
				}
				n++
			}
			if n < seen && ctx.Err() == nil {
				done <- fmt.Errorf("%d commits were visible, then %d", seen, n)
				return
			}
			seen = n
			select {
			case <-looked: // nobody took the one before
			default:
			}
			looked <- n
		}
	}()
	writer := w.client("writer", func(c *feeds.Config) { c.PackBytes = 50 })
	for commits := range 10 {
		s, err := writer.Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			b := batch("some payload")
			b.Records[0].Key = fmt.Appendf(nil, "k%d", i)
			if _, err := s.AppendAsync(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(seal(s), s.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		for n := 0; n <= commits; {
			select {
			case n = <-looked:
			case err := <-done:
				t.Fatal(err)
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestE14_LostBeforeTheNewHolderIsOnRecordThenFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		a := w.opened("a")
		if _, err := a.Append(t.Context(), batch("a1")); err != nil {
			t.Fatal(err)
		}
		name, err := topics.NewFeed(feed)
		if err != nil {
			t.Fatal(err)
		}
		// Somebody takes the ids and dies before the event.
		seg, err := segment.Open(t.Context(), segment.Config{Lease: name.WriterLease(), Opts: w.Opts()})
		if err != nil {
			t.Fatal(err)
		}
		if err := seg.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := a.Append(t.Context(), batch("a2"))
			if !errors.Is(err, flusso.ErrLost) || errors.Is(err, flusso.ErrFenced) {
				t.Errorf("append before anybody is on record: %v", err)
			}
		}
		if _, err := a.Seal(t.Context(), ""); !errors.Is(err, flusso.ErrLost) {
			t.Errorf("seal before anybody is on record: %v", err)
		}
		b, err := w.client("b").Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		kfaketest.Pass(2 * time.Second)
		_, seal := a.Seal(t.Context(), "")
		_, app := a.Append(t.Context(), batch("a3"))
		for what, err := range map[string]error{"append": app, "seal": seal} {
			if !errors.Is(err, flusso.ErrFenced) || errors.Is(err, flusso.ErrLost) || !errorAs(err, func(e *feeds.FencedError) bool {
				return e.Newer == b.Epoch() && e.Holder.Name == "b" && e.Holder.Address == "b:8080"
			}) {
				t.Errorf("%s once the new holder is on record: %v", what, err)
			}
		}
		if got := w.wal(); len(got) != 1 {
			t.Errorf("the WAL holds %q", got)
		}
	})
}

func TestE15_AnybodyLearnsWhoHoldsTheLeaseAndWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		reader := w.client("reader")
		for i, name := range []string{"a", "b", "nowhere"} {
			address := name + ":8080"
			s := w.opened(name, func(c *feeds.Config) {
				if name == "nowhere" {
					c.Address, address = "", ""
				}
			})
			h, epoch, err := reader.Holder(t.Context(), feed)
			if err != nil || h != (feeds.Holder{Name: name, Address: address}) || epoch != s.Epoch() || epoch != uint64(i+2) {
				t.Errorf("holder %+v of epoch %d, %v; want %s at epoch %d", h, epoch, err, name, s.Epoch())
			}
		}
		if _, _, err := reader.Holder(t.Context(), "absent"); !errors.Is(err, feeds.ErrNoFeed) {
			t.Errorf("holder of a feed that is not there: %v", err)
		}
	})
}

func TestE16_WhatTheHolderBeforeStagedIsNotAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("staged")
		w := newWorld(t, feeds.CreateOptions{Bucket: address})
		a := w.opened("a", func(c *feeds.Config) { c.PackBytes = 10 })
		for range 5 {
			if _, err := a.Append(t.Context(), batch("ten bytes.")); err != nil {
				t.Fatal(err)
			}
		}
		kfaketest.Pass(time.Second)
		if n := strings.Count(strings.Join(store.names(), " "), "/pack-"); n != 5 {
			t.Fatalf("%d packs are staged", n)
		}
		b, err := w.client("b", func(c *feeds.Config) { c.PackBytes = 10 }).Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Append(t.Context(), batch("ten bytes.")); err != nil || got.First != 6 {
			t.Fatalf("%+v, %v", got, err)
		}
		c, err := b.Seal(t.Context(), "")
		if err != nil || c.Records != 6 {
			t.Fatalf("%+v, %v", c, err)
		}
		folder := fmt.Sprintf("/e%012d/", b.Epoch())
		if !strings.Contains(c.Manifest, folder) {
			t.Errorf("the manifest is %s, not in the folder of epoch %d", c.Manifest, b.Epoch())
		}
		own := 0
		for _, name := range store.names() {
			if strings.Contains(name, folder) && strings.Contains(name, "/pack-") {
				own++
			}
		}
		if own != 6 {
			t.Errorf("the new holder built %d packs of 6", own)
		}
	})
}
