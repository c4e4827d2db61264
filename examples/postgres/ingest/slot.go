package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	flusso "github.com/flusso/flusso-kafka"
)

var errFloors = errors.New("it is not known how far every sink has acked, so it cannot be told whether the slot has passed one of them")

// checkSlot returns the sinks that the slot has passed: what the server has
// forgotten since is not in their lanes, so they have to be seeded before
// anything newer is published to them. Such a sink was left out of a run, or
// came to the pipeline after its first one.
//
// A slot that is ahead of every sink, and not because the sinks are other ones
// than in the last run, was moved by somebody else: that is an error, since
// something is going on that its owner should know of. With a lane retired it is
// not: the slot went as far as that one had acked.
//
// A session that finds a sink behind and has asked on its behalf finds it
// behind again until the sink has acked what came then: [remembered.Seeded]
// keeps it from asking each time.
func (s *session) checkSlot(ctx context.Context, mark flusso.Watermark) (passed []string, err error) {
	p, err := loadPublication(ctx, s.rows.conn, s.cfg.Publication)
	if err != nil {
		return nil, err
	}
	old := p.memory[s.cfg.Slot]
	if s.src.known != nil {
		old = s.src.known
	}
	s.seeded = make(map[string]flusso.Position)
	if old == nil {
		old = &remembered{Incarnation: s.src.incarnation}
	}
	if old.Incarnation != s.src.incarnation {
		return nil, nil // a new feed: every sink is seeded for that
	}
	maps.Copy(s.seeded, old.Seeded)
	confirmed := flusso.Position(s.confirmed)
	var highest flusso.Position
	var behind []string
	known := false // whether one of those behind was there in the last run
	retired := false
	for _, f := range mark.Floors {
		if mark.Stale || f.State == flusso.FloorUnknown {
			return nil, fmt.Errorf("sink %q: %w: %s", f.Sink, errFloors, f.Detail)
		}
		if f.State == flusso.FloorRetired {
			retired = true // nobody reads it, and whoever restores it is told what it missed
			continue
		}
		joined := old.Sinks != nil && !slices.Contains(old.Sinks, f.Sink)
		late := f.State == flusso.FloorAcked && f.Through < confirmed
		if f.State == flusso.FloorAcked {
			highest = max(highest, f.Through)
		}
		if late && s.seeded[f.Sink] < confirmed {
			behind = append(behind, f.Sink)
			known = known || !joined
		}
		switch {
		case s.cfg.TrustSlot && f.State == flusso.FloorAcked:
		case late && s.seeded[f.Sink] >= confirmed:
		case joined && f.State == flusso.FloorMissing:
			s.log.Info("the pipeline has a new sink: a snapshot of everything is asked for on its behalf", "sink", f.Sink)
			passed = append(passed, f.Sink)
		case late || joined:
			s.log.Warn("the feed went on without this sink, and changes are not in its lane: a snapshot of everything is asked for on its behalf",
				"sink", f.Sink, "state", f.State, "acked", lsnOf(f.Through).String(), "slot", s.src.slot, "confirmed", s.confirmed.String())
			passed = append(passed, f.Sink)
		}
	}
	if len(behind) > 0 && (s.cfg.TrustSlot || known && !retired && highest < confirmed) {
		moved := &SlotMovedError{Slot: s.src.slot, Confirmed: confirmed, Acked: highest, Sinks: behind}
		if !s.cfg.TrustSlot {
			return nil, moved
		}
		s.log.Warn("going on all the same, as configured", "error", moved, "sinks", strings.Join(behind, ","))
	}
	for _, sink := range passed {
		s.seeded[sink] = confirmed
	}
	return passed, nil
}
