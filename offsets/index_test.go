package offsets_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// ladder is a synthetic log of n items with holes between them.
func ladder(n int, rnd *rand.Rand) truth {
	tr := truth{}
	at := flusso.Offset(0)
	for i := range n {
		at += flusso.Offset(rnd.IntN(5))
		tr.items = append(tr.items, offsets.Found{At: at, Header: wire.Header{Sequence: uint64(i + 1), Incarnation: inc}})
		at += 1 + flusso.Offset(rnd.IntN(2))
	}
	tr.high = at
	tr.stable = at
	return tr
}

// TestIndexIsExactOrSilent: an index fed in any order answers as a read would,
// or not at all, and stays small.
func TestIndexIsExactOrSilent(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if *seedFlag != 0 {
		seed = *seedFlag
	}
	t.Logf("replay with -args -offsets.seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	for range 30 {
		tr := ladder(1+rnd.IntN(400), rnd)
		x := offsets.NewIndex()
		for range 600 {
			switch rnd.IntN(10) {
			case 0:
				x.Mark(flusso.Offset(rnd.Int64N(int64(tr.high) + 1)))
			case 1:
				if rnd.IntN(20) == 0 {
					tr.start = max(tr.start, flusso.Offset(rnd.Int64N(int64(tr.high)+1)))
					x.Trim(tr.start)
				}
			default:
				f := tr.items[rnd.IntN(len(tr.items))]
				if f.At >= tr.start {
					x.Add(idNow, 0, f)
				}
			}
			off := flusso.Offset(rnd.Int64N(int64(tr.high) + 2))
			if got, ok := x.Below(off); ok {
				checkFound(t, fmt.Sprintf("below %s", off), got, nil, retained(tr).below(off))
			}
			if got, ok := x.From(off); ok {
				checkFound(t, fmt.Sprintf("from %s", off), got, nil, retained(tr).from(off))
			}
		}
		if x.Len() > 100 {
			t.Fatalf("%d headers of %d", x.Len(), len(tr.items))
		}
	}
}

// retained is the log without the items below its start.
func retained(tr truth) truth {
	out := tr
	out.items = nil
	for _, f := range tr.items {
		if f.At >= tr.start {
			out.items = append(out.items, f)
		}
	}
	return out
}

// TestIndexKeepsWhatIsAskedFor: every header near the tail and near the
// committed offset, ever fewer farther back.
func TestIndexKeepsWhatIsAskedFor(t *testing.T) {
	const n, committed = 100_000, 60_000
	x := offsets.NewIndex()
	at := func(i int) flusso.Offset { return flusso.Offset(2 * i) }
	x.Mark(at(committed))
	for i := range n {
		x.Add(idNow, 0, offsets.Found{At: at(i), Header: wire.Header{Sequence: uint64(i + 1), Incarnation: inc}})
	}
	if x.Len() > 100 {
		t.Fatalf("%d headers", x.Len())
	}
	exact := func(i int) bool {
		f, ok := x.Below(at(i) + 2)
		return ok && f.At == at(i)
	}
	for d := range 15 {
		if !exact(n - 2 - d) {
			t.Errorf("%d before the tail is not known", d)
		}
		if !exact(committed-1-d) || !exact(committed+d) {
			t.Errorf("%d from the committed offset is not known", d)
		}
	}
	known := 0
	for i := range n / 2 {
		if exact(i) {
			known++
		}
	}
	if known > 10 {
		t.Errorf("%d headers of the older half are kept", known)
	}
}

func TestCase21_IndexForgetsWhatChanged(t *testing.T) {
	item := func(at flusso.Offset, seq uint64, incarnation string) offsets.Found {
		return offsets.Found{At: at, Header: wire.Header{Sequence: seq, Incarnation: incarnation}}
	}
	fill := func() *offsets.Index {
		x := offsets.NewIndex()
		x.Add(idNow, 3, item(10, 1, "a"))
		x.Add(idNow, 3, item(20, 2, "a"))
		return x
	}
	for _, c := range []struct {
		name string
		do   func(*offsets.Index)
		want int
	}{
		{"nothing", func(*offsets.Index) {}, 2},
		{"same topic", func(x *offsets.Index) { x.Reset(idNow, 3) }, 2},
		{"another topic", func(x *offsets.Index) { x.Reset(idOld, 3) }, 0},
		{"another leader epoch", func(x *offsets.Index) { x.Reset(idNow, 4) }, 0},
		{"another incarnation behind", func(x *offsets.Index) { x.Add(idNow, 3, item(30, 3, "b")) }, 1},
		{"another incarnation before", func(x *offsets.Index) { x.Add(idNow, 3, item(5, 1, "0")) }, 2},
		{"trimmed", func(x *offsets.Index) { x.Trim(20) }, 1},
		{"trimmed twice, backwards", func(x *offsets.Index) { x.Trim(21); x.Trim(3) }, 0},
	} {
		x := fill()
		c.do(x)
		if got := x.Len(); got != c.want {
			t.Errorf("%s: %d headers, want %d", c.name, got, c.want)
		}
	}
	x := fill()
	x.Trim(11)
	if f, ok := x.Below(11); ok {
		t.Errorf("below the log start: got %+v", f)
	}
}

// TestCase21_Monotone: while the lane grows, no store, new or old, answers a
// translation older than one given before.
func TestCase21_Monotone(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	old := offsets.New(s.c.Client(t))
	given := make(map[flusso.Offset]offsets.Found)
	for i := range 12 {
		s.segment(i%3 > 0, live(flusso.Position(i+1), 2))
		tr := s.read()
		for _, st := range []*offsets.Store{old, offsets.New(s.c.Client(t))} {
			for off := flusso.Offset(1); off <= tr.high; off += 3 {
				f, err := st.Below(within(t), s.lane, off)
				if err != nil {
					if before, ok := given[off]; ok {
						t.Fatalf("offset %s was %+v, now %v", off, before, err)
					}
					continue
				}
				if before, ok := given[off]; ok && cmp.Diff(before, f) != "" && off <= tr.stable && f.At <= before.At {
					t.Fatalf("offset %s was %+v, is %+v", off, before, f)
				}
				given[off] = f
			}
		}
	}
}

// TestCase19_TranslationByHeaders: markers and aborted records own offsets,
// and arithmetic on offsets would be wrong by hundreds.
func TestCase19_TranslationByHeaders(t *testing.T) {
	s := newScribe(t, newCluster(t), "audit")
	s.segment(true, live(7, 1))
	for range 40 {
		s.segment(false, live(8, 25))
	}
	s.segment(true, live(9, 300))
	st := offsets.New(s.c.Client(t))
	tr := s.read()
	requests := count(s.c)
	for off := tr.items[0].Next(); off <= tr.items[1].At; off += 97 {
		pos, _, err := st.PositionAt(within(t), s.lane, off)
		if err != nil || pos != 7 {
			t.Fatalf("offset %s: got %s, %v, want 7", off, pos, err)
		}
	}
	t.Logf("requests for %d translations: %v", (tr.items[1].At-tr.items[0].Next())/97+1, requests.take())
	if pos, _, err := st.PositionAt(within(t), s.lane, tr.high); err != nil || pos != 9 {
		t.Errorf("end: got %s, %v", pos, err)
	}
	tails := must(offsets.New(s.c.Client(t)).Tails(within(t), []topics.Lane{s.lane}))(t)
	if tails[s.lane].Header.Position != 9 {
		t.Errorf("tail: got %+v", tails[s.lane])
	}
}
