package channel

import (
	"fmt"

	flusso "github.com/flusso/flusso-kafka"
)

// lane is the lane of a sink: its log, and the tails that positions are
// checked against. Guarded by pipeline.mu.
type lane struct {
	log[flusso.LaneItem]
	sink    string
	tail    tail // with all that is published
	planned tail // with all that the live writer session has in line, too
}

// put appends an item of a writer of incarnation.
func (l *lane) put(item flusso.LaneItem, incarnation string) {
	l.tail = l.tail.in(incarnation).after(item)
	l.append(item, l.tail)
}

// floorIn returns how far the lane is acked, for a reader of incarnation.
func (l *lane) floorIn(incarnation string) flusso.LaneFloor {
	f := flusso.LaneFloor{Sink: l.sink, Offset: flusso.Offset(l.floor)}
	switch acked := l.reached; {
	case acked.incarnation == "":
		f.State, f.Offset = flusso.FloorNothing, flusso.NoOffset
	case acked.incarnation != incarnation:
		f.State = flusso.FloorOther
		f.Detail = fmt.Sprintf("acked in incarnation %s", acked.incarnation)
	case acked.through == flusso.NoPosition:
		f.State = flusso.FloorNothing
	default:
		f.State, f.Through = flusso.FloorAcked, acked.through
	}
	return f
}

// log is an ordered queue with one active consumer. It holds every item from
// the first that is not acked. Guarded by pipeline.mu.
type log[T any] struct {
	gate
	p       *pipeline
	name    string // for errors
	clone   func(T) T
	slots   []slot[T]
	floor   uint64 // sequence of slots[0]: as many items are acked
	next    int    // index in slots of the item to deliver next
	reached tail   // at the last item below the floor; no incarnation before the first ack
	owner   *consumer[T]
}

type slot[T any] struct {
	item T
	at   tail
	out  *delivery[T] // its delivery, nil while it waits
}

func (l *log[T]) append(item T, at tail) {
	l.slots = append(l.slots, slot[T]{item: item, at: at})
	l.held++
	l.owner.wake()
}

// rewind withdraws every delivery from slot i on, the acked among them too:
// otherwise an older state would be applied over theirs [B5].
func (l *log[T]) rewind(i int) {
	for j := i; j < l.next; j++ {
		if d := l.slots[j].out; d != nil {
			d.state = withdrawn
			l.slots[j].out = nil
		}
	}
	l.next = min(l.next, i)
	l.owner.wake()
}

// advance moves the floor over the acked prefix [B6].
func (l *log[T]) advance() {
	n := 0
	for n < l.next && l.slots[n].out.state == acked {
		l.reached = l.slots[n].at
		n++
	}
	if n == 0 {
		return
	}
	clear(l.slots[:n]) // let go of the items
	l.slots = l.slots[n:]
	l.floor += uint64(n)
	l.next -= n
	l.held -= n
	l.p.pump()
}
