package bench

import (
	"fmt"
	"math/rand/v2"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// Index is the index of all documents.
const Index = "orders"

// Documents makes documents that look like JSON and differ from each other, so
// that they compress as real ones do: words repeat, ids and numbers do not.
// The same seed makes the same documents.
type Documents struct {
	size  int
	rng   *rand.Rand
	words []string
	built time.Time
	n     uint64
}

// NewDocuments returns a source of documents of size bytes each.
func NewDocuments(seed uint64, size int) *Documents {
	d := &Documents{size: size, rng: rand.New(rand.NewPCG(seed, 1)), built: time.Now().Truncate(time.Millisecond)}
	for range 3000 {
		word := make([]byte, 3+d.rng.IntN(8))
		for i := range word {
			word[i] = 'a' + byte(d.rng.IntN(26))
		}
		d.words = append(d.words, string(word))
	}
	return d
}

// Next returns another document: a JSON object, cut short where size is too
// small to hold one.
func (d *Documents) Next() []byte {
	r := d.rng
	doc := make([]byte, 0, d.size+64)
	doc = fmt.Appendf(doc, `{"id":%d,"customer":"%016x","total":%d.%02d,"placed_at":"2026-%02d-%02dT%02d:%02d:%02dZ","note":"`,
		d.n, r.Uint64(), r.IntN(100000), r.IntN(100), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60))
	for len(doc) < d.size {
		doc = append(append(doc, d.words[r.IntN(len(d.words))]...), ' ')
	}
	doc = doc[:d.size:d.size]
	if d.size > 2 {
		copy(doc[d.size-2:], `"}`)
	}
	return doc
}

// Batch returns a live batch of n upserts, all at its position: one transaction
// of a source. [At] gives it a position.
func (d *Documents) Batch(n int) *flusso.Batch {
	b := &flusso.Batch{Envelopes: make([]flusso.Envelope, n), Changes: uint64(n)}
	for i := range b.Envelopes {
		d.n++
		b.Envelopes[i] = flusso.Envelope{Index: Index, ID: fmt.Sprintf("%012d", d.n), Op: flusso.Upsert, Document: d.Next(), BuiltAt: d.built}
	}
	return b
}

// Batches returns so many of n upserts each.
func (d *Documents) Batches(count, n int) []*flusso.Batch {
	out := make([]*flusso.Batch, count)
	for i := range out {
		out[i] = d.Batch(n)
	}
	return out
}

// At returns a copy of a batch at a position. They share the documents.
func At(b *flusso.Batch, position flusso.Position) *flusso.Batch {
	c := *b
	c.Position = position
	c.Envelopes = append([]flusso.Envelope(nil), b.Envelopes...)
	for i := range c.Envelopes {
		c.Envelopes[i].Position = position
	}
	return &c
}

// MovedBy counts the keys and documents of batches, once for each lane.
func MovedBy(batches []*flusso.Batch, lanes int) Moved {
	var m Moved
	for _, b := range batches {
		m.Records += int64(len(b.Envelopes))
		for i := range b.Envelopes {
			e := &b.Envelopes[i]
			m.Bytes += int64(len(e.Index) + 1 + len(e.ID) + len(e.Document))
		}
	}
	return Moved{Records: m.Records * int64(lanes), Bytes: m.Bytes * int64(lanes)}
}
