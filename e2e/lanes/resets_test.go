package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

const trimSoon = 300 * time.Millisecond

func tenTo(last flusso.Position) (items []flusso.LaneItem, positions []flusso.Position) {
	for at := flusso.Position(10); at <= last; at += 10 {
		items = append(items, live(at, "1", "2"))
		positions = append(positions, at)
	}
	return items, positions
}

// offsetAfter returns the offset after the item of a position, which is what a
// group commits that has acked it.
func offsetAfter(t *testing.T, l topics.Lane, at flusso.Position) flusso.Offset {
	t.Helper()
	for _, it := range probe.Lane(t, containers.Shared(t).Addr(), l) {
		if it.Position == at {
			return it.Offset + 1
		}
	}
	t.Fatalf("position %s is not in topic %s", at, l.Topic())
	return flusso.NoOffset
}

// A group that Kafka's own tool moved back delivers again from there; the
// watermark stays below what was acked [C6].
func TestC6_a_reset_backward_by_kafkas_tool(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *kafka.Config) { c.TrimAfter = -1 }, "a")
	lane := p.Lane(t, "a")
	s := use(t, p.Stream(t, inc))
	items, positions := tenTo(100)
	s.publish(s.writer("a"), items...)
	r := s.reader("a")
	r.acks(positions[:6]...)
	s.reaches(60)
	r.shut()
	awaitMirror(t, p.Name(), lane)
	reset(t, lane, offsetAfter(t, lane, 20))

	// This reader has told 60 and does not go back; a new one tells what can
	// be proved of the moved group, and never more than was acked.
	if w := s.watermark(); w.Position != 60 {
		t.Errorf("the watermark went from 60 to %s", w.Position)
	}
	fresh := use(t, p.Stream(t, inc))
	w := fresh.watermark()
	if w.Position != 20 || w.Floors[0].State != flusso.FloorAcked {
		t.Errorf("a new reader's watermark is at %s, want 20: %+v", w.Position, w.Floors)
	}
	fresh.reader("a").acks(positions[2:]...)
	fresh.reaches(100)
	t.Logf("moved back from 60 to 20: %s; 30 to 100 came again", w.Floors[0].Detail)
}

// A group that was moved forward is unverified: the consumer stops, the
// watermark stays, nothing is trimmed, until somebody moves it back [C6].
func TestC6_a_reset_forward_by_kafkas_tool(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *kafka.Config) { c.TrimAfter = trimSoon }, "a")
	lane := p.Lane(t, "a")
	s := use(t, p.Stream(t, inc))
	items, positions := tenTo(100)
	s.publish(s.writer("a"), items...)
	r := s.reader("a")
	r.acks(positions[:3]...)
	s.reaches(30)
	r.shut()
	awaitMirror(t, p.Name(), lane)
	acked := offsetAfter(t, lane, 30)
	probe.Eventually(t, "the lane is trimmed up to what was acked", func(ctx context.Context) error { return startsAt(ctx, t, lane, acked-1) })
	skipped := offsetAfter(t, lane, 80)
	reset(t, lane, skipped)

	err := s.attachFails("a")
	var unverified *flusso.UnverifiedError
	if !errors.As(err, &unverified) {
		t.Fatalf("attach to a group that was moved forward: %v, want an UnverifiedError", err)
	}
	if unverified.Committed != skipped || unverified.Acked != acked || unverified.Through != 30 {
		t.Errorf("the error says %+v, want committed %s, acked %s, through 30", unverified, skipped, acked)
	}
	for _, reader := range []*stream{s, use(t, p.Stream(t, inc))} {
		w := reader.watermark()
		if w.Position > 30 || w.Floors[0].State != flusso.FloorUnverified {
			t.Errorf("the watermark is at %s, want at most 30 and unverified: %+v", w.Position, w.Floors)
		}
	}
	// Several rounds of maintenance later it still begins where it did.
	s.publish(s.writer("a"), live(110))
	pause(t, 5*trimSoon)
	if err := startsAt(t.Context(), t, lane, acked-1); err != nil {
		t.Errorf("trimmed to what nobody acked: %v", err)
	}
	t.Logf("%v", unverified)

	reset(t, lane, acked) // the way out that the error names
	s.reader("a").acks(positions[3:]...)
	s.reaches(100)
}

// A group that is gone resumes where the mirror says, not at the log start;
// its watermark is none meanwhile, as the group's absence proves nothing [C6, C7].
func TestC7_a_group_deleted_by_kafkas_tool(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *kafka.Config) { c.TrimAfter = -1 }, "a")
	lane := p.Lane(t, "a")
	s := use(t, p.Stream(t, inc))
	items, positions := tenTo(50)
	s.publish(s.writer("a"), items...)
	r := s.reader("a")
	r.acks(positions[:3]...)
	s.reaches(30)
	r.shut()
	awaitMirror(t, p.Name(), lane)
	tool(t, "kafka-consumer-groups", "--delete", "--group", lane.Group())

	if w := s.watermark(); w.Position != 30 {
		t.Errorf("the watermark went from 30 to %s", w.Position)
	}
	w := use(t, p.Stream(t, inc)).watermark()
	if w.Position != flusso.NoPosition || w.Floors[0].State != flusso.FloorMissing {
		t.Errorf("a new reader's watermark is at %s, want none: %+v", w.Position, w.Floors)
	}
	s.reader("a").acks(positions[3:]...)
	s.reaches(50)
	t.Logf("while it was gone: %s", w.Floors[0].Detail)
}

// A lane that was deleted and created again is a gap for its consumer, and
// what it had acked counts no longer [B8, C3].
func TestB8_a_recreated_topic_is_a_gap_by_name(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *kafka.Config) { c.TrimAfter = -1 }, "a", "b")
	s := use(t, p.Stream(t, inc))
	items, positions := tenTo(50)
	s.publish(s.writer("a"), items...)
	s.publish(s.writer("b"), items...)
	a, b := s.reader("a"), s.reader("b")
	a.acks(positions[:2]...)
	b.acks(positions...)
	s.reaches(20)
	a.next(30)
	p.RecreateLane(t, "a")

	var gap *flusso.GapError
	for at := flusso.Position(40); ; at += 10 { // what was read ahead may still come, in order
		ctx, cancel := s.bounded()
		d, err := a.Receive(ctx)
		cancel()
		if errors.As(err, &gap) {
			break
		}
		if err != nil {
			t.Fatalf("receive from a topic that was recreated: %v, want a GapError", err)
		}
		if got := d.Item().(*flusso.Batch).Position; got != at || at > 50 {
			t.Fatalf("received position %s, want %s or the gap", got, at)
		}
	}
	if gap.Topic != p.Lane(t, "a").Topic() || gap.Acked != 20 {
		t.Errorf("the gap names %+v", gap)
	}
	fresh := use(t, p.Stream(t, inc))
	for _, reader := range []*stream{s, fresh} {
		if w := reader.watermark(); w.Position > 20 || w.Floors[0].State == flusso.FloorAcked {
			t.Errorf("the watermark is at %s with lane a recreated, want at most 20: %+v", w.Position, w.Floors)
		}
	}
	t.Logf("%v; the floor: %+v", gap, fresh.watermark().Floors[0])
}

// awaitMirror waits until the ingest group holds what the sink's group does.
func awaitMirror(t *testing.T, p topics.Pipeline, l topics.Lane) {
	t.Helper()
	st := store(t)
	probe.Eventually(t, "the mirror has what was acked", func(ctx context.Context) error {
		mirror, err := st.Mirror(ctx, p, []topics.Lane{l})
		if err != nil {
			return err
		}
		if c, m := committed(t, st, l), mirror[l]; m.State != offsets.Present || m.Offset < c.Offset {
			return fmt.Errorf("the mirror is at %s, the group at %s", m.Offset, c.Offset)
		}
		return nil
	})
}

// startsAt tells whether a lane's log starts at an offset.
func startsAt(ctx context.Context, t *testing.T, l topics.Lane, want flusso.Offset) error {
	t.Helper()
	ends, err := store(t).Ends(ctx, []topics.Lane{l})
	if err != nil {
		return err
	}
	if got := ends[l].Start; got != want {
		return fmt.Errorf("topic %s starts at offset %s, not at %s", l.Topic(), got, want)
	}
	return nil
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(context.Cause(t.Context()))
	}
}
