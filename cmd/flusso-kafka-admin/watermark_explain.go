package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
)

func newWatermarkExplain(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Explain lane by lane why the watermark stands where it does",
		Long: `Explain why the watermark stands where it does. For each lane, those that hold it
first: what its sink acked, which item it waits for and for how long, who is
attached, and where the watermark would go if this lane alone moved on to its
tail. No engine needs to run. Exit code 1 says that a lane does not count that
should, or that it is not known.

JSON: docs/json.md; one line for each report with --watch.`,
		Example: `  $ flusso-kafka-admin watermark explain --pipeline demo
  watermark    493959, held by archive, 232368 positions behind the first lane, its first unacked
               item is 3.2 s old
  incarnation  demo-1-3f11f80d (read from the newest header, in the lane of archive)

  archive  holds it: it acked through position 493959 (offset 4265). It waits for the batch of
           position 494387 (sequence 667, offset 4268, 3 envelopes), built 3.2 s ago; 414 batches
           in all. Attached is flusso-demo-sink-archive-2 at 127.0.0.1:39342 (process vm:16442)
           for 8.1 s. If it moved on, the watermark would go to 726327, where search is next.

  search  does not hold it: it acked through position 726327 (offset 6021). Nothing waits for it.
          Attached is flusso-demo-sink-search-3 at 127.0.0.1:39358 (process vm:16442) for 8.1 s.`,
		Args: noArgs,
	}
	show := &showing{incarnation: incarnationFlag(cmd)}
	show.addWatch(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.show(cmd.Context(), show, answer{
			json: func(v view) any {
				return struct {
					Pipeline string `json:"pipeline"`
					status.Watermark
					Lanes []explained `json:"lanes"`
				}{v.Pipeline, v.Watermark, explain(v.Report)}
			},
			text:  writeExplained,
			found: markProblems,
		})
	}
	return cmd
}

// explained is what a lane means to the watermark.
type explained struct {
	status.Floor
	Holds    bool            `json:"holds"`   // the watermark
	First    *status.Item    `json:"first"`   // what it waits for; null when caught up or not known
	Seconds  *float64        `json:"seconds"` // age of that; 0 when caught up, null when not known
	Consumer string          `json:"consumer"`
	Members  []status.Member `json:"members"`
	// Next is where the watermark would go if this lane alone acked all it
	// has; null where it would not move, or it is not known.
	Next status.Position `json:"next"`
	// NextHolders are who would hold it then; never nil.
	NextHolders []string `json:"nextHolders"`

	lane status.Lane
}

// explain returns the lanes, those that hold the watermark first.
func explain(r *status.Report) []explained {
	out := make([]explained, 0, len(r.Watermark.Floors))
	for _, f := range r.Watermark.Floors {
		i := slices.IndexFunc(r.Lanes, func(l status.Lane) bool { return l.Sink == f.Sink })
		if i < 0 {
			continue
		}
		l := r.Lanes[i]
		e := explained{
			Floor: f, Holds: slices.Contains(r.Watermark.Holders, f.Sink), First: l.First, Seconds: l.Seconds,
			Consumer: l.Consumer, Members: l.Members, NextHolders: []string{}, lane: l,
		}
		if e.Holds {
			e.Next, e.NextHolders = next(r, l)
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b explained) int {
		switch {
		case a.Holds == b.Holds:
			return 0
		case a.Holds:
			return -1
		}
		return 1
	})
	return out
}

// next returns where the watermark would stand if a lane acked all it holds,
// and who would hold it there.
func next(r *status.Report, mover status.Lane) (status.Position, []string) {
	if mover.Newest == nil || mover.Newest.Incarnation != r.Watermark.Incarnation {
		return 0, []string{} // its positions do not compare with those that count
	}
	low := mover.Tail
	holders := []string{mover.Sink}
	for _, f := range r.Watermark.Floors {
		switch {
		case f.Sink == mover.Sink, f.State == flusso.FloorRetired:
		case f.Through < low:
			low, holders = f.Through, []string{f.Sink}
		case f.Through == low:
			holders = append(holders, f.Sink)
		}
	}
	if low <= r.Watermark.Position {
		low = 0
	}
	slices.Sort(holders)
	return low, holders
}

func writeExplained(p *page, v view) error {
	w := v.Watermark
	if err := paragraph(p, p.bold("watermark    "), markLine(w)); err != nil {
		return err
	}
	if err := paragraph(p, p.bold("incarnation  "), incarnationLine(w)); err != nil {
		return err
	}
	for _, e := range explain(v.Report) {
		p.WriteByte('\n')
		name := p.bold(e.Sink)
		if e.Holds {
			name = p.warn(e.Sink)
		}
		if err := paragraph(p, name+"  ", e.says(v.Report)); err != nil {
			return err
		}
	}
	return nil
}

// says explains a lane in sentences.
func (e *explained) says(r *status.Report) string {
	var s []string
	if e.State == flusso.FloorRetired {
		return "is not waited for: " + e.Detail + "."
	}
	hold := "does not hold it"
	if e.Holds {
		hold = "holds it"
	}
	switch e.State {
	case flusso.FloorAcked:
		s = append(s, fmt.Sprintf("%s: it acked through position %s (offset %s)", hold, flusso.Position(e.Through), flusso.Offset(e.Offset)))
	case flusso.FloorUnknown:
		s = append(s, fmt.Sprintf("%s, since its floor is not known: %s", hold, e.Detail))
	case flusso.FloorNothing, flusso.FloorMissing, flusso.FloorOther, flusso.FloorUnverified, flusso.FloorRecreated, flusso.FloorRetired:
		s = append(s, fmt.Sprintf("%s with none: %s: %s", hold, e.State, e.Detail))
	}
	s = append(s, e.waits(r))
	s = append(s, attachedSentence(e.lane, r))
	if e.Holds {
		s = append(s, e.moves(r))
	}
	return strings.Join(s, ". ") + "."
}

func (e *explained) waits(r *status.Report) string {
	l := e.lane
	switch {
	case l.Error != "":
		return "What it waits for is not known: " + l.Error
	case l.First == nil:
		return "Nothing waits for it"
	}
	return fmt.Sprintf("It waits for %s; %s in all", itemText(l.First, r), waitingText(l))
}

// itemText says what an item is.
func itemText(i *status.Item, r *status.Report) string {
	what := map[string]string{"live": "the batch of position " + flusso.Position(i.Position).String(), "snapshot": "a snapshot batch"}[i.Kind]
	if what == "" {
		what = "the marker that ends the snapshot of " + strings.Join(i.Indexes, ", ")
	}
	return fmt.Sprintf("%s (sequence %d, offset %s, %s), built %s", what, i.Sequence, flusso.Offset(i.Offset),
		tied(status.Count(uint64(i.Envelopes), "envelope")), ago(i.BuiltAt, r.At))
}

func waitingText(l status.Lane) string {
	if l.Batches != nil {
		return tied(status.Count(*l.Batches, "batch"))
	}
	if l.Retained != nil {
		return "at most " + tied(status.Count(l.Retained.Batches, "batch"))
	}
	return "an unknown number"
}

func attachedSentence(l status.Lane, r *status.Report) string {
	switch {
	case l.ConsumerError != "":
		return "Who is attached is not known: " + l.ConsumerError
	case len(l.Members) == 0:
		return "No consumer is attached to group " + l.Group
	}
	text := "Attached is " + memberLine(l.Members[0], r.At)
	if n := len(l.Members); n > 1 {
		text += fmt.Sprintf(" and %d more", n-1)
	}
	return text
}

func (e *explained) moves(r *status.Report) string {
	others := slices.DeleteFunc(slices.Clone(e.NextHolders), func(s string) bool { return s == e.Sink })
	switch {
	case e.Next == 0 && len(others) > 0:
		return "If it moved alone, the watermark would stay, held by " + some(others, mostHolders)
	case e.Next == 0:
		return "It is at the end of its lane: new batches move it"
	case len(others) == 0:
		return fmt.Sprintf("If it acked all it has, the watermark would go to %s, the end of its lane", flusso.Position(e.Next))
	}
	return fmt.Sprintf("If it moved on, the watermark would go to %s, where %s is next", flusso.Position(e.Next), some(others, mostHolders))
}
