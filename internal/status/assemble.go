package status

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
	"github.com/flusso/flusso-kafka/watermark"
)

// report puts what was read together.
func (p *parts) report() *Report {
	r := &Report{
		Pipeline: p.pipeline.String(), At: p.at.UTC().Truncate(time.Millisecond),
		Findings: []Finding{}, Lanes: make([]Lane, 0, len(p.lanes)), Requests: []Request{},
		Watermark: p.watermark(), Writer: p.writer(), partly: p.partly,
	}
	for _, l := range p.lanes {
		r.Lanes = append(r.Lanes, p.lane(l))
	}
	if p.request != nil {
		r.RequestsError = p.request.Error()
	} else {
		r.Requests, r.MoreRequests = append(r.Requests, p.requests...), p.more
	}
	if p.settled != nil {
		r.SettingsError = p.settled.Error()
	}
	return r
}

func (p *parts) watermark() Watermark {
	out := Watermark{Holders: []string{}, Floors: []Floor{}, Behind: "0", Incarnation: p.in.name, IncarnationFrom: p.in.from}
	if p.floor != nil && len(p.floors) == 0 {
		out.Error = fmt.Sprintf("look up the floors of pipeline %s: %v", p.pipeline, p.floor)
		return out
	}
	w := watermark.Min(p.floors, p.in.name, p.at)
	out.Position, out.Behind = Position(w.Position), strconv.FormatUint(uint64(w.Behind), 10)
	out.Holders = append(out.Holders, w.Holders...)
	for _, f := range w.Floors {
		out.Floors = append(out.Floors, Floor{f.Sink, f.State, Position(f.Through), Offset(f.Offset), f.Detail})
	}
	var oldest time.Duration
	known := len(w.Holders) > 0
	for l, lag := range p.lags {
		if slices.Contains(w.Holders, l.Sink) {
			known = known && lag.Known
			oldest = max(oldest, lag.Age)
		}
	}
	if known {
		out.HoldsForSeconds = new(oldest.Seconds())
	}
	return out
}

func (p *parts) lane(l topics.Lane) Lane {
	lag := p.lags[l]
	out := Lane{
		Sink: l.Sink, Topic: l.Topic(), Group: l.Group(),
		Known: lag.Known && lag.Err == nil, Members: []Member{},
		StartOffset: Offset(flusso.NoOffset), AckedOffset: Offset(p.look.Commits[l].Offset), TailOffset: Offset(flusso.NoOffset),
		MirrorOffset: Offset(flusso.NoOffset),
	}
	if m := p.look.Mirrors[l]; m.Own() {
		out.MirrorOffset = Offset(m.Offset)
	}
	if t := p.look.Tails[l]; t.Err == nil {
		out.TopicID = topics.IDString(t.TopicID)
		out.StartOffset = Offset(t.Start)
		if t.Found {
			out.Newest = NewItem(t.At, &t.Header)
		}
	} else {
		out.TopicMissing = kafkaerr.Classify(t.Err) == kafkaerr.Missing
	}
	out.fill(lag)
	out.State = stateOf(lag, p.floorOf(l.Sink))
	if out.State == Retired {
		out.Retired = retirement(p.look.Commits[l], p.look.Mirrors[l])
	}
	out.Consumer = UnknownConsumer
	switch g := p.groups[l.Group()]; {
	case p.partly:
	case g.err != nil:
		out.ConsumerError = g.err.Error()
	case len(g.members) == 0:
		out.Consumer = Detached
	default:
		out.Consumer = Attached
		for _, m := range g.members {
			out.Members = append(out.Members, m.Member)
		}
	}
	out.Retention = p.retention(l, lag)
	return out
}

// fill takes over a lag. Nothing of a look-up that failed counts.
func (out *Lane) fill(lag offsets.Lag) {
	if lag.Err != nil {
		out.Error = lag.Err.Error()
		return
	}
	out.Acked, out.Tail, out.TailOffset = Position(lag.Through), Position(lag.NewestTo), Offset(lag.Tail)
	out.AckedTotals, out.TailTotals = totals(lag.AckedTotals), totals(lag.TailTotals)
	if out.Known {
		out.Batches, out.Envelopes, out.Bytes, out.Changes = &lag.Batches, &lag.Envelopes, &lag.Bytes, &lag.Changes
		out.Seconds = new(lag.Age.Seconds())
	} else {
		out.Retained = totals(&lag.Retained)
	}
	if f := lag.First; f != nil {
		out.First = NewItem(f.At, &f.Header)
	}
	if g := lag.Gap; g != nil {
		out.Gap = &LaneGap{From: Offset(g.From), To: Offset(g.To)}
		if g.Known {
			out.Gap.Items = &g.Items
		}
	}
}

// retirement is on record in the commit, or in the mirror where the group
// expired.
func retirement(commits ...offsets.Commit) *Retirement {
	for _, c := range commits {
		if c.Own() && !c.Meta.Retired.IsZero() {
			return &Retirement{c.Meta.Retired.By, c.Meta.Retired.At.UTC(), c.Meta.Retired.Why}
		}
	}
	return nil
}

// NewItem returns an item by its header, which is at an offset.
func NewItem(at flusso.Offset, h *offsets.Header) *Item {
	return &Item{
		Offset: Offset(at), Kind: h.Kind.String(), Position: Position(h.Position), Through: Position(h.Through),
		Sequence: h.Sequence, Envelopes: h.Envelopes, Changes: h.Changes, Records: h.Records,
		Indexes: h.Indexes, BuiltAt: h.BuiltAt.UTC(), Incarnation: h.Incarnation, Epoch: h.Epoch,
	}
}

func totals(t *offsets.Totals) *Totals {
	if t == nil {
		return nil
	}
	return &Totals{t.Batches, t.Envelopes, t.Bytes, t.Changes}
}

// stateOf names a lane's state: a floor that must not count comes first, then
// what could not be looked up.
func stateOf(lag offsets.Lag, f flusso.LaneFloor) LaneState {
	switch {
	case f.State == flusso.FloorRetired:
		return Retired
	case f.State == flusso.FloorRecreated, f.State == flusso.FloorUnverified:
		return LaneState(f.State)
	case lag.Err != nil, f.State == flusso.FloorUnknown, f.State == "":
		return Errored
	case f.State == flusso.FloorMissing:
		return LaneState(f.State)
	case lag.Gap != nil && (!lag.Gap.Known || lag.Gap.Items > 0):
		return Gap
	case f.State == flusso.FloorOther:
		return LaneState(f.State)
	case lag.Batches == 0:
		return CaughtUp
	case lag.Seeding:
		return Seeding
	}
	return Behind
}

func (p *parts) floorOf(sink string) flusso.LaneFloor {
	for _, f := range p.floors {
		if f.Sink == sink {
			return f
		}
	}
	return flusso.LaneFloor{Sink: sink}
}

func (p *parts) retention(l topics.Lane, lag offsets.Lag) Retention {
	var out Retention
	if p.partly {
		return out
	}
	if p.kept.err == nil {
		out.OffsetsSeconds = new(p.kept.lasts.Seconds())
	} else {
		out.OffsetsError = p.kept.err.Error()
	}
	t, ok := p.settings[l.Topic()]
	switch {
	case p.settled != nil || !ok:
		return out
	case t.Err != nil:
		if !t.Missing() {
			out.Error = t.Err.Error()
		}
		return out
	}
	number := func(setting string) *int64 {
		n, err := strconv.ParseInt(t.Settings[setting], 10, 64)
		if err != nil {
			return nil
		}
		return &n
	}
	out.Milliseconds, out.Bytes = number(topics.RetentionMs), number(topics.RetentionBytes)
	if lag.Err == nil && lag.First != nil && out.Milliseconds != nil && *out.Milliseconds >= 0 {
		until := lag.First.Header.BuiltAt.Add(time.Duration(*out.Milliseconds) * time.Millisecond).Sub(p.at)
		out.RiskSeconds = new(max(0, until.Seconds()))
	}
	return out
}

// standing is what a collector remembers of a lane, to tell for how long it
// has not moved although something waits.
type standing struct {
	offset   Offset
	topicID  string
	since    time.Time
	attached map[string]bool // owners of the lane seen since
}

// remember compares a report with what was there before.
func (c *Collector) remember(p *parts, r *Report) {
	if len(c.sinks) == 0 {
		for l := range c.known { // a retired lane may be deleted
			i, ok := slices.BinarySearchFunc(r.Lanes, l.Sink, func(l Lane, sink string) int { return cmp.Compare(l.Sink, sink) })
			if ok && r.Lanes[i].State == Retired {
				delete(c.known, l)
			}
		}
	}
	for i := range r.Lanes {
		l := &r.Lanes[i]
		if l.Error != "" && l.AckedOffset < 0 {
			continue // nothing was seen
		}
		s, seen := c.stood[l.Sink]
		idle := l.Batches != nil && *l.Batches == 0
		if !seen || idle || s.offset != l.AckedOffset || s.topicID != l.TopicID {
			s = standing{l.AckedOffset, l.TopicID, p.at, make(map[string]bool)}
		}
		for _, m := range p.groups[l.Group].members {
			if m.Owner { // replicas that stand by change nothing
				s.attached[m.id] = true
			}
		}
		c.stood[l.Sink] = s
		if seen {
			l.StandsSeconds = new(p.at.Sub(s.since).Seconds())
		}
		l.Attaches = len(s.attached)
	}
}
