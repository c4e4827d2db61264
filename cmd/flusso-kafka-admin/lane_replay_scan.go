package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// every is the document whose delete begins a snapshot of its index, or of all
// of them, in sinks that keep to that habit (examples/postgres does).
const every = "*"

// scanned is what a lane says of an item that is to be replayed into it.
type scanned struct {
	tail      offsets.Tail
	documents []replayDocument
	publish   flusso.LaneItem // nil for nothing
	risks     []string        // why it may overwrite something newer; never nil
}

// replayDocument is an envelope of the item, or an index of the marker, and
// what becomes of it.
type replayDocument struct {
	Index   string `json:"index"`
	ID      string `json:"id,omitempty"`
	Op      string `json:"op"`
	LeftOut string `json:"leftOut,omitempty"` // why
	Later   offset `json:"laterOffset"`

	again bool // what is there later is the same, in a snapshot batch
}

func (d replayDocument) name() string {
	if d.ID == "" {
		return plain(d.Index)
	}
	return plain(d.Index + "/" + d.ID)
}

func (d replayDocument) outcome(dry, done bool) string {
	switch {
	case d.LeftOut != "":
		return "left out: " + d.LeftOut
	case dry && !done:
		return "to be published"
	}
	return "published"
}

// later is what the lane holds behind the item.
type later struct {
	at       map[string]seen          // newest envelope by key
	opened   map[string]flusso.Offset // newest delete of every document, by index
	rows     map[string]flusso.Offset // first row of a snapshot that no marker ended yet, by index
	complete map[string]flusso.Offset // newest marker, by index
	damage   []flusso.Offset
	unknown  []flusso.Offset // items that are too large to look into
}

type seen struct {
	at   flusso.Offset
	same bool // as the saved one, and in a snapshot batch
}

// scan reads the lane from the item to its tail.
func (r *replay) scan(ctx context.Context, c *cluster) (*scanned, error) {
	one := []topics.Lane{r.lane}
	tails, err := c.store.Tails(ctx, one)
	if err != nil {
		return nil, err
	}
	tail := tails[r.lane]
	if tail.TopicID != r.saved.TopicID {
		return nil, fmt.Errorf("topic %s was deleted and created again since the item was saved (its ID was %s and is %s): seed the sink again with `flusso-kafka-admin request send %s INDEX... --yes`",
			r.lane.Topic(), topics.IDString(r.saved.TopicID), topics.IDString(tail.TopicID), r.lane.Sink)
	}
	found := &scanned{tail: tail, risks: []string{}}
	from := r.saved.At() + 1
	if tail.Start > from {
		found.risks = append(found.risks, fmt.Sprintf("the lane was trimmed to offset %s: whether it held later states of these documents cannot be known", tail.Start))
		from = tail.Start
	}
	if tail.Found && tail.Header.Incarnation != r.header.Incarnation {
		found.risks = append(found.risks, fmt.Sprintf("the item is of source incarnation %s, the lane is in %s: what it says may be from before a restore",
			r.header.Incarnation, tail.Header.Incarnation))
	}
	commits, err := c.store.Commits(ctx, one)
	if err != nil {
		return nil, err
	}
	if g := commits[r.lane]; g.State == offsets.Present && g.Offset <= r.saved.At() {
		found.risks = append(found.risks, fmt.Sprintf("group %s is at offset %s, at or before the item: the sink gets it from the lane itself", r.lane.Group(), g.Offset))
	}
	l, err := r.read(ctx, c, from)
	if err != nil {
		return nil, err
	}
	found.judge(r, l)
	return found, nil
}

// read takes note of what the lane holds from an offset on.
func (r *replay) read(ctx context.Context, c *cluster, from flusso.Offset) (*later, error) {
	l := &later{
		at: map[string]seen{}, opened: map[string]flusso.Offset{}, rows: map[string]flusso.Offset{}, complete: map[string]flusso.Offset{},
	}
	saved := make(map[string]*flusso.Envelope)
	if b, ok := r.item.(*flusso.Batch); ok {
		for i := range b.Envelopes {
			e := &b.Envelopes[i]
			saved[e.Index+"/"+e.ID] = e
		}
	}
	for item, err := range c.store.Items(ctx, r.lane, offsets.Reading{From: from}) {
		if errors.Is(err, offsets.ErrUnknown) && len(l.at) == 0 && from > 0 {
			return nil, fmt.Errorf("the lane of %s was trimmed while it was read: run the command again: %w", r.lane.Sink, err)
		}
		if err != nil {
			return nil, err
		}
		l.take(item, saved)
	}
	return l, nil
}

func (l *later) take(item offsets.Item, saved map[string]*flusso.Envelope) {
	switch it := item.Item.(type) {
	case *flusso.Batch:
		for i := range it.Envelopes {
			e := &it.Envelopes[i]
			if e.ID == every && e.Op == flusso.Delete {
				l.opened[e.Index] = item.At
			}
			if !it.Live() {
				if _, begun := l.rows[e.Index]; !begun {
					l.rows[e.Index] = item.At
				}
			}
			key := e.Index + "/" + e.ID
			if s := saved[key]; s != nil {
				same := !it.Live() && s.Op == e.Op && item.Whole && bytes.Equal(s.Document, e.Document)
				l.at[key] = seen{item.At, same}
			}
		}
	case *flusso.SnapshotComplete:
		for _, index := range it.Indexes {
			l.complete[index] = item.At
			delete(l.rows, index)
		}
	default:
		switch {
		case item.Damage != nil:
			l.damage = append(l.damage, item.First)
		case !item.EndOnly:
			l.unknown = append(l.unknown, item.First)
		}
	}
}

// judge decides what is published, given what the lane holds.
func (found *scanned) judge(r *replay, l *later) {
	if len(l.damage) > 0 {
		found.risks = append(found.risks, fmt.Sprintf("the lane holds records that are no item, at offset %s first: a sink stops there, see `flusso-kafka-admin lane peek %s --from-offset %s`",
			l.damage[0], r.lane.Sink, l.damage[0]))
	}
	if len(l.unknown) > 0 {
		found.risks = append(found.risks, fmt.Sprintf("the item at offset %s has too many records to be looked into", l.unknown[0]))
	}
	switch it := r.item.(type) {
	case *flusso.Batch:
		found.batch(it, l, r.force)
	case *flusso.SnapshotComplete:
		found.marker(it, l)
	}
	if found.documents == nil {
		found.documents = []replayDocument{}
	}
}

func (found *scanned) batch(b *flusso.Batch, l *later, force bool) {
	out := &flusso.Batch{}
	for i := range b.Envelopes {
		e := b.Envelopes[i]
		d := replayDocument{Index: e.Index, ID: e.ID, Op: e.Op.String(), Later: offset(flusso.NoOffset)}
		opened, anew := l.opened[e.Index]
		if all, of := l.opened[every]; of {
			opened, anew = max(opened, all), true
		}
		s, has := l.at[e.Index+"/"+e.ID]
		switch {
		case e.ID == every && e.Op == flusso.Delete && !force:
			d.LeftOut = "it would begin a snapshot that nobody sends"
		case has:
			d.LeftOut, d.Later, d.again = fmt.Sprintf("it has a later state in the lane, at offset %s", s.at), offset(s.at), s.same
			if s.same {
				d.LeftOut = fmt.Sprintf("it is in the lane again at offset %s", s.at)
			}
		case anew:
			d.LeftOut, d.Later = fmt.Sprintf("a later snapshot began its index anew at offset %s", opened), offset(opened)
		default:
			e.Position = flusso.NoPosition
			out.Envelopes = append(out.Envelopes, e)
		}
		found.documents = append(found.documents, d)
	}
	if len(out.Envelopes) > 0 {
		found.publish = out
	}
}

func (found *scanned) marker(m *flusso.SnapshotComplete, l *later) {
	out := &flusso.SnapshotComplete{}
	for _, index := range m.Indexes {
		d := replayDocument{Index: index, Op: "complete", Later: offset(flusso.NoOffset)}
		if at, ok := l.complete[index]; ok {
			d.LeftOut, d.Later = fmt.Sprintf("a later marker completes it at offset %s", at), offset(at)
		} else {
			out.Indexes = append(out.Indexes, index)
		}
		found.documents = append(found.documents, d)
	}
	var under []string
	for _, index := range slices.Sorted(maps.Keys(l.rows)) {
		if slices.Contains(out.Indexes, index) || index == every {
			under = append(under, fmt.Sprintf("%s since offset %s", index, l.rows[index]))
		}
	}
	if len(under) > 0 && len(out.Indexes) > 0 {
		found.risks = append(found.risks, "a later snapshot is under way, which the marker would end before it is whole: "+strings.Join(under, ", "))
	}
	if len(out.Indexes) > 0 {
		found.publish = out
	}
}

// refusal is the error where publishing may do harm, nil where it does none.
func (found *scanned) refusal(r *replay) error {
	if len(found.risks) == 0 || found.publish == nil {
		return nil
	}
	return fmt.Errorf("%s: nothing is published: seed the sink again with `flusso-kafka-admin request send %s %s --yes`, or add --force if you know that nothing newer is overwritten",
		strings.Join(found.risks, "; "), r.saved.Sink, strings.Join(found.indexes(), " "))
}

// indexes are those that the item is about.
func (found *scanned) indexes() []string {
	set := make(map[string]bool)
	for _, d := range found.documents {
		set[d.Index] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// nothing says why nothing is published.
func (found *scanned) nothing() string {
	again := len(found.documents) > 0
	for _, d := range found.documents {
		again = again && (d.again || d.Op == "complete")
	}
	switch {
	case len(found.documents) == 0:
		return "Nothing is published: the item has no envelopes."
	case again:
		return "Nothing is published: all of it is in the lane again, it was replayed before."
	}
	return "Nothing is published: all of it is left out."
}

// comes says what the sink gets.
func (found *scanned) comes() string {
	if b, ok := found.publish.(*flusso.Batch); ok {
		n := uint64(len(b.Envelopes))
		verb := "come"
		if n == 1 {
			verb = "comes"
		}
		return fmt.Sprintf("%s %s as a %s, without a position: the watermark stays as it is.", status.Count(n, "envelope"), verb, kinds[wire.Snapshot])
	}
	return "The marker has no position: the watermark stays as it is."
}
