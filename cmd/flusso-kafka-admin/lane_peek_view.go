package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/offsets"
)

// peekView writes what a peek finds, as it is found.
type peekView interface {
	note(text string) error
	item(offsets.Item) error
	end(peekEnd) error
}

func (p *peek) view() peekView {
	if p.format == "json" {
		enc := json.NewEncoder(p.out)
		enc.SetEscapeHTML(false)
		return &peekLines{peek: p, enc: enc}
	}
	return &peekText{peek: p, w: p.out}
}

// kinds are what people call the kinds of items.
var kinds = map[wire.Kind]string{wire.Live: "live batch", wire.Snapshot: "snapshot batch", wire.Complete: "snapshot marker"}

// headline says what an item is: kind, position, through, age.
func headline(h *offsets.Header, now time.Time) string {
	text := fmt.Sprintf("sequence %d  %s", h.Sequence, kinds[h.Kind])
	if h.Kind == wire.Live {
		text += fmt.Sprintf(", position %s", h.Position)
	}
	if h.More {
		text += " (more of it follows)"
	}
	if h.Kind == wire.Complete {
		text += " of " + strings.Join(h.Indexes, ", ")
	}
	return text + fmt.Sprintf(", through %s, built %s ago", h.Through, age(max(0, now.Sub(h.BuiltAt))))
}

// bytesOf is what an item adds to the totals of its lane.
func bytesOf(i offsets.Item) (n uint64) {
	for _, size := range i.Sizes {
		n += uint64(size)
	}
	for _, r := range i.Raw {
		n += uint64(len(r.Key))
	}
	return n
}

// span names the offsets from first to last.
func span(first, last flusso.Offset) string {
	if first == last {
		return "offset " + first.String()
	}
	return fmt.Sprintf("offsets %s to %s", first, last)
}

// peekText shows items to people.
type peekText struct {
	*peek
	w io.Writer
}

func (v *peekText) note(text string) error { return paragraph(v.w, "", text) }

func (v *peekText) item(i offsets.Item) error {
	switch {
	case i.EndOnly:
		return paragraph(v.w, "", fmt.Sprintf("offset %s lies inside the item of sequence %d, which is passed over: the next begins behind offset %s",
			i.First, i.Header.Sequence, i.At))
	case i.Damage != nil:
		head := fmt.Sprintf("%s  no item, %s", span(i.First, i.At), status.Count(uint64(i.Records), "record"))
		if err := v.lines([]string{head}); err != nil {
			return err
		}
		return paragraph(v.w, "  ", i.Damage.Error())
	}
	h := &i.Header
	t := h.Totals
	lines := []string{cut(headline(h, time.Now()), maxColumns)}
	if err := v.lines(lines); err != nil {
		return err
	}
	weight := "size not known"
	if i.Item != nil {
		weight = tied(size(bytesOf(i)))
	}
	if err := paragraph(v.w, "  ", fmt.Sprintf("%s, %s, %s, %s; incarnation %s, writer%sepoch%s%d", span(i.First, i.At),
		tied(status.Count(uint64(h.Envelopes), "envelope")), weight, tied(status.Count(h.Changes, "change")), h.Incarnation, noBreak, noBreak, h.Epoch)); err != nil {
		return err
	}
	if err := paragraph(v.w, "  ", fmt.Sprintf("lane up to here: %s, %s, %s, %s", tied(status.Count(t.Batches, "item")),
		tied(status.Count(t.Envelopes, "envelope")), tied(size(t.Bytes)), tied(status.Count(t.Changes, "change")))); err != nil {
		return err
	}
	if i.Broken != nil {
		if err := paragraph(v.w, "  ", "breaks the order of the lane: "+i.Broken.Error()); err != nil {
			return err
		}
	}
	if v.heads {
		return nil
	}
	return v.envelopes(i)
}

func (v *peekText) lines(lines []string) error {
	_, err := fmt.Fprintln(v.w, strings.Join(lines, "\n"))
	return err
}

func (v *peekText) envelopes(i offsets.Item) error {
	b, ok := i.Item.(*flusso.Batch)
	if !ok {
		if i.Item == nil {
			return v.lines([]string{"  too many envelopes to show"})
		}
		return nil
	}
	others, widest := 0, 0
	for k := range b.Envelopes {
		if e := &b.Envelopes[k]; v.matches(e) {
			widest = max(widest, ansi.StringWidth(plain(e.Index+"/"+e.ID)))
		}
	}
	widest = min(widest, maxColumns-24)
	for k := range b.Envelopes {
		e := &b.Envelopes[k]
		if !v.matches(e) {
			others++
			continue
		}
		key := cut(plain(e.Index+"/"+e.ID), widest)
		line := fmt.Sprintf("  %s  %s", e.Op, key)
		if e.Op == flusso.Upsert {
			line += strings.Repeat(" ", widest-ansi.StringWidth(key)) + "  " + size(uint64(i.Sizes[k]))
		}
		if e.Position != b.Position {
			line += "  position " + e.Position.String()
		}
		if err := v.lines([]string{cut(line, maxColumns)}); err != nil {
			return err
		}
		if v.values && e.Op == flusso.Upsert {
			if err := v.lines(v.document(e.Document, i.Sizes[k])); err != nil {
				return err
			}
		}
	}
	if others > 0 {
		return v.lines([]string{fmt.Sprintf("  and %s that the filter leaves out", status.Count(uint64(others), "envelope"))})
	}
	return nil
}

// documentLines is how many lines of a document show without --full.
const documentLines = 20

// document shows a document, indented when it is JSON. Of one that was read
// in part only that part shows.
func (v *peekText) document(doc []byte, whole int) []string {
	const indent = "      "
	if !v.full && len(doc) > 64<<10 { // far more than shows
		doc = doc[:64<<10]
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, doc, indent, "  ") != nil {
		pretty.Reset()
		pretty.Write(doc)
	}
	lines := strings.Split(indent+pretty.String(), "\n")
	for k := range lines {
		lines[k] = plain(lines[k])
	}
	if v.full {
		if len(doc) < whole {
			lines = append(lines, indent+fmt.Sprintf("… the first %s of %s: the item is too large", size(uint64(len(doc))), size(uint64(whole))))
		}
		return lines
	}
	if n := len(lines) - documentLines; n > 0 {
		lines = append(lines[:documentLines], indent+"… cut, --full shows all")
	}
	for k := range lines {
		lines[k] = cut(lines[k], maxColumns)
	}
	return lines
}

func (v *peekText) end(e peekEnd) error {
	text := ""
	switch {
	case e.More:
		text = fmt.Sprintf("more follows: go on with --from-offset %d", e.Next)
	case e.Shown == 0:
		text = fmt.Sprintf("nothing to show up to offset %d, the end of what is committed in topic %s", e.Stable, e.Topic)
	default:
		text = fmt.Sprintf("end of what is committed, offset %d", e.Stable)
	}
	if err := paragraph(v.w, "", text); err != nil {
		return err
	}
	if open := e.openText(); open != "" {
		return paragraph(v.w, "", open)
	}
	return nil
}

// peekItem is an item as JSON.
type peekItem struct {
	Type        string         `json:"type"` // item, passed or damage
	First       offset         `json:"firstOffset"`
	Offset      offset         `json:"offset"`
	Next        offset         `json:"nextOffset"`
	Records     int            `json:"records"`
	Sequence    uint64         `json:"sequence,omitempty"`
	Kind        string         `json:"kind,omitempty"`
	Position    position       `json:"position"`
	More        bool           `json:"more"`
	Through     position       `json:"through"`
	Newest      position       `json:"newest"`
	Incarnation string         `json:"incarnation,omitempty"`
	Epoch       uint64         `json:"epoch,omitempty"`
	BuiltAt     *time.Time     `json:"builtAt"`
	Seconds     *float64       `json:"seconds"`
	Bytes       *uint64        `json:"bytes"`
	Changes     uint64         `json:"changes"`
	Totals      *peekTotals    `json:"totals"`
	Indexes     []string       `json:"indexes,omitempty"`
	Count       uint32         `json:"envelopeCount"`
	Envelopes   []peekEnvelope `json:"envelopes"`
	Broken      string         `json:"broken,omitempty"`
	Error       string         `json:"error,omitempty"`
}

type peekTotals struct {
	Batches   uint64 `json:"batches"`
	Envelopes uint64 `json:"envelopes"`
	Bytes     uint64 `json:"bytes"`
	Changes   uint64 `json:"changes"`
}

type peekEnvelope struct {
	Index    string          `json:"index"`
	ID       string          `json:"id"`
	Op       string          `json:"op"`
	Position position        `json:"position"`
	BuiltAt  time.Time       `json:"builtAt"`
	Size     *int            `json:"size"`
	Document json.RawMessage `json:"document,omitempty"`
	Base64   []byte          `json:"documentBase64,omitempty"`
	Cut      bool            `json:"cut,omitempty"`
}

// peekLines writes one JSON object on each line.
type peekLines struct {
	*peek
	enc *json.Encoder
}

func (v *peekLines) note(text string) error {
	return v.enc.Encode(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"note", text})
}

func (v *peekLines) end(e peekEnd) error { return v.enc.Encode(e) }

func (v *peekLines) item(i offsets.Item) error { return v.enc.Encode(v.line(i)) }

// line returns an item as JSON.
func (p *peek) line(i offsets.Item) peekItem {
	out := peekItem{
		Type: "item", First: offset(i.First), Offset: offset(i.At), Next: offset(i.Next()), Records: i.Records,
		Envelopes: []peekEnvelope{},
	}
	if i.Damage != nil {
		out.Type, out.Error = "damage", i.Damage.Error()
		return out
	}
	h, built := &i.Header, i.Header.BuiltAt.UTC()
	seconds := max(0, time.Since(built).Seconds())
	out.Sequence, out.Kind, out.Position, out.More = h.Sequence, h.Kind.String(), position(h.Position), h.More
	out.Through, out.Newest, out.Incarnation, out.Epoch = position(h.Through), position(h.Newest), h.Incarnation, h.Epoch
	out.BuiltAt, out.Seconds, out.Changes, out.Indexes, out.Count = &built, &seconds, h.Changes, h.Indexes, h.Envelopes
	out.Totals = &peekTotals{h.Totals.Batches, h.Totals.Envelopes, h.Totals.Bytes, h.Totals.Changes}
	if i.EndOnly {
		out.Type = "passed"
		return out
	}
	if i.Broken != nil {
		out.Broken = i.Broken.Error()
	}
	if i.Item != nil {
		n := bytesOf(i)
		out.Bytes = &n
	}
	if b, ok := i.Item.(*flusso.Batch); ok && !p.heads {
		for k := range b.Envelopes {
			if e := &b.Envelopes[k]; p.matches(e) {
				out.Envelopes = append(out.Envelopes, p.envelope(e, i.Sizes[k]))
			}
		}
	}
	return out
}

func (p *peek) envelope(e *flusso.Envelope, bytes int) peekEnvelope {
	out := peekEnvelope{Index: e.Index, ID: e.ID, Op: e.Op.String(), Position: position(e.Position), BuiltAt: e.BuiltAt.UTC()}
	if e.Op == flusso.Delete {
		return out
	}
	out.Size = &bytes
	if !p.values {
		return out
	}
	out.Cut = len(e.Document) < bytes
	if utf8.Valid(e.Document) && json.Valid(e.Document) {
		out.Document = e.Document
	} else {
		out.Base64 = e.Document
	}
	return out
}
