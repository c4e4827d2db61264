package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func newLaneDescribe(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe SINK",
		Short: "Show all that is known of one lane",
		Long: `Show all that is known of one lane: its state and what was found, its topic and
group, what is acked and what waits, its oldest and newest item and the first one
that is not acked, who is attached, what could delete items, and who retired it.
No engine needs to run. Exit code 1 says that something was found about it that
is graver than a note.

JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin lane describe archive --pipeline demo
  lane       archive of pipeline demo: behind, and holds the watermark
  topic      demo.lane.archive (id Y-lgItR3KPsTA4wx3xbV0A), log from offset 0 to 6059
  group      demo.sink.archive: floor acked, offset 4368
  acked      through 507037; since the lane was created 698 batches, 4035 envelopes, 378.6 KiB,
             3735 changes
  published  through 731485; since the lane was created 1092 batches, 5520 envelopes, 520.7 KiB,
             5322 changes
  waits      394 batches, 1485 envelopes, 142.1 KiB, 1587 changes; the first 3.1 s old
  oldest     the batch of position 113 (sequence 1, offset 0, 1 envelope), built 8.2 s ago;
             incarnation demo-1-3f11f80d, writer epoch 1
  …`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("name one sink: see %s --help", cmd.CommandPath())}
			}
			return nil
		},
		ValidArgsFunction: completeSinks(t),
	}
	show := &showing{incarnation: incarnationFlag(cmd)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sink := args[0]
		if err := flusso.CheckSink(sink, []string{sink}); err != nil {
			return err
		}
		d := &described{sink: sink}
		return t.show(cmd.Context(), show, answer{
			more:  d.read,
			json:  func(view) any { return d },
			text:  func(p *page, v view) error { return d.write(p, v) },
			found: func(v view) []string { return foundIn(v.Report, d.grave) },
		})
	}
	return cmd
}

// described is one lane as it is answered.
type described struct {
	Pipeline string           `json:"pipeline"`
	Lane     status.Lane      `json:"lane"`
	Floor    status.Floor     `json:"floor"`
	Holds    bool             `json:"holds"`  // the watermark
	Oldest   *status.Item     `json:"oldest"` // null when there is none, or it is not known
	Findings []status.Finding `json:"findings"`

	sink string
}

func (d *described) grave(f status.Finding) bool {
	return f.Sink == d.sink && f.Severity != status.Note
}

// read picks the lane out of a report and reads its oldest item.
func (d *described) read(ctx context.Context, c *cluster, r *status.Report) error {
	known := make([]string, len(r.Lanes))
	for i, l := range r.Lanes {
		known[i] = l.Sink
	}
	if err := flusso.CheckSink(d.sink, known); err != nil {
		return err
	}
	d.Pipeline, d.Lane = r.Pipeline, r.Lanes[slices.Index(known, d.sink)]
	if i := slices.IndexFunc(r.Watermark.Floors, func(f status.Floor) bool { return f.Sink == d.sink }); i >= 0 {
		d.Floor = r.Watermark.Floors[i]
	}
	d.Holds = slices.Contains(r.Watermark.Holders, d.sink)
	d.Findings = []status.Finding{}
	for _, f := range r.Findings {
		if f.Sink == d.sink {
			d.Findings = append(d.Findings, f)
		}
	}
	lane, err := c.pipeline.Lane(d.sink)
	if err != nil || d.Lane.Newest == nil {
		return err
	}
	return d.readOldest(ctx, c, lane)
}

func (d *described) readOldest(ctx context.Context, c *cluster, lane topics.Lane) error {
	f, err := c.store.From(ctx, lane, flusso.Offset(d.Lane.StartOffset))
	switch {
	case err == nil:
		d.Oldest = status.NewItem(f.At, &f.Header)
	case !errors.Is(err, offsets.ErrUnknown): // trimmed meanwhile: not known
		return err
	}
	return nil
}

func (d *described) write(p *page, v view) error {
	l := d.Lane
	hold := ""
	if d.Holds {
		hold = ", and holds the watermark"
	}
	facts := [][2]string{
		{"lane", fmt.Sprintf("%s of pipeline %s: %s%s", l.Sink, d.Pipeline, p.state(l, v.Report), hold)},
		{"topic", d.topic()},
		{"group", fmt.Sprintf("%s: floor %s, offset %s", l.Group, d.Floor.State, flusso.Offset(l.AckedOffset)) + detail(d.Floor.Detail)},
		{"acked", "through " + flusso.Position(l.Acked).String() + totalsText(l.AckedTotals)},
		{"published", "through " + flusso.Position(l.Tail).String() + totalsText(l.TailTotals)},
		{"waits", d.waits()},
		{"oldest", itemOr(d.Oldest, v.Report)},
		{"not acked", itemOr(l.First, v.Report)},
		{"newest", itemOr(l.Newest, v.Report)},
	}
	if l.Gap != nil {
		facts = append(facts, [2]string{"gap", fmt.Sprintf("offsets %s to %s are gone", flusso.Offset(l.Gap.From), flusso.Offset(l.Gap.To))})
	}
	facts = append(facts, [2]string{"consumer", d.consumer(v)}, [2]string{"copy", d.mirror()}, [2]string{"kept", d.retention()})
	if rt := l.Retired; rt != nil {
		facts = append(facts, [2]string{"retired", fmt.Sprintf("by %s %s: %s", rt.By, ago(rt.At, v.At), rt.Why)})
	}
	for _, f := range facts {
		if err := paragraph(p, p.bold(fmt.Sprintf("%-11s", f[0])), f[1]); err != nil {
			return err
		}
	}
	if len(d.Findings) == 0 {
		return nil
	}
	p.WriteByte('\n')
	return p.findings(&status.Report{Findings: d.Findings}, mostAlike)
}

func detail(text string) string {
	if text == "" {
		return ""
	}
	return "; " + text
}

func (d *described) topic() string {
	l := d.Lane
	if l.TopicID == "" {
		return l.Topic + ": " + l.Error
	}
	return fmt.Sprintf("%s (id %s), log from offset %s to %s", l.Topic, l.TopicID, flusso.Offset(l.StartOffset), flusso.Offset(l.TailOffset))
}

func totalsText(t *status.Totals) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("; since the lane was created %s, %s, %s, %s", tied(status.Count(t.Batches, "batch")),
		tied(status.Count(t.Envelopes, "envelope")), tied(size(t.Bytes)), tied(status.Count(t.Changes, "change")))
}

func (d *described) waits() string {
	l := d.Lane
	switch {
	case l.Error != "":
		return "unknown: " + l.Error
	case l.Known:
		return fmt.Sprintf("%s, %s, %s, %s; the first %s old", tied(status.Count(*l.Batches, "batch")), tied(status.Count(*l.Envelopes, "envelope")),
			tied(size(*l.Bytes)), tied(status.Count(*l.Changes, "change")), tied(status.Age(*l.Seconds)))
	case l.Retained != nil:
		return "unknown: nothing is committed; " + tied(status.Count(l.Retained.Batches, "batch")) + " at most"
	}
	return "unknown"
}

func itemOr(i *status.Item, r *status.Report) string {
	if i == nil {
		return "none"
	}
	return itemText(i, r) + fmt.Sprintf("; incarnation %s, writer epoch %d", i.Incarnation, i.Epoch)
}

func (d *described) consumer(v view) string {
	l := d.Lane
	if l.ConsumerError != "" {
		return "unknown: " + l.ConsumerError
	}
	if len(l.Members) == 0 {
		return "none is attached"
	}
	each := make([]string, len(l.Members))
	for i, m := range l.Members {
		each[i] = memberLine(m, v.At)
		if m.Instance != "" {
			each[i] += ", instance " + m.Instance
		}
		if !m.Owner {
			each[i] += ", does not own the lane"
		}
	}
	return strings.Join(each, "; ")
}

func (d *described) mirror() string {
	if d.Lane.MirrorOffset < 0 {
		return "the ingest group keeps none of its offset"
	}
	return fmt.Sprintf("the ingest group keeps its offset %s", flusso.Offset(d.Lane.MirrorOffset))
}

func (d *described) retention() string {
	rt := d.Lane.Retention
	text := "items " + kept(d.Lane)
	if rt.Error != "" {
		text = "items unknown: " + rt.Error
	}
	if rt.OffsetsSeconds != nil {
		text += "; the offset of a group without members " + tied(status.Age(*rt.OffsetsSeconds))
	}
	return text
}
