package group

import (
	"crypto/rand"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// produceLarge appends numbers from..to, so large that a fetch holds few of them.
func (w *world) produceLarge(from, to int) {
	w.t.Helper()
	w.produceWith(from, to, func() []byte {
		key := make([]byte, 16<<10)
		_, _ = rand.Read(key)
		return key
	})
}

func TestC5_CommitsAreFewWhileTheSinkIsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const items, budget, each = 200, 256 << 10, 5 * time.Millisecond
		w.produceLarge(0, items-1)
		cfg := w.config(Takeover)
		cfg.Budget = budget
		commits := make(chan flusso.Offset, items)
		cfg.Hooks.Committed = func(floor flusso.Offset, _ time.Duration) { commits <- floor }
		c := w.attachWith(cfg, &numbers{})
		const behind = items - 2*budget/(16<<10) // more is not read before they are delivered
		for i := range behind {
			w.ack(w.receive(c, i))
			kfaketest.Pass(each)
		}
		most := int(behind*each/commitEveryBehind) + 2
		if n := len(commits); n < 2 || n > most {
			t.Errorf("%d commits within %s while more was to be read, want some and at most %d", n, behind*each, most)
		}
		for i := behind; i < items; i++ {
			w.ack(w.receive(c, i))
			kfaketest.Pass(each)
		}
		// The last one waits for no more than a commit that was on its way.
		kfaketest.Pass(2 * commitEvery)
		w.wantCommitted(items)
	})
}

// What is acked when all is read is committed soon, also right behind a commit
// that was made while more was to be read.
func TestC4_CatchingUpIsCommittedSoon(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produceLarge(0, 39)
		cfg := w.config(Takeover)
		cfg.Budget = 256 << 10
		first := make(chan struct{}, 1)
		cfg.Hooks.Committed = func(flusso.Offset, time.Duration) { signal(first) }
		c := w.attachWith(cfg, &numbers{})
		w.ack(w.receive(c, 0))
		<-first
		for i := 1; i < 40; i++ {
			w.ack(w.receive(c, i))
		}
		kfaketest.Pass(2 * commitEvery)
		w.wantCommitted(40)
	})
}
