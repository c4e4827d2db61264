package feeds_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
)

func named(id string, match uint64, token uint64, payloads ...string) feeds.Batch {
	return feeds.Batch{ID: id, MatchSequence: &match, FencingToken: token, Records: records(payloads...)}
}

// A batch that is repeated with its id, to the same session or to one that
// resumed the stream, has the range of the first time and is appended once.
func TestBatchID_ARepeatedBatchKeepsItsRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		first := named("one", 0, s.Epoch(), "x", "y")
		want := feeds.Range{Stream: 1, First: 1, Last: 2, Records: 2}
		async, err := s.AppendAsync(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.AppendAsync(t.Context(), first) // still in flight
		if err != nil || async.Repeated() || !again.Repeated() {
			t.Fatalf("repeated: %v and %v, %v: want the second alone", async.Repeated(), again.Repeated(), err)
		}
		for _, f := range []*feeds.Future{async, again} {
			if got, err := f.Wait(t.Context()); got != want || err != nil {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		}
		if _, err := s.Append(t.Context(), named("two", 2, s.Epoch(), "z")); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Append(t.Context(), first); got != want || err != nil {
			t.Errorf("behind another: %+v, %v, want %+v", got, err, want)
		}

		b, err := w.client("b").Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Append(t.Context(), named("three", 3, b.Epoch(), "4")); err != nil || got.First != 4 {
			t.Fatalf("a new batch: %+v, %v", got, err)
		}
		if got, err := b.Append(t.Context(), first); got != want || err != nil {
			t.Errorf("resumed: %+v, %v, want %+v", got, err, want)
		}
		// The session that was fenced still knows what it appended.
		if got, err := s.Append(t.Context(), first); got != want || err != nil {
			t.Errorf("fenced: %+v, %v, want %+v", got, err, want)
		}
		if _, err := s.Append(t.Context(), named("four", 3, s.Epoch(), "5")); !errors.Is(err, flusso.ErrFenced) {
			t.Errorf("a new batch of a fenced session: %v", err)
		}
		if got, want := fmt.Sprint(w.wal()), "[1/1 x 1/2 y 1/3 z 1/4 4]"; got != want {
			t.Errorf("the WAL holds %s, want %s", got, want)
		}
	})
}

// Ids are those of one stream: what lies beside it in the WAL is none of its.
func TestBatchID_AnotherStreamHasIDsOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		c := w.client("a")
		for stream := range uint64(2) {
			s, err := c.Open(t.Context(), feed)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Append(t.Context(), named(fmt.Sprint(stream+1), 0, 0, "x")); err != nil {
				t.Fatal(err)
			}
		}
		s, err := c.ResumeStream(t.Context(), feed, 1)
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]feeds.Range{"2": {Stream: 1, First: 2, Last: 2, Records: 1}, "1": {Stream: 1, First: 1, Last: 1, Records: 1}} {
			if got, err := s.Append(t.Context(), named(id, 1, 0, "y")); got != want || err != nil {
				t.Errorf("id %s: %+v, %v, want %+v", id, got, err, want)
			}
		}
	})
}

func TestBatchID_AnotherBatchWithTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), named("one", 0, 0, "x")); err != nil {
			t.Fatal(err)
		}
		_, err = s.Append(t.Context(), named("one", 1, 0, "y", "z"))
		var id *feeds.IDError
		if !errors.As(err, &id) || id.At.Last != 1 || id.Records != 2 {
			t.Errorf("got %v, want an IDError with the range of the first", err)
		}
	})
}

// Ids are known as far back as documented; a batch from before is refused by
// its match, and never appended twice.
func TestBatchID_OldOnesAreRefusedByTheirMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		var last *feeds.Future
		for i := range uint64(feeds.RecentBatches + 10) {
			if last, err = s.AppendAsync(t.Context(), named(fmt.Sprint("id", i), i, 0, "x")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := last.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		knows := func(who string, s *feeds.Session) {
			t.Helper()
			var match *feeds.MatchError
			if _, err := s.Append(t.Context(), named("id9", 9, 0, "x")); !errors.As(err, &match) || match.Last != feeds.RecentBatches+10 {
				t.Errorf("%s, the newest of those that are too old: %v, want a MatchError", who, err)
			}
			if got, err := s.Append(t.Context(), named("id10", 10, 0, "x")); err != nil || got.First != 11 {
				t.Errorf("%s, the oldest that is known: %+v, %v", who, got, err)
			}
		}
		knows("the session", s)
		resumed, err := w.client("b").Resume(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		knows("one that resumed", resumed)
	})
}

func TestSession_TellsItsEndAndItsTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		s, err := w.client("a").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AppendAsync(t.Context(), batch("x", "y")); err != nil {
			t.Fatal(err)
		}
		if last, err := s.Last(t.Context()); last != 2 || err != nil || s.Err() != nil || s.Settings().ID == "" {
			t.Errorf("last %d, %v, ended by %v, settings %+v", last, err, s.Err(), s.Settings())
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-s.Done()
		if !errors.Is(s.Err(), flusso.ErrClosed) {
			t.Errorf("ended by %v", s.Err())
		}
	})
}
