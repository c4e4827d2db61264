package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
	"github.com/flusso/flusso-kafka/watermark"
)

func newWatermark(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watermark",
		Short: "Show what the source may confirm, and which lane holds it",
		Long: `Show the watermark: the position that every sink has acked, which the source may
confirm; which lane holds it, since when, by how much, and why a lane does not
count. No engine needs to run. Exit code 1 says that there is no watermark, or
that a lane's floor is not known.

JSON: {"pipeline", "incarnation", "incarnationFrom", "position", "holders",
"behind", "holdsForSeconds", "floors": [{"sink", "state", "through", "offset",
"detail"}]}. Positions are strings of digits, or null for none. States: acked,
nothing-acked, group-missing, other-incarnation, unverified, lane-recreated,
unknown.`,
		Args: noArgs,
	}
	t := addTarget(cmd, s)
	named := incarnationFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error { return t.watermark(ctx, c, *named) })
	}
	return cmd
}

func incarnationFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("incarnation", "", "source incarnation `name` that counts (default: the newest header's)")
}

// markAnswer is a watermark as it is answered.
type markAnswer struct {
	Position    position `json:"position"`
	Holders     []string `json:"holders"`
	Behind      string   `json:"behind"` // how far the highest floor is ahead
	HoldsFor    *float64 `json:"holdsForSeconds"`
	Floors      []floor  `json:"floors"`
	Incarnation string   `json:"incarnation"`
	From        string   `json:"incarnationFrom"`

	mark flusso.Watermark
	age  time.Duration // of the first unacked item of the holders
}

type floor struct {
	Sink    string            `json:"sink"`
	State   flusso.FloorState `json:"state"`
	Through position          `json:"through"`
	Offset  offset            `json:"offset"`
	Detail  string            `json:"detail,omitempty"`
}

// readMark reads the watermark for an incarnation. lags supplies the age of
// what the holders have not acked.
func (c *cluster) readMark(ctx context.Context, in incarnation, lags map[topics.Lane]offsets.Lag) (markAnswer, error) {
	floors, err := c.store.Floors(ctx, c.pipeline, in.name, c.lanes)
	if err != nil && len(floors) == 0 {
		return markAnswer{}, fmt.Errorf("look up the floors of pipeline %s: %w", c.pipeline, err)
	}
	w := watermark.Min(floors, in.name, time.Now())
	a := markAnswer{
		Position: position(w.Position), Holders: w.Holders, Behind: fmt.Sprint(uint64(w.Behind)),
		Incarnation: in.name, From: in.from, mark: w,
	}
	if a.Holders == nil {
		a.Holders = []string{}
	}
	known := true
	for l, lag := range lags {
		if slices.Contains(w.Holders, l.Sink) {
			known = known && lag.Known
			a.age = max(a.age, lag.Age)
		}
	}
	if known && len(w.Holders) > 0 {
		seconds := a.age.Seconds()
		a.HoldsFor = &seconds
	}
	for _, f := range w.Floors {
		a.Floors = append(a.Floors, floor{f.Sink, f.State, position(f.Through), offset(f.Offset), f.Detail})
	}
	return a, nil
}

// line says in one line where the watermark is and who holds it.
func (a markAnswer) line() string {
	w := a.mark
	if len(w.Holders) == 0 {
		return w.Position.String() + ": every lane is retired"
	}
	if w.Position == flusso.NoPosition {
		return "none: " + strings.Join(w.Holders, ", ") + " acked nothing that counts"
	}
	line := w.Position.String()
	if w.Behind == 0 && a.HoldsFor != nil && a.age == 0 {
		return line + ", every lane is at it and nothing waits"
	}
	line += ", held by " + strings.Join(w.Holders, ", ")
	if w.Behind > 0 {
		line += fmt.Sprintf(", %d positions behind the first lane", uint64(w.Behind))
	}
	if a.age > 0 {
		line += ", its first unacked item is " + tied(age(a.age)) + " old"
	}
	return line
}

// problems says why lanes do not count.
func (a markAnswer) problems() []string {
	var what []string
	for _, f := range a.mark.Floors {
		if f.State != flusso.FloorAcked && f.State != flusso.FloorRetired {
			p := fmt.Sprintf("floor of %s: %s", f.Sink, f.State)
			if f.Detail != "" {
				p += ": " + f.Detail
			}
			what = append(what, p)
		}
	}
	return what
}

// readLanes reads the watermark for the incarnation that is named, or else for
// that of the newest header, and the lag of each lane.
func (c *cluster) readLanes(ctx context.Context, named string) (markAnswer, map[topics.Lane]offsets.Lag, error) {
	tails, err := c.store.Tails(ctx, c.lanes)
	if err != nil && len(tails) == 0 {
		return markAnswer{}, nil, fmt.Errorf("read the tails of pipeline %s: %w", c.pipeline, err)
	}
	in, err := incarnationOf(named, tails)
	if err != nil {
		return markAnswer{}, nil, err
	}
	lags, err := c.store.Lag(ctx, c.lanes)
	if err != nil && len(lags) == 0 {
		return markAnswer{}, nil, fmt.Errorf("look up the lag of pipeline %s: %w", c.pipeline, err)
	}
	a, err := c.readMark(ctx, in, lags)
	return a, lags, err
}

func (t *target) watermark(ctx context.Context, c *cluster, named string) error {
	a, _, err := c.readLanes(ctx, named)
	if err != nil {
		return err
	}
	if t.format == "json" {
		err = writeJSON(t.out, struct {
			Pipeline string `json:"pipeline"`
			markAnswer
		}{c.pipeline.String(), a})
	} else {
		err = a.writeText(t)
	}
	if err != nil {
		return err
	}
	return found(a.problems())
}

func (a markAnswer) writeText(t *target) error {
	if err := paragraph(t.out, "watermark    ", a.line()); err != nil {
		return err
	}
	if err := writeIncarnation(t, incarnation{a.Incarnation, a.From}); err != nil {
		return err
	}
	tab := &table{right: []bool{false, false, true, true}}
	tab.add("sink", "floor", "through", "offset")
	var details [][2]string
	for _, f := range a.mark.Floors {
		tab.add(f.Sink, string(f.State), f.Through.String(), f.Offset.String())
		if f.Detail != "" {
			details = append(details, [2]string{f.Sink, f.Detail})
		}
	}
	return writeTable(t, tab, details)
}

func writeIncarnation(t *target, in incarnation) error {
	name := in.name
	if name == "" {
		name = "unknown"
	}
	return paragraph(t.out, "incarnation  ", name+" ("+in.from+")")
}
