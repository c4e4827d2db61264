package feeds_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

func TestLimits_ARecordOfExactlyTheTopicsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		random := func(n int) feeds.Batch { // which no compression makes smaller
			r, b := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return feeds.Batch{Records: []feeds.Record{{Payload: b}}}
		}
		size := 4 << 20
		var limit *flusso.LimitError
		if _, err := s.Append(t.Context(), random(size)); !errors.As(err, &limit) || limit.Setting != "max.message.bytes of topic orders.feed.wal" {
			t.Fatalf("a record of 4 MiB: %v", err)
		}
		size -= int(limit.Value - limit.Max)
		if _, err := s.Append(t.Context(), random(size+1)); !errors.As(err, &limit) || limit.Value != limit.Max+1 {
			t.Errorf("a record one byte above the limit: %v", err)
		}
		if got, err := s.Append(t.Context(), random(size)); err != nil || got.First != 1 {
			t.Errorf("a record of exactly the limit: %+v, %v", got, err)
		}
	})
}

func TestLimits_BatchesAreBoundedBeforeAnythingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		tooMany := feeds.Batch{Records: make([]feeds.Record, feeds.MaxBatchRecords+1)}
		large := feeds.Batch{Records: make([]feeds.Record, 129)}
		for i := range large.Records {
			large.Records[i].Payload = make([]byte, 1<<19)
		}
		for what, b := range map[string]feeds.Batch{"too many records": tooMany, "too many bytes": large} {
			if _, err := s.Append(t.Context(), b); !errorAs(err, func(e *flusso.LimitError) bool { return e.Value > e.Max && e.Setting != "" }) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, b := range map[string]feeds.Batch{
			"no record": {}, "a tombstone without a key": {Records: []feeds.Record{{Tombstone: true}}},
		} {
			if _, err := s.Append(t.Context(), b); !errorAs(err, func(*flusso.InvalidError) bool { return true }) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got, err := s.Append(t.Context(), batch("x")); err != nil || got.First != 1 {
			t.Errorf("behind what was refused: %+v, %v", got, err)
		}
	})
}

func TestLimits_OddRecordsComeBackAsTheyWere(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	five, four := uint64(5), uint64(4)
	odd := []feeds.Record{
		{},
		{Payload: []byte{}},
		{Key: []byte{}},
		{Key: []byte{0xff, 0}, Payload: []byte{0xfe, 0, 1}},
		{Key: []byte("twice"), Payload: []byte("1"), Version: &five},
		{Key: []byte("twice"), Payload: []byte("2"), Version: &four},
		{Key: []byte("gone"), Tombstone: true},
	}
	show := func(r feeds.Record) string {
		version := "none"
		if r.Version != nil {
			version = fmt.Sprint(*r.Version)
		}
		return fmt.Sprintf("key %v %x, payload %x, version %s, tombstone %v", r.Key != nil, r.Key, r.Payload, version, r.Tombstone)
	}
	w.streamOf(seal, feeds.Batch{Records: odd})
	w.streamOf(leave, feeds.Batch{Records: odd})
	i := 0
	for item, err := range w.client("reader").Read(t.Context(), feed, feeds.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if got, want := show(item.Record), show(odd[i%len(odd)]); got != want {
			t.Errorf("%d/%d is %s, want %s", item.Stream, item.Sequence, got, want)
		}
		i++
	}
	if i != 2*len(odd) {
		t.Errorf("%d records are read", i)
	}
}

func TestLimits_TheLongestMessagesOfAllStreamsFitAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("messages")
		w := newWorld(t, feeds.CreateOptions{Bucket: address})
		worst := strings.Repeat("\x01", feeds.MaxMessage) // six bytes each in JSON
		c := w.client("a")
		store.be(away)
		for range feeds.MaxStreams {
			s, err := c.Open(t.Context(), feed)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Seal(t.Context(), worst+"x"); !errorAs(err, func(e *flusso.LimitError) bool { return e.Max == feeds.MaxMessage }) {
				t.Errorf("a message above the limit: %v", err)
			}
			if _, err := s.Seal(t.Context(), "\xff"); !errorAs(err, func(*flusso.InvalidError) bool { return true }) {
				t.Errorf("a message that is not UTF-8: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := s.Seal(ctx, worst); !errorAs(err, func(*feeds.SealError) bool { return true }) {
				t.Fatalf("sealed without a bucket: %v", err)
			}
			cancel()
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		store.be(sound)
		done, err := c.Repair(t.Context(), feed)
		if err != nil || len(done) != feeds.MaxStreams || done[0].Message != worst {
			t.Errorf("repaired %d, %v", len(done), err)
		}
	})
}

func TestLimits_ABrokerThatIsAwayDelaysAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		in := w.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f, err := s.AppendAsync(t.Context(), batch("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("append while the broker is away: %v", err)
		}
		in.Release()
		if got, err := f.Wait(t.Context()); err != nil || got.First != 1 {
			t.Errorf("and when it is back: %+v, %v", got, err)
		}
		in = w.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		time.AfterFunc(4*time.Second, in.Release)
		if c, err := s.Seal(t.Context(), ""); err != nil || c.Records != 1 {
			t.Errorf("seal while the broker is away for a while: %+v, %v", c, err)
		}
	})
}

// Half of maxUnsealedBytes is logged once, and told by what is on record.
func TestLimits_HalfFullIsToldBeforeAppendsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{MaxUnsealedBytes: 10})
		var log strings.Builder
		c := w.client("a", func(c *feeds.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		described := func(unsealed uint64, half bool) {
			t.Helper()
			d, err := c.Describe(t.Context(), feed)
			if err != nil || d.Unsealed() != unsealed || d.HalfFull() != half {
				t.Errorf("%d bytes wait, half %t, %v; want %d, %t", d.Unsealed(), d.HalfFull(), err, unsealed, half)
			}
		}
		s, err := c.Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		for i, payload := range []string{"five.", "6", "7", "8"} {
			if _, err := s.Append(t.Context(), batch(payload)); err != nil {
				t.Fatal(err)
			}
			described(uint64(5+i), i > 0)
			if n := strings.Count(log.String(), "more than half of what may wait"); n != min(i, 1) {
				t.Errorf("with %d bytes it is logged %d times: %s", 5+i, n, &log)
			}
		}
		if got := log.String(); !strings.Contains(got, `feed=orders look="flusso-kafka-admin feed describe orders" unsealed=6 limit=10 stream=1 others=[]`) {
			t.Errorf("logged is %s", got)
		}
		if _, err := s.Seal(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		described(0, false)
	})
}

// A user and a password in the URL of a bucket would be on record for ever.
func TestLimits_TheURLOfABucketHoldsNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		for _, address := range []string{"s3://key:secret@shop-feeds", "faulty://key@shop-feeds"} {
			_, err := w.client("a").Create(t.Context(), "another", feeds.CreateOptions{Bucket: address})
			if !errorAs(err, func(e *flusso.InvalidError) bool { return strings.Contains(e.Reason, "password") }) || strings.Contains(fmt.Sprint(err), "key") {
				t.Errorf("created with the bucket %s: %v", address, err)
			}
		}
	})
}

// A manifest that nobody could read is not committed.
func TestLimits_AManifestIsReadable(t *testing.T) {
	many := feeds.Manifest{Version: 1, Feed: feed, Stream: 1, First: 1}
	pack := feeds.Object{Name: strings.Repeat("n", 200), SHA256: strings.Repeat("a", 64)}
	for range 30_000 {
		many.Last++
		many.Records++
		pack.First, pack.Last, pack.Records = many.Last, many.Last, 1
		many.Packs = append(many.Packs, pack)
	}
	content, err := feeds.EncodeManifest(many)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := feeds.ParseManifest("m", content); err != nil || got.Records != many.Records {
		t.Errorf("read back: %d records, %v", got.Records, err)
	}
	many.Packs = append(many.Packs, many.Packs...)
	if _, err := feeds.EncodeManifest(many); !errorAs(err, func(e *flusso.LimitError) bool { return e.Value > e.Max && strings.Contains(e.Setting, "PackBytes") }) {
		t.Errorf("a manifest of %d packs: %v", len(many.Packs), err)
	}
}

// What waits for a commit is counted over all streams, and who is refused is told
// which they are and what keeps the oldest from its commit.
func TestLimits_AllThatWaitsForACommitCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("waits")
		w := newWorld(t, feeds.CreateOptions{MaxUnsealedBytes: 10, Bucket: address})
		a := w.opened("a")
		if _, err := a.Append(t.Context(), batch("six...")); err != nil {
			t.Fatal(err)
		}
		full := func(s *feeds.Session, unsealed uint64, payload string, cause error) {
			t.Helper()
			_, err := s.Append(t.Context(), batch(payload))
			if !errorAs(err, func(e *feeds.FullError) bool {
				return e.Unsealed == unsealed && e.Limit == 10 && slices.Equal(e.Streams, []uint64{1, 2}) && errors.Is(e.Cause, cause)
			}) {
				t.Errorf("append of %d bytes where %d of 10 wait: %v", len(payload), unsealed, err)
			}
		}
		b := w.opened("b") // the stream of the first is abandoned
		full(b, 6, "five.", nil)
		if _, err := b.Append(t.Context(), batch("four")); err != nil {
			t.Errorf("append of as much as there may be: %v", err)
		}
		full(b, 10, "1", nil)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		store.be(away)
		c := w.client("c")
		first, err := c.ResumeStream(t.Context(), feed, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := first.Seal(t.Context(), ""); !errors.Is(err, errStore) {
			t.Fatalf("sealed without a bucket: %v", err)
		}
		second, err := c.ResumeStream(t.Context(), feed, 2)
		if err != nil {
			t.Fatal(err)
		}
		kfaketest.Pass(time.Minute) // it finds what keeps the first from its commit
		full(second, 10, "1", errStore)
		store.be(sound)
		kfaketest.Pass(5 * time.Minute)
		if got, err := second.Append(t.Context(), batch("sixty.")); err != nil || got.First != 2 {
			t.Errorf("append with the first committed: %+v, %v", got, err)
		}
	})
}
