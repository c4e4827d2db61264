package feeds_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

func TestReadRefusesAPlaceThatIsNone(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	w.stream(seal, "a")
	for name, o := range map[string]feeds.ReadOptions{
		"no number": {After: "x"}, "half": {After: "0/1"}, "nothing behind the slash": {After: "0/"}, "zeros": {After: "00/1:1"},
		"commits that are not there": {After: "2"}, "a stream that is not there": {After: "0/2:1"}, "place and stream": {After: "0/1:1", Stream: 1},
	} {
		for _, err := range w.client("reader").Read(t.Context(), feed, o) {
			if _, invalid := errors.AsType[*flusso.InvalidError](err); !invalid {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if got, _ := w.after("0/1:1", 9); len(got) != 0 {
		t.Errorf("behind the end: %q", got)
	}
	if got, _ := w.after("1", 9); len(got) != 0 {
		t.Errorf("behind the commit: %q", got)
	}
}
