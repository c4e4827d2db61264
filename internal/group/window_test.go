package group

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// fetched counts the bytes of answers to fetches.
type fetched struct {
	mu           sync.Mutex
	sum, largest int
}

func (f *fetched) OnBrokerRead(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, err error) {
	if kmsg.Key(key) != kmsg.Fetch || err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum, f.largest = f.sum+bytes, max(f.largest, bytes)
}

// take returns what came since it was last called.
func (f *fetched) take() (sum, largest int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum, largest = f.sum, f.largest
	f.sum, f.largest = 0, 0
	return sum, largest
}

// A sink that returns an item again and again has the broker send little each
// time, however long it thinks in between; when it goes on so does reading ahead.
func TestB5_ANackReadsLittleAhead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const items, size, budget, nacks = 400, 16 << 10, 4 << 20, 20
		w.produceLarge(0, items-1)
		cfg := w.config(Takeover)
		cfg.Budget = budget
		seen := new(fetched)
		cfg.Opts = append(cfg.Opts, kgo.WithHooks(seen))
		c := w.attachWith(cfg, &numbers{})
		w.ack(w.receive(c, 0))
		kfaketest.Pass(time.Second)
		if sum, _ := seen.take(); sum < budget {
			t.Fatalf("%d bytes were read ahead, want the budget", sum)
		}
		for range nacks {
			d := w.receive(c, 1)
			w.receive(c, 2)
			if err := d.Nack(context.Background()); err != nil {
				t.Fatal(err)
			}
			kfaketest.Pass(time.Second)
		}
		// What may wait, a fetch that goes beyond it and one that the client holds.
		if sum, _ := seen.take(); sum > nacks*2*leastWindow {
			t.Errorf("%d bytes were read for each nack, want at most %d", sum/nacks, 2*leastWindow)
		}
		for i := 1; i < items/2; i++ {
			w.ack(w.receive(c, i))
		}
		kfaketest.Pass(time.Second)
		if sum, largest := seen.take(); sum < budget/2 || largest < budget/8 {
			t.Errorf("%d bytes were read ahead after acks, %d at a time: want as much as before", sum, largest)
		}
		for i := items / 2; i < items; i++ {
			w.ack(w.receive(c, i))
		}
		w.flush(c)
		w.wantCommitted(items)
	})
}

// Items above the window come all the same, one at a time.
func TestB5_ANackBeforeItemsLargerThanTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produceLarge(0, 9)
		cfg := w.config(Takeover)
		cfg.Budget = 1 // as the window then is
		c := w.attachWith(cfg, &numbers{})
		for i := range 9 {
			d := w.receive(c, i)
			next := w.receive(c, i+1)
			if err := next.Nack(context.Background()); err != nil {
				t.Fatal(err)
			}
			w.ack(d)
		}
		w.ack(w.receive(c, 9))
		w.flush(c)
		w.wantCommitted(10)
	})
}
