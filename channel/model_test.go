package channel_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/channel"
)

var seedFlag = flag.Uint64("seed", 0, "run the model test with this seed alone")

// plain is what the model says of one lane: everything ever published to it,
// the floor as an index, and what is out.
type plain struct {
	items   []string
	through []flusso.Position
	floor   int
	next    int
	acked   map[int]bool // at or above the floor
	newest  flusso.Position
	more    bool
}

func (l *plain) rewind(i int) {
	for j := i; j < l.next; j++ {
		delete(l.acked, j)
	}
	l.next = min(l.next, i)
}

func (l *plain) ack(i int) {
	l.acked[i] = true
	for l.acked[l.floor] {
		delete(l.acked, l.floor)
		l.floor++
	}
}

func (l *plain) floorThrough() flusso.Position {
	if l.floor == 0 {
		return flusso.NoPosition
	}
	return l.through[l.floor-1]
}

// out is a delivery the test holds on to, valid or not.
type out struct {
	d    flusso.Delivery[flusso.LaneItem]
	lane string
	at   int
	want error // what Ack and Nack must say; nil while it is outstanding
	done bool  // acked
}

// world is the stream under test beside the model of it.
type world struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // of one run
	rng     *rand.Rand
	s       *channel.Stream
	commits flusso.Producer[flusso.Commit]
	found   map[string]plain // as each lane was when the producer was opened; cleared by the first live batch
	lanes   map[string]*plain
	readers map[string]flusso.Consumer[flusso.LaneItem]
	outs    []*out
	log     []string
	mark    flusso.Position
}

// One sequence of random calls after another, each answered by the adapter
// and by a model that keeps everything and optimizes nothing.
func TestModel(t *testing.T) {
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		seeds = nil
		base := rand.Uint64()
		t.Logf("base seed %d", base)
		for i := range uint64(60) {
			seeds = append(seeds, base+i)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { runModel(t, seed) })
	}
}

func runModel(t *testing.T, seed uint64) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sinks := []string{"a", "b", "c"}
	s, err := channel.New(channel.Config{Sinks: sinks, Incarnation: "i"})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, ctx: ctx, rng: rand.New(rand.NewPCG(seed, 4)), s: s,
		lanes: map[string]*plain{}, readers: map[string]flusso.Consumer[flusso.LaneItem]{},
	}
	for _, sink := range sinks {
		w.lanes[sink] = &plain{acked: map[int]bool{}}
	}
	w.reopen()
	steps := []struct {
		weight int
		name   string
		do     func()
	}{
		{10, "publish", w.publish},
		{20, "receive", w.receive},
		{25, "ack", w.ack},
		{4, "nack", w.nack},
		{2, "attach", func() { w.attach(w.sink()) }},
		{1, "restart", w.restart},
		{5, "watermark", w.watermark},
		{5, "caught up", w.caughtUp},
		{3, "idle", w.idle},
	}
	total := 0
	for _, st := range steps {
		total += st.weight
	}
	for range 400 {
		n := w.rng.IntN(total)
		for _, st := range steps {
			if n -= st.weight; n < 0 {
				w.log = append(w.log, st.name)
				st.do()
				break
			}
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("after %v:\n%s", w.log[max(0, len(w.log)-20):], fmt.Sprintf(format, args...))
}

func (w *world) sink() string { return []string{"a", "b", "c"}[w.rng.IntN(3)] }

func (w *world) reopen() {
	var err error
	if w.commits, err = w.s.Commits(w.ctx); err != nil {
		w.fail("commits: %v", err)
	}
	w.found = map[string]plain{}
	for sink, l := range w.lanes {
		w.found[sink] = *l
		w.attach(sink)
	}
}

// restart is another process: its view takes over all there is.
func (w *world) restart() {
	next, err := w.s.Reopen("i")
	if err != nil {
		w.fail("reopen: %v", err)
	}
	if w.rng.IntN(2) == 0 {
		if err := w.s.Close(w.ctx); err != nil {
			w.fail("close: %v", err)
		}
		for _, o := range w.outs {
			if !errors.Is(o.want, flusso.ErrSuperseded) {
				o.want = flusso.ErrClosed
			}
		}
	}
	w.s = next
	w.reopen()
}

func (w *world) attach(sink string) {
	l, err := w.s.Lane(sink)
	if err != nil {
		w.fail("lane: %v", err)
	}
	if w.readers[sink], err = l.Consumer(w.ctx); err != nil {
		w.fail("attach: %v", err)
	}
	w.lanes[sink].rewind(w.lanes[sink].floor)
	for _, o := range w.outs {
		if o.lane == sink && !errors.Is(o.want, flusso.ErrClosed) {
			o.want = flusso.ErrSuperseded
		}
	}
}

// publish tries a commit of up to four items, valid or not.
func (w *world) publish() {
	before := map[string]plain{}
	for sink, l := range w.lanes {
		before[sink] = plain{newest: l.newest, more: l.more}
	}
	type put struct{ sink, text string }
	var c flusso.Commit
	var puts []put
	dropped, wrong := 0, false
	live := map[string]bool{}
	for range 1 + w.rng.IntN(4) {
		sink := w.sink()
		now := before[sink]
		if w.rng.IntN(4) == 0 {
			c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: &flusso.SnapshotComplete{Indexes: []string{"x"}}})
			puts = append(puts, put{sink, "complete"})
			continue
		}
		pos := max(1, now.newest+flusso.Position(w.rng.IntN(4)))
		if now.newest > 3 && w.rng.IntN(8) == 0 {
			pos = now.newest - flusso.Position(w.rng.IntN(3))
		}
		b := &flusso.Batch{Position: pos, More: w.rng.IntN(4) == 0}
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: b})
		found := w.found[sink]
		switch {
		case pos < found.newest || pos == found.newest && !found.more:
			dropped++
		case now.more && pos == now.newest || !now.more && pos > now.newest:
			before[sink] = plain{newest: pos, more: b.More}
			live[sink] = true
			puts = append(puts, put{sink, label(b)})
		default:
			wrong = true
		}
		if wrong {
			break
		}
	}
	r, err := w.commits.Publish(w.ctx, c)
	if wrong {
		if p := (*flusso.PositionError)(nil); !errors.As(err, &p) {
			w.fail("publish of %v: got %v, %v, want a position error", c, r, err)
		}
		return
	}
	if want := (flusso.Receipt{Published: len(puts), Dropped: dropped}); err != nil || r != want {
		w.fail("publish of %v: got %+v, %v, want %+v", c, r, err, want)
	}
	for _, p := range puts {
		l := w.lanes[p.sink]
		through := flusso.NoPosition
		if n := len(l.through); n > 0 {
			through = l.through[n-1]
		}
		var pos flusso.Position
		if n, _ := fmt.Sscanf(p.text, "live %d", &pos); n == 1 {
			through = pos
		}
		l.items, l.through = append(l.items, p.text), append(l.through, through)
	}
	for sink := range live {
		w.lanes[sink].newest, w.lanes[sink].more = before[sink].newest, before[sink].more
		w.found[sink] = plain{}
	}
}

func label(item flusso.LaneItem) string {
	b, ok := item.(*flusso.Batch)
	switch {
	case !ok:
		return "complete"
	case b.More:
		return fmt.Sprintf("more %d", b.Position)
	}
	return fmt.Sprintf("live %d", b.Position)
}

func (w *world) receive() {
	sink := w.sink()
	l := w.lanes[sink]
	if l.next == len(l.items) {
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		if d, err := w.readers[sink].Receive(ctx); err == nil {
			w.fail("received %s from lane %s, which has nothing more", label(d.Item()), sink)
		}
		return
	}
	d, err := w.readers[sink].Receive(w.ctx)
	if err != nil {
		w.fail("receive: %v", err)
	}
	if got, want := label(d.Item()), l.items[l.next]; got != want {
		w.fail("item %d of lane %s: got %s, want %s", l.next, sink, got, want)
	}
	w.outs = append(w.outs, &out{d: d, lane: sink, at: l.next})
	l.next++
}

// any picks a delivery of any age.
func (w *world) any() *out {
	if len(w.outs) == 0 {
		return nil
	}
	if len(w.outs) > 40 {
		w.outs = slices.Delete(w.outs, 0, w.rng.IntN(10))
	}
	return w.outs[w.rng.IntN(len(w.outs))]
}

func (w *world) ack() {
	o := w.any()
	if o == nil {
		return
	}
	if err := o.d.Ack(w.ctx); !errors.Is(err, o.want) {
		w.fail("ack of item %d of lane %s: got %v, want %v", o.at, o.lane, err, o.want)
	}
	if o.want == nil && !o.done {
		o.done = true
		w.lanes[o.lane].ack(o.at)
	}
}

func (w *world) nack() {
	o := w.any()
	if o == nil {
		return
	}
	want := o.want
	if want == nil && o.done {
		want = flusso.ErrAcked
	}
	if err := o.d.Nack(w.ctx); !errors.Is(err, want) {
		w.fail("nack of item %d of lane %s: got %v, want %v", o.at, o.lane, err, want)
	}
	if want != nil {
		return
	}
	w.lanes[o.lane].rewind(o.at)
	for _, other := range w.outs {
		if other.lane == o.lane && other.at >= o.at && other.want == nil {
			other.want = flusso.ErrWithdrawn
		}
	}
}

func (w *world) watermark() {
	got, err := w.s.Watermark(w.ctx)
	if err != nil {
		w.fail("watermark: %v", err)
	}
	want := flusso.Position(1 << 62)
	for i, sink := range []string{"a", "b", "c"} {
		through := w.lanes[sink].floorThrough()
		want = min(want, through)
		if got.Floors[i].Sink != sink || got.Floors[i].Through != through {
			w.fail("floor %+v, want %s at %s", got.Floors[i], sink, through)
		}
	}
	if got.Position != want || want < w.mark {
		w.fail("watermark %s, want %s; it was %s", got.Position, want, w.mark)
	}
	w.mark = want
}

func (w *world) caughtUp() {
	sink := w.sink()
	l := w.lanes[sink]
	if got, err := w.readers[sink].CaughtUp(w.ctx); err != nil || got != (l.next == len(l.items)) {
		w.fail("caught up in lane %s: %v, %v; delivered %d of %d", sink, got, err, l.next, len(l.items))
	}
}

func (w *world) idle() {
	want := true
	for _, l := range w.lanes {
		want = want && l.floor == len(l.items)
	}
	if got, err := w.s.Idle(w.ctx); err != nil || got != want {
		w.fail("idle: %v, %v, want %v", got, err, want)
	}
}
