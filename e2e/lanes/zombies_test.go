package lanes_test

import (
	"errors"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

// A writer that was overtaken before its first publish has left no trace in
// any lane, so that the newer one counts the same epoch. It is told all the
// same that it was fenced, and does not take the lease back [B12].
func TestB12_a_writer_fenced_before_its_first_publish(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		held   bool   // the lanes hold something of a writer before
		newer  string // the lane that the newer writer publishes to
		at     flusso.Position
		zombie flusso.Position
	}{
		"empty lanes":                      {false, "a", 10, 20},
		"the same position":                {false, "a", 10, 10},
		"the newer one in another lane":    {false, "b", 10, 20},
		"lanes with a writer before both":  {true, "a", 10, 20},
		"behind one, in another lane":      {true, "b", 10, 20},
		"behind one, at the same position": {true, "a", 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, nil, "a", "b")
			held := 0
			if tt.held {
				s := use(t, p.Stream(t, inc))
				s.publish(s.writer("a"), live(5))
				s.publish(s.writer("b"), live(5))
				s.shut()
				held = 1
			}
			zombie, now := use(t, p.Stream(t, inc)), use(t, p.Stream(t, inc))
			old := zombie.writer("a")
			w := now.writer(tt.newer)
			now.publish(w, live(tt.at, "of the newer writer"))

			ctx, cancel := zombie.bounded()
			defer cancel()
			for range 2 {
				if _, err := old.Publish(ctx, live(tt.zombie, "of the zombie")); !errors.Is(err, flusso.ErrFenced) {
					t.Fatalf("publish of a fenced writer: %v, want that it was fenced", err)
				}
			}
			for range 3 {
				_, err := zombie.lane("a").Producer(ctx)
				fenced, ok := errors.AsType[*flusso.FencedError](err)
				if !ok || !errors.Is(err, flusso.ErrFenced) {
					t.Fatalf("a fenced writer asks for another producer: %v, want that it was fenced", err)
				}
				if fenced.Newer == 0 {
					t.Errorf("the error names no newer writer: %+v", fenced)
				}
			}
			if _, err := zombie.Commits(ctx); !errors.Is(err, flusso.ErrFenced) {
				t.Fatalf("a fenced writer asks for a producer of commits: %v, want that it was fenced", err)
			}

			now.publish(w, live(30, "of the newer writer")) // it has the lease still
			now.publish(now.writer("a"), live(40, "of the newer writer"))
			for _, sink := range []string{"a", "b"} {
				want := held
				if sink == tt.newer {
					want += 2
				}
				if sink == "a" {
					want++
				}
				items := probe.Lane(t, containers.Shared(t).Addr(), p.Lane(t, sink))
				if len(items) != want {
					t.Errorf("the lane of sink %s has %d items, want %d", sink, len(items), want)
				}
				for _, it := range items[held:] {
					if it.Epoch != uint64(held)+1 || it.Position == 20 {
						t.Errorf("the lane of sink %s has position %s of epoch %d", sink, it.Position, it.Epoch)
					}
				}
			}
		})
	}
}
