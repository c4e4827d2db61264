package feeds_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/feedtest"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
)

func TestMain(m *testing.M) {
	feedtest.Main()
	goleak.VerifyTestMain(m)
}

// world is a broker with one feed.
type world struct {
	*kfaketest.Cluster
	t   *testing.T
	dir string // of the bucket
}

const feed = "orders"

func newWorld(t *testing.T, o feeds.CreateOptions) world {
	t.Helper()
	w := world{kfaketest.New(t), t, t.TempDir()}
	if o.Bucket == "" {
		o.Bucket = "file://" + filepath.ToSlash(w.dir)
	}
	if _, err := w.client("creator").Create(t.Context(), feed, o); err != nil {
		t.Fatal(err)
	}
	return w
}

// client is a process of its own.
func (w world) client(holder string, change ...func(*feeds.Config)) *feeds.Client {
	w.t.Helper()
	cfg := feeds.Config{Client: w.Opts(), Holder: holder, Address: holder + ":8080", StagingDir: w.t.TempDir()}
	for _, f := range change {
		f(&cfg)
	}
	c, err := feeds.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := feedtest.Close(w.t, c.Close); err != nil && !errors.Is(err, flusso.ErrLost) {
			w.t.Error(err)
		}
	})
	return c
}

func records(payloads ...string) []feeds.Record {
	out := make([]feeds.Record, len(payloads))
	for i, p := range payloads {
		out[i].Payload = []byte(p)
	}
	return out
}

func batch(payloads ...string) feeds.Batch { return feeds.Batch{Records: records(payloads...)} }

// wal returns the committed batches of the feed's WAL as texts.
func (w world) wal() []string {
	w.t.Helper()
	cl := w.Client(w.t,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{feed + ".feed.wal": {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer cl.Close()
	var (
		out  []string
		held []*kgo.Record
	)
	ends, err := partition.LookUp(w.t.Context(), cl, feed+".feed.wal")
	if err != nil {
		w.t.Fatal(err)
	}
	for next := int64(ends[feed+".feed.wal"].Start); next < int64(ends[feed+".feed.wal"].High); {
		fetches := cl.PollFetches(w.t.Context())
		if err := fetches.Err(); err != nil {
			w.t.Fatal(err)
		}
		for _, r := range fetches.Records() {
			next = r.Offset + 1
			if r.Attrs.IsControl() {
				continue
			}
			held = append(held, r)
			a, ok, err := wire.AppendOf(r)
			if err != nil {
				w.t.Fatal(err)
			}
			if !ok {
				continue
			}
			got, _, err := wire.DecodeBatch(held)
			if err != nil {
				w.t.Fatal(err)
			}
			held = nil
			for i, rec := range got {
				out = append(out, fmt.Sprintf("%d/%d %s", a.Stream, a.First+uint64(i), rec.Payload))
			}
		}
	}
	return out
}

func TestE1_OpenAllocatesAStreamAndTakesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		a, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		b, err := w.client("b").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if a.Stream() != 1 || b.Stream() != 2 || b.Epoch() <= a.Epoch() {
			t.Errorf("streams %d and %d, epochs %d and %d: want 1 and 2, rising", a.Stream(), b.Stream(), a.Epoch(), b.Epoch())
		}
		want := []feeds.Left{{Stream: 1}}
		if got := b.Left(); !slices.Equal(got, want) {
			t.Errorf("left behind: %+v, want %+v", got, want)
		}
		if _, err := w.client("c").Open(t.Context(), "absent"); !errors.Is(err, feeds.ErrNoFeed) {
			t.Errorf("open a feed that is not there: %v", err)
		}
	})
}

func TestE2_AppendReturnsTheRangeWhenItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []feeds.Range{{1, 1, 2, 2}, {1, 3, 3, 1}} {
			got, err := s.Append(t.Context(), batch([]string{"x", "y", "z"}[i*2:min(3, i*2+2)]...))
			if err != nil || got != want {
				t.Errorf("append %d: %+v, %v; want %+v", i, got, err, want)
			}
		}
		if got, want := w.wal(), []string{"1/1 x", "1/2 y", "1/3 z"}; !slices.Equal(got, want) {
			t.Errorf("the WAL holds %q, want %q", got, want)
		}
	})
}

func TestE4_SequencesAreAssignedAtSubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		var futures []*feeds.Future
		last := uint64(0)
		for i := range 100 {
			// Each names the tail that the one before leaves [E8].
			b := batch(fmt.Sprint(i))
			b.MatchSequence = &last
			f, err := s.AppendAsync(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			futures = append(futures, f)
			last++
		}
		for i, f := range futures {
			got, err := f.Wait(t.Context())
			if n := uint64(i + 1); err != nil || got.First != n || got.Last != n {
				t.Fatalf("append %d: %+v, %v", i, got, err)
			}
		}
	})
}

func TestE7E8_TokenAndMatchAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		b := batch("x")
		b.FencingToken = s.Epoch() + 1
		if _, err := s.Append(t.Context(), b); !errorAs(err, func(e *feeds.TokenError) bool { return e.Epoch == s.Epoch() && e.Token == s.Epoch()+1 }) {
			t.Errorf("another session's token: %v", err)
		}
		b.FencingToken = s.Epoch()
		seven := uint64(7)
		b.MatchSequence = &seven
		if _, err := s.Append(t.Context(), b); !errorAs(err, func(e *feeds.MatchError) bool { return e.Last == 0 && e.Want == 7 }) {
			t.Errorf("match 7 on an empty stream: %v", err)
		}
		zero := uint64(0)
		b.MatchSequence = &zero
		if got, err := s.Append(t.Context(), b); err != nil || got.First != 1 {
			t.Errorf("match 0 on an empty stream: %+v, %v", got, err)
		}
	})
}

func TestE9E10_FingerprintsAndKeysAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		for name, r := range map[string]feeds.Record{
			"a key on a keyless feed": {Key: []byte("k")},
			"an empty key is a key":   {Key: []byte{}},
		} {
			_, err := s.Append(t.Context(), feeds.Batch{Records: []feeds.Record{{Payload: []byte("fine")}, r}})
			if !errorAs(err, func(e *feeds.KeyError) bool { return e.Record == 1 }) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, n := range []int{0, 31, 33} {
			_, err := s.Append(t.Context(), feeds.Batch{Records: []feeds.Record{{Fingerprint: make([]byte, n)}}})
			if !errorAs(err, func(e *feeds.FingerprintError) bool { return e.Length == n }) {
				t.Errorf("a fingerprint of %d bytes: %v", n, err)
			}
		}
		given := bytes.Repeat([]byte{7}, 32)
		if _, err := s.Append(t.Context(), feeds.Batch{Records: []feeds.Record{{Fingerprint: given}}}); err != nil {
			t.Errorf("a fingerprint of 32 bytes: %v", err)
		}
		if got := w.wal(); len(got) != 1 {
			t.Errorf("the WAL holds %q, want the last batch alone", got)
		}
	})
}

func TestE14_ASupersededWriterIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		a, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Append(t.Context(), batch("a1")); err != nil {
			t.Fatal(err)
		}
		b, err := w.client("b").Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // and again: it does not take the lease back
			_, err = a.Append(t.Context(), batch("a2"))
			if !errors.Is(err, flusso.ErrFenced) || !errorAs(err, func(e *feeds.FencedError) bool {
				return e.Newer == b.Epoch() && e.Holder.Name == "b" && e.Holder.Address == "b:8080"
			}) {
				t.Errorf("append of the superseded writer: %v", err)
			}
		}
		got, err := b.Append(t.Context(), batch("b2"))
		if err != nil || got != (feeds.Range{Stream: 1, First: 2, Last: 2, Records: 1}) {
			t.Errorf("append of the new writer: %+v, %v", got, err)
		}
		if got, want := w.wal(), []string{"1/1 a1", "1/2 b2"}; !slices.Equal(got, want) {
			t.Errorf("the WAL holds %q, want %q", got, want)
		}
		holder, epoch, err := w.client("c").Holder(t.Context(), feed)
		if err != nil || holder.Name != "b" || holder.Address != "b:8080" || epoch != b.Epoch() {
			t.Errorf("[E15] holder %+v, epoch %d, %v; want b at epoch %d", holder, epoch, err, b.Epoch())
		}
	})
}

func TestE16_ResumeGoesOnWhereTheStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		if _, err := w.client("x").Resume(t.Context(), feed); !errors.Is(err, feeds.ErrNoOpenStream) {
			t.Errorf("resume with nothing unsealed: %v", err)
		}
		last := uint64(0)
		for i := range 3 {
			c := w.client(fmt.Sprint("holder", i))
			open := c.Resume
			if i == 0 {
				open = c.Open
			}
			s, err := open(t.Context(), feed)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Append(t.Context(), batch("p", "q"))
			if err != nil || got != (feeds.Range{Stream: 1, First: last + 1, Last: last + 2, Records: 2}) {
				t.Fatalf("append %d: %+v, %v; want first %d", i, got, err, last+1)
			}
			last = got.Last
			if i == 1 { // one is closed, one is left to be fenced
				if err := s.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestE1_OpenRefusesTheNinthStreamAndFencesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		c := w.client("a")
		var s *feeds.Session
		for range feeds.MaxStreams {
			var err error
			if s, err = c.Open(t.Context(), feed); err != nil {
				t.Fatal(err)
			}
		}
		_, err := c.Open(t.Context(), feed)
		if !errorAs(err, func(e *feeds.StreamsError) bool { return len(e.Streams) == feeds.MaxStreams && e.Streams[0] == 1 }) {
			t.Errorf("the ninth: %v", err)
		}
		if _, err := s.Append(t.Context(), batch("still here")); err != nil {
			t.Errorf("the eighth was fenced by a refusal: %v", err)
		}
	})
}

func TestE14_AnIdleSessionLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		ids := make(map[string]int)
		w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Match: func(r kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			ids[r.(*kmsg.EndTxnRequest).TransactionalID]++
			return false
		}})
		kfaketest.Pass(13 * time.Hour)
		mu.Lock()
		if len(ids) != 4 {
			t.Errorf("within 13 idle hours these ids were used: %v, want all four, which a broker would forget otherwise", ids)
		}
		mu.Unlock()
		kfaketest.Pass(17 * time.Hour)
		if got, err := s.Append(t.Context(), batch("x")); err != nil || got.First != 1 {
			t.Errorf("append after 30 idle hours: %+v, %v", got, err)
		}
	})
}

func errorAs[E error](err error, ok func(E) bool) bool {
	var e E
	return errors.As(err, &e) && ok(e)
}

// A session that ends in order says so: its stream is nobody's, until one of
// the two who may go on with it does.
func TestE16_ASessionThatIsClosedLeavesItsStreamToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		c := w.client("a")
		s, err := c.Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), batch("one", "two")); err != nil {
			t.Fatal(err)
		}
		if d, err := c.Describe(t.Context(), feed); err != nil || !d.Held() {
			t.Errorf("while it is open: %+v, %v", d, err)
		}
		for range 2 {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Append(t.Context(), batch("three")); !errors.Is(err, flusso.ErrClosed) {
			t.Errorf("append to a closed session: %v", err)
		}
		d, err := c.Describe(t.Context(), feed)
		if err != nil || d.Held() || d.Event != "released" || len(d.Streams) != 1 ||
			d.Streams[0] != (feeds.Stream{Number: 1, State: "abandoned", Last: 2, Bytes: 6}) {
			t.Errorf("when it is closed: %+v, %v", d, err)
		}
		var unknown *feeds.NoStreamError
		if _, err := c.ResumeStream(t.Context(), feed, 2); !errors.As(err, &unknown) || !slices.Equal(unknown.Uncommitted, []uint64{1}) {
			t.Errorf("resume a stream that is not there: %v", err)
		}
		if s, err = c.ResumeStream(t.Context(), feed, 1); err != nil || s.Epoch() != d.Epoch+1 {
			t.Fatal(err)
		}
		if got, err := s.Append(t.Context(), batch("three")); err != nil || got.First != 3 {
			t.Errorf("appended as %+v, %v", got, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A transaction that is none of a writer's stays open in the WAL: what lies
// behind it can't be read, so where the stream ends is not known.
func TestE16_ResumeDoesNotGuessBehindAnOpenTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		foreign := w.Client(t, kgo.TransactionalID("foreign"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		wal := feed + ".feed.wal"
		if err := foreign.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := foreign.ProduceSync(t.Context(), &kgo.Record{Topic: wal}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), batch("x", "y")); err != nil {
			t.Fatal(err)
		}
		var open *partition.OpenTransactionError
		if _, err := w.client("b").Resume(t.Context(), feed); !errors.As(err, &open) || open.Topic != wal {
			t.Errorf("resume behind an open transaction: %v", err)
		}
		if err := kfaketest.EndTransaction(t.Context(), foreign, false, wal); err != nil {
			t.Fatal(err)
		}
		r, err := w.client("c").Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if last, err := r.Last(t.Context()); err != nil || last != 2 {
			t.Errorf("resumed behind %d, %v, want 2", last, err)
		}
	})
}
