package streamtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	flusso "github.com/flusso/flusso-kafka"
)

var floorClauses = []clause{
	{"C1_acking_a_positioned_batch_confirms_it_durably", checkC1},
	{"C1_acking_rows_or_a_marker_confirms_nothing", checkC1Nothing},
	{"C2_the_watermark_is_the_minimum_over_all_lanes", checkC2},
	{"C2_there_is_none_while_any_lane_has_none_in_the_incarnation", checkC2None},
	{"C3_every_batch_at_or_below_the_watermark_was_acked_by_every_sink", checkC3},
	{"C4_the_watermark_reaches_the_last_position", checkC4},
}

func checkC1(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	s.writer("a").publish(live(10, "1"), live(20))
	r := s.reader("a")
	r.acks(live(10, "1"))
	r.flush()
	s.crash()
	s = e.open(inc)
	s.reaches(10)
	r = s.reader("a")
	r.acks(live(20))
	r.shut() // makes it durable, too
	s.crash()
	e.open(inc).reaches(20)
}

func checkC1Nothing(e *env) {
	e.pipeline("a")
	s := e.open(inc)
	w, r := s.writer("a"), s.reader("a")
	w.publish(rows("1"), complete("orders"))
	r.acks(rows("1"), complete("orders"))
	r.flush()
	s.stays(flusso.NoPosition)
	w.publish(live(10), rows("1"), complete("orders"), live(20))
	r.acks(live(10))
	r.flush()
	s.reaches(10)
	r.acks(rows("1"), complete("orders"))
	r.flush()
	s.stays(10)
	r.acks(live(20))
	r.flush()
	s.reaches(20)
}

func checkC2(e *env) {
	e.pipeline("a", "b", "c")
	s := e.open(inc)
	c := s.commits()
	readers := map[string]*consumer[flusso.LaneItem]{}
	for _, sink := range s.Sinks() {
		readers[sink] = s.reader(sink)
	}
	for _, at := range []flusso.Position{40, 70, 100} {
		c.publish(toAll(live(at), "a", "b", "c"))
	}
	ack := func(sink string, at ...flusso.Position) {
		e.t.Helper()
		for _, p := range at {
			readers[sink].acks(live(p))
		}
		readers[sink].flush()
	}
	ack("a", 40, 70, 100)
	s.stays(flusso.NoPosition)
	ack("b", 40)
	s.stays(flusso.NoPosition)
	ack("c", 40, 70)
	s.reaches(40)
	s.stays(40)
	ack("b", 70, 100)
	s.reaches(70)
	ack("c", 100)
	s.reaches(100)
	e.open(inc).reaches(100)
}

func checkC2None(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	c := s.commits()
	c.publish(toAll(live(10), "a", "b"))
	a, b := s.reader("a"), s.reader("b")
	a.acks(live(10))
	b.acks(live(10))
	a.flush()
	b.flush()
	s.reaches(10)

	const restored = "pg-7001.restored"
	s2 := e.open(restored)
	s2.stays(flusso.NoPosition)
	c2 := s2.commits()
	c2.publish(toAll(rows("1"), "a", "b"))
	c2.publish(toAll(live(5), "a", "b"))
	s2.stays(flusso.NoPosition)
	a.acks(rows("1"), live(5))
	a.flush()
	s2.stays(flusso.NoPosition)
	b.acks(rows("1"))
	b.flush()
	s2.stays(flusso.NoPosition)
	b.acks(live(5))
	b.flush()
	s2.reaches(5)
}

// model is what C3 is held against: which batch each sink has tried to ack.
type model struct {
	published []*flusso.Batch
	texts     []string // of published

	mu    sync.Mutex
	acked map[string]map[string]bool // sink, text of the batch
}

func (m *model) ack(sink string, item flusso.LaneItem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked[sink][text(item)] = true
}

// unacked names a batch at or below w that a sink never acked.
func (m *model) unacked(w flusso.Position) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, b := range m.published {
		if b.Position > w {
			break
		}
		for sink, acked := range m.acked {
			if !acked[m.texts[i]] {
				return fmt.Sprintf("%s, which sink %s never acked", m.texts[i], sink)
			}
		}
	}
	return ""
}

// Sinks receive, ack out of turn, nack, and are replaced, while readers old
// and new look at the watermark all the time.
func checkC3(e *env) {
	seed := rand.Uint64()
	e.t.Logf("seed %d", seed)
	sinks := []string{"a", "b", "c"}
	e.pipeline(sinks...)
	s := e.open(inc)
	var published []*flusso.Batch
	for i := range 30 {
		at := flusso.Position(10 * (i + 1))
		if i%5 == 3 {
			published = append(published, more(at, "1"))
		}
		published = append(published, live(at, documents(i%3)...))
	}
	m := &model{published: published, acked: map[string]map[string]bool{}}
	for _, b := range published {
		m.texts = append(m.texts, text(b))
	}
	for _, sink := range sinks {
		m.acked[sink] = map[string]bool{}
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), 2*e.h.Wait)
	defer cancel()
	failed := make(chan error, 10)
	var sinksDone, readersDone sync.WaitGroup
	for n, sink := range sinks {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		lane := s.lane(sink)
		sinksDone.Go(func() {
			if err := unsteady(ctx, lane, rng, published, func(item flusso.LaneItem) { m.ack(sink, item) }); err != nil {
				failed <- fmt.Errorf("sink %s: %w", sink, err)
				cancel()
			}
		})
	}
	stop, stopped := context.WithCancel(ctx)
	for _, view := range []*stream{s, e.open(inc)} {
		readersDone.Go(func() {
			last := flusso.NoPosition
			for stop.Err() == nil {
				w, err := view.Watermark(ctx)
				if err != nil {
					failed <- fmt.Errorf("watermark: %w", err)
					return
				}
				if bad := m.unacked(w.Position); bad != "" {
					failed <- fmt.Errorf("the watermark is at %s, above %s", w.Position, bad)
					return
				}
				if w.Position < last {
					failed <- fmt.Errorf("the watermark went back from %s to %s", last, w.Position)
					return
				}
				last = w.Position
				if pause(stop) != nil {
					return
				}
			}
		})
	}
	c := s.commits()
	for _, b := range published {
		c.publish(toAll(b, sinks...))
	}
	sinksDone.Wait()
	stopped()
	readersDone.Wait()
	select {
	case err := <-failed:
		e.t.Fatalf("seed %d: %v", seed, err)
	default:
	}
	s.reaches(300)
}

// unsteady is a sink that has acked everything when it returns, in its own way.
func unsteady(
	ctx context.Context, lane flusso.Lane[flusso.LaneItem], rng *rand.Rand,
	published []*flusso.Batch, acking func(flusso.LaneItem),
) error {
	last := text(published[len(published)-1])
	for {
		r, err := lane.Consumer(ctx)
		if err != nil {
			return err
		}
		var out []flusso.Delivery[flusso.LaneItem]
		for rng.IntN(15) > 0 { // else another one takes the lane over
			d, err := r.Receive(ctx)
			if err != nil {
				return err
			}
			out = append(out, d)
			atEnd := text(d.Item()) == last
			for len(out) > 0 && (atEnd || rng.IntN(3) > 0) {
				i := rng.IntN(len(out))
				if rng.IntN(8) == 0 {
					if err := out[i].Nack(ctx); err != nil {
						return err
					}
					out = out[:i]
					atEnd = false
					continue
				}
				acking(out[i].Item())
				if err := out[i].Ack(ctx); err != nil {
					return err
				}
				out = append(out[:i], out[i+1:]...)
			}
			if atEnd {
				return r.Flush(ctx)
			}
		}
		if rng.IntN(2) == 0 {
			if err := r.Close(ctx); err != nil {
				return err
			}
		}
	}
}

func checkC4(e *env) {
	e.pipeline("a", "b")
	s := e.open(inc)
	c := s.commits()
	for _, item := range []flusso.LaneItem{live(10, "1"), more(20), live(20), rows("1"), complete("orders"), live(30), rows("9")} {
		c.publish(toAll(item, "a", "b"))
	}
	for _, sink := range s.Sinks() {
		r := s.reader(sink)
		for range 7 {
			r.next().ack() // and no Flush: it becomes durable by itself
		}
	}
	s.reaches(30)
	e.open(inc).reaches(30)
	s.drains()
}
