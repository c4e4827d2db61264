package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
	"github.com/flusso/flusso-kafka/watermark"
)

// effect is what a move does to the watermark, for somebody who reads it for
// the first time: who has read it before never sees it go back.
type effect struct {
	incarnation   string // that counts
	before, after flusso.Watermark
	prior, next   flusso.LaneFloor // of the lane that moves
}

// effectOf reads the floors and puts that of the moved lane in its place.
func (c *cluster) effectOf(ctx context.Context, m offsets.Move) (effect, error) {
	look, err := c.store.Look(ctx, c.pipeline, c.lanes)
	if err != nil {
		return effect{}, fmt.Errorf("look up the floors of pipeline %s: %w", c.pipeline, err)
	}
	in := incarnationOf(look)
	floors, err := look.Floors(ctx, in)
	if err != nil {
		return effect{}, fmt.Errorf("look up the floors of pipeline %s: %w", c.pipeline, err)
	}
	now := time.Now()
	e := effect{incarnation: in, before: watermark.Min(floors, in, now), next: m.Floor(in)}
	after := slices.Clone(floors)
	for i := range after {
		if after[i].Sink == m.Lane.Sink {
			e.prior, after[i] = after[i], e.next
		}
	}
	e.after = watermark.Min(after, in, now)
	return e, nil
}

// incarnationOf returns the source incarnation that counts, that of the newest
// header; empty where no lane holds one.
func incarnationOf(look *offsets.Look) string {
	_, newest, _ := look.Newest()
	return newest.Header.Incarnation
}

// text says it in words.
func (e effect) text() string {
	for _, f := range e.after.Floors {
		if f.State == flusso.FloorUnknown {
			return fmt.Sprintf("not known: the look-up of %s failed: %s", f.Sink, f.Detail)
		}
	}
	prior, next := e.before.Position, e.after.Position
	held := ", held by " + some(e.after.Holders, mostHolders)
	if len(e.after.Holders) == 0 {
		held = ": every lane is retired, and nothing is confirmed any more"
	}
	switch {
	case next == prior:
		return fmt.Sprintf("stays at %s%s", next, held)
	case next > prior:
		return fmt.Sprintf("%s → %s%s", prior, next, held)
	}
	return fmt.Sprintf("%s → %s%s, for who reads it for the first time; whoever has seen %s stays there until the lane has passed it, "+
		"and that stays safe: the lane holds what it has not acked", prior, next, held, prior)
}

// watermarkChange is an effect in JSON.
type watermarkChange struct {
	Prior       position `json:"prior"`
	New         position `json:"new"`
	Holders     []string `json:"holders"` // of the new one
	Incarnation string   `json:"incarnation"`
}

func (e effect) json() watermarkChange {
	out := watermarkChange{position(e.before.Position), position(e.after.Position), e.after.Holders, e.incarnation}
	if out.Holders == nil {
		out.Holders = []string{}
	}
	return out
}

// moveAnswer is what every command says that moves a group.
type moveAnswer struct {
	Pipeline     string            `json:"pipeline"`
	Sink         string            `json:"sink"`
	Group        string            `json:"group"`
	PriorOffset  offset            `json:"priorOffset"`
	Offset       offset            `json:"offset"`
	PriorThrough position          `json:"priorThrough"`
	Through      position          `json:"through"`
	PriorState   flusso.FloorState `json:"priorState"`
	State        flusso.FloorState `json:"state"`
	Again        itemCount         `json:"again"`
	GivenUp      givenUp           `json:"givenUp"`
	Watermark    watermarkChange   `json:"watermark"`
	Retired      *retiredAnswer    `json:"retired,omitempty"`
	Missing      *missingAnswer    `json:"missing,omitempty"`
	Attach       string            `json:"attach,omitempty"`
	Committed    bool              `json:"committed"`
	Members      []string          `json:"members"`
}

type itemCount struct {
	Items     uint64 `json:"items"`
	Envelopes uint64 `json:"envelopes"`
	Bytes     uint64 `json:"bytes"`
}

type givenUp struct {
	Items uint64   `json:"items"`
	Above position `json:"above"`
	UpTo  position `json:"upTo"`
}

type retiredAnswer struct {
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

type missingAnswer struct {
	Above position `json:"above"`
	UpTo  position `json:"upTo"`
}

func newMoveAnswer(c *cluster, m offsets.Move, e effect) moveAnswer {
	a := moveAnswer{
		Pipeline: c.pipeline.String(), Sink: m.Lane.Sink, Group: m.Lane.Group(),
		PriorOffset: offset(m.Before.Offset), Offset: offset(m.Offset), PriorThrough: position(m.Acked), Through: position(m.Meta.Through),
		PriorState: e.prior.State, State: e.next.State, Watermark: e.json(), Members: []string{},
	}
	if n := m.Again(); n > 0 {
		a.Again = itemCount{n, m.Between.Envelopes, m.Between.Bytes}
	}
	if n := m.GivenUp(); n > 0 {
		a.GivenUp = givenUp{n, position(m.Acked), position(m.Meta.Through)}
	}
	if r := m.Meta.Retired; !r.IsZero() {
		a.Retired = &retiredAnswer{r.By, r.At, r.Why}
	} else if m.Attach != nil {
		a.Attach = m.Attach.Error()
	}
	return a
}

// move shows a move and makes it, or with dry only shows what would come of it.
// Nothing is shown of one that was refused, for the error says it all. missed
// is what the lane does not hold, nil for nothing.
func (t *target) move(ctx context.Context, c *cluster, m offsets.Move, dry bool, missed *missingAnswer) error {
	e, err := c.effectOf(ctx, m)
	if err != nil {
		return err
	}
	a := newMoveAnswer(c, m, e)
	a.Missing = missed
	var refused *offsets.GroupActiveError
	if !dry {
		err = c.store.Apply(ctx, m)
	} else if err = c.store.Memberless(ctx, m.Lane); errors.As(err, &refused) {
		err = nil
		a.Members = refused.Members
	}
	if err != nil {
		return err
	}
	a.Committed = !dry
	if t.format == "json" {
		err = writeJSON(t.out, a)
	} else {
		err = a.write(t, m, e, dry)
	}
	if err == nil && refused != nil {
		err = refused
	}
	return err
}

func (a moveAnswer) write(t *target, m offsets.Move, e effect, dry bool) error {
	outcome := "committed"
	switch {
	case len(a.Members) > 0:
		outcome = "dry run, nothing committed; refused while the group has members: " + strings.Join(a.Members, ", ")
	case dry:
		outcome = "dry run, nothing committed"
	}
	lines := []string{fmt.Sprintf("group %s: offset %s → %s, acked through %s → %s (%s)",
		a.Group, m.Before.Offset, m.Offset, m.Acked, m.Meta.Through, outcome)}
	if a.PriorState != a.State {
		lines = append(lines, fmt.Sprintf("lane of %s: %s → %s", a.Sink, a.PriorState, e.stateText()))
	}
	if a.Again.Items > 0 {
		lines = append(lines, fmt.Sprintf("comes again: %s, %s, %s",
			status.Count(a.Again.Items, "item"), status.Count(a.Again.Envelopes, "envelope"), tied(size(a.Again.Bytes))))
	}
	if a.GivenUp.Items > 0 {
		lines = append(lines, "given up: "+givenUpText(m))
	}
	if a.Missing != nil {
		lines = append(lines, "missing: "+a.Missing.text(a.Sink))
	}
	lines = append(lines, "watermark: "+e.text())
	if a.Attach != "" {
		lines = append(lines, "a consumer that attaches: "+a.Attach)
	}
	for _, line := range lines {
		if err := paragraph(t.out, "", line); err != nil {
			return err
		}
	}
	return nil
}

// stateText is the state of the moved lane, with what goes with it.
func (e effect) stateText() string {
	if e.next.State == flusso.FloorRetired {
		return "retired " + e.next.Detail
	}
	return string(e.next.State)
}

// givenUpText says which items a move takes as acked that never were.
func givenUpText(m offsets.Move) string {
	text := status.Count(m.GivenUp(), "item")
	if m.Between.Batches < m.GivenUp() {
		text += fmt.Sprintf(" (%d of them gone from the log)", m.GivenUp()-m.Between.Batches)
	}
	if m.Meta.Through > m.Acked {
		return text + fmt.Sprintf(", with the positions above %s and up to %s", m.Acked, m.Meta.Through)
	}
	return text + ", which have no positions of their own or some that are not known"
}

func (m *missingAnswer) text(sink string) string {
	return fmt.Sprintf("the lane does not hold the positions above %s and up to %s, which the source has forgotten: the stream was built without the sink meanwhile; "+
		"seed it again with `flusso-kafka-admin request send %s INDEX... --yes`", flusso.Position(m.Above), flusso.Position(m.UpTo), sink)
}

// missed returns what the lane has not been given while the others went on, nil
// for nothing. A look reads what the others have acked first, and what the lane
// holds after it, so that what is published meanwhile is not taken for missing.
func (c *cluster) missed(ctx context.Context, lane topics.Lane) (*missingAnswer, error) {
	look, err := c.store.Look(ctx, c.pipeline, c.lanes)
	if err != nil {
		return nil, fmt.Errorf("look up how far the lanes of pipeline %s went: %w", c.pipeline, err)
	}
	in := incarnationOf(look)
	floors, err := look.Floors(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("look up the floors of pipeline %s: %w", c.pipeline, err)
	}
	floors = slices.DeleteFunc(floors, func(f flusso.LaneFloor) bool { return f.Sink == lane.Sink })
	if len(floors) == 0 {
		return nil, nil //nolint:nilnil // nothing is missed where no other lane went on
	}
	for _, f := range floors {
		if f.State == flusso.FloorUnknown {
			return nil, fmt.Errorf("look up how far the other lanes went: lane of sink %q: %s", f.Sink, f.Detail)
		}
	}
	tail := look.Tails[lane]
	if tail.Err != nil {
		return nil, tail.Err
	}
	confirmed := watermark.Min(floors, in, time.Now()).Position
	if from, missed := offsets.Missed(tail, confirmed, in); missed {
		return &missingAnswer{position(from), position(confirmed)}, nil
	}
	return nil, nil //nolint:nilnil // nothing is missed
}
