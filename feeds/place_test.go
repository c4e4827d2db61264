package feeds_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
)

// after reads at most n items behind a place, and returns them with the place
// behind the last one.
func (w world) after(place feeds.Place, n int) ([]string, feeds.Place) {
	w.t.Helper()
	var out []string
	for item, err := range w.client("reader").Read(w.t.Context(), feed, feeds.ReadOptions{After: place}) {
		if err != nil {
			w.t.Fatal(err)
		}
		out, place = append(out, text(item)), item.Place()
		if len(out) == n {
			break
		}
	}
	return out, place
}

// resumed goes on with a stream that was left open.
func (w world) resumed(stream uint64, end func(*feeds.Session) error, payloads ...string) {
	w.t.Helper()
	s, err := w.client("writer").ResumeStream(w.t.Context(), feed, stream)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(s, end, payloads)
}

func TestE6_APlaceOfWhatIsNotSealedMissesNothing(t *testing.T) {
	t.Run("a stream before it is resumed and sealed", func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		w.stream(leave, "a")
		w.stream(leave, "b")
		_, place := w.after("", 2)
		w.resumed(1, seal, "late")
		w.resumed(2, leave, "c")
		if got, want := first(w.after(place, 9)), []string{"1/2 late (commit 1)", "2/2 c"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("a stream behind it is sealed first", func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		w.stream(leave, "a")
		_, place := w.after("", 1)
		w.stream(seal, "b")
		if got, want := first(w.after(place, 9)), []string{"2/1 b (commit 1)"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("within a commit, and behind a discard", func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		w.stream(leave, "a")
		w.stream(leave, "b", "c")
		_, place := w.after("", 2)
		w.resumed(2, seal)
		if err := w.client("admin").Discard(t.Context(), feed, 1, ""); err != nil {
			t.Fatal(err)
		}
		got, place := w.after(place, 1)
		rest, place := w.after(place, 1)
		end, _ := w.after(place, 1)
		if got, want := slices.Concat(got, rest, end), []string{"2/2 c (commit 1)", "discarded 1"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func first[A, B any](a A, _ B) A { return a }

// A stream that lies before the place to begin at is passed over as far as it
// goes then, not for good.
func TestE6_AFollowerReadsWhatIsAppendedToAStreamBeforeItsBeginning(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(leave, "a")
	w.stream(leave, "b", "c")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	for item, err := range w.client("reader").Read(ctx, feed, feeds.ReadOptions{Stream: 2, Sequence: 2, Follow: true}) {
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		if got = append(got, text(item)); len(got) == 2 {
			break
		}
		w.resumed(1, leave, "late")
	}
	if want := []string{"2/2 c", "1/2 late"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Whatever is appended, resumed, sealed and discarded between its pieces, a
// reader that goes on behind its place gets each record once.
func TestE6_AReaderThatComesBackGetsEachRecordOnce(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, feeds.CreateOptions{})
			got := make(map[string]bool) // records by stream/sequence
			place := feeds.Place("")
			read := func(n int) {
				var items []string
				items, place = w.after(place, n)
				for _, item := range items {
					if stream, gone := strings.CutPrefix(item, "discarded "); gone {
						for name := range got {
							if strings.HasPrefix(name, stream+"/") {
								delete(got, name)
							}
						}
						continue
					}
					name, _, _ := strings.Cut(item, " ")
					if got[name] {
						t.Errorf("%s came again", item)
					}
					got[name] = true
				}
			}
			for range 12 {
				end := []func(*feeds.Session) error{leave, leave, seal}[rng.IntN(3)]
				d, err := w.client("admin").Describe(t.Context(), feed)
				if err != nil {
					t.Fatal(err)
				}
				switch n := len(d.Streams); {
				case n == 0 || n < 5 && rng.IntN(3) == 0:
					w.stream(end, "x", "y")
				case rng.IntN(6) == 0:
					if err := w.client("admin").Discard(t.Context(), feed, d.Streams[rng.IntN(n)].Number, ""); err != nil {
						t.Fatal(err)
					}
				default:
					w.resumed(d.Streams[rng.IntN(n)].Number, end, "z")
				}
				read(1 + rng.IntN(4))
			}
			read(1000)
			want := w.read(feeds.ReadOptions{})
			for _, item := range want {
				if name, _, _ := strings.Cut(item, " "); !got[name] {
					t.Errorf("%s was missed", item)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d records, want %d", len(got), len(want))
			}
		})
	}
}

// place is a place of the feed as it is now: the text behind its id.
func (w world) place(text string) feeds.Place {
	w.t.Helper()
	d, err := w.client("admin").Describe(w.t.Context(), feed)
	if err != nil {
		w.t.Fatal(err)
	}
	return feeds.Place(d.Settings.ID[:8] + "-" + text)
}

func TestReadRefusesAPlaceThatIsNone(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a")
	refused := func(name string, o feeds.ReadOptions, why string) {
		t.Helper()
		var got error
		for _, err := range w.client("reader").Read(t.Context(), feed, o) {
			got = err
		}
		if _, invalid := errors.AsType[*flusso.InvalidError](got); !invalid || !strings.Contains(got.Error(), why) {
			t.Errorf("%s: %v, want %s", name, got, why)
		}
	}
	for name, text := range map[string]string{
		"no number": "x", "half": "0/1", "nothing behind the slash": "0/", "nothing behind the comma": "0/1:1,", "zeros": "00/1:1", "zeros of a sequence": "0/1:00",
		"stream 0": "0/0:5", "a stream twice": "0/1:1,1:1", "a large number": "0/1:9007199254740992", "a larger number": "10000000000000000", "a line": "0/1:1\n",
	} {
		place := w.place(text)
		refused(name, feeds.ReadOptions{After: place}, "not one that a reader was given")
		if _, invalid := errors.AsType[*flusso.InvalidError](place.Check()); !invalid {
			t.Errorf("%s: the check says %v", name, place.Check())
		}
	}
	for name, place := range map[string]feeds.Place{"no id": "0/1:1", "a short id": "1234567-0", "an id of no hex": "1234567G-0", "nothing but an id": "12345678", "a long id": "123456789-0"} {
		refused(name, feeds.ReadOptions{After: place}, "not one that a reader was given")
	}
	refused("commits that are not there", feeds.ReadOptions{After: w.place("2")}, "nothing can have been read there")
	refused("a stream that is not there", feeds.ReadOptions{After: w.place("0/2:1")}, "nothing can have been read there")
	refused("behind the end of a commit", feeds.ReadOptions{After: w.place("0/1:2")}, "stream 1 of feed orders has 1 records")
	refused("place and stream", feeds.ReadOptions{After: w.place("0/1:1"), Stream: 1}, "a place to go on behind, and a stream")
	for _, text := range []string{"0/1:1", "1"} {
		if got, _ := w.after(w.place(text), 9); len(got) != 0 {
			t.Errorf("behind %s: %q", text, got)
		}
	}
	for _, good := range []feeds.Place{"", "00000000-0", "0123abcd-9007199254740991/1:0,2:9007199254740991"} {
		if err := good.Check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

// A feed that has the name of one that was deleted is another, however much of
// it looks the same.
func TestReadRefusesAPlaceOfAFeedThatWasDeleted(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a")
	_, place := w.after("", 1)
	if err := w.client("admin").Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client("admin").Create(t.Context(), feed, feeds.CreateOptions{Bucket: "file://" + filepath.ToSlash(w.dir)}); err != nil {
		t.Fatal(err)
	}
	w.stream(seal, "b")
	var got error
	for item, err := range w.client("reader").Read(t.Context(), feed, feeds.ReadOptions{After: place}) {
		if got = err; err == nil {
			t.Errorf("behind %s came %s", place, text(item))
		}
	}
	if _, invalid := errors.AsType[*flusso.InvalidError](got); !invalid || !strings.Contains(got.Error(), "another feed") || !strings.Contains(got.Error(), "was deleted") {
		t.Errorf("got %v", got)
	}
}

// Of a stream of which nothing was delivered there is nothing to forget.
func TestE6_ADiscardIsNewsWhereSomethingWasDelivered(t *testing.T) {
	discard := func(w world, stream uint64) {
		w.t.Helper()
		if err := w.client("admin").Discard(w.t.Context(), feed, stream, ""); err != nil {
			w.t.Fatal(err)
		}
	}
	t.Run("the place has passed an empty stream", func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		w.stream(leave)
		w.stream(leave, "a")
		var place feeds.Place
		for item, err := range w.client("reader").Read(t.Context(), feed, feeds.ReadOptions{Stream: 2}) {
			if err != nil {
				t.Fatal(err)
			}
			place = item.Place()
		}
		if want := w.place("0/2:1,1:0"); place != want {
			t.Fatalf("the place is %s, want %s", place, want)
		}
		discard(w, 1)
		if got, _ := w.after(place, 9); len(got) != 0 {
			t.Errorf("of a stream that was empty: %q", got)
		}
		discard(w, 2)
		if got, want := first(w.after(place, 9)), []string{"discarded 2"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("it began behind the end", func(t *testing.T) {
		w := newWorld(t, feeds.CreateOptions{})
		w.stream(leave, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.stream(leave, "b")
		var got []string
		for item, err := range w.client("reader").Read(ctx, feed, feeds.ReadOptions{Stream: 1, Sequence: 999999, Follow: true}) {
			if err != nil {
				t.Fatalf("after %q: %v", got, err)
			}
			if got = append(got, text(item)); len(got) == 2 {
				break
			}
			discard(w, 1)
			discard(w, 2)
		}
		if want := []string{"2/1 b", "discarded 2"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A place is of a reading: what is looked up has none.
func TestLatestMakesNoPlace(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	for _, end := range []func(*feeds.Session) error{seal, leave} {
		s, err := w.client("writer").Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), feeds.Batch{Records: []feeds.Record{{Key: []byte("k"), Payload: []byte("v")}}}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(end(s), s.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		if item, found, err := w.client("reader").Latest(t.Context(), feed, []byte("k")); err != nil || !found || item.Place() != "" {
			t.Errorf("the place is %q, %t, %v", item.Place(), found, err)
		}
	}
}
