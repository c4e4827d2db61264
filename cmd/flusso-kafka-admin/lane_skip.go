package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/lanefile"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// skipMemory bounds the item that is held to save it.
const skipMemory = 1 << 30

func newLaneSkip(t *target) *cobra.Command {
	var (
		save string
		act  *action
	)
	cmd := &cobra.Command{
		Use:   "skip SINK --save FILE",
		Short: "Take the one item that a sink cannot apply out of its way, saved first",
		Long: `Take the first item that a sink has not acked out of its way: exactly that one.
It is saved first, to a file that must not exist, whole and durably; then the
sink's group is moved behind it. The sink must be stopped. Where the group
moved since the item was read, by an engine or by another operator, nothing is
committed, no second item is skipped, and the file is removed.

From then on the watermark counts the item as acked: it may pass its position,
and the source may forget the change, although the sink never applied it. The
answer says which position that is. "lane replay" publishes the item back from
the file, without a position; "request send" seeds the indexes anew.

An item of a source transaction that was too large for one batch gives its part
of it up; the position follows with the last of its batches. Of a snapshot, rows
are missing although its marker says that the index is whole. Of a marker, the
sink is not told that it is. Records of another producer that lie before the
item go with it.`,
		Example: `  $ flusso-kafka-admin lane skip search --save item.jsonl --pipeline shop --dry-run
  sequence 2  live batch, position 20, through 20, built 1.3 min ago
    offsets 2 to 3, 2 envelopes, 26 B, 2 changes; incarnation test-1, writer epoch 1
    lane up to here: 2 items, 4 envelopes, 52 B, 4 changes
    upsert  orders/1     7 B
    delete  orders/gone
  group shop.sink.search: offset 2 → 4, acked through 10 → 20 (dry run, nothing saved or committed)
  It gives up position 20: the watermark may pass it, although the sink never applied this.
  watermark: 10 → 20, held by search
  "lane replay item.jsonl" publishes its 2 envelopes back as a snapshot batch, without a position;
  it leaves out documents that the lane has a later state of.`,
		Args:              oneSink,
		ValidArgsFunction: completeSinks(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			if save == "" {
				return usageError{errors.New("--save: name the file that the item is saved to before it is skipped")}
			}
			if err := act.check("this gives up an item that the sink never acked"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				lane, err := laneOf(c, args[0])
				if err != nil {
					return err
				}
				return t.laneSkip(ctx, c, lane, save, act.dry)
			})
		},
	}
	cmd.Flags().StringVar(&save, "save", "", "`file` to save the item to; never overwritten")
	act = addAction(cmd)
	return cmd
}

// skipping is an item that is to be skipped, as it is saved and shown.
type skipping struct {
	plan  offsets.Skip
	saved lanefile.Saved
	items []offsets.Item // the last one is skipped, what is before it is no item
	file  string
	mark  effect // on the watermark
}

func (k *skipping) item() offsets.Item { return k.items[len(k.items)-1] }

func (t *target) laneSkip(ctx context.Context, c *cluster, lane topics.Lane, save string, dry bool) error {
	if _, err := os.Lstat(save); err == nil {
		return fmt.Errorf("%s is there already, and is never overwritten: name another file", save)
	}
	k, err := readSkipped(ctx, c, lane, save)
	if err != nil {
		return err
	}
	if k.mark, err = c.effectOf(ctx, k.plan.Move); err != nil {
		return err
	}
	var refused *offsets.GroupActiveError
	if err := c.store.Memberless(ctx, lane); errors.As(err, &refused) && !dry || refused == nil && err != nil {
		return err
	}
	if !dry {
		if err := k.do(ctx, c); err != nil {
			return err
		}
	}
	if t.format == "json" {
		err = k.json(t, !dry, refused)
	} else {
		err = k.text(t, !dry, refused)
	}
	if err == nil && refused != nil {
		err = refused
	}
	return err
}

// readSkipped reads the item that is planned to be skipped, whole.
func readSkipped(ctx context.Context, c *cluster, lane topics.Lane, save string) (*skipping, error) {
	plan, err := c.store.PlanSkip(ctx, lane)
	if err != nil {
		return nil, err
	}
	k := &skipping{plan: plan, file: save}
	for item, err := range c.store.Items(ctx, lane, offsets.Reading{From: plan.From, Memory: skipMemory}) {
		if err != nil {
			return nil, err
		}
		if item.At > plan.Item.At {
			break
		}
		if !item.Whole {
			return nil, fmt.Errorf("the item at offset %s of topic %s is larger than %s: it cannot be saved, and is not skipped", item.At, lane.Topic(), size(skipMemory))
		}
		k.items = append(k.items, item)
	}
	if len(k.items) == 0 || k.item().At != plan.Item.At {
		return nil, fmt.Errorf("the item at offset %s of topic %s was not found again: look at it with `flusso-kafka-admin lane peek %s`, and run the command again",
			plan.Item.At, lane.Topic(), lane.Sink)
	}
	k.saved = lanefile.Saved{
		Pipeline: c.pipeline.String(), Sink: lane.Sink, Topic: lane.Topic(), TopicID: plan.Move.Meta.TopicID, SavedAt: time.Now().UTC(),
	}
	for i, item := range k.items {
		if i < len(k.items)-1 {
			k.saved.Foreign += len(item.Raw)
		}
		k.saved.Records = append(k.saved.Records, item.Raw...)
	}
	return k, nil
}

// do saves the item, and moves the group behind it. Where nothing was committed
// no file is left.
func (k *skipping) do(ctx context.Context, c *cluster) error {
	if err := lanefile.Create(k.file, &k.saved); err != nil {
		return err
	}
	err := c.store.Apply(ctx, k.plan.Move)
	var (
		moved   *offsets.MovedError
		unknown *offsets.OutcomeError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown), errors.As(err, &moved) && moved.After:
		return fmt.Errorf("%w; the item is saved in %s: keep it until you know", err, k.file)
	}
	if gone := lanefile.Remove(k.file); gone != nil {
		return fmt.Errorf("%w; nothing was skipped, but the file is left: %w", err, gone)
	}
	return err
}

// givesUp says what it means that the item is skipped.
func (k *skipping) givesUp() string {
	item, h := k.item(), &k.plan.Item.Header
	switch {
	case h.Kind == wire.Live && h.More:
		return fmt.Sprintf("It is a part of the source transaction at position %s. That position is given up as soon as the last of its batches is acked: the watermark may pass it then, although the sink never applied this part.", h.Position)
	case h.Kind == wire.Live:
		text := fmt.Sprintf("It gives up position %s: the watermark may pass it, although the sink never applied this.", h.Position)
		if item.Item != nil && h.Envelopes == 0 {
			text = fmt.Sprintf("It carries nothing but position %s, which the watermark may pass: no document is given up.", h.Position)
		}
		return text
	case h.Kind == wire.Snapshot:
		return "It gives up no position. These are rows of a snapshot: its marker will say that the index is whole, and it is not before they are replayed or requested again."
	}
	return fmt.Sprintf("It gives up no position. The sink is not told that %s is whole, and the request for it, which was served, does not come again.", strings.Join(h.Indexes, ", "))
}

// restores says what a replay will do.
func (k *skipping) restores() string {
	item := k.item()
	if item.Damage != nil {
		return "It is malformed and cannot be replayed: seed the sink again with \"request send\"."
	}
	replay := fmt.Sprintf("\"lane replay %s\" ", k.file)
	b, ok := item.Item.(*flusso.Batch)
	switch {
	case !ok:
		return replay + "publishes the marker again, unless a later one completes the same."
	case len(b.Envelopes) == 0:
		return "There is nothing to replay."
	}
	return replay + fmt.Sprintf("publishes its %s back as a snapshot batch, without a position; it leaves out documents that the lane has a later state of.",
		status.Count(uint64(len(b.Envelopes)), "envelope"))
}

// skipShown is how many envelopes are shown.
const skipShown = 20

func (k *skipping) text(t *target, done bool, refused *offsets.GroupActiveError) error {
	v := &peekText{peek: &peek{target: t}, w: t.out}
	for _, item := range k.items {
		if err := v.item(brief(item)); err != nil {
			return err
		}
	}
	if b, ok := k.item().Item.(*flusso.Batch); ok && len(b.Envelopes) > skipShown {
		if err := v.lines([]string{fmt.Sprintf("  and %d more", len(b.Envelopes)-skipShown)}); err != nil {
			return err
		}
	}
	outcome := "saved to " + k.file + " and committed"
	switch {
	case refused != nil:
		outcome = "dry run, nothing saved or committed; refused while the group has members: " + strings.Join(refused.Members, ", ")
	case !done:
		outcome = "dry run, nothing saved or committed"
	}
	m := k.plan.Move
	for _, text := range []string{
		fmt.Sprintf("group %s: offset %s → %s, acked through %s → %s (%s)", m.Lane.Group(), m.Before.Offset, m.Offset, m.Acked, m.Meta.Through, outcome),
		k.givesUp(), "watermark: " + k.mark.text(), k.restores(),
	} {
		if err := paragraph(t.out, "", text); err != nil {
			return err
		}
	}
	return nil
}

// brief is an item with its first envelopes.
func brief(i offsets.Item) offsets.Item {
	if b, ok := i.Item.(*flusso.Batch); ok && len(b.Envelopes) > skipShown {
		short := *b
		short.Envelopes = b.Envelopes[:skipShown]
		i.Item = &short
	}
	return i
}

func (k *skipping) json(t *target, done bool, refused *offsets.GroupActiveError) error {
	view := &peek{target: t}
	m := k.plan.Move
	answer := struct {
		Pipeline     string          `json:"pipeline"`
		Sink         string          `json:"sink"`
		Items        []peekItem      `json:"items"`
		File         string          `json:"file"`
		PriorOffset  offset          `json:"priorOffset"`
		Offset       offset          `json:"offset"`
		PriorThrough position        `json:"priorThrough"`
		Through      position        `json:"through"`
		GivenUp      position        `json:"givenUp"`
		Replayable   bool            `json:"replayable"`
		Watermark    watermarkChange `json:"watermark"`
		Committed    bool            `json:"committed"`
		Members      []string        `json:"members"`
	}{
		Pipeline: k.saved.Pipeline, Sink: k.saved.Sink, File: k.file,
		PriorOffset: offset(m.Before.Offset), Offset: offset(m.Offset), PriorThrough: position(m.Acked), Through: position(m.Meta.Through),
		GivenUp: position(k.plan.Item.Header.Position), Replayable: k.item().Damage == nil, Watermark: k.mark.json(), Committed: done, Members: []string{},
	}
	for _, item := range k.items {
		answer.Items = append(answer.Items, view.line(item))
	}
	if refused != nil {
		answer.Members = refused.Members
	}
	return writeJSON(t.out, answer)
}
