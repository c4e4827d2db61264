package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func newOffset(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "offset",
		Short: "Translate between offsets and positions",
		Long: `Translate between the offsets of a lane in Kafka and positions in the source's
change feed. Both directions are exact: they are read from the lane's headers.`,
		Example: `  $ flusso-kafka-admin offset translate search 6 --pipeline shop
  offset 6 of the lane of search confirms position 30: the newest item below it is sequence 3, a
  live batch of incarnation test-1, which ends at offset 6 (known by read: 1 read)`,
		Args: noArgs,
		RunE: nameOne,
	}
	t := addTarget(cmd, s)
	cmd.AddCommand(newOffsetTranslate(t))
	return cmd
}

// translate is what `offset translate` was asked for.
type translate struct {
	*target
	offset   flusso.Offset
	position uint64
	time     string
	from     string // offset, position or time
	moment   time.Time
}

func newOffsetTranslate(t *target) *cobra.Command {
	tr := &translate{target: t}
	cmd := &cobra.Command{
		Use:   "translate SINK OFFSET",
		Short: "Say what an offset confirms, or which offset stands for a position or a time",
		Long: `Say what committing an offset would confirm: the through of the newest item
below it. With --position the other way round: the offset to commit so that
exactly the items up to that position are acked. With --time the offset so that
exactly the items built before it are acked. Positions are those of the
incarnation of the lane's newest item.

It says how it knew: by metadata that was committed with that very offset, by
the index of headers in memory, or by reading the lane, and in how many reads:
a few for an offset, a binary search for the others. What lies below the log
start is unknown, and the exit code then 1.`,
		Example: `  $ flusso-kafka-admin offset translate search --position 30 --pipeline shop
  position 30 of the lane of search is offset 6, which confirms position 30: the newest item below
  it is sequence 3, a live batch of incarnation test-1, which ends at offset 6 (known by read: 3
  reads)`,
		Args:              tr.args,
		ValidArgsFunction: completeSinks(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				lane, err := laneOf(c, args[0])
				if err != nil {
					return err
				}
				return tr.answer(ctx, c, lane)
			})
		},
	}
	cmd.Flags().Uint64Var(&tr.position, "position", 0, "translate that `position`")
	cmd.Flags().StringVar(&tr.time, "time", "", "translate that `time`: RFC 3339, or an age like 2h")
	return cmd
}

func (tr *translate) args(cmd *cobra.Command, args []string) (err error) {
	position, at := cmd.Flags().Changed("position"), cmd.Flags().Changed("time")
	switch {
	case len(args) == 0 || len(args) > 2:
		return usageError{fmt.Errorf("name one sink, and an offset, --position or --time: see %s --help", cmd.CommandPath())}
	case len(args) == 2 && (position || at), len(args) == 1 && position == at:
		return usageError{fmt.Errorf("give one of an offset, --position and --time: see %s --help", cmd.CommandPath())}
	case len(args) == 2:
		n, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil || n < 0 {
			return usageError{fmt.Errorf("offset %q: give an offset of the lane", args[1])}
		}
		tr.from, tr.offset = "offset", flusso.Offset(n)
	case at:
		tr.from = "time"
		tr.moment, err = moment("--time", tr.time, time.Now())
	default:
		tr.from = "position"
	}
	return err
}

// translation is the answer as JSON.
type translation struct {
	Pipeline    string     `json:"pipeline"`
	Sink        string     `json:"sink"`
	From        string     `json:"from"` // offset, position or time
	Asked       string     `json:"asked"`
	Known       bool       `json:"known"`
	Offset      offset     `json:"offset"`
	Position    position   `json:"position"`
	Incarnation string     `json:"incarnation,omitempty"`
	Sequence    *uint64    `json:"sequence"`
	ItemEnd     offset     `json:"itemEndOffset"`
	Time        *time.Time `json:"builtAt"`
	How         string     `json:"how,omitempty"`
	Reads       int        `json:"reads"`
	Error       string     `json:"error,omitempty"`
}

func (tr *translate) answer(ctx context.Context, c *cluster, lane topics.Lane) error {
	got, asked, err := tr.ask(ctx, c, lane)
	out := translation{
		Pipeline: c.pipeline.String(), Sink: lane.Sink, From: tr.from, Asked: strings.TrimPrefix(asked, tr.from+" "), Known: err == nil,
		Offset: offset(got.Offset), Position: position(got.Position), Incarnation: got.Incarnation,
		ItemEnd: offset(flusso.NoOffset), How: string(got.How), Reads: got.Reads,
	}
	var unknown *offsets.UnknownError
	switch {
	case errors.As(err, &unknown):
		out.Error, out.How = err.Error(), ""
	case err != nil:
		return err
	}
	if i := got.Item; i != nil {
		built := i.Header.BuiltAt.UTC()
		out.Sequence, out.ItemEnd, out.Time = &i.Header.Sequence, offset(i.Next()), &built
	}
	switch {
	case tr.format == "json":
		err = writeJSON(tr.out, out)
	case unknown != nil:
		text := fmt.Sprintf("%s; the log starts at offset %s", unknown.Reason, unknown.Start)
		if tr.from == "offset" && tr.offset <= unknown.Start {
			text = fmt.Sprintf("below the log start %s", unknown.Start)
		}
		err = paragraph(tr.out, "", fmt.Sprintf("%s of the lane of %s is unknown: %s", asked, lane.Sink, text))
	default:
		err = paragraph(tr.out, "", tr.text(got, asked, lane))
	}
	if err == nil && unknown != nil {
		return finding{[]string{unknown.Error()}}
	}
	return err
}

func (tr *translate) ask(ctx context.Context, c *cluster, lane topics.Lane) (got offsets.Translation, asked string, err error) {
	switch tr.from {
	case "offset":
		// What the group committed may answer; a failure to read it must not
		// keep the lane from answering.
		asked = "offset " + tr.offset.String()
		if _, err := c.store.Commits(ctx, []topics.Lane{lane}); err != nil && ctx.Err() != nil {
			return got, asked, err
		}
		got, err = c.store.TranslateOffset(ctx, lane, tr.offset)
	case "position":
		asked = "position " + flusso.Position(tr.position).String()
		got, err = c.store.TranslatePosition(ctx, lane, flusso.Position(tr.position))
	default:
		asked = "time " + tr.moment.UTC().Format(time.RFC3339)
		got, err = c.store.TranslateTime(ctx, lane, tr.moment)
	}
	return got, asked, err
}

func (tr *translate) text(got offsets.Translation, asked string, lane topics.Lane) string {
	text := fmt.Sprintf("%s of the lane of %s", asked, lane.Sink)
	if tr.from != "offset" {
		text += fmt.Sprintf(" is offset %s, which", got.Offset)
	}
	confirms := "position " + got.Position.String()
	if got.Position == flusso.NoPosition {
		confirms = "no position"
	}
	text += " confirms " + confirms
	switch h := got.Item; {
	case h != nil:
		text += fmt.Sprintf(": the newest item below it is sequence %d, a %s of incarnation %s, which ends at offset %s",
			h.Header.Sequence, kinds[h.Header.Kind], h.Header.Incarnation, h.Next())
		if h.Next() < got.Offset {
			text += ", and behind that no whole item"
		}
	case got.How == offsets.ByMetadata:
		text += fmt.Sprintf(" of incarnation %s: group %s committed it so", got.Incarnation, lane.Group())
	default:
		text += ": no item was ever before it"
	}
	how := "known by " + string(got.How)
	if got.Reads > 0 {
		how += ": " + status.Count(uint64(got.Reads), "read")
	}
	return text + " (" + tied(how) + ")"
}
