package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// source is the change feed of one incarnation: it can be read again from any
// position.
type source struct {
	incarnation string
	batches     []*flusso.Batch // in order; several of one position are one transaction
}

func (s *source) last() flusso.Position {
	if len(s.batches) == 0 {
		return flusso.NoPosition
	}
	return s.batches[len(s.batches)-1].Position
}

// engine is an ingest engine: it keeps nothing but where it is in each lane.
type engine struct {
	s       flusso.Stream
	number  int
	commits flusso.Producer[flusso.Commit]
	lanes   map[string]flusso.Producer[flusso.LaneItem]
	at      map[string]int // next batch of the source for each lane
	fresh   map[string]bool
	waiting []waiting
}

type waiting struct {
	future *flusso.Future
	commit flusso.Commit
}

func (w *world) start() {
	for _, sink := range w.sinks {
		w.lanes[sink] = newModelLane(w, sink)
	}
	w.newWatcher() // creates the topics
	w.limitLanes()
	w.ensureEngine()
	for _, sink := range w.sinks {
		w.lanes[sink].follow()
	}
}

func (w *world) newSource() {
	w.source = &source{incarnation: fmt.Sprintf("db:slot%d", w.step)}
}

// grow adds a transaction to the source.
func (w *world) grow() {
	at := w.source.last() + flusso.Position(1+w.rng.IntN(5))
	n := 1
	if w.rng.IntN(5) == 0 {
		n += w.rng.IntN(3)
	}
	for i := range n {
		b := &flusso.Batch{Position: at, More: i < n-1}
		for k := range w.rng.IntN(4) { // now and then none at all [B2]
			b.Envelopes = append(b.Envelopes, w.envelope(fmt.Sprintf("%d-%d-%d", at, i, k), at))
		}
		w.source.batches = append(w.source.batches, b)
		w.expected[token(w.source.incarnation, b)] = b
	}
}

func (w *world) envelope(id string, at flusso.Position) flusso.Envelope {
	e := flusso.Envelope{Index: "order", ID: id, Position: at, BuiltAt: time.Now().Truncate(time.Millisecond)}
	if w.rng.IntN(4) == 0 {
		e.Op = flusso.Delete
		return e
	}
	e.Op, e.Document = flusso.Upsert, make([]byte, 1+w.rng.IntN(300))
	for i := range e.Document {
		e.Document[i] = byte('a' + w.rng.IntN(26))
	}
	return e
}

// token names an item: by what it says, since a replay says it again.
func token(incarnation string, item flusso.LaneItem) string {
	switch it := item.(type) {
	case *flusso.SnapshotComplete:
		return "complete " + it.Indexes[0]
	case *flusso.Batch:
		if !it.Live() {
			return "snapshot " + it.Envelopes[0].ID
		}
		first := ""
		if len(it.Envelopes) > 0 {
			first = it.Envelopes[0].ID
		}
		return fmt.Sprintf("live %s %s more=%t n=%d %s", incarnation, it.Position, it.More, len(it.Envelopes), first)
	}
	return "?"
}

// ensureEngine opens an ingest engine if there is none, and a producer if it
// has none.
func (w *world) ensureEngine() {
	w.t.Helper()
	if w.writer == nil {
		w.say("ingest engine %d opens", w.opened+1)
		s := w.openStream(w.source.incarnation)
		if s == nil {
			return
		}
		w.opened++
		w.writer = &engine{s: s, number: w.opened}
	}
	if w.writer.commits == nil {
		w.produce(w.writer)
	}
}

// produce asks for a producer and goes on from the watermark, as every engine
// must.
func (w *world) produce(e *engine) {
	w.t.Helper()
	c, err := e.s.Commits(w.ctx())
	if err != nil {
		w.say("engine %d gets no producer: %v", e.number, err)
		switch {
		case errors.Is(err, flusso.ErrFenced) && e.number == w.opened:
			w.fail("engine %d is fenced, and no newer one was opened: %v", e.number, err)
		case !isAny(err, flusso.ErrFenced) && len(w.faults) == 0:
			w.fail("engine %d gets no producer: %v", e.number, err)
		}
		w.stop(e.s)
		w.writer = nil
		return
	}
	mark, err := e.s.Watermark(w.ctx())
	if err != nil && mark.Position == flusso.NoPosition && len(w.faults) == 0 {
		w.fail("watermark of engine %d: %v", e.number, err)
	}
	for _, sink := range w.sinks {
		w.lanes[sink].sync()
	}
	w.judge(w.source.incarnation, mark)
	e.commits, e.lanes = c, map[string]flusso.Producer[flusso.LaneItem]{}
	e.at, e.fresh = map[string]int{}, map[string]bool{}
	from := 0
	for from < len(w.source.batches) && w.source.batches[from].Position <= mark.Position {
		from++
	}
	w.say("engine %d replays from the watermark %s: batch %d of %d", e.number, mark.Position, from, len(w.source.batches))
	for _, sink := range w.sinks {
		e.at[sink], e.fresh[sink] = from, true
	}
}

// catchUp publishes what lanes miss of the source, and reports whether one
// misses more.
func (w *world) catchUp() bool {
	w.t.Helper()
	w.settle()
	w.ensureEngine()
	e := w.writer
	if e == nil || e.commits == nil {
		w.fail("no engine can publish although the faults have ended")
	}
	var behind []string
	for _, sink := range w.sinks {
		if e.at[sink] < len(w.source.batches) {
			behind = append(behind, sink)
		}
	}
	if len(behind) == 0 {
		return false
	}
	w.publish(w.next(behind...))
	return true
}

// next takes what each of the sinks gets next. The source grows when one of
// them has everything.
func (w *world) next(sinks ...string) flusso.Commit {
	var c flusso.Commit
	for _, sink := range sinks {
		if w.writer.at[sink] >= len(w.source.batches) {
			w.grow()
		}
		b := *w.source.batches[w.writer.at[sink]]
		w.copies++ // an unfinished transaction is published again: the copies must be told apart
		b.Changes = w.copies
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: &b})
		w.writer.at[sink]++
	}
	return c
}

func describe(c flusso.Commit, incarnation string) (out string) {
	for _, r := range c.Items {
		out += fmt.Sprintf(" [%s: %s]", r.Sink, token(incarnation, r.Item))
	}
	return out
}

func (w *world) publishNext() {
	if w.ensureEngine(); w.writer == nil {
		return
	}
	w.settleOf(w.writer)
	if w.ensureEngine(); w.writer == nil {
		return
	}
	w.publish(w.next(w.sinks...))
}

func (w *world) publish(c flusso.Commit) {
	w.t.Helper()
	e := w.writer
	w.say("engine %d publishes%s", e.number, describe(c, w.source.incarnation))
	r, err := e.commits.Publish(w.ctx(), c)
	w.published(e, c, r, err)
}

func (w *world) publishOneLane() {
	if w.ensureEngine(); w.writer == nil {
		return
	}
	w.settleOf(w.writer)
	if w.ensureEngine(); w.writer == nil {
		return
	}
	e, sink := w.writer, w.lane().name
	if e.lanes[sink] == nil {
		l, err := e.s.Lane(sink)
		if err != nil {
			w.fail("lane of sink %s: %v", sink, err)
		}
		p, err := l.Producer(w.ctx())
		if err != nil {
			w.ended(e, err)
			return
		}
		e.lanes[sink] = p
	}
	c := w.next(sink)
	w.say("engine %d publishes to a lane%s", e.number, describe(c, w.source.incarnation))
	r, err := e.lanes[sink].Publish(w.ctx(), c.Items[0].Item)
	w.published(e, c, r, err)
}

func (w *world) publishPipelined() {
	if w.ensureEngine(); w.writer == nil {
		return
	}
	e := w.writer
	for range 1 + w.rng.IntN(5) {
		c := w.next(w.sinks...)
		w.say("engine %d submits%s", e.number, describe(c, w.source.incarnation))
		f, err := e.commits.Submit(w.ctx(), c)
		if err != nil {
			w.ended(e, err)
			return
		}
		e.waiting = append(e.waiting, waiting{f, c})
	}
}

// publishSnapshot publishes rows and a marker to several lanes.
func (w *world) publishSnapshot() {
	if w.ensureEngine(); w.writer == nil {
		return
	}
	e := w.writer
	var c flusso.Commit
	var tokens []routedToken
	add := func(sink string, item flusso.LaneItem) {
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: item})
		tokens = append(tokens, routedToken{sink, token("", item)})
		w.expected[token("", item)] = item
	}
	for _, sink := range w.sinks {
		if w.rng.IntN(2) == 0 {
			continue
		}
		w.snaps++
		add(sink, &flusso.Batch{Envelopes: []flusso.Envelope{w.envelope(fmt.Sprintf("row-%d", w.snaps), 0), w.envelope(fmt.Sprintf("row-%d-b", w.snaps), 0)}})
		if w.rng.IntN(2) == 0 {
			add(sink, &flusso.SnapshotComplete{Indexes: []string{fmt.Sprintf("index-%d", w.snaps)}})
		}
	}
	if len(c.Items) == 0 {
		return
	}
	w.atomic = append(w.atomic, tokens)
	w.say("engine %d publishes a snapshot%s", e.number, describe(c, ""))
	r, err := e.commits.Publish(w.ctx(), c)
	w.published(e, c, r, err)
}

// published judges the answer of a publish: an acknowledged item is there, in
// its lane, whole.
func (w *world) published(e *engine, c flusso.Commit, r flusso.Receipt, err error) {
	w.t.Helper()
	if err != nil {
		w.ended(e, err)
		return
	}
	if r.Published+r.Dropped != len(c.Items) {
		w.fail("engine %d: receipt %+v for %d items", e.number, r, len(c.Items))
	}
	for _, item := range c.Items {
		l := w.lanes[item.Sink]
		l.sync()
		if !l.has(token(w.source.incarnation, item.Item)) {
			w.fail("engine %d: %s was acknowledged (%+v) and is not in the lane of sink %s", e.number, token(w.source.incarnation, item.Item), r, item.Sink)
		}
	}
}

// ended judges why an engine cannot go on [7]: the error is typed, and a
// producer asked for anew settles it.
func (w *world) ended(e *engine, err error) {
	w.t.Helper()
	w.say("engine %d: %v", e.number, err)
	typed := isAny(err, flusso.ErrFenced, flusso.ErrLost, flusso.ErrUnknownOutcome, flusso.ErrRejected) || errors.Is(err, context.DeadlineExceeded)
	if !typed {
		w.fail("engine %d ends with an error that is none of the port's: %v", e.number, err)
	}
	if errors.Is(err, flusso.ErrFenced) && e.number == w.opened {
		w.fail("engine %d was fenced, and no newer one was opened: %v", e.number, err)
	}
	if len(w.faults) == 0 && e == w.writer && !w.disturbed() && !w.contended {
		w.fail("engine %d ends although nothing was done to it: %v", e.number, err)
	}
	e.commits, e.waiting = nil, nil
}

// disturbed: a fault of the steps before may still be felt.
func (w *world) disturbed() bool { return w.faulted > 0 && w.step-w.faulted < 4 }

// settle waits for what was submitted.
func (w *world) settle() {
	if w.writer != nil {
		w.settleOf(w.writer)
	}
}

func (w *world) settleOf(e *engine) {
	w.t.Helper()
	out := e.waiting
	e.waiting = nil
	var failed error
	for _, f := range out {
		r, err := f.future.Wait(w.ctx())
		switch {
		case err != nil && failed == nil:
			failed = err
		case err == nil && failed != nil:
			w.fail("a commit was acknowledged behind one that was not [B12]: %v", failed)
		case err == nil:
			w.published(e, f.commit, r, nil)
		}
	}
	if failed != nil {
		w.ended(e, failed)
	}
}

// publishWrong offers a position again, with other contents: it is refused
// and nothing is published [B10].
func (w *world) publishWrong() {
	if w.ensureEngine(); w.writer == nil {
		return
	}
	w.publishNext()
	w.settle()
	if w.writer == nil || w.writer.commits == nil || w.writer.at[w.sinks[0]] == 0 {
		return
	}
	e, sink := w.writer, w.sinks[0]
	newest := w.source.batches[e.at[sink]-1]
	l := w.lanes[sink]
	l.sync()
	if n := len(l.log); newest.More && (n == 0 || l.log[n-1].position != newest.Position || !l.log[n-1].more) {
		return // it was dropped as a replay: the lane is further than the engine
	}
	w.snaps++
	b := &flusso.Batch{Position: newest.Position, Envelopes: []flusso.Envelope{w.envelope(fmt.Sprintf("wrong-%d", w.snaps), newest.Position)}}
	if newest.More {
		b.Position++
		b.Envelopes[0].Position++
	}
	w.never[token(w.source.incarnation, b)] = "its position was out of turn"
	w.say("engine %d publishes out of turn: %s behind %s", e.number, token(w.source.incarnation, b), token(w.source.incarnation, newest))
	r, err := e.commits.Publish(w.ctx(), flusso.Commit{Items: []flusso.Routed{{Sink: sink, Item: b}}})
	wrong := (*flusso.PositionError)(nil)
	switch {
	case err == nil && r.Published == 0: // still replaying: dropped
	case errors.As(err, &wrong):
	case err != nil && len(w.faults) > 0:
		w.ended(e, err)
	default:
		w.fail("engine %d: position %s behind %s: got %+v, %v, want a position error", e.number, b.Position, newest.Position, r, err)
	}
}

func (w *world) crashEngine() {
	if w.writer == nil {
		return
	}
	w.say("engine %d crashes with %d commits on their way", w.writer.number, len(w.writer.waiting))
	w.p.Crash(w.t, w.writer.s)
	w.writer = nil
}

func (w *world) closeEngine() {
	if w.writer == nil {
		return
	}
	w.say("engine %d closes", w.writer.number)
	e := w.writer
	err := e.s.Close(w.ctx())
	if err != nil && len(w.faults) == 0 && !w.disturbed() && !w.contended {
		w.fail("close of engine %d: %v", e.number, err)
	}
	if err == nil && len(w.faults) == 0 {
		w.settleOf(e) // Close drained them
	}
	w.writer = nil
}

// secondWriter opens another engine while the first lives: from here on
// nothing that the first publishes may be seen [4].
func (w *world) secondWriter() {
	if w.writer == nil {
		return
	}
	first := w.writer
	w.writer = nil
	w.say("a second engine opens beside engine %d", first.number)
	w.old = append(w.old, first)
	w.contended = w.contended || len(first.waiting) > 0
	w.ensureEngine()
}

// zombie lets a superseded engine publish on.
func (w *world) zombie() {
	if len(w.old) == 0 {
		return
	}
	e := w.old[0]
	if e.commits == nil || w.writer == nil || w.writer.commits == nil {
		w.stop(e.s)
		w.old = w.old[1:]
		return
	}
	w.snaps++
	b := &flusso.Batch{Envelopes: []flusso.Envelope{w.envelope(fmt.Sprintf("zombie-%d", w.snaps), 0)}}
	w.never[token("", b)] = fmt.Sprintf("engine %d published it after engine %d had opened", e.number, w.writer.number)
	w.say("engine %d, superseded, publishes %s", e.number, token("", b))
	_, err := e.commits.Publish(w.ctx(), flusso.Commit{Items: []flusso.Routed{{Sink: w.sinks[0], Item: b}}})
	switch {
	case err == nil:
		w.fail("engine %d published after engine %d had opened", e.number, w.writer.number)
	case !isAny(err, flusso.ErrFenced, flusso.ErrLost, flusso.ErrRejected, flusso.ErrUnknownOutcome, context.DeadlineExceeded):
		w.fail("engine %d was superseded and is told %v", e.number, err)
	}
	w.say("and is told: %v", err)
	e.commits, w.contended = nil, true
}

func (w *world) newIncarnation() {
	if w.writer != nil {
		w.closeEngine()
	}
	w.newSource()
	w.say("the source is another incarnation: %s", w.source.incarnation)
	w.newWatcher()
	w.ensureEngine()
}

func (w *world) wait() {
	d := []time.Duration{100 * time.Millisecond, 12 * time.Second, time.Minute, 6 * time.Minute}[w.rng.IntN(4)]
	w.say("%s go by", d)
	w.pass(d)
}
