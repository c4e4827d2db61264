package channel

import (
	"errors"
	"fmt"
	"slices"

	flusso "github.com/flusso/flusso-kafka"
)

// The planners run under the pipeline's lock. They move lane.planned over
// what they accept, so that the next item is checked against it although it
// may still be in line.

func (s *Stream) planItem(by *origin, l *lane, item flusso.LaneItem) (*entry, error) {
	return s.planCommit(by, flusso.Commit{Items: []flusso.Routed{{Sink: l.sink, Item: item}}})
}

func (s *Stream) planRequest(_ *origin, r flusso.Request) (*entry, error) {
	if err := flusso.CheckRequest(r, s.p.sinks); err != nil {
		return nil, err
	}
	requests := &s.p.requests
	kept := cloneRequest(r)
	return &entry{
		parts:   []part{{gate: &requests.gate, items: 1}},
		receipt: flusso.Receipt{Published: 1},
		put: func() error {
			requests.append(kept, tail{})
			return nil
		},
	}, nil
}

// delivered is an item on its way into a lane.
type delivered struct {
	lane *lane
	item flusso.LaneItem
}

func (s *Stream) planCommit(by *origin, c flusso.Commit) (*entry, error) {
	if err := checkAcked(c); err != nil {
		return nil, err
	}
	acks, err := s.planAcks(c.Acks)
	if err != nil {
		return nil, err
	}
	e := &entry{}
	var items []delivered
	before := make([]tail, 0, 4) // of each lane in e.parts
	lanes := make([]*lane, 0, 4)
	var advanced []int // lanes that get a live batch
	undo := func() {
		for i, l := range lanes {
			l.planned = before[i]
		}
	}
	for _, r := range c.Items {
		i, known := slices.BinarySearch(s.p.sinks, r.Sink)
		if !known {
			undo()
			return nil, flusso.CheckSink(r.Sink, s.p.sinks)
		}
		if err := flusso.CheckItem(r.Item); err != nil {
			undo()
			return nil, fmt.Errorf("publish to the lane of sink %q: %w", r.Sink, err)
		}
		l := s.p.lanes[i]
		at := slices.Index(lanes, l)
		if at < 0 {
			at = len(lanes)
			lanes = append(lanes, l)
			before = append(before, l.planned)
			e.parts = append(e.parts, part{gate: &l.gate})
		}
		if b, ok := r.Item.(*flusso.Batch); ok && b.Live() {
			if by.found[i].holds(b.Position) {
				e.receipt.Dropped++
				continue
			}
			if now := l.planned.in(s.incarnation); !now.follows(b.Position) {
				undo()
				return nil, &flusso.PositionError{Sink: r.Sink, Last: now.newest, LastMore: now.more, Got: b.Position}
			}
			advanced = append(advanced, i)
		}
		l.planned = l.planned.in(s.incarnation).after(r.Item)
		e.parts[at].items++
		e.receipt.Published++
		items = append(items, delivered{l, cloneItem(r.Item)})
	}
	for _, l := range advanced {
		by.found[l] = tail{} // it replays no longer: from here on it must go forward
	}
	e.put = func() error {
		for _, d := range acks {
			if err := d.ackable(); err != nil {
				return refusedAcks(err)
			}
		}
		for _, it := range items {
			it.lane.put(it.item, s.incarnation)
		}
		for _, d := range acks {
			d.ack()
		}
		return nil
	}
	return e, nil
}

// checkAcked refuses a live batch beside acks: were they refused when the
// commit's turn comes, it would stay out and be a hole in its lane.
func checkAcked(c flusso.Commit) error {
	if len(c.Acks) == 0 {
		return nil
	}
	for _, r := range c.Items {
		if b, ok := r.Item.(*flusso.Batch); ok && b != nil && b.Live() {
			return &flusso.InvalidError{
				What:   fmt.Sprintf("commit with acks for the lane of sink %q", r.Sink),
				Reason: "carries a live batch: publish live batches in commits without acks",
			}
		}
	}
	return nil
}

// refusedAcks says that a commit was left out, whether its acks were refused
// at once or when its turn came.
func refusedAcks(err error) error {
	return errors.Join(flusso.ErrRejected, fmt.Errorf("commit with acks of requests: nothing of it was published: %w", err))
}

// planAcks accepts deliveries of this stream's request lane that can be acked.
func (s *Stream) planAcks(list []flusso.Delivery[flusso.Request]) ([]*delivery[flusso.Request], error) {
	out := make([]*delivery[flusso.Request], 0, len(list))
	for _, given := range list {
		d, ok := given.(*delivery[flusso.Request])
		if !ok || d.by.s != s || d.by.log != &s.p.requests {
			return nil, &flusso.InvalidError{
				What: "commit", Reason: "an ack in it is not a delivery of this stream's request lane",
			}
		}
		if err := d.ackable(); err != nil {
			return nil, refusedAcks(err)
		}
		out = append(out, d)
	}
	return out, nil
}
