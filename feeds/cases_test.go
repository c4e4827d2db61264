package feeds_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// What went wrong elsewhere, and must not here.

func TestCase33_AnAppendThatWasGivenUpIsNeverASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a", func(c *feeds.Config) { c.MaxUnackedBytes = 600 })
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1, Skip: 3})
		acked := make(map[string]bool)
		for i := range 10 {
			payload := fmt.Sprint("p", i)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := s.Append(ctx, batch(payload))
			cancel()
			switch {
			case err == nil:
				acked[payload] = true
			case !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("%s: %v", payload, err)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Append(gone, batch("cancelled")); !errors.Is(err, context.Canceled) {
			t.Errorf("append with a context that has ended: %v", err)
		}
		if len(acked) != 3 {
			t.Errorf("acked are %v", acked)
		}
		in.Release()
		got := strings.Join(w.wal(), " ")
		for payload := range acked {
			if !strings.Contains(got, payload) {
				t.Errorf("%s was acked, the WAL holds %s", payload, got)
			}
		}
	})
}

func TestCase35_AHoleInTheWALStopsAndSaysSo(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	x := w.opened("a")
	for _, payload := range []string{"a", "b"} {
		if _, err := x.Append(t.Context(), batch(payload)); err != nil {
			t.Fatal(err)
		}
	}
	// Something else writes what does not follow.
	cl := w.Client(t, kgo.TransactionalID("foreign"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, r := range wire.EncodeBatch(nil, feed+".feed.wal", records("e"), wire.Append{Stream: 1, Epoch: 2, First: 5, Last: 5, At: time.Now()}) {
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := kfaketest.EndTransaction(t.Context(), cl, true, feed+".feed.wal"); err != nil {
		t.Fatal(err)
	}
	hole := func(e *feeds.HoleError) bool { return e.Stream == 1 && e.Want == 3 && e.Got == 5 }
	var got []string
	var end error
	for item, err := range w.client("reader").Read(t.Context(), feed, feeds.ReadOptions{}) {
		if end = err; err == nil {
			got = append(got, text(item))
		}
	}
	if !slices.Equal(got, []string{"1/1 a", "1/2 b"}) || !errorAs(end, hole) {
		t.Errorf("read %q, then %v", got, end)
	}
	s, err := w.client("b").Resume(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context(), ""); !errorAs(err, hole) {
		t.Errorf("a stream with a hole was sealed: %v", err)
	}
	if got := w.history(); len(got) != 0 {
		t.Errorf("history %q", got)
	}
}

func TestCase35_AWALThatWasTrimmedBySomethingElseStopsAndSaysSo(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	w.stream(leave, "a", "b", "c")
	adm := kadm.NewClient(w.Client(t))
	trim := func(to int64) {
		offsets := kadm.Offsets{}
		offsets.AddOffset(feed+".feed.wal", 0, to, -1)
		if _, err := adm.DeleteRecords(t.Context(), offsets); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	trim(2) // the first batch
	for _, err := range w.client("reader").Read(ctx, feed, feeds.ReadOptions{}) {
		if err == nil || ctx.Err() != nil {
			t.Errorf("a stream without its beginning was read: %v", err)
		}
	}
	if _, _, err := w.client("reader").Latest(ctx, feed, []byte("k")); err == nil || ctx.Err() != nil {
		t.Errorf("latest in a stream without its beginning: %v", err)
	}
	trim(-1) // all of it
	if _, err := w.client("b").Resume(ctx, feed); !errorAs(err, func(e *feeds.HoleError) bool { return e.Want == 1 && e.Got == 4 }) {
		t.Errorf("resume of a stream whose records are gone: %v", err)
	}
	if err := w.client("admin").Discard(ctx, feed, 1, "gone"); err != nil {
		t.Errorf("and it can't be discarded: %v", err)
	}
}

func TestCase36_AHolderThatWasFencedTrimsNothingOfItsSuccessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		now := func(c *feeds.Config) { c.TrimGrace = -1 }
		a := w.opened("a", now)
		if _, err := a.Append(t.Context(), batch("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Seal(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		b := w.opened("b", now)
		if _, err := b.Append(t.Context(), batch("b")); err != nil {
			t.Fatal(err)
		}
		c := w.opened("c", now) // which leaves b's stream abandoned
		if _, err := c.Append(t.Context(), batch("c")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Seal(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		kfaketest.Pass(time.Second)
		if err := a.Trim(t.Context()); err != nil { // what it remembers is long over
			t.Fatal(err)
		}
		if got := w.wal(); !slices.Contains(got, "2/1 b") {
			t.Errorf("the WAL holds %q: the abandoned stream was trimmed", got)
		}
		if err := w.client("admin").Discard(t.Context(), feed, 2, ""); err != nil {
			t.Fatal(err)
		}
		kfaketest.Pass(time.Second)
		if _, err := w.client("admin", now).Repair(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if got := w.wal(); len(got) != 0 {
			t.Errorf("with everything committed or discarded the WAL holds %q", got)
		}
	})
}

func TestCase37_AfterAFailedWriteEveryLaterAppendFailsAndTheWindowDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		c := w.client("a", func(c *feeds.Config) { c.MaxUnackedBytes = 600 })
		s, err := c.Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		in := w.Fault(t, kmsg.Produce, kfaketest.Fault{Code: kerr.InvalidRecord, Times: -1})
		results := make(chan error, 20)
		for i := range 20 { // most of them wait for the window
			go func() {
				_, err := s.Append(t.Context(), batch(fmt.Sprint(i)))
				results <- err
			}()
		}
		for range 20 {
			if err := <-results; !errors.Is(err, flusso.ErrLost) || !errors.Is(err, kerr.InvalidRecord) {
				t.Errorf("append behind the failed one: %v", err)
			}
		}
		in.Release()
		if _, err := s.Append(t.Context(), batch("again")); !errors.Is(err, kerr.InvalidRecord) {
			t.Errorf("a later append: %v", err)
		}
		r, err := c.Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Append(t.Context(), batch("works")); err != nil || got.First != 1 {
			t.Errorf("append after resuming: %+v, %v", got, err)
		}
	})
}

func TestCase39_AWriteWhoseReplyIsLostIsSettledByReadingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("lost")
		w := newWorld(t, feeds.CreateOptions{Keyed: true, Bucket: address})
		store.be(lostReply)
		s := w.opened("a", func(c *feeds.Config) { c.PackBytes = 10 })
		for i := range 5 {
			b := batch("ten bytes.")
			b.Records[0].Key = fmt.Append(nil, i)
			if _, err := s.Append(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		c, err := s.Seal(t.Context(), "")
		if err != nil || c.Records != 5 {
			t.Fatalf("%+v, %v", c, err)
		}
		if got := store.names(); len(got) != 1+5+1+1 {
			t.Errorf("the bucket holds %q: want marker, 5 packs, index, manifest", got)
		}
	})
}

func TestCase42_AHolderThatDiedInATransactionBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		a := w.opened("a")
		if _, err := a.Append(t.Context(), batch("a")); err != nil {
			t.Fatal(err)
		}
		in := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang}) // its transaction stays open
		if _, err := a.AppendAsync(t.Context(), batch("never")); err != nil {
			t.Fatal(err)
		}
		<-in.Hit()
		began := time.Now()
		b, err := w.client("b").Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Append(t.Context(), batch("b")); err != nil || got.First != 2 {
			t.Errorf("%+v, %v", got, err)
		}
		var got []string
		for item, err := range w.client("reader").Read(t.Context(), feed, feeds.ReadOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, text(item))
		}
		if !slices.Equal(got, []string{"1/1 a", "1/2 b"}) {
			t.Errorf("read %q", got)
		}
		if waited := time.Since(began); waited > time.Second { // of the bubble's time
			t.Errorf("the next holder and its reader waited %s", waited)
		}
		in.Release()
	})
}
