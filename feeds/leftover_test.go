package feeds_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

func (w world) leftovers() (names []string) {
	w.t.Helper()
	for name, err := range w.client("looker").Leftovers(w.t.Context(), feed) {
		if err != nil {
			w.t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// staged appends packs of their own to a session and waits until they are in
// the store.
func (s *store) staged(t *testing.T, x *feeds.Session, n int) {
	t.Helper()
	for range n {
		if _, err := x.Append(t.Context(), batch("ten bytes.")); err != nil {
			t.Fatal(err)
		}
	}
	kfaketest.Pass(5 * time.Second)
}

func packs(c *feeds.Config) { c.PackBytes = 10 }

// of returns the objects of a stream's epoch.
func of(names []string, stream, epoch uint64) []string {
	folder := fmt.Sprintf("/%012d/e%012d/", stream, epoch)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !strings.Contains(name, folder) || strings.Contains(name, "-00000000000000000000000000000000/")
	})
}

func TestE16_WhatNoCommitLeadsToIsRemovedByTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("leftovers")
		w := newWorld(t, feeds.CreateOptions{Bucket: address})
		other := "orders-" + strings.Repeat("0", 32) + "/000000000001/e000000000002/pack-1" // of a feed of another id
		stranger := ""
		store.mu.Lock()
		for name := range store.objects { // the marker alone
			stranger = strings.TrimSuffix(name, "feed.json") + "notes.txt"
		}
		store.objects[other], store.objects[stranger] = nil, nil
		store.mu.Unlock()

		a := w.opened("a", packs)
		store.staged(t, a, 3)
		b, err := w.client("b", packs).Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		store.staged(t, b, 1)
		if got := of(store.names(), 1, a.Epoch()); len(got) != 3 {
			t.Fatalf("the first holder staged %q", got)
		}
		if got := w.leftovers(); len(got) != 0 {
			t.Errorf("objects of a stream without a commit are told to be left: %q", got)
		}
		if _, err := b.Seal(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		kfaketest.Pass(time.Second)
		if got := of(store.names(), 1, a.Epoch()); len(got) != 0 {
			t.Errorf("what the first holder staged is there: %q", got)
		}
		if got := of(store.names(), 1, b.Epoch()); len(got) != 4+1 {
			t.Errorf("the commit has %q, want 4 packs and a manifest", got)
		}
		c := w.opened("c", packs) // at work, with objects of its own
		store.staged(t, c, 2)
		// What is late, or was written while the holder died, is told, and a repair removes it.
		late := strings.Replace(of(store.names(), 1, b.Epoch())[0], fmt.Sprintf("/e%012d/", b.Epoch()), fmt.Sprintf("/e%012d/", a.Epoch()), 1)
		lateToo := of(store.names(), 1, b.Epoch())[0] + "0"
		store.mu.Lock()
		store.objects[late], store.objects[lateToo] = []byte("x"), []byte("y")
		store.mu.Unlock()
		if got, want := w.leftovers(), []string{late, lateToo}; !slices.Equal(got, want) {
			t.Errorf("left are %q, want %q", got, want)
		}
		if _, err := w.client("admin").Repair(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if got := len(w.leftovers()); got != 2 {
			t.Errorf("a repair beside a session at work left %d objects, want both: only the holder deletes", got)
		}
		if _, err := c.Append(t.Context(), batch("goes on")); err != nil {
			t.Errorf("a repair with nothing to finish fenced the session: %v", err)
		}
		kfaketest.Pass(time.Second)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client("admin").Repair(t.Context(), feed); err != nil {
			t.Fatal(err)
		}
		if got := w.leftovers(); len(got) != 0 {
			t.Errorf("a repair left %q", got)
		}
		if got := of(store.names(), 2, c.Epoch()); len(got) != 3 {
			t.Errorf("of the stream that was left open there is %q", got)
		}
		if err := w.client("admin").Discard(t.Context(), feed, 2, ""); err != nil {
			t.Fatal(err)
		}
		if got := of(store.names(), 2, c.Epoch()); len(got) != 0 {
			t.Errorf("of the stream that was discarded there is %q", got)
		}
		if names := store.names(); len(of(names, 1, b.Epoch())) != 5 || !slices.Contains(names, other) || !slices.Contains(names, stranger) {
			t.Errorf("what is not the feed's, or is its commit's, was removed: %q", names)
		}
	})
}

func TestE17_LeftoversThatCannotBeRemovedStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, address := newStore("stubborn")
		w := newWorld(t, feeds.CreateOptions{Bucket: address})
		a := w.opened("a", packs)
		store.staged(t, a, 3)
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.be(unlisted)
		if err := w.client("admin").Discard(t.Context(), feed, 1, ""); err != nil {
			t.Errorf("a discard failed by its bucket: %v", err)
		}
		store.be(unreadable)
		if _, err := w.client("admin").Repair(t.Context(), feed); !errorAs(err, func(e *feeds.LeftoversError) bool { return e.Feed == feed && errors.Is(e, errStore) }) {
			t.Errorf("a repair that can't look at the bucket: %v", err)
		}
		store.be(sound)
		if got := w.leftovers(); len(got) != 3 {
			t.Errorf("left are %q", got)
		}
		w.opened("b") // who opens next
		kfaketest.Pass(time.Second)
		if got := w.leftovers(); len(got) != 0 {
			t.Errorf("the next holder left %q", got)
		}
	})
}

func TestE12_AHolderThatStaysTrimsWhenTheGraceIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		hour := func(c *feeds.Config) { c.TrimGrace = time.Hour }
		s := w.opened("a", hour)
		if _, err := s.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Seal(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		kfaketest.Pass(59 * time.Minute)
		if got := w.wal(); len(got) != 1 {
			t.Errorf("within the grace the WAL holds %q", got)
		}
		kfaketest.Pass(2 * time.Minute)
		if got := w.wal(); len(got) != 0 {
			t.Errorf("behind the grace the WAL holds %q: its session is open, and sealed nothing since", got)
		}
		// A session that is closed leaves it to the next one.
		s = w.opened("b", hour)
		if _, err := s.Append(t.Context(), batch("y")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Seal(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		kfaketest.Pass(50 * time.Minute)
		w.opened("c", hour) // within the grace: it waits for its end
		kfaketest.Pass(11 * time.Minute)
		if got := w.wal(); len(got) != 0 {
			t.Errorf("a session that opened within the grace left %q in the WAL", got)
		}
	})
}

func TestE17_WhatAKilledProcessStagedIsRemovedByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		dir := t.TempDir()
		dead := filepath.Join(dir, "flusso-staging-orders-1")
		if err := os.Mkdir(dead, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"lock", "pack-1"} { // a lock that nobody holds
			if err := os.WriteFile(filepath.Join(dead, name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := w.opened("a", func(c *feeds.Config) { c.StagingDir = dir })
		kfaketest.Pass(time.Second)
		if _, err := os.Stat(dead); !os.IsNotExist(err) {
			t.Errorf("it is there: %v", err)
		}
		living, err := os.ReadDir(dir)
		if err != nil || len(living) != 1 {
			t.Fatalf("the session has %v, %v", living, err)
		}
		w.opened("b", func(c *feeds.Config) { c.StagingDir = dir })
		if _, err := os.Stat(filepath.Join(dir, living[0].Name())); err != nil {
			t.Errorf("the folder of a session that lives was removed: %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Log(err) // it was fenced
		}
	})
}
