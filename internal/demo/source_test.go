package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// written opens a source in dir and lets it write for so long by a bubble's clock.
func written(t *testing.T, dir string, length time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := OpenSource(dir, 3)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		if err := errors.Join(s.Write(ctx), s.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

func open(t *testing.T, dir string) *Source {
	t.Helper()
	s, err := OpenSource(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// feed returns everything above the confirmed position.
func feed(s *Source) []Transaction {
	var out []Transaction
	for at := s.Confirmed(); ; {
		tx, ok, _ := s.Next(at)
		if !ok {
			return out
		}
		out = append(out, tx)
		at = tx.Position
	}
}

func TestSourceSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, 2*time.Second)
	before := open(t, dir)
	txs := feed(before)
	if len(txs) < 100 || before.Position() != txs[len(txs)-1].Position {
		t.Fatalf("%d transactions up to %s, position %s", len(txs), txs[len(txs)-1].Position, before.Position())
	}
	for i, tx := range txs[1:] {
		if tx.Position <= txs[i].Position {
			t.Fatalf("position %s after %s", tx.Position, txs[i].Position)
		}
	}
	half := txs[len(txs)/2].Position
	if err := before.Confirm(half); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first open rewrites the journal
		again := open(t, dir)
		if again.Incarnation() != before.Incarnation() || again.Position() != before.Position() || again.Confirmed() != half {
			t.Errorf("%s at %s, confirmed %s; want %s at %s, confirmed %s", again.Incarnation(), again.Position(), again.Confirmed(),
				before.Incarnation(), before.Position(), half)
		}
		if got := feed(again); len(got) != len(feed(before)) || got[0].Position != feed(before)[0].Position {
			t.Errorf("%d transactions in the feed, want %d", len(got), len(feed(before)))
		}
		for _, index := range Indexes() {
			if !maps.EqualFunc(again.Table(index), before.Table(index), slices.Equal) {
				t.Errorf("table %s changed by a restart", index)
			}
		}
	}
	written(t, dir, time.Second)
	if got := open(t, dir); got.Position() <= before.Position() {
		t.Errorf("position %s after more was written, was %s", got.Position(), before.Position())
	}
}

// The base rows and the feed make the tables: what replays from the confirmed
// position arrives at the current state.
func TestSourceFeedMakesTheTables(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, 3*time.Second)
	s := open(t, dir)
	txs := feed(s)
	for _, at := range []int{0, len(txs) / 3, len(txs) - 1} {
		if err := s.Confirm(txs[at].Position); err != nil {
			t.Fatal(err)
		}
		state := s.base.clone()
		for _, tx := range feed(s) {
			state.apply(tx.Changes)
		}
		for _, index := range Indexes() {
			if !maps.EqualFunc(state[index], s.Table(index), slices.Equal) {
				t.Errorf("confirmed at %s: the feed does not make table %s", txs[at].Position, index)
			}
		}
	}
}

func TestSourceDropsATornTail(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, time.Second)
	before := open(t, dir)
	f, err := os.OpenFile(filepath.Join(dir, "source.journal"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"commit":{"position":99999999,"chan`)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if after := open(t, dir); after.Position() != before.Position() {
		t.Errorf("position %s after a torn tail, want %s", after.Position(), before.Position())
	}
}

func TestSourceConfirm(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.commit([]Transaction{{Position: 100}, {Position: 200}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Confirm(201); err == nil {
		t.Error("a position that the source never reached was confirmed")
	}
	for _, p := range []flusso.Position{150, 100, 150} { // going back is ignored
		if err := s.Confirm(p); err != nil {
			t.Fatal(err)
		}
	}
	if got := feed(s); s.Confirmed() != 150 || len(got) != 1 || got[0].Position != 200 {
		t.Errorf("confirmed %s, feed %v", s.Confirmed(), got)
	}
}

func TestSourceChunks(t *testing.T) {
	s := open(t, t.TempDir())
	var ids []string
	for above := ""; ; {
		rows, at := s.Chunk(Orders, above, 7)
		if at != s.Position() {
			t.Fatalf("chunk at %s, source at %s", at, s.Position())
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		above = ids[len(ids)-1]
	}
	if want := slices.Sorted(maps.Keys(s.Table(Orders))); !slices.Equal(ids, want) {
		t.Errorf("%d ids in chunks, want %d", len(ids), len(want))
	}
	if rows, _ := s.Chunk("nothing", "", 7); len(rows) != 0 {
		t.Errorf("%d rows of a table that is not there", len(rows))
	}
}

func TestBatches(t *testing.T) {
	change := func(id, row string) Change {
		c := Change{Table: Orders, ID: id}
		if row != "" {
			c.Row = []byte(row)
		}
		return c
	}
	t.Run("a touched row once, in its last state", func(t *testing.T) {
		got := batches(Transaction{9, []Change{change("a", "1"), change("b", "2"), change("a", ""), change("b", "3")}}, time.Now())
		if len(got) != 1 || got[0].More || got[0].Changes != 4 || len(got[0].Envelopes) != 2 {
			t.Fatalf("%+v", got[0])
		}
		if a := got[0].Envelopes[0]; a.ID != "a" || a.Op != flusso.Delete || a.Position != 9 {
			t.Errorf("%+v", a)
		}
		if b := got[0].Envelopes[1]; b.ID != "b" || string(b.Document) != "3" {
			t.Errorf("%+v", b)
		}
	})
	t.Run("B2 nothing captured", func(t *testing.T) {
		got := batches(Transaction{Position: 9}, time.Now())
		if len(got) != 1 || len(got[0].Envelopes) != 0 || got[0].Position != 9 || got[0].More {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a large one becomes several", func(t *testing.T) {
		var changes []Change
		for i := range 2*maxEnvelopes + 1 {
			changes = append(changes, change(fmt.Sprint(i), "1"))
		}
		got := batches(Transaction{9, changes}, time.Now())
		total := uint64(0)
		for i, b := range got {
			total += b.Changes
			if b.More != (i < len(got)-1) || b.Position != 9 {
				t.Errorf("batch %d: position %s, more %t", i, b.Position, b.More)
			}
			if err := flusso.CheckItem(b); err != nil {
				t.Error(err)
			}
		}
		if len(got) != 3 || total != uint64(len(changes)) {
			t.Errorf("%d batches of %d changes, want 3 of %d", len(got), total, len(changes))
		}
	})
}
