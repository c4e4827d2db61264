package offsets

import (
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// Verdict is what a commit is worth for the watermark.
type Verdict struct {
	State   flusso.FloorState
	Through flusso.Position // NoPosition unless State is FloorAcked
	Offset  flusso.Offset   // the committed offset, NoOffset when there is none
	// Read says that the commit is not ours but lies within what was acked:
	// State is then FloorAcked without a through, and [Verdict.Resolve] with
	// the newest item below Offset completes it.
	Read   bool
	Detail string
}

// Judge decides what a lane's commit is worth, given what the mirror holds
// (nil State Missing when there is none), the topic's ID of today and the
// incarnation that counts.
//
//   - Our metadata, written for that very offset: acked up to its through, when
//     topic and incarnation are the same. It counts by itself; the mirror is
//     not needed. With a retirement in it the lane is retired, in whatever
//     incarnation.
//   - No commit, and a retirement in the mirror: the group expired, and the lane
//     still is retired.
//   - Anything else was set by another tool. At or below the mirror's offset
//     it is within what was acked; ahead of it, or without a mirror of the same
//     topic, it proves nothing: unverified. Offset 0 is never ahead.
//   - A failed look-up, of the commit or of a mirror that is needed, is
//     unknown; never the value before.
//
// It is pure.
func Judge(commit, mirror Commit, topicID [16]byte, incarnation string) Verdict {
	v := Verdict{Offset: commit.Offset}
	switch {
	case commit.State == Failed:
		v.State, v.Offset, v.Detail = flusso.FloorUnknown, flusso.NoOffset, errText(commit.Err)
		return v
	case commit.State == Missing && anchors(mirror, topicID) && !mirror.Meta.Retired.IsZero():
		v.State, v.Offset = flusso.FloorRetired, flusso.NoOffset
		v.Detail = retiredText(mirror.Meta.Retired) + "; its group expired since"
		return v
	case commit.State == Missing && mirror.State == Failed && mirror.Err != nil:
		v.State, v.Offset = flusso.FloorUnknown, flusso.NoOffset
		v.Detail = "no offset is committed, and the mirror, which would tell whether the lane is retired, could not be read: " + errText(mirror.Err)
		return v
	case commit.State == Missing:
		v.State, v.Offset, v.Detail = flusso.FloorMissing, flusso.NoOffset, "the sink never attached, or its group expired"
		if anchors(mirror, topicID) {
			v.Detail = fmt.Sprintf("the group expired; offset %s was verified before, and the sink resumes there", mirror.Offset)
		}
		return v
	case commit.Own():
		return judgeOwn(v, commit.Meta, topicID, incarnation)
	case commit.Offset == 0:
		v.State, v.Detail = flusso.FloorNothing, "rewound to the beginning by another tool"
		return v
	case mirror.State == Failed:
		v.State, v.Detail = flusso.FloorUnknown, "the offset was set by another tool, and the mirror could not be read: "+errText(mirror.Err)
		return v
	case !anchors(mirror, topicID):
		v.State, v.Detail = flusso.FloorUnverified, "the offset was set by another tool, and no verified offset is on record to compare it with"
		return v
	case commit.Offset > mirror.Offset:
		v.State = flusso.FloorUnverified
		v.Detail = fmt.Sprintf("the offset was set by another tool, ahead of offset %s, the last that was verified (through %s)",
			mirror.Offset, mirror.Meta.Through)
		return v
	default:
		v.State, v.Read, v.Detail = flusso.FloorAcked, true, "rewound by another tool"
		return v
	}
}

func judgeOwn(v Verdict, m *Metadata, topicID [16]byte, incarnation string) Verdict {
	if m.TopicID != topicID {
		v.State = flusso.FloorRecreated
		v.Detail = fmt.Sprintf("committed for topic ID %s, the lane's is %s now", topics.IDString(m.TopicID), topics.IDString(topicID))
		return v
	}
	if !m.Retired.IsZero() {
		v.State, v.Detail = flusso.FloorRetired, retiredText(m.Retired)
		return v
	}
	if m.Sequence == 0 {
		v.State, v.Detail = flusso.FloorNothing, "attached, nothing acked yet"
		return v
	}
	return v.acked(m.Incarnation, m.Through, incarnation)
}

// retiredText says who retired a lane, when and why.
func retiredText(r Retirement) string {
	return fmt.Sprintf("by %s at %s: %s", r.By, r.At.UTC().Format(time.RFC3339), r.Why)
}

// acked judges a through that was acked in an incarnation.
func (v Verdict) acked(in string, through flusso.Position, incarnation string) Verdict {
	v.Through = flusso.NoPosition
	switch {
	case in != incarnation:
		v.State = flusso.FloorOther
		v.Detail = fmt.Sprintf("acked through %s of incarnation %s", through, in)
	case through == flusso.NoPosition:
		v.State, v.Detail = flusso.FloorNothing, "acked nothing that has a position"
	default:
		v.State, v.Through = flusso.FloorAcked, through
	}
	return v
}

// Resolve completes a verdict with Read set, given the newest item below its
// offset.
func (v Verdict) Resolve(f Found, incarnation string) Verdict {
	v.Read = false
	return v.acked(f.Header.Incarnation, f.Header.Through, incarnation)
}

// anchors reports whether a mirror says what was acked of the topic.
func anchors(mirror Commit, topicID [16]byte) bool {
	return mirror.Own() && mirror.Meta.TopicID == topicID
}

func errText(err error) string {
	if err == nil {
		return "the look-up failed"
	}
	return err.Error()
}

// Floor returns the verdict as the floor of a sink.
func (v Verdict) Floor(sink string) flusso.LaneFloor {
	return flusso.LaneFloor{Sink: sink, State: v.State, Through: v.Through, Offset: v.Offset, Detail: v.Detail}
}

// StartDecision is where an attach begins, or why it must not.
type StartDecision struct {
	Offset flusso.Offset // where to begin to read; NoOffset with Err
	// Sequence is the sequence the first item there must have; 0 when it is
	// not known and the item below Offset tells (see [Store.Below]). Any
	// other is a gap.
	Sequence uint64
	Through  flusso.Position // through of what is acked at Offset, NoPosition when none or not known
	From     string          // what it rests on: "commit", "rewind", "mirror" or "log start"
	// Err is a [*flusso.GapError] when unacked items are gone (a
	// [*RecreatedError] is one too), a [*flusso.RetiredError], a
	// [*flusso.UnverifiedError] when the offset was moved forward by another
	// tool, or the failed look-up.
	Err error
}

// Start decides where a consumer of the lane begins, given what its group and
// the mirror hold and where the log is. It is pure. The rules are those of
// [Judge]; a lane without commit and mirror begins at the log start, where the
// item with sequence 1 must be.
func Start(lane topics.Lane, commit, mirror Commit, ends Ends) StartDecision {
	st := starter{lane: lane, ends: ends, mirror: mirror}
	switch {
	case ends.Err != nil:
		return stop(ends.Err)
	case commit.State == Failed:
		return stop(commit.Err)
	case commit.Own():
		return st.at("commit", commit.Offset, commit.Meta)
	case commit.State == Present && commit.Offset == 0:
		return st.at("rewind", 0, nil)
	case mirror.State == Failed && mirror.Err != nil:
		return stop(mirror.Err)
	case commit.State == Missing && mirror.Own():
		return st.at("mirror", mirror.Offset, mirror.Meta)
	case commit.State == Missing:
		return StartDecision{Offset: ends.Start, Sequence: 1, From: "log start"}
	case !anchors(mirror, ends.TopicID) || commit.Offset > mirror.Offset:
		return st.unverified(commit)
	default:
		return st.at("rewind", commit.Offset, nil)
	}
}

func stop(err error) StartDecision { return StartDecision{Offset: flusso.NoOffset, Err: err} }

type starter struct {
	lane   topics.Lane
	mirror Commit
	ends   Ends
}

// at begins at off, which m was written for; m is nil where another tool set it.
func (st starter) at(from string, off flusso.Offset, m *Metadata) StartDecision {
	d := StartDecision{Offset: off, From: from}
	gap := &flusso.GapError{Sink: st.lane.Sink, Topic: st.lane.Topic(), Group: st.lane.Group(), From: off, To: st.ends.Start}
	if m != nil {
		d.Sequence, d.Through = m.Sequence+1, m.Through
		gap.Acked = m.Through
		if m.TopicID != st.ends.TopicID {
			gap.Cause = "topic recreated"
			return stop(&RecreatedError{Lane: st.lane, Committed: m.TopicID, Now: st.ends.TopicID, gap: gap})
		}
		if !m.Retired.IsZero() {
			return stop(retiredError(st.lane, m.Retired))
		}
	}
	switch {
	case off < st.ends.Start:
		gap.Cause = "below the log start"
		return stop(gap)
	case off > st.ends.High:
		gap.From, gap.To = st.ends.High, off
		gap.Cause = fmt.Sprintf("the log ends at offset %s, below the committed offset: it was truncated", st.ends.High)
		return stop(gap)
	}
	return d
}

func (st starter) unverified(commit Commit) StartDecision {
	err := &flusso.UnverifiedError{
		Sink: st.lane.Sink, Topic: st.lane.Topic(), Group: st.lane.Group(),
		Committed: commit.Offset, Acked: flusso.NoOffset,
	}
	if anchors(st.mirror, st.ends.TopicID) {
		err.Acked, err.Through = st.mirror.Offset, st.mirror.Meta.Through
	}
	return stop(err)
}

// Confirm compares a commit of ours with the newest item below its offset, as
// [Store.Below] returns it: the log may have been written anew below the
// offset, after an unclean election. It returns nil when they agree, or when
// the commit says nothing of an item, else a [*flusso.GapError].
func Confirm(lane topics.Lane, commit Commit, below Found) error {
	if !commit.Own() || commit.Meta.Sequence == 0 {
		return nil
	}
	m, h := commit.Meta, &below.Header
	if h.Sequence == m.Sequence && h.Epoch == m.Epoch && h.Incarnation == m.Incarnation && h.Through == m.Through {
		return nil
	}
	return &flusso.GapError{
		Sink: lane.Sink, Topic: lane.Topic(), Group: lane.Group(),
		From: below.At, To: commit.Offset, Acked: m.Through, Next: h.Position,
		Cause: fmt.Sprintf("the log was written anew: sequence %d of writer epoch %d was acked at offset %s, sequence %d of writer epoch %d is there",
			m.Sequence, m.Epoch, commit.Offset, h.Sequence, h.Epoch),
	}
}
