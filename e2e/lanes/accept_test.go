package lanes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// groupKind is what a group's expiry goes by.
type groupKind struct{ Type, ProtocolType, State string }

func kindOf(t *testing.T, l topics.Lane) groupKind {
	t.Helper()
	adm := kadm.NewClient(probe.Client(t, containers.Shared(t).Addr()))
	described, err := adm.DescribeGroups(t.Context(), l.Group())
	if err = errors.Join(err, described[l.Group()].Err); err != nil {
		t.Fatal(err)
	}
	listed, err := adm.ListGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := described[l.Group()]
	return groupKind{listed[l.Group()].GroupType, d.ProtocolType, d.State}
}

// accept lets a lane go on at an offset, as `flusso-kafka-admin lane accept` does.
func accept(t *testing.T, l topics.Lane, to flusso.Offset) offsets.Move {
	t.Helper()
	st := store(t)
	a, err := st.PlanAccept(t.Context(), l, to)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Apply(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return a
}

// Accepting an offset, after a skip as after a gap, leaves the group of the
// type and protocol that it had: its offsets expire by the same rule (Case 13).
func TestCase13_accepting_an_offset_leaves_the_group_as_it_was(t *testing.T) {
	t.Parallel()
	p := open(t, nil, "a")
	lane := p.Lane(t, "a")
	s := use(t, p.Stream(t, inc))
	items, positions := tenTo(60)
	s.publish(s.writer("a"), items...)
	r := s.reader("a")
	r.acks(positions[:2]...)
	s.reaches(20)
	if got, want := kindOf(t, lane), (groupKind{"classic", "consumer", "Stable"}); got != want {
		t.Fatalf("with a sink attached the group is %+v, want %+v", got, want)
	}
	r.shut()
	probe.Eventually(t, "the group is empty", func(context.Context) error {
		if k := kindOf(t, lane); k.State != "Empty" {
			return errors.New("it is " + k.State)
		}
		return nil
	})
	awaitMirror(t, p.Name(), lane)
	before := kindOf(t, lane)
	if before.Type != "classic" || before.ProtocolType != "consumer" {
		t.Fatalf("without a sink the group is %+v", before)
	}

	// Somebody moved it ahead, and the skip is accepted.
	reset(t, lane, offsetAfter(t, lane, 40))
	if got := kindOf(t, lane); got != before {
		t.Errorf("after kafka-consumer-groups --reset-offsets the group is %+v, want %+v", got, before)
	}
	var skipped *flusso.UnverifiedError
	if err := s.attachFails("a"); !errors.As(err, &skipped) {
		t.Fatalf("attach to a group that was moved forward: %v, want an UnverifiedError", err)
	}
	probe.Eventually(t, "the refused sink has left", func(context.Context) error {
		if k := kindOf(t, lane); k.State != "Empty" {
			return errors.New("the group is " + k.State)
		}
		return nil
	})
	a := accept(t, lane, flusso.NoOffset)
	if a.Acked != 20 || a.Meta.Through != 40 {
		t.Errorf("accepted %+v, want through 40 behind 20", a)
	}
	if got := kindOf(t, lane); got != before {
		t.Errorf("after the offset was accepted the group is %+v, want %+v", got, before)
	}
	if c := committed(t, store(t), lane); !c.Own() || c.Offset != a.Offset {
		t.Errorf("the group has %+v, want offset %s with our metadata", c, a.Offset)
	}
	r = s.reader("a")
	if got, want := kindOf(t, lane), (groupKind{"classic", "consumer", "Stable"}); got != want {
		t.Errorf("with a sink attached again the group is %+v, want %+v", got, want)
	}
	r.acks(positions[4:5]...)
	s.reaches(50)
	r.shut()

	// Its next items are deleted, and the gap is accepted.
	p.Trim(t, "a", offsetAfter(t, lane, 60))
	s.publish(s.writer("a"), live(70))
	var gap *flusso.GapError
	if err := s.attachFails("a"); !errors.As(err, &gap) {
		t.Fatalf("attach behind a gap: %v, want a GapError", err)
	}
	probe.Eventually(t, "the refused sink has left", func(context.Context) error {
		if k := kindOf(t, lane); k.State != "Empty" {
			return errors.New("the group is " + k.State)
		}
		return nil
	})
	a = accept(t, lane, flusso.NoOffset)
	if got := kindOf(t, lane); got != before {
		t.Errorf("after the gap was accepted the group is %+v, want %+v", got, before)
	}
	s.reader("a").acks(70)
	s.reaches(70)
	t.Logf("the group stayed %+v; accepted offset %s last", before, a.Offset)
}
