package feeds_test

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// A deletion that ends anywhere is gone on with by the next one, and until then
// everybody is told that the feed is being deleted.
func TestDeleteEndsAnywhereAndIsFinishedByTheNext(t *testing.T) {
	type point struct {
		topic     int // which request to delete a topic fails, from 1 on
		after     bool
		object    int // which delete of an object fails, from 1 on: two of a commit, then the marker
		half      bool
		unsettled bool // the topic is gone although it failed
	}
	points := []point{{object: 1}, {object: 2}, {topic: 1}, {topic: 1, after: true, half: true}, {object: 3, half: true}, {topic: 2, half: true}, {topic: 2, after: true, unsettled: true}}
	for i, p := range points {
		for _, keep := range []bool{false, true} {
			if keep && p.object > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%+v keep %t", p, keep), func(t *testing.T) {
				store, address := newStore(fmt.Sprintf("half-%d-%t", i, keep))
				w := newWorld(t, feeds.CreateOptions{Keyed: true, Bucket: address})
				w.stream(seal, "a")
				w.stream(leave, "b")
				c, o := w.client("admin"), feeds.DeleteOptions{KeepObjects: keep}
				all := store.names()
				store.kept.Store(int64(p.object))
				if p.topic > 0 {
					w.Fault(t, kmsg.DeleteTopics, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.PolicyViolation, Skip: p.topic - 1, After: p.after})
				}
				if err := c.Delete(t.Context(), feed, o); err == nil {
					t.Fatal("nothing failed: the test shows nothing")
				}
				if !p.unsettled {
					w.isBeingDeleted(c, p.half)
				}
				err := c.Delete(t.Context(), feed, o)
				if p.unsettled != errors.Is(err, feeds.ErrNoFeed) || !p.unsettled && err != nil {
					t.Fatalf("deleted again: %v", err)
				}
				if left := store.names(); keep && !slices.Equal(left, all) || !keep && len(left) > 0 {
					t.Errorf("the bucket holds %q", left)
				}
				if left, err := c.Remains(t.Context(), feed); err != nil || len(left) > 0 {
					t.Errorf("topics %q are left, %v", left, err)
				}
				if _, err := c.Create(t.Context(), feed, feeds.CreateOptions{Bucket: address}); err != nil {
					t.Errorf("created anew: %v", err)
				}
			})
		}
	}
}

// isBeingDeleted checks what is said of a feed whose deletion was not finished.
func (w world) isBeingDeleted(c *feeds.Client, half bool) {
	w.t.Helper()
	d, err := c.Describe(w.t.Context(), feed)
	if err != nil || !d.Deleting || d.Half != half || d.Held() || d.Commits != 1 {
		w.t.Errorf("described as %+v, %v, want half %t", d, err, half)
	}
	if got, err := c.List(w.t.Context()); err != nil || !slices.Equal(got, []string{feed}) {
		w.t.Errorf("listed %q, %v", got, err)
	}
	says := func(what string, err error) {
		w.t.Helper()
		if !errors.Is(err, feeds.ErrDeleting) || !errorAs(err, func(e *feeds.DeletingError) bool {
			return e.Half == half && strings.Contains(e.Error(), "feed delete "+feed+" --yes")
		}) {
			w.t.Errorf("%s: %v", what, err)
		}
	}
	_, err = c.Create(w.t.Context(), feed, feeds.CreateOptions{Bucket: "file:///nowhere"})
	says("created", err)
	_, err = c.Open(w.t.Context(), feed)
	if !errors.Is(err, feeds.ErrDeleting) {
		w.t.Errorf("opened: %v", err)
	}
	if !half {
		return
	}
	for what, err := range map[string]error{"read": failure(c.Read(w.t.Context(), feed, feeds.ReadOptions{})), "latest": latestError(w.t, c)} {
		if !errors.Is(err, feeds.ErrNoFeed) {
			w.t.Errorf("%s: %v", what, err)
		}
	}
}

// A WAL that somebody else deleted takes nothing with it that is not asked for.
func TestDeleteOfAFeedWhoseWALSomebodyElseDeleted(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a")
	s := w.opened("writer")
	c := w.client("admin")
	w.deleteTopic(feed + ".feed.wal")
	d, err := c.Describe(t.Context(), feed)
	if err != nil || !d.Half || !d.Deleting || d.Held() {
		t.Errorf("described as %+v, %v", d, err)
	}
	if _, err := c.Create(t.Context(), feed, feeds.CreateOptions{Bucket: "file:///nowhere"}); !errors.Is(err, feeds.ErrDeleting) {
		t.Errorf("created: %v", err)
	}
	away := filepath.Join(t.TempDir(), "away")
	if err := errors.Join(os.Rename(w.dir, away), os.Mkdir(w.dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); !errorAs(err, func(e *feeds.MarkerError) bool { return e.Feed == feed }) {
		t.Errorf("deleted with another folder in place of its bucket: %v", err)
	}
	if err := errors.Join(os.Remove(w.dir), os.Rename(away, w.dir)); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if left := below(t, w.dir); len(left) > 0 {
		t.Errorf("%q is left in the bucket", left)
	}
	_ = s.Close(t.Context()) // its feed is gone
}

// What stands in place of the bucket is not taken for a bucket that is empty
// already, on whichever attempt.
func TestDeleteTakesNoOtherFolderForTheBucket(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a")
	s := w.opened("writer")
	c := w.client("admin")
	away := filepath.Join(t.TempDir(), "away")
	swap := func() {
		t.Helper()
		if err := errors.Join(os.Rename(w.dir, away), os.Mkdir(w.dir, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	back := func() {
		t.Helper()
		if err := errors.Join(os.Remove(w.dir), os.Rename(away, w.dir)); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string) {
		t.Helper()
		if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); !errors.Is(err, bucket.ErrMissing) || !errorAs(err, func(e *feeds.MarkerError) bool { return e.Feed == feed }) {
			t.Errorf("%s: %v", what, err)
		}
	}
	swap()
	refused("the first attempt")
	if _, err := s.Append(t.Context(), batch("b")); err != nil {
		t.Errorf("it fenced who writes all the same: %v", err)
	}
	back()
	// One that began, and the mount goes before the next.
	w.Fault(t, kmsg.DeleteTopics, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.PolicyViolation})
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); err == nil {
		t.Fatal("nothing failed: the test shows nothing")
	}
	swap()
	refused("a repetition")
	back()
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if left := below(t, w.dir); len(left) > 0 {
		t.Errorf("%q is left in the bucket", left)
	}
	_ = s.Close(t.Context()) // it was fenced
}

// Only what is the feed's goes, folders included.
func TestDeleteLeavesWhatIsNotTheFeeds(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a")
	other := filepath.Join(w.dir, "others", "empty")
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.client("admin").Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := below(t, w.dir), []string{"others", "others/empty"}; !slices.Equal(got, want) {
		t.Errorf("the bucket holds %q, want %q", got, want)
	}
}

// Whoever loses the lease while a feed is created or deleted is told who has it.
func TestDeleteAndCreateTellWhoTookTheFeed(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	c := w.client("loser")
	hang := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
	done := make(chan error)
	go func() { done <- c.Delete(t.Context(), feed, feeds.DeleteOptions{}) }()
	<-hang.Hit()
	s := w.opened("winner")
	hang.Release()
	err := <-done
	if !errors.Is(err, flusso.ErrFenced) || !errorAs(err, func(e *feeds.TakenError) bool {
		return e.Holder == feeds.Holder{Name: "winner", Address: "winner:8080"} && e.Epoch == s.Epoch() && !e.Gone
	}) || !strings.Contains(err.Error(), "feed describe "+feed) || strings.Contains(err.Error(), "INVALID") {
		t.Errorf("deleted while somebody took the feed: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}

	// The other one deletes it, too.
	hang = w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
	go func() { done <- c.Delete(t.Context(), feed, feeds.DeleteOptions{}) }()
	<-hang.Hit()
	if err := w.client("winner").Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	hang.Release()
	if err := <-done; !errorAs(err, func(e *feeds.TakenError) bool { return e.Gone }) {
		t.Errorf("deleted while somebody else deleted it: %v", err)
	}

	hang = w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
	o := feeds.CreateOptions{Bucket: "file://" + filepath.ToSlash(w.dir)}
	go func() {
		_, err := c.Create(t.Context(), feed, o)
		done <- err
	}()
	<-hang.Hit()
	if _, err := w.client("winner").Create(t.Context(), feed, o); err != nil {
		t.Fatal(err)
	}
	hang.Release()
	if err := <-done; !errorAs(err, func(e *feeds.TakenError) bool { return e.Holder.Name == "winner" && e.Epoch == 1 }) {
		t.Errorf("created while somebody else created it: %v", err)
	}
}

// failure returns how an iteration ends, nil for in order.
func failure[T any](items iter.Seq2[T, error]) (end error) {
	for _, err := range items {
		end = err
	}
	return end
}

func latestError(t *testing.T, c *feeds.Client) error {
	t.Helper()
	_, _, err := c.Latest(t.Context(), feed, []byte("k"))
	return err
}

func (w world) deleteTopic(topic string) {
	w.t.Helper()
	got, err := kadm.NewClient(w.Client(w.t)).DeleteTopic(w.t.Context(), topic)
	if err = errors.Join(err, got.Err); err != nil {
		w.t.Fatal(err)
	}
}

// below returns everything that is in a folder, folders included.
func below(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return names
}
