package kafka_test

import (
	"errors"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/offsets"
)

// retire takes a lane out of the watermark for a while, in which the others and
// the engine go on, crash, and read the watermark; its group may expire. Nobody
// attaches meanwhile. Restored, the lane goes on where it was, and the watermark
// passes nothing more that its sink has not acked [C2].
func (w *world) retire(l *modelLane) {
	w.t.Helper()
	if !w.detached(l) {
		return
	}
	store := offsets.New(w.p.cluster.Client(w.t))
	at := l.commit()
	m, err := store.PlanRetire(w.ctx(), l.names, offsets.Retirement{At: time.Now().UTC().Truncate(time.Millisecond), By: "model", Why: "step"})
	if err != nil {
		w.fail("sink %s: plan to retire its lane: %v", l.name, err)
	}
	w.say("the lane of sink %s is retired at offset %s", l.name, m.Offset)
	l.retired = true
	if err := store.Apply(w.ctx(), m); err != nil {
		w.fail("sink %s: retire its lane: %v", l.name, err)
	}
	expires := w.rng.IntN(2) == 0
	for range 1 + w.rng.IntN(5) {
		other := w.lane()
		switch n := w.rng.IntN(8); {
		case n < 3:
			w.publishNext()
		case n == 3:
			w.crashEngine()
		case n == 4:
			w.newWatcher()
		case other == l:
			w.pass(5 * time.Second)
		case n < 7:
			w.receive(other)
		default:
			w.ack(other)
		}
		w.check()
	}
	w.refusedRetired(l)
	if expires {
		w.ensureEngine()
		w.pass(25 * time.Second) // the mirror is up to date
		w.say("the group of sink %s expires", l.name)
		w.p.DropGroup(w.t, l.name)
		w.check()
		w.refusedRetired(l)
	}
	m, err = store.PlanRestore(w.ctx(), l.names)
	if err != nil {
		w.fail("sink %s: plan to restore its lane: %v", l.name, err)
	}
	if at.Own() && m.Offset != at.Offset {
		w.fail("sink %s: its lane is restored at offset %s, and was at %s", l.name, m.Offset, at.Offset)
	}
	w.say("the lane of sink %s is restored at offset %s", l.name, m.Offset)
	if err := store.Apply(w.ctx(), m); err != nil {
		w.fail("sink %s: restore its lane: %v", l.name, err)
	}
	l.retired = false
	w.check()
	w.attach(l)
}

// refusedRetired attaches to a retired lane in vain.
func (w *world) refusedRetired(l *modelLane) {
	w.t.Helper()
	s := w.openStream("")
	lane, err := s.Lane(l.name)
	if err != nil {
		w.fail("%v", err)
	}
	_, err = lane.Consumer(w.ctx())
	if retired := (*flusso.RetiredError)(nil); !errors.As(err, &retired) {
		w.fail("sink %s attaches to a retired lane: %v", l.name, err)
	}
	w.stop(s)
	w.pass(15 * time.Second) // its member leaves
}
