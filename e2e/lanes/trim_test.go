package lanes_test

import (
	"context"
	"testing"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// A lane is trimmed up to the header of the last acked item, which is kept; lag,
// watermark, translation and attach are right after it.
func TestTrimming_keeps_what_translation_needs(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *kafka.Config) { c.TrimAfter = trimSoon }, "a")
	lane := p.Lane(t, "a")
	s := use(t, p.Stream(t, inc))
	items, positions := tenTo(100) // of two records each
	w := s.writer("a")
	s.publish(w, items...)
	r := s.reader("a")
	r.acks(positions[:6]...)
	acked := offsetAfter(t, lane, 60)
	probe.Eventually(t, "the lane begins with the header of the last acked item", func(ctx context.Context) error { return startsAt(ctx, t, lane, acked-1) })

	st := store(t)
	lag := func() offsets.Lag {
		all, err := st.Lag(t.Context(), []topics.Lane{lane})
		if err != nil {
			t.Fatal(err)
		}
		return all[lane]
	}
	l := lag()
	if !l.Known || l.Gap != nil || l.Batches != 4 || l.Envelopes != 8 || l.Changes != 8 || l.Through != 60 || l.Newest != 100 {
		t.Errorf("the lag after trimming is %+v, want 4 batches of 8 envelopes and 8 changes behind 60", l)
	}
	if at, how, err := st.PositionAt(t.Context(), lane, acked); err != nil || at != 60 {
		t.Errorf("offset %s is position %s (%s, %v), want 60", acked, at, how, err)
	}
	fresh := use(t, p.Stream(t, inc))
	if got := fresh.watermark(); got.Position != 60 {
		t.Errorf("a new reader's watermark is at %s, want 60: %+v", got.Position, got.Floors)
	}
	r.shut()
	r = fresh.reader("a") // in another process, nothing remembered
	r.acks(positions[6:]...)
	fresh.reaches(100)
	end := offsetAfter(t, lane, 100)
	probe.Eventually(t, "the lane holds the last header alone", func(ctx context.Context) error { return startsAt(ctx, t, lane, end-1) })
	if l := lag(); !l.Known || l.Batches != 0 || l.Envelopes != 0 || l.Age != 0 || l.Gap != nil {
		t.Errorf("the lag of a lane that is caught up and trimmed is %+v, want 0", l)
	}

	// A writer goes on from the one header that is left, and the positions of
	// before are still known to be there.
	r.shut()
	s.shut()
	s = use(t, p.Stream(t, inc))
	w = s.writer("a")
	ctx, cancel := s.bounded()
	defer cancel()
	if receipt, err := w.Publish(ctx, live(100)); err != nil || receipt.Dropped != 1 {
		t.Errorf("a replay of position 100: %+v, %v, want it dropped", receipt, err)
	}
	s.publish(w, live(110))
	s.reader("a").acks(110)
	s.reaches(110)
	left := probe.Lane(t, containers.Shared(t).Addr(), lane)
	t.Logf("trimmed to offset %s of %s; the lane has sequences %d to %d left", end-1, end, left[0].Sequence, left[len(left)-1].Sequence)
}
