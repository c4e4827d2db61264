package kafka_test

import (
	"errors"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// operator moves groups as the command line does.
type operator struct {
	w     *caseWorld
	store *offsets.Store
}

func (w *caseWorld) operator() operator {
	return operator{w, offsets.New(w.cluster.Client(w.t))}
}

func (o operator) retire(sink string) {
	o.w.t.Helper()
	m, err := o.store.PlanRetire(o.w.ctx(), o.w.Lane(o.w.t, sink), offsets.Retirement{At: time.Now().UTC(), By: "ana@ops-1", Why: "moved away"})
	o.w.do("plan to retire "+sink, err)
	o.w.do("retire "+sink, o.store.Apply(o.w.ctx(), m))
}

func (o operator) restore(sink string) {
	o.w.t.Helper()
	m, err := o.store.PlanRestore(o.w.ctx(), o.w.Lane(o.w.t, sink))
	o.w.do("plan to restore "+sink, err)
	o.w.do("restore "+sink, o.store.Apply(o.w.ctx(), m))
}

func (o operator) mirror(sink string) offsets.Commit {
	o.w.t.Helper()
	l := o.w.Lane(o.w.t, sink)
	got, err := o.store.Mirror(o.w.ctx(), l.Pipeline, []topics.Lane{l})
	o.w.do("mirror", err)
	return got[l]
}

// refused checks that nobody gets the lane.
func (w *caseWorld) refused(s flusso.Stream, sink string) {
	w.t.Helper()
	l, err := s.Lane(sink)
	w.do("lane", err)
	c, err := l.Consumer(w.ctx())
	retired := (*flusso.RetiredError)(nil)
	if !errors.As(err, &retired) || retired.Sink != sink || retired.By != "ana@ops-1" || retired.Why != "moved away" || retired.At.IsZero() {
		w.t.Fatalf("attach to %s: got %v, %v, want it retired by whom and why", sink, c, err)
	}
}

func (w *caseWorld) idle(s flusso.Stream, want bool) {
	w.t.Helper()
	idle, err := s.Idle(w.ctx())
	w.do("idle", err)
	if idle != want {
		w.t.Fatalf("idle is %v, want %v", idle, want)
	}
}

// A lane is retired while the engine runs: the watermark passes it, nobody can
// attach, everything published meanwhile waits in it, and the one that restores
// it gets all of that. The watermark waits for it again [C2].
func TestC2_TheWatermarkPassesARetiredLaneAndWaitsForARestoredOne(t *testing.T) {
	story(t, []string{"audit", "search"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1, 2, 3)
		audit, search := w.attach(s, "audit"), w.attach(s, "search")
		w.applies(audit, 1, 2, 3)
		w.applies(search, 1)
		w.mark(s, 1)
		op := w.operator()
		if _, err := op.store.PlanRetire(w.ctx(), w.Lane(t, "search"), offsets.Retirement{}); err == nil {
			t.Error("a retirement that says nothing was planned")
		}
		w.do("close", search.Close(w.ctx()))
		op.retire("search")

		m := w.mark(s, 3)
		if f := m.Floors[1]; f.State != flusso.FloorRetired || f.Detail == "" {
			t.Errorf("got floor %+v, want it retired", f)
		}
		w.refused(s, "search")
		w.publish(s, p, 4, 5)
		w.applies(audit, 4, 5)
		w.mark(s, 5)
		w.idle(s, true)

		// A new process sees the same, and replays nothing into either lane.
		w.sleep(30 * time.Second) // mirrored and trimmed
		w.refused(w.process("db:slot"), "search")
		w.mark(w.process("db:slot"), 5)

		op.restore("search")
		w.mark(s, 5)
		w.mark(w.process("db:slot"), 1) // reads for the first time
		w.idle(s, false)
		w.publish(s, p, 6)
		w.applies(audit, 6)
		if m := w.mark(s, 5); len(m.Holders) != 1 || m.Holders[0] != "search" {
			t.Errorf("got holders %v, want the restored lane", m.Holders)
		}
		search = w.attach(s, "search")
		w.applies(search, 2, 3, 4, 5, 6)
		w.mark(s, 6)
		w.mark(w.process("db:slot"), 6)
	})
}

// The group of a retired sink expires. The mirror holds the retirement, the
// engine keeps the mirror, and a restored lane goes on where it was.
func TestC2_ARetiredLaneStaysRetiredWhenItsGroupExpires(t *testing.T) {
	story(t, []string{"audit", "search"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1, 2)
		audit, search := w.attach(s, "audit"), w.attach(s, "search")
		w.applies(audit, 1, 2)
		w.applies(search, 1)
		w.sleep(30 * time.Second) // mirrored at this offset, not retired
		w.do("close", search.Close(w.ctx()))
		op := w.operator()
		op.retire("search")
		w.sleep(30 * time.Second)
		if m := op.mirror("search"); !m.Own() || m.Meta.Retired.Why != "moved away" {
			t.Fatalf("got mirror %+v, want the retirement in it", m)
		}
		w.DropGroup(t, "search")
		w.publish(s, p, 3)
		w.applies(audit, 3)
		w.mark(s, 3)
		w.mark(w.process("db:slot"), 3)
		w.idle(s, true)
		w.refused(s, "search")
		w.sleep(13 * time.Hour) // the mirror is committed again, or it would expire as well
		if m := op.mirror("search"); !m.Own() || m.Meta.Retired.Why != "moved away" {
			t.Fatalf("got mirror %+v, want the retirement kept", m)
		}

		op.restore("search")
		w.sleep(30 * time.Second)
		if m := op.mirror("search"); !m.Own() || !m.Meta.Retired.IsZero() {
			t.Fatalf("got mirror %+v, want it without the retirement", m)
		}
		search = w.attach(s, "search")
		w.applies(search, 2, 3)
		w.mark(w.process("db:slot"), 3)
	})
}

// A lane that nobody ever attached to is retired: the others' watermark is there
// at once, and a sink that comes after it was restored gets everything.
func TestC2_ALaneThatNeverHadASinkIsRetired(t *testing.T) {
	story(t, []string{"audit", "search"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1, 2)
		audit := w.attach(s, "audit")
		w.applies(audit, 1, 2)
		w.mark(s, flusso.NoPosition)
		op := w.operator()
		op.retire("search")
		w.mark(s, 2)
		w.refused(s, "search")
		w.sleep(30 * time.Second)
		op.restore("search")
		search := w.attach(s, "search")
		w.applies(search, 1, 2)
	})
}

// Nobody can retire a lane that is consumed: the broker refuses it.
func TestCase50_AConsumedLaneIsNotRetired(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		w.publish(s, w.commits(s), 1, 2)
		audit := w.attach(s, "audit")
		w.applies(audit, 1)
		op := w.operator()
		m, err := op.store.PlanRetire(w.ctx(), w.Lane(t, "audit"), offsets.Retirement{At: time.Now().UTC(), By: "ana", Why: "x"})
		w.do("plan", err)
		active := (*offsets.GroupActiveError)(nil)
		if err := op.store.Apply(w.ctx(), m); !errors.As(err, &active) || len(active.Members) != 1 {
			t.Fatalf("got %v, want the one member named", err)
		}
		w.applies(audit, 2)
		w.mark(s, 2)
	})
}
