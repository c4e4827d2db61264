// Package ledger keeps the books of one consumer: which items were delivered,
// which of them are acked, and up to where without a hole. It does no I/O, has
// no locks and starts no goroutine.
//
// The two types to know are [Ledger], the ordered items from the acked floor
// to the newest one read, and [Handle], one delivery of one item.
package ledger

import flusso "github.com/flusso/flusso-kafka"

// Ledger holds the items of one lane in order: first those that were
// delivered, then those that wait to be. It gives an item away when it delivers
// it: one that is withdrawn has to be read again. T is the item, M the mark:
// what its owner needs to know of the newest acked item when it commits, and to
// read on behind it. Its methods must be called under the owner's lock. The
// zero value is not valid: use [New].
type Ledger[T any, M comparable] struct {
	keepAcked bool

	ring []entry[T, M] // length is a power of two; item n is at n & (len-1)
	low  uint64        // first item that the floor has not passed
	next uint64        // first item to deliver
	read uint64        // first item that has to be read again, high when none has
	high uint64        // one past the newest item

	waiting int64 // size of the items to deliver
	out     int64 // size of the items delivered and neither acked nor returned
	acked   int   // items acked above the floor

	floor flusso.Offset
	mark  M
	base  flusso.Offset // the floor at attach
	last  flusso.Offset // end of the newest item of this epoch
}

type entry[T any, M comparable] struct {
	item   T // while it waits
	mark   M
	end    flusso.Offset
	size   int64
	handle *Handle // the newest delivery, nil while waiting
	acked  bool
}

// State says what became of a delivery.
type State uint8

// The states of a [Handle].
const (
	Unused      State = iota
	Outstanding       // delivered, neither acked nor returned
	Acked             // acked; perhaps not yet durable
	Ended             // withdrawn or superseded: its item comes again
)

// Handle is one delivery of one item. Its owner embeds it and passes it to
// [Ledger.Next]; all access is under the owner's lock. The zero value is
// ready for Next and is used once.
type Handle struct {
	n     uint64
	state State
	cause error
}

// State returns what became of the delivery.
func (h *Handle) State() State { return h.state }

// New returns an empty ledger whose floor is unknown. With keepAcked a nack
// leaves later acked items acked; without it they come again too, so that an
// older item is never applied over a newer one [B5].
func New[T any, M comparable](keepAcked bool) *Ledger[T, M] {
	return &Ledger[T, M]{keepAcked: keepAcked, floor: flusso.NoOffset, base: flusso.NoOffset, last: flusso.NoOffset}
}

// Attach starts a new epoch with the floor that is committed: every delivery
// so far ends with cause, everything held is forgotten. The floor moves on
// from here and never below it.
func (l *Ledger[T, M]) Attach(floor flusso.Offset, mark M, cause error) {
	l.End(cause)
	l.floor, l.base, l.mark = floor, floor, mark
}

// End ends every delivery with cause and forgets everything held; the floor
// stays. Deliveries that the floor has passed stay acked.
func (l *Ledger[T, M]) End(cause error) {
	for n := l.low; n < l.high; n++ {
		e := l.at(n)
		if e.handle != nil {
			e.handle.state, e.handle.cause = Ended, cause
		}
		*e = entry[T, M]{}
	}
	l.low, l.next, l.read = l.high, l.high, l.high
	l.waiting, l.out, l.acked = 0, 0, 0
	l.last = flusso.NoOffset
}

// Add takes an item that was read. end is the offset after its last record;
// size is what it holds of the prefetch budget, in bytes. It is a new one, above
// all before it, or, after a nack, the next of those that are read again. It
// returns false for one that is not what was there before.
func (l *Ledger[T, M]) Add(item T, mark M, end flusso.Offset, size int64) bool {
	e, ok := l.filed(mark, end)
	if e != nil && !e.acked {
		e.item, e.size = item, size
		l.waiting += size
	}
	return ok
}

// AddAcked takes an item that was acked before this attach, above the
// floor: it is not delivered, and the floor passes it when its turn comes.
// It returns what Add does.
func (l *Ledger[T, M]) AddAcked(mark M, end flusso.Offset) bool {
	e, ok := l.filed(mark, end)
	if e != nil && !e.acked {
		e.acked = true
		l.acked++
		l.advance()
	}
	return ok
}

// filed returns the entry of an item that was read, nil when nothing is left to
// do for it, and false when it can't be there.
func (l *Ledger[T, M]) filed(mark M, end flusso.Offset) (*entry[T, M], bool) {
	switch {
	case end > l.last && l.read == l.high:
		e := l.push()
		e.mark, e.end = mark, end
		l.read, l.last = l.high, end
		return e, true
	case l.read < l.high && l.at(l.read).end == end:
		e := l.at(l.read)
		if e.mark != mark {
			return nil, false
		}
		l.read++
		return e, true
	}
	return nil, end <= l.floor // acked since it was withdrawn, or before it
}

// Next delivers the next item under h, a handle that was not used before, and
// forgets it. ok is false when none waits.
func (l *Ledger[T, M]) Next(h *Handle) (item T, mark M, ok bool) {
	if !l.Ready() {
		return item, mark, false
	}
	e := l.at(l.next)
	h.n, h.state = l.next, Outstanding
	item, e.item, e.handle = e.item, item, h
	l.next++
	l.waiting -= e.size
	l.out += e.size
	return item, e.mark, true
}

// Ack acks a delivery and reports whether the floor moved. Acking again is
// nil; a delivery that ended returns what ended it.
func (l *Ledger[T, M]) Ack(h *Handle) (moved bool, err error) {
	switch h.state {
	case Outstanding:
		e := l.at(h.n)
		h.state, e.acked = Acked, true
		l.out -= e.size
		l.acked++
		return l.advance(), nil
	case Acked:
		return false, nil
	default:
		return false, h.cause
	}
}

// Nack withdraws a delivery and every later one: they end with
// [flusso.ErrWithdrawn] and come again in order before anything new. It fails
// with [flusso.ErrAcked] when the delivery was acked, and with what ended it
// when it was ended before.
//
// The ledger no longer has what it gave away, and forgets what waits behind it,
// so that its owner can read on in one go: before is the mark of the item behind
// which it must read again.
func (l *Ledger[T, M]) Nack(h *Handle) (before M, err error) {
	switch h.state {
	case Outstanding:
	case Acked:
		return before, flusso.ErrAcked
	default:
		return before, h.cause
	}
	before = l.mark
	if h.n > l.low {
		before = l.at(h.n - 1).mark
	}
	var none T
	for n := h.n; n < l.high; n++ {
		e := l.at(n)
		e.item = none
		switch {
		case n >= l.next, e.acked && l.keepAcked:
			continue
		case e.acked:
			e.acked = false
			l.acked--
		default:
			l.out -= e.size
		}
		if e.handle != nil {
			e.handle.state, e.handle.cause = Ended, flusso.ErrWithdrawn
			e.handle = nil
		}
	}
	l.next, l.read, l.waiting = h.n, h.n, 0
	return before, nil
}

// Floor returns the offset after the contiguous prefix of acked items, with
// the mark of its last item: those of the attach while nothing was acked.
func (l *Ledger[T, M]) Floor() (flusso.Offset, M) { return l.floor, l.mark }

// Moved reports whether the floor is above where it was at attach.
func (l *Ledger[T, M]) Moved() bool { return l.floor > l.base }

// Waiting returns how many bytes wait to be delivered.
func (l *Ledger[T, M]) Waiting() int64 { return l.waiting }

// Size returns how many bytes the items hold that were delivered and are
// neither acked nor returned, and with the next one, when one waits.
func (l *Ledger[T, M]) Size() (out, withNext int64) {
	if !l.Ready() {
		return l.out, l.out
	}
	return l.out, l.out + l.at(l.next).size
}

// Ready reports whether an item waits to be delivered.
func (l *Ledger[T, M]) Ready() bool {
	l.skip()
	return l.next < l.read
}

// Outstanding returns how many items were delivered and are neither acked nor
// returned.
func (l *Ledger[T, M]) Outstanding() int {
	count := 0
	for n := l.low; n < l.next; n++ {
		if !l.at(n).acked {
			count++
		}
	}
	return count
}

// Above appends the marks of the items acked above the floor, in order.
func (l *Ledger[T, M]) Above(dst []M) []M {
	if l.acked == 0 {
		return dst
	}
	for n := l.low; n < l.high; n++ {
		if e := l.at(n); e.acked {
			dst = append(dst, e.mark)
		}
	}
	return dst
}

// Preview tells where the floor would be, and which marks acked above it, if
// the deliveries of handles were acked now. Nothing changes. It fails with
// what ended one of them.
func (l *Ledger[T, M]) Preview(handles []*Handle) (floor flusso.Offset, mark M, above []M, err error) {
	extra := make(map[uint64]bool, len(handles))
	for _, h := range handles {
		switch h.state {
		case Outstanding, Acked:
			extra[h.n] = true
		default:
			return l.floor, l.mark, nil, h.cause
		}
	}
	floor, mark = l.floor, l.mark
	whole := true
	for n := l.low; n < l.high; n++ {
		e := l.at(n)
		switch done := e.acked || extra[n]; {
		case done && whole:
			if e.end > floor {
				floor, mark = e.end, e.mark
			}
		case done:
			above = append(above, e.mark)
		default:
			whole = false
		}
	}
	return floor, mark, above, nil
}

func (l *Ledger[T, M]) at(n uint64) *entry[T, M] { return &l.ring[n&uint64(len(l.ring)-1)] }

func (l *Ledger[T, M]) push() *entry[T, M] {
	if held := l.high - l.low; held == uint64(len(l.ring)) {
		l.grow(held)
	}
	l.high++
	return l.at(l.high - 1)
}

func (l *Ledger[T, M]) grow(held uint64) {
	const smallest = 16
	old := l.ring
	l.ring = make([]entry[T, M], max(smallest, 2*len(old)))
	for n := l.low; n < l.low+held; n++ {
		*l.at(n) = old[n&uint64(len(old)-1)]
	}
}

// skip steps over items that need no delivery: those acked before a nack of
// an earlier one, or before this attach.
func (l *Ledger[T, M]) skip() {
	for l.next < l.high && l.at(l.next).acked {
		l.next++
	}
}

// advance moves the floor over the acked prefix. An item that waits for
// delivery holds it, acked ones apart.
func (l *Ledger[T, M]) advance() (moved bool) {
	for l.low < l.high && l.at(l.low).acked {
		e := l.at(l.low)
		if e.end > l.floor { // never below what was committed at attach
			l.floor, l.mark = e.end, e.mark
			moved = true
		}
		if l.low == l.next { // never to be delivered, so not among the waiting
			l.next++
		}
		*e = entry[T, M]{}
		l.low++
		l.acked--
		l.read = max(l.read, l.low) // what was to be read again need not be
	}
	return moved
}
