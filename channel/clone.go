package channel

import (
	"slices"

	flusso "github.com/flusso/flusso-kafka"
)

// Producers may change an item once it is published and receivers own what
// they get, while the lane may have to deliver it again: so items are copied
// on the way in and on the way out.

func cloneItem(item flusso.LaneItem) flusso.LaneItem {
	switch it := item.(type) {
	case *flusso.Batch:
		return cloneBatch(it)
	case *flusso.SnapshotComplete:
		return &flusso.SnapshotComplete{Indexes: slices.Clone(it.Indexes)}
	}
	return item
}

func cloneBatch(b *flusso.Batch) *flusso.Batch {
	out := *b
	out.Envelopes = slices.Clone(b.Envelopes)
	total := 0
	for i := range b.Envelopes {
		total += len(b.Envelopes[i].Document)
	}
	documents := make([]byte, 0, total) // one allocation for all of them
	for i := range out.Envelopes {
		if doc := out.Envelopes[i].Document; doc != nil {
			from := len(documents)
			documents = append(documents, doc...)
			out.Envelopes[i].Document = documents[from:len(documents):len(documents)]
		}
	}
	return &out
}

func cloneRequest(r flusso.Request) flusso.Request {
	if b, ok := r.(*flusso.Backfill); ok {
		return &flusso.Backfill{Sink: b.Sink, Indexes: slices.Clone(b.Indexes)}
	}
	return r
}

// overhead is what an item or envelope weighs besides its text, about.
const overhead = 96

func itemSize(item flusso.LaneItem) int64 {
	n := int64(overhead)
	switch it := item.(type) {
	case *flusso.Batch:
		if it == nil {
			return n
		}
		for i := range it.Envelopes {
			e := &it.Envelopes[i]
			n += int64(overhead + len(e.Index) + len(e.ID) + len(e.Document))
		}
	case *flusso.SnapshotComplete:
		if it != nil {
			n += textSize(it.Indexes)
		}
	}
	return n
}

func requestSize(r flusso.Request) int64 {
	if b, ok := r.(*flusso.Backfill); ok && b != nil {
		return overhead + int64(len(b.Sink)) + textSize(b.Indexes)
	}
	return overhead
}

func commitSize(c flusso.Commit) int64 {
	n := int64(overhead)
	for i := range c.Items {
		n += itemSize(c.Items[i].Item)
	}
	return n
}

func textSize(list []string) int64 {
	n := 0
	for _, s := range list {
		n += len(s)
	}
	return int64(n)
}
