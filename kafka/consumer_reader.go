package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/group"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// laneMark is what a commit says of the last item below it.
type laneMark struct {
	end         flusso.Offset // offset after the item's last record
	leaderEpoch int32         // of that record, -1 when unknown
	sequence    uint64        // 0: no item of this lane was acked
	through     flusso.Position
	epoch       uint64 // writer epoch
	topicID     [16]byte
	incarnation string
}

// laneReader is what a lane's consumer knows beyond the group's.
type laneReader struct {
	lane  topics.Lane
	store *offsets.Store
}

var _ group.Reader[flusso.LaneItem, laneMark] = (*laneReader)(nil)

// Attach implements [group.Reader]: it decides by the committed metadata, the
// mirror and the log where to begin, and looks whether the item before that
// is still the one that was acked.
func (l *laneReader) Attach(ctx context.Context, c group.Committed) (group.Start[flusso.LaneItem, laneMark], error) {
	var none group.Start[flusso.LaneItem, laneMark]
	commit := laneCommit(c)
	mirror := offsets.Commit{State: offsets.Missing, Offset: flusso.NoOffset, LeaderEpoch: -1}
	if !commit.Own() {
		mirrors, err := l.store.Mirror(ctx, l.lane.Pipeline, []topics.Lane{l.lane})
		if err != nil {
			return none, l.attachErr(err)
		}
		mirror = mirrors[l.lane]
	}
	ends, err := l.store.Ends(ctx, []topics.Lane{l.lane})
	if err != nil {
		return none, l.attachErr(err)
	}
	d := offsets.Start(l.lane, commit, mirror, ends[l.lane])
	if d.Err != nil {
		return none, l.attachErr(l.withNext(ctx, d.Err))
	}
	mark, err := l.before(ctx, d, commit, mirror, ends[l.lane])
	if err != nil {
		return none, l.attachErr(err)
	}
	// An offset set by hand may lie within an item: it comes whole.
	unknown := d.Sequence == 0 && mark.sequence == 0
	if unknown { // no item ends below it
		mark.end = ends[l.lane].Start
	}
	again := func(behind laneMark) group.Reading[flusso.LaneItem, laneMark] {
		a := assembler{lane: l.lane, mark: behind, any: unknown && behind.sequence == 0 && behind.end > 0}
		return group.Reading[flusso.LaneItem, laneMark]{Offset: behind.end, LeaderEpoch: behind.leaderEpoch, Read: a.read}
	}
	start := group.Start[flusso.LaneItem, laneMark]{
		Reading: again(mark), Floor: d.Offset, Mark: mark, Again: again,
		Commit: commit.State == offsets.Missing && mark.sequence > 0, // the mirror had it: the group expired
	}
	start.LeaderEpoch = -1
	if commit.State == offsets.Present && commit.Offset == start.Offset {
		start.LeaderEpoch = commit.LeaderEpoch
	}
	return start, nil
}

func (l *laneReader) attachErr(err error) error {
	return kafkaerr.Wrap("attach to lane of sink "+l.lane.Sink+" (topic "+l.lane.Topic()+", group "+l.lane.Group()+")", err)
}

func laneCommit(c group.Committed) offsets.Commit {
	if !c.Found {
		return offsets.Commit{State: offsets.Missing, Offset: flusso.NoOffset, LeaderEpoch: -1}
	}
	commit := offsets.Commit{State: offsets.Present, Offset: c.Offset, LeaderEpoch: c.LeaderEpoch, Raw: c.Metadata}
	if m, err := wire.ParseMetadata(c.Metadata); err == nil {
		commit.Meta = &m
	}
	return commit
}

// before returns the mark of the last item below the start, compared with what
// the metadata says of it.
func (l *laneReader) before(ctx context.Context, d offsets.StartDecision, commit, mirror offsets.Commit, ends offsets.Ends) (laneMark, error) {
	mark := laneMark{end: d.Offset, leaderEpoch: -1, topicID: ends.TopicID}
	acked := commit // what the start rests on
	if !commit.Own() {
		acked = mirror
	}
	known := d.Sequence != 0 && acked.Own()
	if known {
		meta := acked.Meta
		mark.leaderEpoch = acked.LeaderEpoch
		mark.sequence, mark.through = meta.Sequence, meta.Through
		mark.epoch, mark.incarnation = meta.Epoch, meta.Incarnation
	}
	if d.Sequence == 1 && mark.sequence == 0 {
		return mark, nil // the first item of the lane comes next
	}
	found, err := l.store.Below(ctx, l.lane, d.Offset)
	switch {
	case errors.Is(err, offsets.ErrUnknown):
		return mark, nil // trimmed; the sequence of the next item tells
	case err != nil:
		return mark, err
	case !known:
		h := found.Header
		return laneMark{
			end: found.Next(), leaderEpoch: found.LeaderEpoch, sequence: h.Sequence, through: h.Through,
			epoch: h.Epoch, topicID: ends.TopicID, incarnation: h.Incarnation,
		}, nil
	}
	return mark, offsets.Confirm(l.lane, acked, found)
}

// withNext completes a gap error by what is there behind the gap.
func (l *laneReader) withNext(ctx context.Context, err error) error {
	if gap := (*flusso.GapError)(nil); errors.As(err, &gap) && gap.To >= 0 {
		if found, ferr := l.store.From(ctx, l.lane, gap.To); ferr == nil {
			gap.Next = found.Header.Position
		}
	}
	return err
}

// Commit implements [group.Reader].
func (l *laneReader) Commit(floor flusso.Offset, mark laneMark, _ []laneMark) group.Commit {
	return group.Commit{
		Offset: floor, LeaderEpoch: mark.leaderEpoch,
		Metadata: wire.FormatMetadata(wire.Metadata{
			Offset: floor, Through: mark.through, Sequence: mark.sequence, Epoch: mark.epoch,
			TopicID: mark.topicID, Incarnation: mark.incarnation,
		}),
	}
}

// Broken implements [group.Reader]: every way in which what comes next can be
// gone is a gap.
func (l *laneReader) Broken(ctx context.Context, next flusso.Offset, mark laneMark, err error) error {
	gap := &flusso.GapError{
		Sink: l.lane.Sink, Topic: l.lane.Topic(), Group: l.lane.Group(),
		From: next, To: flusso.NoOffset, Acked: mark.through,
	}
	switch kafkaerr.Classify(err) {
	case kafkaerr.Missing:
		gap.Cause = "topic deleted"
		return fmt.Errorf("%w: %w", gap, err)
	case kafkaerr.Recreated:
		gap.Cause = "topic recreated"
	default:
		gap.Cause = "out of the log's range"
		if errors.Is(err, group.ErrRewritten) {
			gap.Cause = group.ErrRewritten.Error()
		}
	}
	if ends, eerr := l.store.Ends(ctx, []topics.Lane{l.lane}); eerr == nil {
		e := ends[l.lane]
		gap.To = e.Start
		if gap.Cause == "out of the log's range" {
			switch {
			case next < e.Start:
				gap.Cause = "below the log start"
			case next > e.High:
				gap.From, gap.To = e.High, next
				gap.Cause = fmt.Sprintf("the log ends at offset %s: it was truncated", e.High)
			}
		}
	}
	if loss, ok := errors.AsType[*kgo.ErrDataLoss](err); ok {
		gap.From, gap.To = flusso.Offset(loss.ResetTo), flusso.Offset(loss.ConsumedTo)
		gap.Cause = "the log was truncated after an election"
	}
	return fmt.Errorf("%w: %w", l.withNext(ctx, gap), err)
}

// assembler makes items of records. It belongs to one attach.
type assembler struct {
	lane    topics.Lane
	mark    laneMark // of the item before
	any     bool     // the next item may have any sequence
	records wire.Gather
}

// read takes one record.
func (a *assembler) read(r *kgo.Record, add func(group.Item[flusso.LaneItem, laneMark])) (pending int64, err error) {
	h, ends, err := a.records.Add(r)
	if err != nil {
		return a.records.Bytes, a.malformed(err)
	}
	if !ends {
		return a.records.Bytes, nil
	}
	if h.Sequence != a.mark.sequence+1 && !a.any {
		return a.records.Bytes, a.gap(h)
	}
	if h.Epoch < a.mark.epoch {
		return a.records.Bytes, a.malformed(&wire.FormatError{
			What: "item", Topic: r.Topic, Offset: flusso.Offset(r.Offset),
			Reason: fmt.Sprintf("writer epoch %d follows %d", h.Epoch, a.mark.epoch),
		})
	}
	endOnly := a.records.EndOnly(h)
	records, size := a.records.Take()
	mark := laneMark{
		end: flusso.Offset(r.Offset + 1), leaderEpoch: r.LeaderEpoch, sequence: h.Sequence, through: h.Through,
		epoch: h.Epoch, topicID: a.mark.topicID, incarnation: h.Incarnation,
	}
	if a.any && endOnly {
		// The log starts inside an item that was acked: trimming keeps its
		// last record.
		a.any, a.mark = false, mark
		a.records.Reuse(records)
		return 0, nil
	}
	item, err := wire.DecodeRecords(records, h)
	a.records.Reuse(records)
	if err != nil {
		return size, a.malformed(err)
	}
	a.any, a.mark = false, mark
	add(group.Item[flusso.LaneItem, laneMark]{Item: item, Mark: mark, End: mark.end, Size: size})
	return 0, nil
}

func (a *assembler) malformed(err error) error {
	return fmt.Errorf("read lane of sink %q (group %s, after sequence %d): %w", a.lane.Sink, a.lane.Group(), a.mark.sequence, err)
}

func (a *assembler) gap(h wire.Header) error {
	first := a.records.Records[0]
	cause := fmt.Sprintf("sequence %d follows %d", h.Sequence, a.mark.sequence)
	if a.mark.sequence == 0 {
		cause = fmt.Sprintf("the first item has sequence %d, and nothing was acked before it", h.Sequence)
	} else if h.Sequence <= a.mark.sequence {
		cause += ": the log was written anew"
	}
	return &flusso.GapError{
		Sink: a.lane.Sink, Topic: a.lane.Topic(), Group: a.lane.Group(),
		From: a.mark.end, To: flusso.Offset(first.Offset), Acked: a.mark.through, Next: h.Position, Cause: cause,
	}
}
