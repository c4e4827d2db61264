package offsets_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/offsets"
)

var (
	idNow = [16]byte{1}
	idOld = [16]byte{2}
)

func ours(off flusso.Offset, change ...func(*offsets.Metadata)) offsets.Commit {
	m := &offsets.Metadata{Offset: off, Through: 40, Sequence: 5, Epoch: 2, TopicID: idNow, Incarnation: inc}
	for _, f := range change {
		f(m)
	}
	return offsets.Commit{State: offsets.Present, Offset: off, LeaderEpoch: -1, Meta: m}
}

func foreign(off flusso.Offset) offsets.Commit {
	return offsets.Commit{State: offsets.Present, Offset: off, LeaderEpoch: -1, Raw: "another tool"}
}

var (
	none   = offsets.Commit{State: offsets.Missing, Offset: flusso.NoOffset}
	broken = offsets.Commit{State: offsets.Failed, Offset: flusso.NoOffset, Err: errors.New("no answer")}
)

func setOffset(o flusso.Offset) func(*offsets.Metadata) {
	return func(m *offsets.Metadata) { m.Offset = o }
}

func setTopic(id [16]byte) func(*offsets.Metadata) {
	return func(m *offsets.Metadata) { m.TopicID = id }
}

func setIncarnation(s string) func(*offsets.Metadata) {
	return func(m *offsets.Metadata) { m.Incarnation = s }
}

func setRetired(m *offsets.Metadata) {
	m.Retired = offsets.Retirement{At: time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC), By: "ana", Why: "moved"}
}

func nothingAcked(m *offsets.Metadata)  { m.Through, m.Sequence, m.Epoch, m.Incarnation = 0, 0, 0, "" }
func snapshotsOnly(m *offsets.Metadata) { m.Through = flusso.NoPosition }

func TestC2_C3_C6_Judge(t *testing.T) {
	for _, c := range []struct {
		name           string
		commit, mirror offsets.Commit
		state          flusso.FloorState
		through        flusso.Position
		read           bool
		detail         string
	}{
		{"ours", ours(10), none, flusso.FloorAcked, 40, false, ""},
		{"ours, mirror failed", ours(10), broken, flusso.FloorAcked, 40, false, ""},
		{"ours, mirror ahead", ours(10), ours(90), flusso.FloorAcked, 40, false, ""},
		{"ours, mirror of another topic", ours(10), ours(90, setTopic(idOld)), flusso.FloorAcked, 40, false, ""},
		{"nothing acked yet", ours(10, nothingAcked), none, flusso.FloorNothing, 0, false, "nothing acked yet"},
		{"snapshots only", ours(10, snapshotsOnly), none, flusso.FloorNothing, 0, false, "no"},
		{"other incarnation", ours(10, setIncarnation("db0:slot")), none, flusso.FloorOther, 0, false, "db0:slot"},
		{"recreated", ours(10, setTopic(idOld)), ours(10), flusso.FloorRecreated, 0, false, "topic ID"},
		{"recreated, without ID", ours(10, setTopic([16]byte{})), none, flusso.FloorRecreated, 0, false, "topic ID"},
		{"recreated and other incarnation", ours(10, setTopic(idOld), setIncarnation("db0:slot")), none, flusso.FloorRecreated, 0, false, ""},
		{"retired", ours(10, setRetired), none, flusso.FloorRetired, 0, false, "by ana at 2026-03-14T12:00:00Z: moved"},
		{"retired, in another incarnation", ours(10, setRetired, setIncarnation("db0:slot")), none, flusso.FloorRetired, 0, false, "by ana"},
		{"retired, nothing acked yet", ours(10, nothingAcked, setRetired), none, flusso.FloorRetired, 0, false, "by ana"},
		{"retired, mirror is not yet", ours(10, setRetired), ours(10), flusso.FloorRetired, 0, false, "by ana"},
		{"restored, mirror is not yet", ours(10), ours(10, setRetired), flusso.FloorAcked, 40, false, ""},
		{"retired and recreated", ours(10, setRetired, setTopic(idOld)), none, flusso.FloorRecreated, 0, false, "topic ID"},
		{"retired, metadata of another offset", ours(10, setRetired, setOffset(12)), none, flusso.FloorUnverified, 0, false, ""},
		{"retired, expired", none, ours(10, setRetired), flusso.FloorRetired, 0, false, "moved; its group expired"},
		{"retired, expired and recreated", none, ours(10, setRetired, setTopic(idOld)), flusso.FloorMissing, 0, false, "never attached"},
		{"retired, then moved by another tool", foreign(10), ours(10, setRetired), flusso.FloorAcked, 0, true, "rewound"},
		{"retired, then moved forward by another tool", foreign(11), ours(10, setRetired), flusso.FloorUnverified, 0, false, "ahead"},
		{"missing", none, none, flusso.FloorMissing, 0, false, "never attached"},
		{"missing, mirror failed", none, broken, flusso.FloorUnknown, 0, false, "could not be read: no answer"},
		{"expired", none, ours(10), flusso.FloorMissing, 0, false, "offset 10 was verified"},
		{"failed", broken, ours(10), flusso.FloorUnknown, 0, false, "no answer"},
		{"zero value", offsets.Commit{}, none, flusso.FloorUnknown, 0, false, "failed"},
		{"foreign, no mirror", foreign(10), none, flusso.FloorUnverified, 0, false, "no verified offset"},
		{"foreign, mirror failed", foreign(10), broken, flusso.FloorUnknown, 0, false, "no answer"},
		{"foreign, mirror foreign", foreign(10), foreign(90), flusso.FloorUnverified, 0, false, "no verified offset"},
		{"foreign, mirror of another topic", foreign(10), ours(90, setTopic(idOld)), flusso.FloorUnverified, 0, false, "no verified offset"},
		{"foreign, mirror's metadata of another offset", foreign(10), ours(90, setOffset(5)), flusso.FloorUnverified, 0, false, "no verified offset"},
		{"foreign, ahead", foreign(11), ours(10), flusso.FloorUnverified, 0, false, "ahead of offset 10"},
		{"foreign, at the mirror", foreign(10), ours(10), flusso.FloorAcked, 0, true, "rewound"},
		{"foreign, behind", foreign(9), ours(10), flusso.FloorAcked, 0, true, "rewound"},
		{"foreign, behind, mirror of another incarnation", foreign(9), ours(10, setIncarnation("db0:slot")), flusso.FloorAcked, 0, true, "rewound"},
		{"foreign, to the beginning", foreign(0), none, flusso.FloorNothing, 0, false, "beginning"},
		{"metadata of a higher offset", ours(10, setOffset(12)), none, flusso.FloorUnverified, 0, false, ""},
		{"metadata of a lower offset, ahead", ours(12, setOffset(10)), ours(10), flusso.FloorUnverified, 0, false, "ahead"},
		{"metadata of a higher offset, behind", ours(10, setOffset(12)), ours(12), flusso.FloorAcked, 0, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := offsets.Judge(c.commit, c.mirror, idNow, inc)
			want := offsets.Verdict{State: c.state, Through: c.through, Offset: c.commit.Offset, Read: c.read, Detail: got.Detail}
			if c.commit.State != offsets.Present {
				want.Offset = flusso.NoOffset
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if !strings.Contains(got.Detail, c.detail) {
				t.Errorf("detail %q does not say %q", got.Detail, c.detail)
			}
			if (got.State == flusso.FloorAcked && !got.Read) != (got.Through != flusso.NoPosition) {
				t.Errorf("state %s with through %s", got.State, got.Through)
			}
		})
	}
}

func TestC6_Resolve(t *testing.T) {
	v := offsets.Judge(foreign(9), ours(10), idNow, inc)
	for _, c := range []struct {
		name    string
		header  offsets.Header
		state   flusso.FloorState
		through flusso.Position
	}{
		{"same incarnation", offsets.Header{Incarnation: inc, Through: 30}, flusso.FloorAcked, 30},
		{"nothing positioned", offsets.Header{Incarnation: inc}, flusso.FloorNothing, 0},
		{"other incarnation", offsets.Header{Incarnation: "db0:slot", Through: 30}, flusso.FloorOther, 0},
	} {
		got := v.Resolve(offsets.Found{At: 7, Header: c.header}, inc)
		if got.State != c.state || got.Through != c.through || got.Read || got.Offset != 9 {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
}

func TestB8_C6_Start(t *testing.T) {
	ends := offsets.Ends{TopicID: idNow, Start: 4, Stable: 60, High: 60}
	gone := &flusso.GapError{}
	unverified := &flusso.UnverifiedError{}
	for _, c := range []struct {
		name           string
		commit, mirror offsets.Commit
		ends           offsets.Ends
		want           offsets.StartDecision
		gap            *flusso.GapError
		unverified     *flusso.UnverifiedError
		says           string
	}{
		{
			name: "ours", commit: ours(10), mirror: none, ends: ends,
			want: offsets.StartDecision{Offset: 10, Sequence: 6, Through: 40, From: "commit"},
		},
		{
			name: "ours, mirror failed", commit: ours(10), mirror: broken, ends: ends,
			want: offsets.StartDecision{Offset: 10, Sequence: 6, Through: 40, From: "commit"},
		},
		{
			name: "ours, another incarnation", commit: ours(10, setIncarnation("db0:slot")), mirror: none, ends: ends,
			want: offsets.StartDecision{Offset: 10, Sequence: 6, Through: 40, From: "commit"},
		},
		{
			name: "ours, nothing acked", commit: ours(4, nothingAcked), mirror: none, ends: ends,
			want: offsets.StartDecision{Offset: 4, Sequence: 1, From: "commit"},
		},
		{
			name: "ours, at the log start", commit: ours(4), mirror: none, ends: ends,
			want: offsets.StartDecision{Offset: 4, Sequence: 6, Through: 40, From: "commit"},
		},
		{
			name: "ours, at the end", commit: ours(60), mirror: none, ends: ends,
			want: offsets.StartDecision{Offset: 60, Sequence: 6, Through: 40, From: "commit"},
		},
		{name: "ours, below the log start", commit: ours(3), mirror: none, ends: ends, gap: gone, says: "offsets 3 to 4 are gone"},
		{name: "ours, past the end", commit: ours(61), mirror: none, ends: ends, gap: gone, says: "truncated"},
		{name: "ours, recreated", commit: ours(10, setTopic(idOld)), mirror: none, ends: ends, gap: gone, says: "recreated"},
		{
			name: "never attached", commit: none, mirror: none, ends: ends,
			want: offsets.StartDecision{Offset: 4, Sequence: 1, From: "log start"},
		},
		{
			name: "expired", commit: none, mirror: ours(20), ends: ends,
			want: offsets.StartDecision{Offset: 20, Sequence: 6, Through: 40, From: "mirror"},
		},
		{name: "expired, below the log start", commit: none, mirror: ours(3), ends: ends, gap: gone, says: "offsets 3 to 4 are gone"},
		{name: "expired, recreated", commit: none, mirror: ours(20, setTopic(idOld)), ends: ends, gap: gone, says: "recreated"},
		{name: "expired, mirror failed", commit: none, mirror: broken, ends: ends, says: "no answer"},
		{name: "retired", commit: ours(10, setRetired), mirror: none, ends: ends, says: "retired by ana at 2026-03-14T12:00:00Z (moved)"},
		{name: "retired, below the log start", commit: ours(3, setRetired), mirror: none, ends: ends, says: "lane restore audit"},
		{name: "retired, expired", commit: none, mirror: ours(20, setRetired), ends: ends, says: "retired by ana"},
		{name: "retired, recreated", commit: ours(10, setRetired, setTopic(idOld)), mirror: none, ends: ends, gap: gone, says: "recreated"},
		{
			name: "restored, mirror is not yet", commit: ours(10), mirror: ours(10, setRetired), ends: ends,
			want: offsets.StartDecision{Offset: 10, Sequence: 6, Through: 40, From: "commit"},
		},
		{name: "failed", commit: broken, mirror: ours(20), ends: ends, says: "no answer"},
		{name: "ends failed", commit: ours(10), mirror: none, ends: offsets.Ends{Err: errors.New("no ends")}, says: "no ends"},
		{
			name: "rewound", commit: foreign(9), mirror: ours(10), ends: ends,
			want: offsets.StartDecision{Offset: 9, From: "rewind"},
		},
		{name: "rewound below the log start", commit: foreign(2), mirror: ours(10), ends: ends, gap: gone, says: "offsets 2 to 4 are gone"},
		{
			name: "rewound to the beginning", commit: foreign(0), mirror: none, ends: offsets.Ends{TopicID: idNow, Stable: 60, High: 60},
			want: offsets.StartDecision{Offset: 0, From: "rewind"},
		},
		{name: "rewound to the beginning, trimmed", commit: foreign(0), mirror: none, ends: ends, gap: gone, says: "offsets 0 to 4 are gone"},
		{name: "moved forward", commit: foreign(11), mirror: ours(10), ends: ends, unverified: unverified, says: "move the group back to offset 10"},
		{name: "moved, no mirror", commit: foreign(11), mirror: none, ends: ends, unverified: unverified, says: "nothing on record"},
		{name: "moved, mirror failed", commit: foreign(11), mirror: broken, ends: ends, says: "no answer"},
		{name: "moved, mirror of another topic", commit: foreign(11), mirror: ours(20, setTopic(idOld)), ends: ends, unverified: unverified, says: "nothing on record"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := offsets.Start(newLane(t, "audit"), c.commit, c.mirror, c.ends)
			if c.says == "" {
				if d := cmp.Diff(c.want, got); d != "" {
					t.Error(d)
				}
				return
			}
			if got.Err == nil || got.Offset != flusso.NoOffset || !strings.Contains(got.Err.Error(), c.says) {
				t.Fatalf("got %+v, want an error that says %q", got, c.says)
			}
			if c.gap != nil && !errors.As(got.Err, &c.gap) {
				t.Errorf("got %T, want a gap", got.Err)
			}
			if c.unverified != nil && !errors.As(got.Err, &c.unverified) {
				t.Errorf("got %T, want unverified", got.Err)
			}
			if c.gap == nil && errors.As(got.Err, &gone) || c.unverified == nil && errors.As(got.Err, &unverified) {
				t.Errorf("got %T", got.Err)
			}
		})
	}
}

func TestB8_Confirm(t *testing.T) {
	below := offsets.Found{At: 9, Header: offsets.Header{Sequence: 5, Epoch: 2, Through: 40, Incarnation: inc}}
	other := func(change func(*offsets.Header)) offsets.Found {
		f := below
		change(&f.Header)
		return f
	}
	for _, c := range []struct {
		name   string
		commit offsets.Commit
		below  offsets.Found
		gap    bool
	}{
		{"the same", ours(10), below, false},
		{"nothing acked", ours(10, nothingAcked), below, false},
		{"foreign", foreign(10), other(func(h *offsets.Header) { h.Sequence = 9 }), false},
		{"another sequence", ours(10), other(func(h *offsets.Header) { h.Sequence = 4 }), true},
		{"another writer", ours(10), other(func(h *offsets.Header) { h.Epoch = 3 }), true},
		{"another incarnation", ours(10), other(func(h *offsets.Header) { h.Incarnation = "db0:slot" }), true},
		{"another through", ours(10), other(func(h *offsets.Header) { h.Through = 41 }), true},
	} {
		err := offsets.Confirm(newLane(t, "audit"), c.commit, c.below)
		gap := (*flusso.GapError)(nil)
		if errors.As(err, &gap) != c.gap || (err != nil) != c.gap {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}
