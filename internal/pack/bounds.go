package pack

import (
	"bytes"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// Parquet files have, for each page, the least and the greatest value: other
// readers leave out pages by them, so they must be true. The library writes
// none for a column that skips bounds, but says so as empty ones, which lie;
// and it cuts the greatest value of bytes 0xFF to one that is less. So the
// columns of bytes have indexers of their own.

// withIndexers returns a schema of the same columns, in the same order, some
// of which have column indexers of their own.
func withIndexers(name string, of *parquet.Schema, indexers map[string]func() parquet.ColumnIndexer) *parquet.Schema {
	n := indexed{Node: of}
	for _, f := range of.Fields() {
		if make, ok := indexers[f.Name()]; ok {
			f = indexedField{f, indexedType{f.Type(), make}}
		}
		n.fields = append(n.fields, f)
	}
	return parquet.NewSchema(name, n)
}

type indexed struct {
	parquet.Node

	fields []parquet.Field
}

// Fields implements [parquet.Node].
func (n indexed) Fields() []parquet.Field { return n.fields }

type indexedField struct {
	parquet.Field

	typ parquet.Type
}

// Type implements [parquet.Node].
func (f indexedField) Type() parquet.Type { return f.typ }

type indexedType struct {
	parquet.Type

	indexer func() parquet.ColumnIndexer
}

// NewColumnIndexer implements [parquet.Type].
func (t indexedType) NewColumnIndexer(int) parquet.ColumnIndexer { return t.indexer() }

// keyBounds indexes pages by their least and greatest key, cut to a limit.
type keyBounds struct {
	limit int
	pages
}

// Reset implements [parquet.ColumnIndexer].
func (k *keyBounds) Reset() { k.reset() }

// IndexPage implements [parquet.ColumnIndexer].
func (k *keyBounds) IndexPage(values, nulls int64, least, greatest parquet.Value) {
	if values == nulls {
		k.add(values, nulls, []byte{}, []byte{})
		return
	}
	k.add(values, nulls, bytes.Clone(cutLow(least.ByteArray(), k.limit)), cutHigh(greatest.ByteArray(), k.limit))
}

// ColumnIndex implements [parquet.ColumnIndexer].
func (k *keyBounds) ColumnIndex() format.ColumnIndex { return k.index() }

// opaqueBounds gives all pages of a row group bounds that are true and tell
// nothing: those of the group.
type opaqueBounds struct {
	least, greatest func() []byte

	pages
}

// Reset implements [parquet.ColumnIndexer].
func (o *opaqueBounds) Reset() { o.reset() }

// IndexPage implements [parquet.ColumnIndexer].
func (o *opaqueBounds) IndexPage(values, nulls int64, _, _ parquet.Value) {
	o.add(values, nulls, nil, nil)
}

// ColumnIndex implements [parquet.ColumnIndexer].
func (o *opaqueBounds) ColumnIndex() format.ColumnIndex {
	least, greatest := o.least(), o.greatest()
	for i := range o.leasts {
		o.leasts[i], o.greatests[i] = least, greatest
	}
	return o.index()
}

// pages is what an index says of each page.
type pages struct {
	null              []bool
	nulls             []int64
	leasts, greatests [][]byte
}

func (p *pages) reset() { *p = pages{} }

func (p *pages) add(values, nulls int64, least, greatest []byte) {
	p.null = append(p.null, values == nulls)
	p.nulls = append(p.nulls, nulls)
	p.leasts, p.greatests = append(p.leasts, least), append(p.greatests, greatest)
}

func (p *pages) index() format.ColumnIndex {
	x := format.ColumnIndex{NullPages: p.null, NullCounts: p.nulls, MinValues: p.leasts, MaxValues: p.greatests}
	if !slices.Contains(p.null, true) && slices.IsSortedFunc(p.leasts, bytes.Compare) && slices.IsSortedFunc(p.greatests, bytes.Compare) {
		x.BoundaryOrder = format.Ascending
	}
	return x
}

// cutLow returns bytes that are not above b, at most limit of them.
func cutLow(b []byte, limit int) []byte { return b[:min(len(b), limit)] }

// cutHigh returns bytes that are not below b, at most limit of them unless
// those are all 0xFF, which nothing of their length is above.
func cutHigh(b []byte, limit int) []byte {
	if len(b) <= limit {
		return bytes.Clone(b)
	}
	for i := limit - 1; i >= 0; i-- {
		if b[i] < 0xff {
			high := bytes.Clone(b[:i+1])
			high[i]++
			return high
		}
	}
	for i := limit; i < len(b); i++ {
		if b[i] < 0xff {
			high := bytes.Clone(b[:i+1])
			high[i]++
			return high
		}
	}
	return bytes.Clone(b)
}
