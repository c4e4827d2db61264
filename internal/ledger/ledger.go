// Package ledger keeps the books of one consumer: which items were delivered,
// which of them are acked, and up to where without a hole. It does no I/O, has
// no locks and starts no goroutine.
//
// The two types to know are [Ledger], the ordered items from the acked floor
// to the newest one read, and [Handle], one delivery of one item.
package ledger

import flusso "github.com/flusso/flusso-kafka"

// Ledger holds the items of one lane in order: first those that were
// delivered, then those that wait to be. T is the item, M the mark: what its
// owner needs to know of the newest acked item when it commits. Its methods
// must be called under the owner's lock. The zero value is not valid: use
// [New].
type Ledger[T, M any] struct {
	keepAcked bool

	ring []entry[T, M] // length is a power of two; item n is at n & (len-1)
	low  uint64        // first item that the floor has not passed
	next uint64        // first item to deliver
	high uint64        // one past the newest item

	waiting int64 // size of the items to deliver
	acked   int   // items acked above the floor

	floor flusso.Offset
	mark  M
	base  flusso.Offset // the floor at attach
}

type entry[T, M any] struct {
	item   T
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
func New[T, M any](keepAcked bool) *Ledger[T, M] {
	return &Ledger[T, M]{keepAcked: keepAcked, floor: flusso.NoOffset, base: flusso.NoOffset}
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
	l.low, l.next = l.high, l.high
	l.waiting, l.acked = 0, 0
}

// Add appends an item that was read. end is the offset after its last record
// and is above that of the item before; size is what it holds of the
// prefetch budget, in bytes.
func (l *Ledger[T, M]) Add(item T, mark M, end flusso.Offset, size int64) {
	e := l.push()
	e.item, e.mark, e.end, e.size = item, mark, end, size
	l.waiting += size
}

// AddAcked appends an item that was acked before this attach, above the
// floor: it is not delivered, and the floor passes it when its turn comes.
func (l *Ledger[T, M]) AddAcked(item T, mark M, end flusso.Offset) {
	e := l.push()
	e.item, e.mark, e.end, e.acked = item, mark, end, true
	l.acked++
	l.advance()
}

// Next delivers the next item under h, a handle that was not used before. ok
// is false when none waits.
func (l *Ledger[T, M]) Next(h *Handle) (item T, mark M, ok bool) {
	l.skip()
	if l.next == l.high {
		return item, mark, false
	}
	e := l.at(l.next)
	h.n, h.state = l.next, Outstanding
	e.handle = h
	l.next++
	l.waiting -= e.size
	return e.item, e.mark, true
}

// Ack acks a delivery and reports whether the floor moved. Acking again is
// nil; a delivery that ended returns what ended it.
func (l *Ledger[T, M]) Ack(h *Handle) (moved bool, err error) {
	switch h.state {
	case Outstanding:
		e := l.at(h.n)
		h.state, e.acked = Acked, true
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
func (l *Ledger[T, M]) Nack(h *Handle) error {
	switch h.state {
	case Outstanding:
	case Acked:
		return flusso.ErrAcked
	default:
		return h.cause
	}
	for n := h.n; n < l.next; n++ {
		e := l.at(n)
		if e.acked {
			if l.keepAcked {
				continue
			}
			e.acked = false
			l.acked--
		}
		if e.handle != nil {
			e.handle.state, e.handle.cause = Ended, flusso.ErrWithdrawn
			e.handle = nil
		}
		l.waiting += e.size
	}
	l.next = h.n
	return nil
}

// Floor returns the offset after the contiguous prefix of acked items, with
// the mark of its last item: those of the attach while nothing was acked.
func (l *Ledger[T, M]) Floor() (flusso.Offset, M) { return l.floor, l.mark }

// Moved reports whether the floor is above where it was at attach.
func (l *Ledger[T, M]) Moved() bool { return l.floor > l.base }

// Waiting returns how many bytes wait to be delivered.
func (l *Ledger[T, M]) Waiting() int64 { return l.waiting }

// Ready reports whether an item waits to be delivered.
func (l *Ledger[T, M]) Ready() bool {
	l.skip()
	return l.next < l.high
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
	}
	return moved
}
