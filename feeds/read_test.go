package feeds_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// Packs are read in here, whose decompressor a bubble can't share with the
// next: these tests run outside of any.

func text(i feeds.Item) string {
	switch {
	case i.Discarded:
		return fmt.Sprintf("discarded %d", i.Stream)
	case i.Commit > 0:
		return fmt.Sprintf("%d/%d %s (commit %d)", i.Stream, i.Sequence, i.Payload, i.Commit)
	}
	return fmt.Sprintf("%d/%d %s", i.Stream, i.Sequence, i.Payload)
}

func (w world) read(o feeds.ReadOptions) []string {
	w.t.Helper()
	var out []string
	for item, err := range w.client("reader").Read(w.t.Context(), feed, o) {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, text(item))
	}
	return out
}

// stream opens a stream, appends each text as a batch, and leaves it by what
// end does.
func (w world) stream(end func(*feeds.Session) error, payloads ...string) {
	w.t.Helper()
	s, err := w.client("writer").Open(w.t.Context(), feed)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(s, end, payloads)
}

// write appends each text as a batch, and leaves the stream by what end does.
func (w world) write(s *feeds.Session, end func(*feeds.Session) error, payloads []string) {
	w.t.Helper()
	for _, p := range payloads {
		if _, err := s.Append(w.t.Context(), batch(p)); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := errors.Join(end(s), s.Close(w.t.Context())); err != nil {
		w.t.Fatal(err)
	}
}

func seal(s *feeds.Session) error {
	_, err := s.Seal(context.Background(), "m")
	return err
}

func leave(*feeds.Session) error { return nil }

func TestE6_ReadDeliversCommitsThenWhatIsNotSealed(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a", "b")
	w.stream(leave, "c")
	w.stream(seal)
	w.stream(seal, "d")
	w.stream(leave, "e", "f")
	sealed := []string{"1/1 a (commit 1)", "1/2 b (commit 1)", "4/1 d (commit 3)"}
	open := []string{"2/1 c", "5/1 e", "5/2 f"}
	for name, test := range map[string]struct {
		o    feeds.ReadOptions
		want []string
	}{
		"all":                       {feeds.ReadOptions{}, slices.Concat(sealed, open)},
		"sealed":                    {feeds.ReadOptions{Sealed: true}, sealed},
		"from a commit":             {feeds.ReadOptions{FromCommit: 2}, slices.Concat(sealed[2:], open)},
		"from a sealed record":      {feeds.ReadOptions{Stream: 1, Sequence: 2}, slices.Concat(sealed[1:], open)},
		"from an unsealed record":   {feeds.ReadOptions{Stream: 5, Sequence: 2}, open[2:]},
		"from an abandoned stream":  {feeds.ReadOptions{Stream: 2}, open},
		"behind the newest, for no": {feeds.ReadOptions{Stream: 5, Sequence: 3}, nil},
	} {
		if got := w.read(test.o); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	for name, o := range map[string]feeds.ReadOptions{
		"a stream that is not there": {Stream: 9}, "a commit that is not there": {FromCommit: 9},
		"sequence alone": {Sequence: 4}, "sealed and follow": {Sealed: true, Follow: true},
	} {
		for _, err := range w.client("reader").Read(t.Context(), feed, o) {
			if err == nil {
				t.Errorf("%s was read", name)
			}
		}
	}
}

func TestE6_FollowDeliversEachRecordOnceAcrossASeal(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(chan string)
	done := make(chan error, 1)
	go func() {
		for item, err := range w.client("reader").Read(ctx, feed, feeds.ReadOptions{Follow: true}) {
			if err != nil {
				done <- err
				return
			}
			got <- text(item)
		}
	}()
	expect := func(want ...string) {
		t.Helper()
		for _, want := range want {
			select {
			case text := <-got:
				if text != want {
					t.Fatalf("got %q, want %q", text, want)
				}
			case err := <-done:
				t.Fatal(err)
			}
		}
	}
	expect("1/1 a (commit 1)")
	s, err := w.client("writer").Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := s.Append(t.Context(), batch(fmt.Sprint("x", i))); err != nil {
			t.Fatal(err)
		}
		expect(fmt.Sprintf("2/%d x%d", i+1, i))
	}
	if err := errors.Join(seal(s), s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	w.stream(leave, "y")
	expect("3/1 y")
	if err := w.client("admin").Discard(t.Context(), feed, 3, ""); err != nil {
		t.Fatal(err)
	}
	expect("discarded 3")
	w.stream(leave, "z")
	expect("4/1 z")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("following ended with %v", err)
	}
}

func TestE10_LatestFindsTheNewestRecordOfAKey(t *testing.T) {
	for _, rule := range []string{feeds.LatestSequence, feeds.LatestVersion} {
		t.Run(rule, func(t *testing.T) {
			w := newWorld(t, feeds.CreateOptions{Keyed: true, Latest: rule})
			put := func(key, payload string, version uint64, tombstone bool) feeds.Batch {
				return feeds.Batch{Records: []feeds.Record{{Key: []byte(key), Payload: []byte(payload), Version: &version, Tombstone: tombstone}}}
			}
			write := func(end func(*feeds.Session) error, batches ...feeds.Batch) {
				s, err := w.client("writer").Open(t.Context(), feed)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range batches {
					if _, err := s.Append(t.Context(), b); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(end(s), s.Close(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			write(seal, put("a", "a1", 5, false), put("b", "b1", 1, false), put("c", "c1", 1, false), put("", "empty", 1, false))
			write(seal, put("a", "a2", 4, false), put("b", "b2", 1, false), put("c", "", 2, true))
			write(leave, put("b", "b3", 0, false), put("d", "d1", 7, false), put("d", "d2", 7, false))
			want := map[string]string{"a": "a2", "b": "b3", "c": "deleted", "d": "d2", "": "empty", "e": "absent"}
			if rule == feeds.LatestVersion {
				want["a"], want["b"] = "a1", "b2"
			}
			for key, want := range want {
				item, found, err := w.client("reader").Latest(t.Context(), feed, []byte(key))
				got := string(item.Payload)
				switch {
				case !found:
					got = "absent"
				case item.Tombstone:
					got = "deleted"
				}
				if err != nil || got != want {
					t.Errorf("latest of %q: %s, %v; want %s", key, got, err, want)
				}
			}
		})
	}
	w := newWorld(t, feeds.CreateOptions{})
	if _, _, err := w.client("reader").Latest(t.Context(), feed, []byte("a")); !errorAs(err, func(*feeds.KeyError) bool { return true }) {
		t.Errorf("[E10] latest on a feed without keys: %v", err)
	}
}

func TestE13_VerifyReadsEverythingBack(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	s, err := w.client("writer", func(c *feeds.Config) { c.PackBytes = 200 }).Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 70 { // more packs than are merged at a time
		b := batch(strings.Repeat("x", 200))
		b.Records[0].Key = fmt.Appendf(nil, "k%d", i%20)
		if _, err := s.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(seal(s), s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	verify := func() (out []feeds.Verified) {
		for v, err := range w.client("verifier").Verify(t.Context(), feed) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, v)
		}
		return out
	}
	got := verify()
	if len(got) != 1 || got[0].Err != nil || got[0].Objects != 72 {
		t.Fatalf("verified %+v", got)
	}
	// One byte of an object of each kind in turn.
	done := map[string]bool{}
	err = filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "feed.json" {
			return err
		}
		kind, _, _ := strings.Cut(d.Name(), "-")
		if done[kind] {
			return nil
		}
		done[kind] = true
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		changed := bytes.Clone(content)
		changed[len(changed)/2] ^= 1
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			return err
		}
		if got := verify(); len(got) != 1 || got[0].Err == nil {
			t.Errorf("%s was changed and found to be fine", d.Name())
		}
		return os.WriteFile(path, content, 0o600)
	})
	if err != nil || len(done) != 3 {
		t.Fatal(done, err)
	}
}

func TestDeleteRemovesEverythingOfAFeedAndMayBeRepeated(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a")
	w.stream(leave, "b")
	c := w.client("admin")
	d, err := c.Describe(t.Context(), feed)
	if err != nil || d.Commits != 1 || len(d.Streams) != 1 || d.Streams[0] != (feeds.Stream{Number: 2, State: "abandoned", Last: 1, Bytes: 1}) || d.Appended.IsZero() {
		t.Errorf("described as %+v, %v", d, err)
	}
	if got, err := c.List(t.Context()); err != nil || !slices.Equal(got, []string{feed}) {
		t.Errorf("listed %q, %v", got, err)
	}
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); !errors.Is(err, feeds.ErrNoFeed) {
		t.Errorf("deleted again: %v", err)
	}
	if got, err := c.List(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("behind it %q is listed, %v", got, err)
	}
	err = filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s is left in the bucket", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// collected reads along in a bubble, and hands over what it reads.
func (w world) collected(o feeds.ReadOptions) <-chan string {
	w.t.Helper()
	c := w.client("reader", func(c *feeds.Config) { c.Client = append(c.Client, kgo.ClientID("reader"), kgo.DisableFetchSessions()) })
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan string, 100), make(chan struct{})
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		defer close(out)
		for item, err := range c.Read(ctx, feed, o) {
			if err != nil {
				if ctx.Err() == nil {
					out <- err.Error()
				}
				return
			}
			if item.Discarded {
				out <- text(item)
				continue
			}
			out <- fmt.Sprintf("%d/%d", item.Stream, item.Sequence)
		}
	}()
	return out
}

// expect fails unless these are read, in this order.
func expect(t *testing.T, got <-chan string, want ...string) {
	t.Helper()
	for _, want := range want {
		select {
		case text, ok := <-got:
			if text != want {
				t.Fatalf("got %q, %v, want %q", text, ok, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nothing is read, want %q", want)
		}
	}
}

// A batch that is half written when a reader begins to follow is read whole.
func TestE6_AFollowerBeginsWithinABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		in := w.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang, Skip: 1})
		large := strings.Repeat("x", 600<<10)
		f, err := s.AppendAsync(t.Context(), batch(large, large, large))
		if err != nil {
			t.Fatal(err)
		}
		<-in.Hit()
		got := w.collected(feeds.ReadOptions{Follow: true})
		kfaketest.Pass(time.Second)
		in.Release()
		if _, err := f.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, got, "1/1", "1/2", "1/3")
	})
}

// What was acked is read also while something else keeps readers from it, as a
// broker does for some milliseconds behind each commit.
func TestE6_WhatWasAckedIsReadBehindAnOpenTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		end := w.transaction(feed + ".feed.wal")
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		got := w.collected(feeds.ReadOptions{})
		kfaketest.Pass(5 * time.Second)
		end()
		expect(t, got, "1/1")
	})
}

// transaction keeps readers from what is written to a topic, until what it
// returns is called.
func (w world) transaction(topic string) (end func()) {
	w.t.Helper()
	foreign := w.Client(w.t, kgo.TransactionalID("foreign"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := foreign.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	if err := foreign.ProduceSync(w.t.Context(), &kgo.Record{Topic: topic}).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if err := kfaketest.EndTransaction(w.t.Context(), foreign, false, topic); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A commit that a writer was told of is in the history also while something else
// keeps readers from its event.
func TestE13_ACommitIsSeenBehindAnOpenTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		end := w.transaction(feed + ".feed.log")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if c, err := s.Seal(ctx, "m"); err != nil || c.Warning == nil { // it can't tell what may be trimmed
			t.Fatalf("sealed behind an open transaction: %v, and a warning: %v", err, c.Warning)
		}
		got := make(chan []string)
		go func() { got <- w.history() }()
		kfaketest.Pass(5 * time.Second)
		end()
		if got, want := <-got, []string{"1: stream 1, 0 records, m"}; !slices.Equal(got, want) {
			t.Errorf("history %q, want %q", got, want)
		}
	})
}

// So is what a session put on record, for as long as a broker may take to show
// it.
func TestE15_WhatIsOnRecordIsSeenBehindAnOpenTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		end := w.transaction(feed + ".feed.log")
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		c, event := w.client("reader"), make(chan string)
		go func() {
			d, err := c.Describe(t.Context(), feed)
			event <- fmt.Sprintf("%s, held: %t, %v", d.Event, d.Held(), err)
		}()
		kfaketest.Pass(time.Second)
		end()
		if got, want := <-event, "released, held: false, <nil>"; got != want {
			t.Errorf("described as %s, want %s", got, want)
		}
	})
}

// A stream that is opened while a follower looks where it begins is followed.
func TestE6_AStreamThatIsOpenedWhileAFollowerBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		in := w.Fault(t, kmsg.ListOffsets, kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "reader", Match: func(r kmsg.Request) bool {
			return slices.ContainsFunc(r.(*kmsg.ListOffsetsRequest).Topics, func(t kmsg.ListOffsetsRequestTopic) bool { return t.Topic == feed+".feed.wal" })
		}})
		got := w.collected(feeds.ReadOptions{Follow: true})
		<-in.Hit()
		s := w.opened("a")
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		in.Release()
		expect(t, got, "1/1")
		if _, err := s.Append(t.Context(), batch("y")); err != nil {
			t.Fatal(err)
		}
		expect(t, got, "1/2")
	})
}

// A follower to which the WAL no longer answers reads what was committed from
// the bucket, and goes on behind it when the WAL answers, trimmed or not: each
// record once.
func TestE6_AFollowerThatFallsBehindReadsTheCommit(t *testing.T) {
	for name, grace := range map[string]time.Duration{"trimmed": -1, "not trimmed": time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, feeds.CreateOptions{})
			s := w.opened("a", func(c *feeds.Config) { c.TrimGrace = grace })
			got := w.collected(feeds.ReadOptions{Follow: true})
			w.appended(s, "x")
			expect(t, got, "1/1")
			in := w.behind()
			w.appended(s, "y")
			<-in.Hit()
			w.appended(s, "z")
			if c, err := s.Seal(t.Context(), ""); err != nil || c.Warning != nil {
				t.Fatal(err, c.Warning)
			}
			expect(t, got, "1/2", "1/3") // while the WAL does not answer
			in.Release()
			w.appended(w.opened("b"), "next")
			expect(t, got, "2/1")
		})
	}
}

// appended appends a record.
func (w world) appended(s *feeds.Session, payload string) {
	w.t.Helper()
	if _, err := s.Append(w.t.Context(), batch(payload)); err != nil {
		w.t.Fatal(err)
	}
}

// behind keeps what is appended from the client that reads along, but not what
// happens to the feed.
func (w world) behind() *kfaketest.Injected {
	w.t.Helper()
	topics, err := kadm.NewClient(w.Client(w.t)).ListTopics(w.t.Context(), feed+".feed.wal")
	if err != nil {
		w.t.Fatal(err)
	}
	wal := topics[feed+".feed.wal"].ID
	return w.Fault(w.t, kmsg.Fetch, kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "reader", Times: -1, Match: func(r kmsg.Request) bool {
		return slices.ContainsFunc(r.(*kmsg.FetchRequest).Topics, func(t kmsg.FetchRequestTopic) bool { return t.TopicID == wal })
	}})
}

// A follower that has fallen behind hears of a discard before it reads the rest
// of the stream: of that nothing is delivered any more, of a stream of which
// nothing was not even the news.
func TestE6_NothingOfAStreamComesBehindItsDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		got := w.collected(feeds.ReadOptions{Follow: true})
		w.appended(s, "x")
		expect(t, got, "1/1")
		in := w.behind()
		<-in.Hit() // the fetch that was under way has ended
		w.appended(s, "y")
		second := w.opened("b")
		w.appended(second, "z")
		for _, stream := range []uint64{1, second.Stream()} {
			if err := w.client("admin").Discard(t.Context(), feed, stream, ""); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, got, "discarded 1") // while the WAL does not answer
		kfaketest.Pass(time.Second)
		in.Release()
		w.appended(w.opened("c"), "next")
		expect(t, got, "3/1")
	})
}

// What happens to a feed while a follower reads what there is, it hears of when it
// follows.
func TestE6_AStreamThatIsDiscardedWhileAFollowerBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		w.appended(w.opened("a"), "x")
		in := w.behind()
		got := w.collected(feeds.ReadOptions{Follow: true})
		<-in.Hit()
		if err := w.client("admin").Discard(t.Context(), feed, 1, ""); err != nil {
			t.Fatal(err)
		}
		in.Release()
		expect(t, got, "1/1", "discarded 1")
	})
}

// A batch that does not follow the one before is not delivered.
func TestE6_AFollowerStopsAtAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		got := w.collected(feeds.ReadOptions{Follow: true})
		expect(t, got, "1/1")
		forged := wire.Append{Stream: 1, Epoch: s.Epoch(), First: 3, Last: 3, Bytes: 2, At: time.Now()}
		cl := w.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := cl.ProduceSync(t.Context(), wire.EncodeBatch(nil, feed+".feed.wal", records("z"), forged)...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if text := <-got; !strings.Contains(text, "records are missing") {
			t.Errorf("behind a hole %q is read", text)
		}
	})
}
