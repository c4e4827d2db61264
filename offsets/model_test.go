package offsets_test

import (
	"errors"
	"flag"
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

var (
	seedFlag  = flag.Uint64("offsets.seed", 0, "replay the model test with this seed alone")
	seedsFlag = flag.Uint64("offsets.seeds", 8, "number of seeds of the model test")
)

// TestModel compares every query with a plain read of the whole lane, on
// random logs: transactions committed and aborted, alone and with their markers
// behind the data of others, items of every kind, several incarnations, trims to random
// offsets, an open transaction at the end.
func TestModel(t *testing.T) {
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		base := uint64(time.Now().UnixNano())
		seeds = seeds[:0]
		for i := range *seedsFlag {
			seeds = append(seeds, base+i)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("replay with -args -offsets.seed=%d", seed)
			testModel(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func testModel(t *testing.T, rnd *rand.Rand) {
	c := newCluster(t)
	s := newScribe(t, c, "audit")
	lanes := []topics.Lane{s.lane}
	old := offsets.New(c.Client(t)) // sees the log grow
	for range 1 + rnd.IntN(3) {
		s.write(rnd, 1+rnd.IntN(15))
		checkAll(t, rnd, s, old, s.read())
	}
	tr := s.read()
	if tr.high > 1 && rnd.IntN(2) == 0 {
		s.trim(tr.start + flusso.Offset(rnd.Int64N(int64(tr.stable-tr.start))))
		must(old.Ends(within(t), lanes))(t) // learns of the trim
	}
	var end func(bool)
	if rnd.IntN(2) == 0 {
		end = s.begin(live(s.last.Newest+1, 2))
	}
	tr = s.read()
	checkAll(t, rnd, s, old, tr)
	checkAll(t, rnd, s, offsets.New(c.Client(t)), tr)
	if end != nil {
		end(rnd.IntN(2) == 0)
		checkAll(t, rnd, s, old, s.read())
	}
}

// write adds n random segments.
func (s *scribe) write(rnd *rand.Rand, n int) {
	pos := s.last.Newest
	opened := false // a more batch was left open
	var pending, late func(bool)
	for range n {
		if rnd.IntN(12) == 0 {
			s.incarnation, pos, opened = fmt.Sprintf("db%d:slot", rnd.IntN(1_000_000)), 0, false
		}
		was, wasOpened := pos, opened
		var items []flusso.LaneItem
		for range 1 + rnd.IntN(4) {
			switch rnd.IntN(8) {
			case 0:
				items = append(items, snapshot(1+rnd.IntN(30)))
			case 1:
				items = append(items, marker())
			case 2:
				if !opened {
					pos += flusso.Position(1 + rnd.IntN(3))
				}
				items, opened = append(items, more(pos, rnd.IntN(40))), true
			default:
				if !opened {
					pos += flusso.Position(1 + rnd.IntN(3))
				}
				items, opened = append(items, live(pos, rnd.IntN(6)*rnd.IntN(6))), false
			}
		}
		commit := rnd.IntN(4) > 0
		end := s.begin(items...)
		if pending != nil {
			pending(true)
			pending = nil
		}
		if commit && late == nil && rnd.IntN(3) == 0 {
			// The next segment's records come before this one's marker.
			pending = end
			s.peek(items)
			continue
		}
		if !commit {
			pos, opened = was, wasOpened
			if late == nil && rnd.IntN(2) == 0 {
				late = end // its marker comes behind the next segment, as brokers do
				continue
			}
		}
		end(commit)
		if late != nil {
			late(false)
			late = nil
		}
	}
	if late != nil {
		late(false)
	}
	if pending != nil {
		pending(true)
	}
}

// peek counts items as written before their commit.
func (s *scribe) peek(items []flusso.LaneItem) {
	for _, item := range items {
		s.last = s.next(s.last, item)
	}
}

func same(got offsets.Found, want *offsets.Found) string { return cmp.Diff(want, &got) }

// checkAll compares every query with the truth.
func checkAll(t *testing.T, rnd *rand.Rand, s *scribe, st *offsets.Store, tr truth) {
	t.Helper()
	ctx := within(t)
	lanes := []topics.Lane{s.lane}

	ends := must(st.Ends(ctx, lanes))(t)[s.lane]
	if ends.Start != tr.start || ends.Stable != tr.stable || ends.High != tr.high {
		t.Fatalf("ends: got %+v, want %s %s %s", ends, tr.start, tr.stable, tr.high)
	}
	tail := must(st.Tails(ctx, lanes))(t)[s.lane]
	switch newest := tr.below(tr.stable); {
	case tail.Err != nil:
		t.Fatal(tail.Err)
	case tail.Found != (newest != nil):
		t.Fatalf("tail: got %+v, want %+v", tail, newest)
	case tail.Found:
		if d := cmp.Diff(newest.Header, tail.Header); tail.At != newest.At || d != "" {
			t.Fatalf("tail at %s, want %s: %s", tail.At, newest.At, d)
		}
	}
	offs := rnd.Perm(int(tr.high-tr.start) + 5)
	for _, i := range offs[:min(len(offs), 60)] {
		off := max(0, tr.start-2) + flusso.Offset(i)
		got, err := st.Below(ctx, s.lane, off)
		checkFound(t, fmt.Sprintf("below %s (start %s stable %s high %s)", off, tr.start, tr.stable, tr.high), got, err, tr.below(off))
		got, err = st.From(ctx, s.lane, off)
		checkFound(t, fmt.Sprintf("from %s (start %s stable %s high %s)", off, tr.start, tr.stable, tr.high), got, err, tr.from(off))
		pos, how, err := st.PositionAt(ctx, s.lane, off)
		if want := tr.below(off); want != nil && (err != nil || pos != want.Header.Through) {
			t.Fatalf("position at %s: got %s by %s, %v, want %s", off, pos, how, err, want.Header.Through)
		}
	}
	if x := st.Index(s.lane); x.Len() > 100 {
		t.Fatalf("index holds %d headers", x.Len())
	}
	checkOffsetOf(t, s, st, tr)
	checkLag(t, rnd, s, st, tr)
}

func checkFound(t *testing.T, what string, got offsets.Found, err error, want *offsets.Found) {
	t.Helper()
	switch {
	case want == nil && !errors.Is(err, offsets.ErrUnknown):
		t.Fatalf("%s: got %+v, %v, want unknown", what, got, err)
	case want == nil:
	case err != nil:
		t.Fatalf("%s: got %v, want %+v", what, err, *want)
	default:
		if d := same(got, want); d != "" {
			t.Fatalf("%s: %s", what, d)
		}
	}
}

func checkOffsetOf(t *testing.T, s *scribe, st *offsets.Store, tr truth) {
	t.Helper()
	for pos := flusso.NoPosition; pos <= s.last.Newest+1; pos++ {
		got, err := st.OffsetOf(within(t), s.lane, pos)
		if len(tr.items) == 0 {
			if !errors.Is(err, offsets.ErrUnknown) {
				t.Fatalf("offset of %s in an empty lane: got %s, %v", pos, got, err)
			}
			continue
		}
		// Linear: the items before the first one of the tail's incarnation
		// that is beyond pos.
		inc := tr.items[len(tr.items)-1].Header.Incarnation
		n := 0
		for n < len(tr.items) && (tr.items[n].Header.Incarnation != inc || tr.items[n].Header.Through <= pos) {
			n++
		}
		switch {
		case n > 0:
			if err != nil || got != tr.items[n-1].At+1 {
				t.Fatalf("offset of %s: got %s, %v, want %s", pos, got, err, tr.items[n-1].At+1)
			}
		case tr.items[0].Header.Sequence == 1:
			if err != nil || got != tr.start {
				t.Fatalf("offset of %s: got %s, %v, want the log start %s", pos, got, err, tr.start)
			}
		case !errors.Is(err, offsets.ErrUnknown):
			t.Fatalf("offset of %s: got %s, %v, want unknown", pos, got, err)
		}
	}
}

// checkLag commits a random offset, ours or another tool's, and counts what
// is behind it one by one.
func checkLag(t *testing.T, rnd *rand.Rand, s *scribe, st *offsets.Store, tr truth) {
	t.Helper()
	off := max(0, tr.start-1) + flusso.Offset(rnd.Int64N(int64(tr.stable-tr.start)+2))
	off = min(off, tr.stable)
	meta := "somebody"
	if rnd.IntN(2) == 0 {
		m := wire.Metadata{Offset: off, TopicID: must(st.Ends(within(t), []topics.Lane{s.lane}))(t)[s.lane].TopicID}
		if f := tr.below(off); f != nil {
			h := f.Header
			m.Through, m.Sequence, m.Epoch, m.Incarnation = h.Through, h.Sequence, h.Epoch, h.Incarnation
		}
		meta = wire.FormatMetadata(m)
	}
	commit(t, s.c, s.lane.Group(), s.lane, off, meta)
	before := time.Now()
	got := must(st.Lag(within(t), []topics.Lane{s.lane}))(t)[s.lane]
	if got.Err != nil || !got.Known {
		t.Fatalf("lag at %s: %+v", off, got)
	}
	var want wire.Totals
	var first *wire.Header
	for _, f := range tr.items {
		if f.At >= off {
			if first == nil {
				first = &f.Header
			}
			want.Batches++
			want.Envelopes += uint64(f.Header.Envelopes)
			want.Changes += f.Header.Changes
		}
	}
	if got.Batches != want.Batches || got.Envelopes != want.Envelopes || got.Changes != want.Changes {
		t.Fatalf("lag at %s: got %+v, want %+v", off, got, want)
	}
	if (got.Gap != nil) != (off < tr.start) {
		t.Fatalf("lag at %s with log start %s: gap %+v", off, tr.start, got.Gap)
	}
	switch {
	case first == nil:
		if got.Age != 0 || got.Bytes != 0 {
			t.Fatalf("caught up, but lag is %s and %d bytes", got.Age, got.Bytes)
		}
	case got.Age < before.Sub(first.BuiltAt) || got.Age > time.Since(first.BuiltAt):
		t.Fatalf("lag in seconds: got %s, want the age of %s", got.Age, first.BuiltAt)
	}
	if below := tr.below(off); below != nil {
		// The bytes of what is acked and of what is not make up the lane.
		if got.Bytes+below.Header.Totals.Bytes != tr.items[len(tr.items)-1].Header.Totals.Bytes {
			t.Fatalf("lag at %s: %d bytes, %d acked, %d in all", off, got.Bytes, below.Header.Totals.Bytes, tr.items[len(tr.items)-1].Header.Totals.Bytes)
		}
	}
}
