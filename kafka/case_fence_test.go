package kafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/lease"
)

// fenceByHand is what `flusso-kafka-admin writer fence` does.
func (w *caseWorld) fenceByHand() {
	w.t.Helper()
	_, err := lease.Fence(w.ctx(), w.cluster.Client(w.t), w.Name(), 5*time.Second)
	w.do("fence", err)
}

// An operator who fences writes nothing: the engine's session is lost and not
// superseded, so it opens the next one by itself after a pause, where the lanes
// are. `writer fence --help` says so.
func TestB12_AnEngineThatAnOperatorFencedGoesOn(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1, 2)
		w.fenceByHand()
		w.sleep(time.Hour) // it learns of it when it publishes, and not before
		_, err := p.Publish(w.ctx(), toSinks(3, "audit"))
		if !errors.Is(err, flusso.ErrLost) || !errors.Is(err, flusso.ErrRejected) || errors.Is(err, flusso.ErrFenced) {
			t.Fatalf("got %v, want a lost session", err)
		}
		began := time.Now()
		p = w.commits(s)
		if took := time.Since(began); took < 500*time.Millisecond || took > 3*time.Second { // the bubble's clock
			t.Errorf("opened the next session after %s, want the pause of a lost one", took)
		}
		if r := w.publish(s, p, 2, 3); r.Dropped != 1 || r.Published != 1 {
			t.Errorf("got %+v", r)
		}
		c := w.attach(s, "audit")
		w.applies(c, 1, 2, 3)
		w.nothing(c)
		w.mark(s, 3)
	})
	// In the middle of a commit: what became of it shows when the next session opens.
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1)
		f := w.cluster.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
		future, err := p.Submit(w.ctx(), toSinks(2, "audit"))
		w.do("submit", err)
		<-f.Hit()
		w.fenceByHand()
		f.Release()
		_, err = future.Wait(context.Background())
		if !errors.Is(err, flusso.ErrUnknownOutcome) || errors.Is(err, flusso.ErrFenced) {
			t.Fatalf("got %v, want an unknown outcome", err)
		}
		p = w.commits(s)
		w.publish(s, p, 2, 3)
		w.applies(w.attach(s, "audit"), 1, 2, 3)
		w.mark(s, 3)
	})
}

// The newer writer's first commit is done, as far as it can tell, or almost, and
// readers do not see it yet: the one that it overtook waits for that, and does not take
// itself for one whose session was lost and who may open the next.
func TestB12_AFencedWriterWaitsForWhatIsNotDecided(t *testing.T) {
	story(t, []string{"audit", "search"}, nil, func(t *testing.T, w *caseWorld) {
		zombie, newer := w.process("db:slot"), w.process("db:slot")
		old, p := w.commits(zombie), w.commits(newer)
		f := w.cluster.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
		first, err := p.Submit(w.ctx(), toSinks(1, "search"))
		w.do("submit", err)
		<-f.Hit()
		late, err := old.Submit(w.ctx(), toSinks(2, "audit"))
		w.do("submit", err)
		w.sleep(time.Second)
		f.Release()
		_, err = first.Wait(w.ctx())
		w.do("publish", err)
		if _, err := late.Wait(w.ctx()); !errors.Is(err, flusso.ErrFenced) {
			t.Fatalf("got %v, want that it was fenced", err)
		}
	})
}
