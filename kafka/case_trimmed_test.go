package kafka_test

import (
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// A tool trims a lane to its end, all of it acked: the next writer has no
// header to count on from, and must not begin anew.
func TestB9_ALaneTrimmedToItsEndGoesOn(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		a := w.process("db:slot")
		w.publish(a, w.commits(a), 1, 2, 3)
		sink := w.process("")
		c := w.attach(sink, "audit")
		w.applies(c, 1, 2, 3)
		w.Trim(t, "audit", w.LaneEnd(t, "audit"))
		w.do("close", a.Close(w.ctx()))

		b := w.process("db:slot")
		p := w.commits(b)
		if r := w.publish(b, p, 3); r != (flusso.Receipt{Dropped: 1}) {
			t.Errorf("publishing what the lane had acked: got %+v, want it dropped", r)
		}
		w.publish(b, p, 4)
		w.applies(c, 4)
		w.mark(b, 4)
		w.do("close", c.Close(w.ctx()))
		w.publish(b, p, 5)
		w.applies(w.attach(sink, "audit"), 5)
		records := w.Records(t, w.Lane(t, "audit").Topic())
		h, _, err := wire.HeaderOf(records[len(records)-1])
		if w.do("header", err); h.Sequence != 5 || h.Epoch != 2 {
			t.Errorf("the fifth item has sequence %d and epoch %d, want 5 and 2", h.Sequence, h.Epoch)
		}
	})
}
