package kafka_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// entry is one item as it is in a lane's topic, read by a plain client.
type entry struct {
	token       string
	position    flusso.Position
	more        bool
	incarnation string
	epoch       uint64
	changes     uint64        // of a live batch: tells copies of one apart
	first, end  flusso.Offset // of its records, end exclusive
}

// modelLane is what the model says of one lane: everything that was ever in
// it, and what was acked of that.
type modelLane struct {
	w     *world
	name  string
	names topics.Lane
	limit int // max.message.bytes of the topic

	reader  *kgo.Client // reads the topic as any tool does
	records []*kgo.Record
	log     []entry
	acked   map[int]bool // by any sink, at any time
	floor   int          // items that are acked durably for certain
	retired bool
	passed  map[string]flusso.Position // by incarnation: the highest watermark seen while it was retired
	start   flusso.Offset

	sink *modelSink // nil when none is attached
}

// modelSink is a sink's process.
type modelSink struct {
	s     flusso.Stream
	c     flusso.Consumer[flusso.LaneItem]
	base  int // index of the first item of this attach, -1 before the first delivery
	next  int
	outs  []out
	acked map[int]bool // in this attach
	calm  int          // the step of its attach
}

type out struct {
	d  flusso.Delivery[flusso.LaneItem]
	at int
}

func newModelLane(w *world, sink string) *modelLane {
	return &modelLane{w: w, name: sink, names: w.p.Lane(w.t, sink), acked: map[int]bool{}, passed: map[string]flusso.Position{}}
}

// follow begins to read the topic.
func (l *modelLane) follow() {
	l.reader = l.w.p.cluster.Client(l.w.t,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.names.Topic(): {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.DisableClientMetrics())
}

// sync reads what is new in the topic, up to the end that readers see now.
func (l *modelLane) sync() {
	w := l.w
	w.t.Helper()
	if l.reader == nil {
		return
	}
	ctx := w.ctx()
	end := l.ask("end", kadm.NewClient(l.reader).ListCommittedOffsets)
	for l.start < end {
		fetches := l.reader.PollFetches(ctx)
		if ctx.Err() != nil {
			w.fail("read topic %s from %s to %s: %v", l.names.Topic(), l.start, end, ctx.Err())
		}
		if err := fetches.Err(); err != nil {
			w.say("reading topic %s: %v", l.names.Topic(), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			l.start = flusso.Offset(r.Offset + 1)
			if !r.Attrs.IsControl() {
				l.add(r)
			}
		})
	}
}

// add files one record, and looks that the lane is whole and in order.
func (l *modelLane) add(r *kgo.Record) {
	w := l.w
	w.t.Helper()
	l.records = append(l.records, r)
	h, ends, err := wire.HeaderOf(r)
	if err != nil {
		w.fail("topic %s, offset %d: %v", l.names.Topic(), r.Offset, err)
	}
	if !ends {
		return
	}
	item, h, err := wire.DecodeItem(l.records)
	if err != nil {
		w.fail("topic %s, offset %d: %v", l.names.Topic(), r.Offset, err)
	}
	e := entry{
		token: token(h.Incarnation, item), position: h.Position, more: h.More, incarnation: h.Incarnation, epoch: h.Epoch, changes: h.Changes,
		first: flusso.Offset(l.records[0].Offset), end: flusso.Offset(r.Offset + 1),
	}
	l.records = nil
	if n := len(l.log); n > 0 && e.epoch < l.log[n-1].epoch {
		w.fail("lane of sink %s: %s of writer epoch %d is behind one of epoch %d [4]", l.name, e.token, e.epoch, l.log[n-1].epoch)
	}
	if want := uint64(len(l.log) + 1); h.Sequence != want {
		w.fail("lane of sink %s: item %d has sequence %d", l.name, want, h.Sequence)
	}
	l.log = append(l.log, e)
}

func (l *modelLane) has(token string) bool {
	return slices.ContainsFunc(l.log, func(e entry) bool { return e.token == token })
}

// prefix returns how many items from the first on were acked at any time.
func (l *modelLane) prefix() (n int) {
	for l.acked[n] {
		n++
	}
	return n
}

// checkWhole compares the lane with the source: every transaction is in it
// once, whole and in order; only an unfinished one may have been begun before
// [B9].
func (l *modelLane) checkWhole() {
	w := l.w
	var live []entry
	for _, e := range l.log {
		if e.incarnation == w.source.incarnation && e.position != flusso.NoPosition {
			live = append(live, e)
		}
	}
	want := map[flusso.Position][]string{}
	var order []flusso.Position
	for _, b := range w.source.batches {
		if want[b.Position] == nil {
			order = append(order, b.Position)
		}
		want[b.Position] = append(want[b.Position], token(w.source.incarnation, b))
	}
	for i := 0; i < len(live); {
		n := i
		var got []string
		for n < len(live) && live[n].position == live[i].position {
			got = append(got, live[n].token)
			n++
		}
		if len(order) == 0 || order[0] != live[i].position {
			w.fail("lane of sink %s: position %s, want %v next", l.name, live[i].position, order)
		}
		whole := want[order[0]]
		if len(got) < len(whole) || !slices.Equal(got[len(got)-len(whole):], whole) || slices.Contains(got[:len(got)-len(whole)], whole[len(whole)-1]) {
			w.fail("lane of sink %s: position %s is there as %q, want %q once", l.name, order[0], got, whole)
		}
		order, i = order[1:], n
	}
	if len(order) > 0 {
		w.fail("lane of sink %s misses positions %v", l.name, order)
	}
}

// attach opens a sink's process.
func (w *world) attach(l *modelLane) bool {
	w.t.Helper()
	if l.sink != nil {
		return true
	}
	w.say("sink %s attaches", l.name)
	s := w.openStream("")
	lane, err := s.Lane(l.name)
	if err != nil {
		w.fail("lane of sink %s: %v", l.name, err)
	}
	c, err := lane.Consumer(w.ctx())
	if err != nil {
		w.stop(s)
		if len(w.faults) == 0 {
			w.fail("sink %s does not attach: %v", l.name, err)
		}
		return false
	}
	l.sink = &modelSink{s: s, c: c, base: -1, acked: map[int]bool{}, calm: w.step}
	return true
}

// receive takes one item and looks that it is the next one.
func (w *world) receive(l *modelLane) {
	w.t.Helper()
	if !w.attach(l) {
		return
	}
	l.sync()
	k := l.sink
	limit := 30 * time.Second
	if k.base >= 0 && k.next >= len(l.log) || k.base < 0 && l.prefix() >= len(l.log) {
		limit = 200 * time.Millisecond // nothing is there, but for what comes again
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	d, err := k.c.Receive(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.fail("sink %s: receive: %v", l.name, err)
		}
		if limit > time.Second && len(w.faults) == 0 {
			w.fail("sink %s: nothing came in %s, item %d of %d is next", l.name, limit, k.next, len(l.log))
		}
		return
	}
	l.sync()
	got := token(w.source.incarnation, d.Item())
	at := l.find(got, d.Item(), k)
	w.say("sink %s receives item %d: %s", l.name, at, got)
	if at == k.next && k.base >= 0 {
		k.next++
		k.outs = append(k.outs, out{d, at})
		return
	}
	// The consumer attached anew, by itself where a fault was: nothing that
	// was not acked may be behind, nothing that was acked durably comes again.
	if k.base >= 0 {
		if !w.shaken(k) {
			w.fail("sink %s: received item %d, want %d", l.name, at, k.next)
		}
		for _, o := range k.outs {
			if err := o.d.Ack(context.Background()); !errors.Is(err, flusso.ErrWithdrawn) {
				w.fail("sink %s: item %d comes again, but acking the earlier delivery of %d says %v", l.name, at, o.at, err)
			}
		}
	}
	if at < l.floor || at > l.prefix() {
		w.fail("sink %s: an attach begins at item %d (%s); %d are acked durably, %d at all", l.name, at, got, l.floor, l.prefix())
	}
	k.outs, k.acked = []out{{d, at}}, map[int]bool{}
	k.base, k.next = at, at+1
}

// find says which item of the lane was received.
func (l *modelLane) find(got string, item flusso.LaneItem, k *modelSink) int {
	w := l.w
	w.t.Helper()
	at := -1
	same := func(i int) bool {
		b, batch := item.(*flusso.Batch)
		return i >= 0 && i < len(l.log) && token(l.log[i].incarnation, item) == l.log[i].token && (!batch || b.Changes == l.log[i].changes)
	}
	switch {
	case k.base >= 0 && same(k.next):
		at = k.next
	default:
		for i := l.floor; i <= l.prefix(); i++ {
			if same(i) {
				at = i
				break
			}
		}
	}
	if at < 0 {
		for i, e := range l.log {
			w.say("lane of sink %s, item %d: offsets %s to %s, %s, acked %t", l.name, i, e.first, e.end, e.token, l.acked[i])
		}
		w.fail("sink %s: received %s, which is not next (%d) nor where an attach may begin (%d to %d of %d)", l.name, got, k.next, l.floor, l.prefix(), len(l.log))
	}
	want := w.expected[l.log[at].token]
	if diff := cmp.Diff(want, item, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(flusso.Envelope{}, "BuiltAt"), cmpopts.IgnoreFields(flusso.Batch{}, "Changes")); diff != "" {
		w.fail("sink %s: item %d differs from what was published:\n%s", l.name, at, diff)
	}
	return at
}

func (w *world) ack(l *modelLane) {
	w.t.Helper()
	if l.sink == nil || len(l.sink.outs) == 0 {
		w.receive(l)
		return
	}
	k := l.sink
	i := w.rng.IntN(len(k.outs))
	if w.rng.IntN(2) == 0 {
		i = 0
	}
	o := k.outs[i]
	err := o.d.Ack(context.Background())
	w.say("sink %s acks item %d: %v", l.name, o.at, err)
	if err != nil {
		w.withdrawn(l, err)
		return
	}
	k.outs = slices.Delete(k.outs, i, i+1)
	l.acked[o.at], k.acked[o.at] = true, true
	if err := o.d.Ack(context.Background()); err != nil && !w.shaken(k) {
		w.fail("sink %s: acking item %d again: %v", l.name, o.at, err)
	}
	if w.rng.IntN(4) > 0 {
		w.ack(l)
	}
}

// shaken: a fault was about since the sink attached, and what it did may show
// only now.
func (w *world) shaken(k *modelSink) bool {
	return len(w.faults) > 0 || w.faulted >= k.calm || w.disturbed()
}

// withdrawn judges an ack that was refused.
func (w *world) withdrawn(l *modelLane, err error) {
	w.t.Helper()
	if !errors.Is(err, flusso.ErrWithdrawn) {
		w.fail("sink %s: ack is refused with %v", l.name, err)
	}
	if !w.shaken(l.sink) {
		w.fail("sink %s: deliveries were withdrawn although nothing happened: %v", l.name, err)
	}
}

func (w *world) nack(l *modelLane) {
	w.t.Helper()
	if l.sink == nil || len(l.sink.outs) == 0 {
		return
	}
	k := l.sink
	slices.SortFunc(k.outs, func(a, b out) int { return a.at - b.at })
	i := w.rng.IntN(len(k.outs))
	at := k.outs[i].at
	err := k.outs[i].d.Nack(context.Background())
	w.say("sink %s nacks item %d: %v", l.name, at, err)
	if err != nil {
		w.withdrawn(l, err)
		return
	}
	for _, o := range k.outs[i:] {
		if err := o.d.Ack(context.Background()); !errors.Is(err, flusso.ErrWithdrawn) {
			w.fail("sink %s: item %d was withdrawn by the nack of %d, its ack says %v", l.name, o.at, at, err)
		}
	}
	k.outs, k.next = k.outs[:i], at
	for a := range k.acked {
		if a > at {
			delete(k.acked, a)
		}
	}
}

// flush makes acks durable, and looks at what the group then has on record:
// the contiguous prefix, exactly [B6].
func (w *world) flush(l *modelLane) {
	w.t.Helper()
	if l.sink == nil {
		return
	}
	k := l.sink
	err := k.c.Flush(w.ctx())
	w.say("sink %s flushes: %v", l.name, err)
	switch {
	case errors.Is(err, flusso.ErrWithdrawn) && w.shaken(k), errors.Is(err, context.DeadlineExceeded) && len(w.faults) > 0:
		return
	case err != nil:
		w.fail("sink %s: flush: %v", l.name, err)
	}
	if k.base < 0 {
		return
	}
	n := k.base
	for k.acked[n] {
		n++
	}
	l.floor = max(l.floor, n)
	c := l.commit()
	if n > k.base && c.Offset != l.log[n-1].end {
		w.fail("sink %s: after a flush offset %s is committed, want %s, the end of item %d", l.name, c.Offset, l.log[n-1].end, n-1)
	}
}

func (l *modelLane) commit() offsets.Commit {
	l.w.t.Helper()
	var c offsets.Commit
	l.w.eventually("the committed offset of sink "+l.name+" is known", func() (bool, error) {
		got, err := offsets.New(l.reader).Commits(l.w.ctx(), []topics.Lane{l.names})
		c = got[l.names]
		return err == nil, errors.Join(err, c.Err)
	})
	return c
}

// committed returns how many items the committed offset covers.
func (l *modelLane) committed() int {
	c := l.commit()
	n := 0
	for n < len(l.log) && l.log[n].end <= c.Offset {
		n++
	}
	return n
}

func (w *world) closeSink(l *modelLane) {
	w.t.Helper()
	if l.sink == nil {
		return
	}
	k := l.sink
	err := k.c.Close(w.ctx())
	w.say("sink %s closes: %v", l.name, err)
	if err != nil && !w.shaken(k) {
		w.fail("sink %s: close: %v", l.name, err)
	}
	for _, o := range k.outs {
		if err := o.d.Ack(context.Background()); !isAny(err, flusso.ErrClosed, flusso.ErrWithdrawn) {
			w.fail("sink %s: ack of item %d after close: %v", l.name, o.at, err)
		}
	}
	if err == nil && k.base >= 0 {
		n := k.base
		for k.acked[n] {
			n++
		}
		l.floor = max(l.floor, n)
	}
	w.stop(k.s)
	l.sink = nil
}

func (w *world) crashSink(l *modelLane) {
	if l.sink == nil {
		return
	}
	w.say("sink %s crashes", l.name)
	w.p.Crash(w.t, l.sink.s)
	l.sink = nil
}

// takeover attaches from another process; the one before is told by name, and
// its acks fail.
func (w *world) takeover(l *modelLane) {
	w.t.Helper()
	old := l.sink
	l.sink = nil
	w.say("another process takes the lane of sink %s", l.name)
	if !w.attach(l) || old == nil {
		return
	}
	w.pass(3 * time.Second) // a heartbeat
	for _, o := range old.outs {
		if err := o.d.Ack(context.Background()); !isAny(err, flusso.ErrSuperseded, flusso.ErrWithdrawn) {
			w.fail("sink %s: ack of item %d after a takeover: %v", l.name, o.at, err)
		}
	}
	if len(w.faults) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		for {
			_, err := old.c.Receive(ctx)
			if err == nil && !w.disturbed() {
				w.fail("sink %s: the old consumer receives after a takeover", l.name)
			}
			if err != nil && !errors.Is(err, flusso.ErrSuperseded) {
				w.fail("sink %s: after a takeover the old consumer says %v", l.name, err)
			}
			if err != nil {
				break
			}
		}
	}
	w.stop(old.s)
}

// drain takes and acks everything.
func (w *world) drain(l *modelLane) {
	w.t.Helper()
	for range 10_000 {
		l.sync()
		if n := len(l.log); l.prefix() >= n && l.sink.base >= 0 && l.sink.next >= n || n == 0 {
			break
		}
		k := l.sink
		if k.base < 0 && l.prefix() == len(l.log) && l.committed() == len(l.log) {
			break
		}
		w.receive(l)
		for len(l.sink.outs) > 0 {
			o := l.sink.outs[0]
			if err := o.d.Ack(context.Background()); err != nil {
				w.fail("sink %s: ack of item %d while draining: %v", l.name, o.at, err)
			}
			l.sink.outs = l.sink.outs[1:]
			l.acked[o.at], l.sink.acked[o.at] = true, true
		}
	}
	if err := l.sink.c.Flush(w.ctx()); err != nil {
		w.fail("sink %s: flush: %v", l.name, err)
	}
	if got := l.committed(); got != len(l.log) {
		w.fail("sink %s: everything is acked, but offset %s is committed: %d of %d items", l.name, l.commit().Offset, got, len(l.log))
	}
}

// caughtUp asks when everything was delivered [A5].
func (w *world) caughtUp(l *modelLane) {
	if l.sink == nil || l.sink.base < 0 || w.writer != nil && len(w.writer.waiting) > 0 || len(w.faults) > 0 || w.disturbed() {
		return
	}
	l.sync()
	ok, err := l.sink.c.CaughtUp(w.ctx())
	if err != nil {
		w.fail("sink %s: caught up: %v", l.name, err)
	}
	if ok && l.sink.next < len(l.log) {
		w.fail("sink %s says it is caught up at item %d of %d", l.name, l.sink.next, len(l.log))
	}
}

// detached ends the lane's sink and waits until its group is empty.
func (w *world) detached(l *modelLane) bool {
	if w.ensureEngine(); w.writer == nil || len(w.faults) > 0 {
		return false // the mirror must be up to date
	}
	w.closeSink(l)
	l.sync()
	w.pass(25 * time.Second)
	return true
}

// rewind moves the group back, as an outside tool does.
func (w *world) rewind(l *modelLane) {
	if !w.detached(l) {
		return
	}
	n := l.committed()
	if n == 0 {
		return
	}
	to := w.rng.IntN(n)
	at := l.log[to].first
	if w.rng.IntN(3) == 0 {
		at = l.log[to].end - 1 // perhaps inside it: then it comes whole
	}
	start := l.logStart()
	if at < start {
		return
	}
	if l.log[to].first < start {
		return // only a part of it is left
	}
	w.say("a tool moves the group of sink %s back to offset %s, item %d of %d", l.name, at, to, n)
	w.moveGroup(l, at)
	l.floor = to
	if w.attach(l) {
		w.receive(l)
		if w.faulted < w.step && l.sink.base != to {
			w.fail("sink %s: rewound to item %d, got %d", l.name, to, l.sink.base)
		}
	}
}

func (l *modelLane) logStart() flusso.Offset {
	l.w.t.Helper()
	return l.ask("start", kadm.NewClient(l.reader).ListStartOffsets)
}

// ask lists an offset of the lane's topic. The model's own questions must be
// answered whatever faults are about.
func (l *modelLane) ask(what string, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (at flusso.Offset) {
	l.w.t.Helper()
	l.w.eventually(what+" of topic "+l.names.Topic()+" is known", func() (bool, error) {
		got, err := list(l.w.ctx(), l.names.Topic())
		o, ok := got.Lookup(l.names.Topic(), 0)
		at = flusso.Offset(o.Offset)
		return ok, errors.Join(err, o.Err)
	})
	return at
}

// jump moves the group forward over items that were not acked: the watermark
// stays, the sink stops and is told; a rewind to the offset that the error
// names makes it go on [C6].
func (w *world) jump(l *modelLane) {
	if !w.detached(l) {
		return
	}
	n := l.committed()
	if l.commit().State != offsets.Present || n >= len(l.log) || l.prefix() > n {
		return // nothing to skip, or the mirror may be ahead
	}
	to := l.log[n+w.rng.IntN(len(l.log)-n)].end
	w.say("a tool moves the group of sink %s forward to offset %s over items from %d on", l.name, to, n)
	w.moveGroup(l, to)
	w.check()
	s := w.openStream("")
	lane, err := s.Lane(l.name)
	if err != nil {
		w.fail("%v", err)
	}
	_, err = lane.Consumer(w.ctx())
	skipped := (*flusso.UnverifiedError)(nil)
	if !errors.As(err, &skipped) {
		w.fail("sink %s attaches at an offset that somebody moved forward: %v", l.name, err)
	}
	w.check()
	w.stop(s)
	back := skipped.Acked
	if back == flusso.NoOffset {
		back = 0
	}
	if back < l.logStart() {
		w.fail("sink %s: the error names offset %s to rewind to, the log starts at %s", l.name, back, l.logStart())
	}
	w.say("it is told, and moved back to offset %s", back)
	w.pass(15 * time.Second)
	w.moveGroup(l, back)
	l.floor = 0
	for l.floor < len(l.log) && l.log[l.floor].end <= back {
		l.floor++
	}
	w.attach(l)
}

// expire deletes the group, as brokers do with one that is empty for a week:
// the mirror knows where the sink was.
func (w *world) expire(l *modelLane) {
	if !w.detached(l) || l.commit().State != offsets.Present {
		return
	}
	w.say("the group of sink %s expires", l.name)
	w.p.DropGroup(w.t, l.name)
	w.check()
	w.attach(l)
}

// trimByHand deletes acked items, all of them at times.
func (w *world) trimByHand(l *modelLane) {
	if len(w.faults) > 0 || l.commit().State != offsets.Present || !l.commit().Own() {
		return
	}
	l.sync()
	n := min(l.committed(), l.floor)
	if n == 0 {
		return
	}
	to := l.log[w.rng.IntN(n)].end
	if to <= l.logStart() {
		return
	}
	w.say("a tool trims the lane of sink %s to offset %s", l.name, to)
	w.p.Trim(w.t, l.name, to)
}
