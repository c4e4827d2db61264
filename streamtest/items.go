package streamtest

import (
	"fmt"
	"strings"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// built is when all documents of the suite were built; milliseconds, since
// adapters may keep no more.
var built = time.Date(2026, 3, 14, 9, 26, 53, 589e6, time.UTC)

// live is a complete batch that upserts the named documents.
func live(at flusso.Position, ids ...string) *flusso.Batch {
	b := &flusso.Batch{Position: at, Changes: uint64(len(ids)) + 1}
	for _, id := range ids {
		b.Envelopes = append(b.Envelopes, flusso.Envelope{
			Index: "orders", ID: id, Op: flusso.Upsert, Position: at, BuiltAt: built,
			Document: fmt.Appendf(nil, `{"id":%q,"at":%d}`, id, at),
		})
	}
	return b
}

// more is a live batch that announces more of its position.
func more(at flusso.Position, ids ...string) *flusso.Batch {
	b := live(at, ids...)
	b.More = true
	return b
}

// rows is a snapshot batch.
func rows(ids ...string) *flusso.Batch {
	b := live(flusso.NoPosition, ids...)
	b.Changes = 0
	return b
}

func complete(indexes ...string) *flusso.SnapshotComplete {
	return &flusso.SnapshotComplete{Indexes: indexes}
}

func backfill(sink string, indexes ...string) *flusso.Backfill {
	return &flusso.Backfill{Sink: sink, Indexes: indexes}
}

// to routes items to one lane.
func to(sink string, items ...flusso.LaneItem) []flusso.Routed {
	var out []flusso.Routed
	for _, item := range items {
		out = append(out, flusso.Routed{Sink: sink, Item: item})
	}
	return out
}

// toAll is a commit that carries one item for each of the sinks.
func toAll(item flusso.LaneItem, sinks ...string) flusso.Commit {
	var c flusso.Commit
	for _, sink := range sinks {
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: item})
	}
	return c
}

// text is a value as a person reads it: equal values have equal texts.
func text(v any) string {
	switch v := v.(type) {
	case *flusso.Batch:
		return batchText(v)
	case *flusso.SnapshotComplete:
		return fmt.Sprintf("complete %q", v.Indexes)
	case *flusso.Backfill:
		return fmt.Sprintf("backfill of %q for %s", v.Indexes, v.Sink)
	case flusso.Commit:
		var s []string
		for _, r := range v.Items {
			s = append(s, r.Sink+"<-"+text(r.Item))
		}
		return fmt.Sprintf("commit [%s] with %d acks", strings.Join(s, "; "), len(v.Acks))
	case flusso.Watermark:
		return fmt.Sprintf("%s in %s, held by %q, behind %d, stale %v, floors %+v",
			v.Position, v.Incarnation, v.Holders, uint64(v.Behind), v.Stale, v.Floors)
	}
	return fmt.Sprintf("%+v", v)
}

func batchText(b *flusso.Batch) string {
	if b == nil {
		return "nil batch"
	}
	var s strings.Builder
	switch {
	case b.Live() && b.More:
		fmt.Fprintf(&s, "more %s", b.Position)
	case b.Live():
		fmt.Fprintf(&s, "live %s", b.Position)
	default:
		s.WriteString("rows")
	}
	fmt.Fprintf(&s, " of %d changes {", b.Changes)
	for i, e := range b.Envelopes {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "%s %s/%s@%s %s %s", e.Op, e.Index, e.ID, e.Position, e.BuiltAt.UTC().Format("15:04:05.000"), e.Document)
	}
	s.WriteString("}")
	return s.String()
}
