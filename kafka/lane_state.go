package kafka

import (
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
)

// admission decides which live batches a lane takes in one writer session. It
// is a value: a commit is tried on copies and kept only once it is submitted.
type admission struct {
	newest flusso.Position // newest live position of the lane in this incarnation
	more   bool            // that position announced more
}

// holds reports whether a lane that was found like this has the whole of a
// position: publishing it again is a replay and is dropped [B9].
func (a admission) holds(at flusso.Position) bool {
	return at < a.newest || at == a.newest && !a.more
}

// next takes a live batch in, or says why it may not come next [B10].
func (a admission) next(sink string, b *flusso.Batch) (admission, error) {
	if b.Position > a.newest && !a.more || b.Position == a.newest && a.more {
		return admission{newest: b.Position, more: b.More}, nil
	}
	return a, &flusso.PositionError{Sink: sink, Last: a.newest, LastMore: a.more, Got: b.Position}
}

// laneTail is what the header of a lane's next item is counted from. The
// session's segment goroutine owns it: headers are counted when a segment is
// formed, so that an item which is refused before leaves no hole.
type laneTail struct {
	sequence uint64
	totals   wire.Totals
	through  flusso.Position
	newest   flusso.Position
}

// tailOf continues from the newest item found in a lane. Through and newest
// start again at "none" when the incarnation changed; the counts go on.
func tailOf(t offsets.Tail, incarnation string) (laneTail, admission) {
	if !t.Found {
		return laneTail{}, admission{}
	}
	tail := laneTail{sequence: t.Header.Sequence, totals: t.Header.Totals}
	if t.Header.Incarnation != incarnation {
		return tail, admission{}
	}
	tail.through, tail.newest = t.Header.Through, t.Header.Newest
	return tail, admission{newest: tail.newest, more: tail.newest != tail.through}
}

// recall makes up the tail of a lane that was trimmed to its end from what was
// acked of it. Totals start again; whether a transaction was unfinished is not
// known, and then it is published again whole. Where items that nobody acked
// are gone too, a sequence is left out, so that nobody takes the lane for whole.
func recall(t offsets.Tail, known ...offsets.Commit) offsets.Tail {
	for _, c := range known {
		if !c.Own() || c.Meta.TopicID != t.TopicID || c.Meta.Sequence < t.Header.Sequence || c.Meta.Sequence == 0 {
			continue
		}
		m := c.Meta
		t.Found, t.At = true, c.Offset-1
		t.Header = wire.Header{Sequence: m.Sequence, Epoch: m.Epoch, Incarnation: m.Incarnation, Through: m.Through, Newest: m.Through}
	}
	if t.Found && t.At+1 < t.Start {
		t.Header.Sequence++
	}
	return t
}

// next counts an item in and returns its header.
func (t *laneTail) next(item flusso.LaneItem, bytes uint64, incarnation string, epoch uint64, now time.Time) wire.Header {
	t.sequence++
	t.totals.Batches++
	t.totals.Bytes += bytes
	if b, ok := item.(*flusso.Batch); ok {
		t.totals.Envelopes += uint64(len(b.Envelopes))
		t.totals.Changes += b.Changes
		if b.Live() {
			t.newest = b.Position
			if !b.More {
				t.through = b.Position
			}
		}
	}
	return wire.Header{
		Sequence: t.sequence, Totals: t.totals, Through: t.through, Newest: t.newest,
		Incarnation: incarnation, Epoch: epoch, BuiltAt: now,
	}
}
