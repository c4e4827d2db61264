package kafka

import (
	"errors"
	"testing"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
)

// step is one batch offered to a lane and what must become of it.
type step struct {
	at      flusso.Position
	more    bool
	dropped bool
	fails   bool
}

func TestAdmission(t *testing.T) {
	tests := []struct {
		name  string
		start admission
		steps []step
	}{
		{"B10 positions strictly increase", admission{}, []step{
			{at: 5}, {at: 5, fails: true}, {at: 4, fails: true}, {at: 6},
		}},
		{"B10 equal only behind more, and then required", admission{}, []step{
			{at: 5, more: true},
			{at: 6, fails: true},
			{at: 4, fails: true},
			{at: 5, more: true},
			{at: 5},
			{at: 5, fails: true},
			{at: 6},
		}},
		{"B9 replays are dropped until the lane goes on", admission{newest: 10}, []step{
			{at: 8, dropped: true}, {at: 10, dropped: true}, {at: 9, dropped: true}, {at: 11}, {at: 11, fails: true}, {at: 10, fails: true},
		}},
		{"B9 a replayed large transaction is dropped whole", admission{newest: 10}, []step{
			{at: 10, more: true, dropped: true}, {at: 10, more: true, dropped: true}, {at: 10, dropped: true}, {at: 12},
		}},
		{"B9 behind an unfinished more the position is published again", admission{newest: 10, more: true}, []step{
			{at: 9, dropped: true}, {at: 11, fails: true}, {at: 10, more: true}, {at: 10}, {at: 11},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, found := tt.start, tt.start
			for i, s := range tt.steps {
				b := &flusso.Batch{Position: s.at, More: s.more}
				if held := found.holds(s.at); held != s.dropped {
					t.Fatalf("step %d (%+v): got dropped %t", i, s, held)
				} else if held {
					continue
				}
				next, err := a.next("audit", b)
				if (err != nil) != s.fails {
					t.Fatalf("step %d (%+v): got error %v", i, s, err)
				}
				if wrong := (*flusso.PositionError)(nil); err != nil && !errors.As(err, &wrong) {
					t.Fatalf("step %d: got %v, want a *flusso.PositionError", i, err)
				}
				if err == nil {
					found = admission{}
				}
				a = next
			}
		})
	}
}

func TestTailOf(t *testing.T) {
	found := offsets.Tail{Found: true, Header: wire.Header{
		Sequence: 7, Through: 40, Newest: 50, Incarnation: "a", Totals: wire.Totals{Batches: 7, Envelopes: 9},
	}}
	tail, adm := tailOf(found, "a")
	if want := (admission{newest: 50, more: true}); adm != want {
		t.Errorf("same incarnation: got admission %+v, want %+v", adm, want)
	}
	h := tail.next(&flusso.Batch{Position: 50, Envelopes: make([]flusso.Envelope, 2), Changes: 3}, 100, "a", 2, time.Time{})
	if h.Sequence != 8 || h.Through != 50 || h.Newest != 50 || h.Totals != (wire.Totals{Batches: 8, Envelopes: 11, Bytes: 100, Changes: 3}) {
		t.Errorf("got header %+v", h)
	}
	tail, adm = tailOf(found, "b")
	if adm != (admission{}) || tail.through != 0 || tail.newest != 0 || tail.sequence != 7 || tail.totals.Batches != 7 {
		t.Errorf("other incarnation: got %+v %+v: positions start at none, counts go on", tail, adm)
	}
	h = tail.next(&flusso.SnapshotComplete{Indexes: []string{"i"}}, 0, "b", 3, time.Time{})
	if h.Through != 0 || h.Sequence != 8 || h.Totals.Batches != 8 {
		t.Errorf("got marker header %+v", h)
	}
}

func TestTrimQueue(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	q := &trimQueue{}
	for i, s := range []struct {
		floor flusso.Offset
		now   int
		want  flusso.Offset
	}{
		{10, 0, -1},
		{20, 2, -1},
		{20, 4, -1},
		{30, 5, 10},
		{30, 6, -1},
		{30, 7, 20},
		{25, 8, -1}, // rewound: 30 is not acked any more
		{25, 12, -1},
		{25, 13, 25},
		{25, 30, -1},
	} {
		got, ok := q.due(s.floor, at(s.now), 5*time.Minute)
		if !ok {
			got = -1
		}
		if got != s.want {
			t.Errorf("step %d: floor %d at minute %d: got %d, want %d", i, s.floor, s.now, got, s.want)
		}
	}
}
