package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/kafka"
)

// watcher compares the slot with the watermark for as long as it runs.
type watcher struct {
	slot   string
	db     *pgx.Conn
	stream *kafka.Stream
	first  flusso.Position // where the slot was created: nothing below it was ever published

	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex // around one sample
	samples int
	behind  flusso.Position // the largest distance seen
	newest  flusso.Position // of the watermark
	err     error
}

// watch begins to compare: the slot is never ahead of the watermark, and the
// watermark never goes back.
func watch(t *testing.T, source, slot, broker, pipeline string, sinks []string, incarnation string) *watcher {
	t.Helper()
	w := &watcher{slot: slot}
	var err error
	if w.db, err = pgx.Connect(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	probe.Eventually(t, "the topics are there", func(ctx context.Context) (err error) {
		w.stream, err = kafka.Open(ctx, kafka.Config{
			Pipeline: pipeline, Sinks: sinks, Incarnation: incarnation, Client: []kgo.Opt{kgo.SeedBrokers(broker)},
		})
		return err
	})
	if w.first, err = w.confirmed(t.Context()); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	w.all.Go(func() { w.run(ctx) })
	t.Cleanup(func() {
		w.stop()
		w.all.Wait()
		closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(w.stream.Close(closing), w.db.Close(closing)); err != nil {
			t.Errorf("close the watcher: %v", err)
		}
	})
	return w
}

func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, _, err := w.sample(ctx)
		if err != nil && ctx.Err() == nil {
			w.mu.Lock()
			w.err = errors.Join(w.err, err)
			w.mu.Unlock()
			return
		}
	}
}

// sample reads the slot first: the watermark may only have grown since.
func (w *watcher) sample(ctx context.Context) (slot, mark flusso.Position, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slot, err = w.confirmed(ctx); err != nil {
		return 0, 0, err
	}
	m, err := w.stream.Watermark(ctx)
	if err != nil {
		return 0, 0, err
	}
	mark = m.Position
	w.samples++
	switch {
	case slot > w.first && slot > mark:
		return slot, mark, fmt.Errorf("the slot is confirmed at %s, the watermark is at %s: %+v", lsn(slot), lsn(mark), m)
	case mark < w.newest:
		return slot, mark, fmt.Errorf("the watermark went back from %s to %s: %+v", lsn(w.newest), lsn(mark), m)
	}
	w.newest = mark
	if slot <= mark {
		w.behind = max(w.behind, mark-slot)
	}
	return slot, mark, nil
}

func (w *watcher) confirmed(ctx context.Context) (flusso.Position, error) {
	var at int64
	err := w.db.QueryRow(ctx, "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = $1", w.slot).Scan(&at)
	return flusso.Position(at), err
}

func (w *watcher) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func lsn(p flusso.Position) string { return fmt.Sprintf("%X/%X", uint64(p)>>32, uint32(p)) }
