package ledger

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	flusso "github.com/flusso/flusso-kafka"
)

var errMoved = errors.New("moved on")

// book is the ledger under test with a deliberately dumb second
// implementation beside it: one slice, everything recomputed.
type book struct {
	l     *Ledger[int, int]
	keep  bool
	items []*line // all of this epoch
	read  int     // index of the next one to read: below len(items) after a nack
	floor flusso.Offset
	mark  int
	end   flusso.Offset
	all   []*delivery // every delivery ever made
}

type line struct {
	id      int
	end     flusso.Offset
	first   bool // acked before the attach
	here    bool // read since it was last withdrawn
	acked   bool
	current *delivery
}

type delivery struct {
	h     Handle
	line  *line
	want  State
	cause error
}

func newBook(keep bool) *book {
	b := &book{l: New[int, int](keep), keep: keep, floor: flusso.NoOffset}
	return b
}

func (b *book) attach(floor flusso.Offset) {
	b.l.Attach(floor, -1, errMoved)
	low := b.prefix()
	for i, it := range b.items {
		if it.current != nil && i >= low {
			it.current.want, it.current.cause = Ended, errMoved
		}
	}
	b.items, b.read, b.floor, b.mark, b.end = nil, 0, floor, -1, floor
}

func (b *book) prefix() int {
	for i, it := range b.items {
		if !it.acked {
			return i
		}
	}
	return len(b.items)
}

// add reads what comes next: again, what was withdrawn or lies behind it, or
// something new.
func (b *book) add(t testing.TB, gap int, acked bool) {
	if b.read == len(b.items) {
		b.end += flusso.Offset(1 + gap)
		b.items = append(b.items, &line{id: len(b.items) + 1, end: b.end, first: acked})
	}
	it := b.items[b.read]
	b.read++
	if it.first {
		it.acked = true
		if !b.l.AddAcked(it.id, it.end) {
			t.Fatalf("item %d, acked before, is refused", it.id)
		}
	} else if !b.l.Add(it.id, it.id, it.end, int64(it.id)) {
		t.Fatalf("item %d is refused", it.id)
	}
	it.here = true
	b.settle()
}

// addOther reads what cannot be there: where something was that comes again, or
// behind it.
func (b *book) addOther(t testing.TB, arg int) {
	if b.read == len(b.items) || b.read < b.prefix() || b.items[b.read].first {
		return
	}
	it := b.items[b.read]
	id, end := it.id+1, it.end
	if arg%2 == 0 {
		id, end = it.id, b.end+1
	}
	if b.l.Add(id, id, end, 1) {
		t.Fatalf("item %d up to offset %d is taken in place of item %d up to %d", id, end, it.id, it.end)
	}
}

// settle recomputes the floor.
func (b *book) settle() {
	if n := b.prefix(); n > 0 {
		b.floor, b.mark = b.items[n-1].end, b.items[n-1].id
	}
}

func (b *book) waiting() (w []*line) {
	for _, it := range b.items {
		if it.here && !it.acked && it.current == nil {
			w = append(w, it)
		}
	}
	return w
}

func (b *book) next(t testing.TB) {
	d := new(delivery)
	w := b.waiting()
	item, mark, ok := b.l.Next(&d.h)
	if ok != (len(w) > 0) {
		t.Fatalf("next: got ok %v, want %v", ok, len(w) > 0)
	}
	if !ok {
		return
	}
	if item != w[0].id || mark != w[0].id {
		t.Fatalf("next: got item %d mark %d, want %d", item, mark, w[0].id)
	}
	d.line, d.want = w[0], Outstanding
	w[0].current = d
	b.all = append(b.all, d)
}

func (b *book) ack(t testing.TB, d *delivery) {
	before := b.floor
	moved, err := b.l.Ack(&d.h)
	switch d.want {
	case Outstanding:
		if err != nil {
			t.Fatalf("ack: %v", err)
		}
		d.want, d.line.acked = Acked, true
		b.settle()
		if moved != (b.floor > before) {
			t.Fatalf("ack: got moved %v, want %v", moved, b.floor > before)
		}
	case Acked:
		if err != nil || moved {
			t.Fatalf("second ack: got %v, %v", moved, err)
		}
	default:
		if !errors.Is(err, d.cause) {
			t.Fatalf("ack of an ended delivery: got %v, want %v", err, d.cause)
		}
	}
}

func (b *book) nack(t testing.TB, d *delivery) {
	before, err := b.l.Nack(&d.h)
	switch d.want {
	case Outstanding:
		if err != nil {
			t.Fatalf("nack: %v", err)
		}
		at := slices.Index(b.items, d.line)
		if want := b.markOf(at - 1); before != want {
			t.Fatalf("nack: read again behind %d, want %d", before, want)
		}
		b.read = at
		for _, it := range b.items[at:] {
			it.here = false
			if it.acked && b.keep {
				continue
			}
			if it.current != nil {
				it.current.want, it.current.cause = Ended, flusso.ErrWithdrawn
			}
			it.acked, it.current = false, nil
		}
	case Acked:
		if !errors.Is(err, flusso.ErrAcked) {
			t.Fatalf("nack of an acked delivery: got %v", err)
		}
	default:
		if !errors.Is(err, d.cause) {
			t.Fatalf("nack of an ended delivery: got %v, want %v", err, d.cause)
		}
	}
}

func (b *book) markOf(i int) int {
	if i < 0 {
		return -1
	}
	return b.items[i].id
}

func (b *book) preview(t testing.TB, ds []*delivery) {
	var hs []*Handle
	plus := map[*line]bool{}
	ended := false
	for _, d := range ds {
		hs = append(hs, &d.h)
		plus[d.line] = true
		ended = ended || d.want == Ended
	}
	floor, mark, above, err := b.l.Preview(hs)
	if ended != (err != nil) {
		t.Fatalf("preview: got %v, want an error: %v", err, ended)
	}
	if err != nil {
		return
	}
	wantFloor, wantMark, whole := b.floor, b.mark, true
	var wantAbove []int
	for _, it := range b.items {
		switch done := it.acked || plus[it]; {
		case done && whole:
			wantFloor, wantMark = it.end, it.id
		case done:
			wantAbove = append(wantAbove, it.id)
		default:
			whole = false
		}
	}
	if floor != wantFloor || mark != wantMark || !slices.Equal(above, wantAbove) {
		t.Fatalf("preview: got %v %d %v, want %v %d %v", floor, mark, above, wantFloor, wantMark, wantAbove)
	}
}

func (b *book) check(t testing.TB) {
	floor, mark := b.l.Floor()
	if floor != b.floor || mark != b.mark {
		t.Fatalf("floor: got %v mark %d, want %v mark %d", floor, mark, b.floor, b.mark)
	}
	var bytes int64
	for _, it := range b.waiting() {
		bytes += int64(it.id)
	}
	if got := b.l.Waiting(); got != bytes {
		t.Fatalf("waiting: got %d bytes, want %d", got, bytes)
	}
	if got := b.l.Ready(); got != (len(b.waiting()) > 0) {
		t.Fatalf("ready: got %v with %d waiting", got, len(b.waiting()))
	}
	var above []int
	var out int64
	outstanding := 0
	for i, it := range b.items {
		if it.acked && i >= b.prefix() {
			above = append(above, it.id)
		}
		if !it.acked && it.current != nil {
			outstanding++
			out += int64(it.id)
		}
	}
	if got := b.l.Above(nil); !slices.Equal(got, above) {
		t.Fatalf("above the floor: got %v, want %v", got, above)
	}
	next := out
	if w := b.waiting(); len(w) > 0 {
		next += int64(w[0].id)
	}
	if got, with := b.l.Size(); got != out || with != next {
		t.Fatalf("size: got %d bytes, %d with the next, want %d and %d", got, with, out, next)
	}
	if got := b.l.Outstanding(); got != outstanding {
		t.Fatalf("outstanding: got %d, want %d", got, outstanding)
	}
	for _, d := range b.all {
		if d.h.State() != d.want {
			t.Fatalf("delivery of %d: got state %d, want %d", d.line.id, d.h.State(), d.want)
		}
	}
}

// step does one operation of a random program.
func (b *book) step(t testing.TB, op, arg int) {
	pick := func() *delivery {
		if len(b.all) == 0 {
			return nil
		}
		return b.all[arg%len(b.all)]
	}
	switch op % 10 {
	case 0, 1:
		b.add(t, arg%3, false)
	case 2:
		if b.keep {
			b.add(t, arg%3, arg%2 == 0)
		} else {
			b.addOther(t, arg)
		}
	case 3, 4:
		b.next(t)
	case 5, 6:
		if d := pick(); d != nil {
			b.ack(t, d)
		}
	case 7:
		if d := pick(); d != nil {
			b.nack(t, d)
		}
	case 8:
		if d := pick(); d != nil {
			b.preview(t, []*delivery{d, b.all[(arg/7)%len(b.all)]})
		}
	case 9:
		if arg%8 == 0 {
			b.attach(b.floor)
		}
	}
	b.check(t)
}

func TestLedgerAgreesWithADumbModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook(rapid.Bool().Draw(t, "keepAcked"))
		b.attach(flusso.Offset(rapid.IntRange(0, 50).Draw(t, "committed")))
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			b.step(tb{t: t}, rapid.IntRange(0, 9).Draw(t, "op"), rapid.IntRange(0, 1000).Draw(t, "arg"))
		}
	})
}

// tb lets the model report through rapid, so that it can shrink.
type tb struct {
	testing.TB
	t *rapid.T
}

func (tb) Helper() {}

func (b tb) Fatalf(format string, args ...any) { b.t.Fatalf(format, args...) }

func FuzzLedger(f *testing.F) {
	f.Add(false, []byte{0, 1, 0, 2, 3, 0, 3, 0, 5, 1, 7, 0, 3, 0, 5, 0})
	f.Add(true, []byte{0, 1, 2, 2, 0, 0, 3, 0, 3, 0, 5, 1, 7, 0, 8, 9, 9, 8})
	f.Fuzz(func(t *testing.T, keep bool, program []byte) {
		b := newBook(keep)
		b.attach(3)
		for i := 0; i+1 < len(program) && i < 400; i += 2 {
			b.step(t, int(program[i]), int(program[i+1]))
		}
	})
}

func deliver(t testing.TB, l *Ledger[string, int], want string) *Handle {
	t.Helper()
	h := new(Handle)
	if item, _, ok := l.Next(h); !ok || item != want {
		t.Fatalf("next: got %q, %v, want %q", item, ok, want)
	}
	return h
}

func three(t testing.TB, keepAcked bool) (l *Ledger[string, int], a, b, c *Handle) {
	t.Helper()
	l = New[string, int](keepAcked)
	l.Attach(10, 0, errMoved)
	l.Add("a", 1, 12, 1)
	l.Add("b", 2, 15, 1)
	l.Add("c", 3, 16, 1)
	a, b, c = deliver(t, l, "a"), deliver(t, l, "b"), deliver(t, l, "c")
	for n := l.low; n < l.high; n++ {
		if l.at(n).item != "" {
			t.Fatalf("item %q was given away and is kept", l.at(n).item)
		}
	}
	return l, a, b, c
}

func wantFloor(t testing.TB, l *Ledger[string, int], offset flusso.Offset, mark int) {
	t.Helper()
	if o, m := l.Floor(); o != offset || m != mark {
		t.Fatalf("floor: got %v (mark %d), want %v (mark %d)", o, m, offset, mark)
	}
}

func TestB6_FloorMovesOverTheContiguousPrefixOnly(t *testing.T) {
	l, a, b, c := three(t, false)
	for _, h := range []*Handle{b, c} {
		if moved, err := l.Ack(h); moved || err != nil {
			t.Fatalf("ack ahead of an unacked item: got %v, %v", moved, err)
		}
	}
	wantFloor(t, l, 10, 0)
	if moved, err := l.Ack(a); !moved || err != nil {
		t.Fatalf("ack of the first: got %v, %v", moved, err)
	}
	wantFloor(t, l, 16, 3)
}

func TestB5_NackWithdrawsThisAndEveryLaterDelivery(t *testing.T) {
	l, a, b, c := three(t, false)
	if _, err := l.Ack(c); err != nil {
		t.Fatal(err)
	}
	if before, err := l.Nack(b); before != 1 || err != nil {
		t.Fatalf("nack: read again behind %d, %v", before, err)
	}
	if _, err := l.Ack(c); !errors.Is(err, flusso.ErrWithdrawn) {
		t.Fatalf("ack of a later delivery: got %v", err)
	}
	if l.Ready() {
		t.Fatal("what was given away is there again")
	}
	if l.Add("d", 4, 20, 1) || l.Add("x", 3, 15, 1) || l.Add("x", 2, 16, 1) {
		t.Fatal("something else is taken for what was withdrawn")
	}
	for _, ok := range []bool{l.Add("b", 2, 15, 1), l.Add("c", 3, 16, 1), l.Add("d", 4, 20, 1)} {
		if !ok {
			t.Fatal("what was read again is refused")
		}
	}
	if _, err := l.Ack(a); err != nil {
		t.Fatal(err)
	}
	// c was applied, but b will be now: c must come after it once more.
	b2, c2, d := deliver(t, l, "b"), deliver(t, l, "c"), deliver(t, l, "d")
	for _, h := range []*Handle{b2, c2, d} {
		if _, err := l.Ack(h); err != nil {
			t.Fatal(err)
		}
	}
	wantFloor(t, l, 20, 4)
	if _, err := l.Ack(b); !errors.Is(err, flusso.ErrWithdrawn) {
		t.Fatalf("late ack of a withdrawn delivery: got %v", err)
	}
}

func TestKeepAckedLeavesLaterAckedItemsAcked(t *testing.T) {
	l, a, b, c := three(t, true)
	if _, err := l.Ack(b); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Nack(a); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Ack(b); err != nil {
		t.Fatalf("ack again: %v", err)
	}
	if _, err := l.Ack(c); !errors.Is(err, flusso.ErrWithdrawn) {
		t.Fatalf("ack of a withdrawn one: got %v", err)
	}
	l.Add("a", 1, 12, 1)
	if _, err := l.Ack(deliver(t, l, "a")); err != nil {
		t.Fatal(err)
	}
	wantFloor(t, l, 15, 2)                                           // also over b, which is not read yet
	if !l.Add("b", 2, 15, 1) || l.Ready() || !l.Add("c", 3, 16, 1) { // and now is
		t.Fatal("what was acked since is delivered again, or refused")
	}
	_ = deliver(t, l, "c")
}

func TestCase04_AckOfAnEarlierEpochMovesNothing(t *testing.T) {
	l, a, b, _ := three(t, false)
	if _, err := l.Ack(b); err != nil {
		t.Fatal(err)
	}
	l.Attach(15, 7, errMoved) // another owner acked b in between
	for _, h := range []*Handle{a, b} {
		if moved, err := l.Ack(h); moved || !errors.Is(err, errMoved) {
			t.Fatalf("late ack: got %v, %v", moved, err)
		}
		if _, err := l.Nack(h); !errors.Is(err, errMoved) {
			t.Fatalf("late nack: got %v", err)
		}
	}
	wantFloor(t, l, 15, 7)
}

func TestFloorNeverFallsBelowTheCommitAtAttach(t *testing.T) {
	l := New[string, int](false)
	l.Attach(14, 9, errMoved)
	l.Add("a", 1, 12, 1) // as when an item before the committed offset is read again
	if moved, err := l.Ack(deliver(t, l, "a")); moved || err != nil {
		t.Fatalf("ack below the floor: got %v, %v", moved, err)
	}
	wantFloor(t, l, 14, 9)
}

func TestAllocations(t *testing.T) {
	l := New[string, int](false)
	l.Attach(0, 0, errMoved)
	var handles [64]Handle
	end := flusso.Offset(0)
	round := func() {
		for i := range handles {
			end++
			l.Add("x", i, end, 1)
			handles[i] = Handle{}
			l.Next(&handles[i])
		}
		for i := range handles {
			_, _ = l.Ack(&handles[len(handles)-1-i])
		}
	}
	round()
	if got := testing.AllocsPerRun(100, round); got != 0 {
		t.Fatalf("64 items: got %v allocations, want 0", got)
	}
}

func BenchmarkAddNextAck(b *testing.B) {
	for _, window := range []int{1, 16, 1024} {
		b.Run(sizeName(window), func(b *testing.B) {
			l := New[int, int](false)
			l.Attach(0, 0, errMoved)
			handles := make([]Handle, window)
			end := flusso.Offset(0)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				h := &handles[i%window]
				if h.State() == Outstanding {
					_, _ = l.Ack(h)
				}
				*h = Handle{}
				end++
				l.Add(i, i, end, 1)
				l.Next(h)
				i++
			}
		})
	}
}

func sizeName(n int) string {
	switch n {
	case 1:
		return "window=1"
	case 16:
		return "window=16"
	}
	return "window=1024"
}
