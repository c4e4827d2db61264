package wire

import "github.com/twmb/franz-go/pkg/kgo"

// memoryOverhead is what a record takes in memory beside its bytes.
const memoryOverhead = 200

// Gather collects the records of a lane, as a reader of committed data sees
// them, into items. Items are told by their headers, never by offsets: markers
// of other segments lie between the records of one. The zero value is ready.
type Gather struct {
	Records []*kgo.Record // those of the item that is being gathered
	Bytes   int64         // what they take in memory
}

// Add takes the next record. It reports whether that one ends an item, and
// returns its header then; control records are passed over. What was gathered
// stays until [Gather.Take].
func (g *Gather) Add(r *kgo.Record) (Header, bool, error) {
	if r.Attrs.IsControl() {
		return Header{}, false, nil
	}
	g.Records = append(g.Records, r)
	g.Bytes += int64(len(r.Key)+len(r.Value)) + memoryOverhead
	return HeaderOf(r)
}

// EndOnly reports whether what was gathered is less than the item that h ends:
// at the log start that is the end of an item whose beginning was trimmed.
func (g *Gather) EndOnly(h Header) bool { return uint64(len(g.Records)) < uint64(h.Records) }

// Take returns what was gathered and begins anew.
func (g *Gather) Take() ([]*kgo.Record, int64) {
	records, bytes := g.Records, g.Bytes
	g.Records, g.Bytes = nil, 0
	return records, bytes
}

// Reuse gives back the records that [Gather.Take] returned, when their item is
// decoded and nobody looks at the slice or at one of them again.
func (g *Gather) Reuse(records []*kgo.Record) {
	for _, r := range records {
		r.Recycle()
	}
	if g.Records == nil {
		clear(records)
		g.Records = records[:0]
	}
}
