package offsets

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Reading says what [Store.Items] reads.
type Reading struct {
	// From is where it begins; a negative offset is the log start.
	From flusso.Offset
	// Memory bounds the documents of one item that are kept, in bytes, 16 MiB
	// by default: of an item above it they are cut, see [Item.Whole].
	Memory int64
	// Follow waits for more at the end of what is committed, until the context
	// ends, and then ends without an error.
	Follow bool
}

// Item is what a reading finds: an item, or records that are none.
type Item struct {
	// Found is the item's last record and its header. Where Damage is set, At is
	// the last of the records that it is about, and there is no header.
	Found
	First   flusso.Offset // offset of its first record, of those that were read
	Records int           // how many were read

	// Item is nil with Damage or EndOnly, and where the item has more records
	// than are kept.
	Item flusso.LaneItem
	// Raw are the records as they lie in the lane, cut as the documents are.
	Raw []*kgo.Record
	// Sizes are the bytes of the documents, as many as envelopes.
	Sizes []int
	// Whole says that documents and records are as they lie in the lane, and
	// not cut to their first bytes for want of room.
	Whole bool

	// EndOnly says that the reading began inside the item.
	EndOnly bool
	// Damage says why the records are no item: a [*wire.FormatError] or
	// [*wire.VersionError]. A sink stops there.
	Damage error
	// Broken says which rule the item breaks by following the one before it,
	// a hole in the sequence for one; nil where nothing was read before it.
	Broken error
}

// What a reading keeps.
const (
	itemMemory  = 16 << 20
	itemBytes   = 1 << 20 // of one fetch, but for a larger batch
	itemRecords = 1 << 18 // records of one item
	itemExcerpt = 1 << 10 // bytes of a document that is cut
	followEvery = 200 * time.Millisecond
)

// Items returns the committed items of a lane from an offset on, in order. No
// group is joined and nothing is committed; data of transactions that were
// aborted or are open never shows. It ends at the last stable offset as it is
// when the reading gets there.
//
// A reading that begins inside an item returns its end first, with EndOnly set.
// Records that are no item, as another producer writes them, are returned with
// Damage set, and the reading goes on behind them. One item is held at a time.
//
// The error is the last that is returned. It is an [ErrUnknown] where the log
// does not hold the offset, be it that it was trimmed meanwhile.
func (s *Store) Items(ctx context.Context, lane topics.Lane, r Reading) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		fail := func(err error) { yield(Item{}, err) }
		if r.From < 0 {
			ends, err := s.ends(ctx, []topics.Lane{lane}, identityAge)
			if err != nil {
				fail(err)
				return
			}
			r.From = ends[lane].Start
		}
		q := above(lane, r.From)
		q.bytes = itemBytes
		c := collector{lane: lane, memory: r.Memory, inside: true}
		if c.memory <= 0 {
			c.memory = itemMemory
		}
		for {
			p, err := s.readOn(ctx, q)
			if err != nil {
				if !r.Follow || ctx.Err() == nil {
					fail(err)
				}
				return
			}
			for _, rec := range p.records {
				if flusso.Offset(rec.Offset) < q.at {
					continue
				}
				for _, item := range c.take(rec) {
					if !yield(item, nil) {
						return
					}
				}
			}
			progress := p.next > q.at
			q.at = max(q.at, p.next)
			switch {
			case q.at >= p.stable && r.Follow:
				if !wait(ctx, followEvery) {
					return
				}
			case q.at >= p.stable:
				if item, left := c.leftover(); left {
					yield(item, nil)
				}
				return
			case progress:
				q.bytes = itemBytes
			default: // not one whole batch, or no room in the answer
				if q.more(); q.err != nil {
					fail(q.err)
					return
				}
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// readOn fetches what is at q.at, asking again after answers that say "not
// here" or "not now".
func (s *Store) readOn(ctx context.Context, q *search) (piece, error) {
	q.refused = 0
	for age := identityAge; ; age = 0 {
		q.again = false
		if err := s.place(ctx, age, []*search{q}); err != nil {
			return piece{}, err
		}
		switch {
		case q.restarted:
			return piece{}, kafkaerr.Wrap("read topic "+q.lane.Topic(), kerr.InconsistentTopicID)
		case q.done:
			return piece{}, q.err
		case !q.again:
			p := s.fetch(ctx, q.id.leader, []*search{q})[0]
			switch {
			case p.err == nil:
				return p, nil
			case errors.Is(p.err, kerr.OffsetOutOfRange):
				ends, err := s.Ends(ctx, []topics.Lane{q.lane})
				if err != nil {
					return piece{}, err
				}
				if e := ends[q.lane]; q.at < e.Start || q.at > e.High {
					return piece{}, outOfLog(q, e)
				}
			}
			q.refuse(p.err)
			if q.done {
				return piece{}, q.err
			}
		}
		if err := backoff(ctx, q.refused); err != nil {
			return piece{}, kafkaerr.Wrap("read topic "+q.lane.Topic(), err)
		}
	}
}

func outOfLog(q *search, e Ends) error {
	reason := belowStart
	if q.at > e.High {
		reason = fmt.Sprintf("beyond the end of the log, which is offset %s", e.High)
	}
	return &UnknownError{Lane: q.lane, What: fmt.Sprintf("item at or above offset %s", q.at), Start: e.Start, Reason: reason}
}

// collector makes items of records, within bounds.
type collector struct {
	lane   topics.Lane
	memory int64
	inside bool // the next item may be the end of one only
	prev   *Header

	gather  wire.Gather // its records are cut when there are too many bytes
	sizes   []int
	values  int64
	first   flusso.Offset
	last    *kgo.Record
	records int
	cut     bool // documents
	counted bool // records are counted, and not kept
}

// take takes a record and returns what it completes.
func (c *collector) take(r *kgo.Record) (out []Item) {
	if c.records > 0 && (r.ProducerID != c.last.ProducerID || r.ProducerEpoch != c.last.ProducerEpoch) {
		out = append(out, c.damaged(c.unended())) // an item is of one producer
	}
	if c.records == 0 {
		c.first = flusso.Offset(r.Offset)
	}
	c.records++
	c.last = r
	c.sizes = append(c.sizes, len(r.Value))
	c.values += int64(len(r.Value))
	if !c.cut && c.values > c.memory {
		c.cut = true
		for i, kept := range c.gather.Records {
			c.gather.Records[i] = excerpt(kept)
		}
	}
	kept := r
	if c.cut {
		kept = excerpt(r)
	}
	h, ends, err := c.gather.Add(kept)
	if c.counted = c.counted || c.records > itemRecords; c.counted {
		c.gather.Take()
		c.sizes = nil
	}
	switch {
	case err != nil:
		return append(out, c.damaged(err))
	case ends:
		return append(out, c.end(h)...)
	}
	return out
}

// end completes the item that h ends.
func (c *collector) end(h Header) (out []Item) {
	if c.inside && uint64(c.records) < uint64(h.Records) {
		item := c.item()
		item.Header, item.EndOnly = h, true
		c.inside, c.prev = false, &h
		return append(out, item)
	}
	if extra := c.records - int(h.Records); extra > 0 && !c.counted {
		// What is before the item is none of its records.
		foreign := c.gather.Records[:extra]
		out = append(out, Item{
			Found: Found{At: flusso.Offset(foreign[extra-1].Offset), LeaderEpoch: foreign[extra-1].LeaderEpoch},
			First: c.first, Records: extra, Raw: foreign, Sizes: c.sizes[:extra], Whole: !c.cut,
			Damage: c.unended(),
		})
		c.gather.Records, c.sizes, c.records = c.gather.Records[extra:], c.sizes[extra:], c.records-extra
		c.first = flusso.Offset(c.gather.Records[0].Offset)
	}
	var (
		decoded flusso.LaneItem
		err     error
	)
	switch {
	case !c.counted:
		decoded, _, err = wire.DecodeItem(c.gather.Records)
	case uint64(c.records) != uint64(h.Records):
		err = c.malformed(fmt.Sprintf("has %d records, its header says %d", c.records, h.Records))
	}
	if err != nil {
		return append(out, c.damaged(err))
	}
	item := c.item()
	item.Header, item.Item = h, decoded
	if h.Envelopes == 0 {
		item.Sizes = nil
	}
	if c.prev != nil {
		item.Broken = h.Follows(c.prev)
	}
	c.inside, c.prev = false, &h
	return append(out, item)
}

// item is what was gathered; the collector begins anew.
func (c *collector) item() Item {
	raw, _ := c.gather.Take()
	item := Item{
		Found: Found{At: flusso.Offset(c.last.Offset), LeaderEpoch: c.last.LeaderEpoch},
		First: c.first, Records: c.records, Raw: raw, Sizes: c.sizes, Whole: !c.cut && !c.counted,
	}
	c.sizes, c.values, c.records, c.last, c.cut, c.counted = nil, 0, 0, nil, false, false
	return item
}

func (c *collector) damaged(err error) Item {
	item := c.item()
	item.Damage = err
	return item
}

// leftover returns committed records at the end that no header ends.
func (c *collector) leftover() (Item, bool) {
	if c.records == 0 {
		return Item{}, false
	}
	return c.damaged(c.unended()), true
}

func (c *collector) unended() error {
	return c.malformed("no record with a header " + wire.HeaderBatch + " ends it")
}

func (c *collector) malformed(reason string) error {
	return &wire.FormatError{What: "item", Topic: c.lane.Topic(), Offset: c.first, Reason: reason}
}

// excerpt is a record with the first bytes of its value, and without the memory
// that it shares with the whole batch.
func excerpt(r *kgo.Record) *kgo.Record {
	out := *r
	out.Key = slices.Clone(r.Key)
	if r.Value != nil {
		out.Value = append([]byte{}, r.Value[:min(len(r.Value), itemExcerpt)]...)
	}
	out.Headers = slices.Clone(r.Headers)
	for i := range out.Headers {
		out.Headers[i].Value = slices.Clone(out.Headers[i].Value)
	}
	return &out
}
