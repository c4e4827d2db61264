package lanes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

// A writer process that was frozen in the middle of its work past a takeover
// publishes nothing when it wakes up, and is told why [B12, C3].
func TestB12_a_frozen_writer_publishes_nothing_after_a_takeover(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const rounds = 5
	for range rounds {
		p := open(t, nil, "a", "b")
		zombie := spawn(t, p, "writer", "a", "b")
		zombie.await("published", 50+rng.IntN(200))
		zombie.signal(syscall.SIGSTOP)

		// The next writer opens at once, whatever the frozen one left open.
		began := time.Now()
		s := use(t, p.Stream(t, inc))
		w := s.writer("a")
		opened := time.Since(began)
		const above = 1_000_000 // above all that the frozen one can have published
		s.publish(w, live(above, "after the takeover"))
		zombie.signal(syscall.SIGCONT)
		for i := range flusso.Position(20) {
			s.publish(w, live(above+1+i, "after the takeover"))
		}
		var failed []event
		probe.Eventually(t, "the frozen writer says that it was fenced", func(context.Context) error {
			failed = zombie.heard("failed")
			if len(failed) == 0 || !failed[len(failed)-1].is("fenced") {
				return fmt.Errorf("it says %+v", failed)
			}
			return nil
		})
		for _, e := range failed {
			if !e.is("fenced") {
				t.Errorf("an error that does not say that it was fenced: %+v", e)
			}
		}
		if n := len(zombie.heard("open")); n != 1 {
			t.Errorf("the frozen writer opened %d sessions, want 1", n)
		}

		// Reading checks that epochs and sequences never go back.
		var last flusso.Position
		there := make(map[flusso.Position]bool)
		for _, it := range probe.Lane(t, containers.Shared(t).Addr(), p.Lane(t, "a")) {
			there[it.Position] = true
			if it.Epoch == 1 {
				last = it.Position
			}
		}
		for _, e := range zombie.heard("published") {
			if !there[e.Position] {
				t.Errorf("position %s was acknowledged to the frozen writer and is not in the lane", e.Position)
			}
		}
		b := probe.Lane(t, containers.Shared(t).Addr(), p.Lane(t, "b"))
		if n := len(b); n == 0 || b[n-1].Epoch != 1 || b[n-1].Position != last {
			t.Errorf("lane a ends at position %s of the frozen writer, lane b at %+v", last, b[n-1].Header)
		}
		if len(there) != int(last)+21 {
			t.Errorf("lane a has %d positions, want %d of the frozen writer and 21 of the new one", len(there), last)
		}
		t.Logf("taken over in %s; the old writer had %d positions acknowledged and %d in the lanes; %d errors, the last: %s",
			opened.Round(time.Millisecond), len(zombie.heard("published")), last, len(failed), failed[len(failed)-1].Error)
	}
}
