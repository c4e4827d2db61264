package feeds_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/pack"
)

// committed reads a commit's packs, as texts.
func (w world) committed(c feeds.Commit) []string {
	w.t.Helper()
	content, err := os.ReadFile(filepath.Join(w.dir, filepath.FromSlash(c.Manifest)))
	if err != nil {
		w.t.Fatal(err)
	}
	var m feeds.Manifest
	if err := json.Unmarshal(content, &m); err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, o := range m.Packs {
		file, err := os.ReadFile(filepath.Join(w.dir, filepath.FromSlash(o.Name)))
		if err != nil {
			w.t.Fatal(err)
		}
		p, err := pack.NewReader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			w.t.Fatal(err)
		}
		for row, err := range p.From(0) {
			if err != nil {
				w.t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%d/%d %s", c.Stream, row.Sequence, row.Payload))
		}
	}
	return out
}

func (w world) history() []string {
	w.t.Helper()
	var out []string
	for c, err := range w.client("historian").History(w.t.Context(), feed) {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%d: stream %d, %d records, %s", c.Number, c.Stream, c.Records, c.Message))
	}
	return out
}

func TestE12_SealCommitsWhatWasAppended(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	s, err := w.client("a").Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		b := batch(fmt.Sprint("v", i), "keyless")
		b.Records[0].Key = fmt.Appendf(nil, "k%d", i%3)
		if _, err := s.AppendAsync(t.Context(), b); err != nil { // drained by the seal
			t.Fatal(err)
		}
	}
	c, err := s.Seal(t.Context(), "hourly poll ☕")
	if err != nil {
		t.Fatal(err)
	}
	if c.Number != 1 || c.Stream != 1 || c.Records != 20 || c.First != 1 || c.Last != 20 || c.Message != "hourly poll ☕" || c.Warning != nil {
		t.Errorf("commit %+v", c)
	}
	if got := w.committed(c); len(got) != 20 || got[0] != "1/1 v0" || got[19] != "1/20 keyless" {
		t.Errorf("its packs hold %q", got)
	}
	if _, err := s.Append(t.Context(), batch("late")); !errors.Is(err, feeds.ErrSealed) {
		t.Errorf("append behind the seal: %v", err)
	}
	again, err := s.Seal(t.Context(), "other")
	if err != nil || again.Number != 1 || again.Message != "hourly poll ☕" {
		t.Errorf("sealed again: %+v, %v", again, err)
	}
	if got, want := w.history(), []string{"1: stream 1, 20 records, hourly poll ☕"}; !slices.Equal(got, want) {
		t.Errorf("[E13] history %q, want %q", got, want)
	}
	if _, err := w.client("b").Resume(t.Context(), feed); !errors.Is(err, feeds.ErrNoOpenStream) {
		t.Errorf("[E16] resume with everything sealed: %v", err)
	}
}

func TestE13_CommitsAreNumberedWithoutHoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		c := w.client("a")
		var want []string
		for i := range 3 {
			s, err := c.Open(t.Context(), feed)
			if err != nil {
				t.Fatal(err)
			}
			for range i { // the first has no records at all
				if _, err := s.Append(t.Context(), batch("x")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Seal(t.Context(), fmt.Sprint("run ", i)); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%d: stream %d, %d records, run %d", i+1, i+1, i, i))
		}
		if got := w.history(); !slices.Equal(got, want) {
			t.Errorf("history %q, want %q", got, want)
		}
	})
}

func TestE12_TheWALIsTrimmedWithAGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		c := w.client("a", func(cfg *feeds.Config) { cfg.TrimGrace = time.Hour })
		seal := func() {
			s, err := c.Open(t.Context(), feed)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Append(t.Context(), batch("x")); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Seal(t.Context(), ""); err != nil || got.Warning != nil {
				t.Fatal(err, got.Warning)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		seal()
		if got, want := w.wal(), []string{"1/1 x"}; !slices.Equal(got, want) {
			t.Errorf("right after the seal the WAL holds %q, want %q", got, want)
		}
		kfaketest.Pass(2 * time.Hour)
		seal()
		if got, want := w.wal(), []string{"2/1 x"}; !slices.Equal(got, want) {
			t.Errorf("two hours later the WAL holds %q, want %q", got, want)
		}
	})
}

func TestE11_AppendingNeverWaitsForTheBucketAndTheSealTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		away := w.dir + "-away"
		if err := os.Rename(w.dir, away); err != nil { // the bucket is gone
			t.Fatal(err)
		}
		s, err := w.client("a", func(cfg *feeds.Config) { cfg.PackBytes = 100 }).Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if _, err := s.Append(t.Context(), batch("ten bytes.")); err != nil {
				t.Fatal(err)
			}
		}
		_, err = s.Seal(t.Context(), "m")
		var sealed *feeds.SealError
		if !errors.As(err, &sealed) || sealed.Stream != 1 || !errorAs(err, func(e *bucket.Error) bool { return e.Op == "open" }) {
			t.Fatalf("seal without the bucket: %v", err)
		}
		if err := os.Rename(away, w.dir); err != nil {
			t.Fatal(err)
		}
		c, err := s.Seal(t.Context(), "another message is not taken")
		if err != nil || c.Records != 50 || c.Message != "m" {
			t.Errorf("sealed again with the bucket back: %+v, %v", c, err)
		}
	})
}

func TestE17_RepairFinishesASealAndMayBeRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		away := w.dir + "-away"
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), batch("x", "y")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(w.dir, away); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Seal(t.Context(), "m"); err == nil {
			t.Fatal("sealed without a bucket")
		}
		_ = s.Close(t.Context())
		if err := os.Rename(away, w.dir); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			done, err := w.client("repair").Repair(t.Context(), feed)
			if err != nil || len(done) != 1-i {
				t.Errorf("repair %d: %d commits, %v", i, len(done), err)
			}
		}
		if got, want := w.history(), []string{"1: stream 1, 2 records, m"}; !slices.Equal(got, want) {
			t.Errorf("history %q, want %q", got, want)
		}
	})
}

func TestE17_DiscardDropsAStreamWithoutACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		admin := w.client("admin")
		if err := admin.Discard(t.Context(), feed, 7, ""); !errorAs(err, func(e *feeds.NoStreamError) bool { return slices.Equal(e.Uncommitted, []uint64{1}) }) {
			t.Errorf("discard a stream that is not there: %v", err)
		}
		if err := admin.Discard(t.Context(), feed, 1, "a mistake"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), batch("y")); !errors.Is(err, flusso.ErrFenced) {
			t.Errorf("append of the writer of a discarded stream: %v", err)
		}
		next, err := w.client("b").Open(t.Context(), feed)
		if err != nil || next.Stream() != 2 || len(next.Left()) != 0 {
			t.Fatalf("open behind a discard: %v", err)
		}
	})
}

func TestE13_AbandonedAndHalfSealedStreamsAreCommittedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		a, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Append(t.Context(), batch("a")); err != nil {
			t.Fatal(err)
		}
		// The seal is marked, and its holder gives up at once.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := os.Rename(w.dir, w.dir+"-away"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Seal(ctx, "first"); err == nil {
			t.Fatal("sealed without a bucket")
		}
		if err := os.Rename(w.dir+"-away", w.dir); err != nil {
			t.Fatal(err)
		}
		b, err := w.client("b").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := b.Left(), []feeds.Left{{Stream: 1, Sealed: true, Last: 1, Bytes: 1}}; !slices.Equal(got, want) {
			t.Errorf("left %+v, want %+v", got, want)
		}
		if _, err := b.Append(t.Context(), batch("b")); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Seal(t.Context(), "second"); err != nil {
			t.Fatal(err)
		}
		if got, want := w.history(), []string{"1: stream 1, 1 records, first", "2: stream 2, 1 records, second"}; !slices.Equal(got, want) {
			t.Errorf("history %q, want %q", got, want)
		}
	})
}

// A stream that was opened first and sealed last is committed last: by whoever
// finishes both.
func TestE13_CommitsFollowTheOrderOfTheSeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		c := w.client("a")
		for range 2 {
			if _, err := c.Open(t.Context(), feed); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(w.dir, w.dir+"-away"); err != nil {
			t.Fatal(err)
		}
		for _, stream := range []uint64{2, 1} {
			s, err := c.ResumeStream(t.Context(), feed, stream)
			if err != nil {
				t.Fatal(err)
			}
			var sealed *feeds.SealError
			if _, err := s.Seal(t.Context(), fmt.Sprint("stream ", stream)); !errors.As(err, &sealed) {
				t.Fatalf("seal without the bucket: %v", err)
			}
		}
		if err := os.Rename(w.dir+"-away", w.dir); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client("repair").Repair(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if got, want := w.history(), []string{"1: stream 2, 0 records, stream 2", "2: stream 1, 0 records, stream 1"}; !slices.Equal(got, want) {
			t.Errorf("history %q, want %q", got, want)
		}
	})
}

// What was discarded gives its place in the WAL back, without any commit.
func TestE17_TheWALOfADiscardedStreamIsTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s := w.opened("a")
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		admin := w.client("admin", func(c *feeds.Config) { c.TrimGrace = -1 })
		if err := admin.Discard(t.Context(), feed, 1, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Repair(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if got := w.wal(); len(got) > 0 {
			t.Errorf("the WAL holds %q", got)
		}
	})
}
