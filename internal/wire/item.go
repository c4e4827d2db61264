package wire

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// The keys of record headers.
const (
	HeaderBatch    = "flusso-batch"    // on the last record of each item: the text of a Header
	HeaderPosition = "flusso-position" // where an envelope's position differs from its batch's
	HeaderIndexes  = "flusso-indexes"  // beside the flusso-batch of a Complete: a JSON array
)

// MaxHeader is the most bytes that the value of one record header may have.
const MaxHeader = 16 << 10

// Fill returns h with what the item says by itself: Kind, Position, More,
// Records, Envelopes, Changes and Indexes. The caller supplies the rest.
func Fill(h Header, item flusso.LaneItem) Header {
	h.Position, h.More, h.Envelopes, h.Changes, h.Indexes = flusso.NoPosition, false, 0, 0, nil
	switch it := item.(type) {
	case *flusso.Batch:
		h.Kind = Snapshot
		if it.Live() {
			h.Kind, h.Position, h.More = Live, it.Position, it.More
		}
		h.Envelopes = uint32(len(it.Envelopes))
		h.Changes = it.Changes
	case *flusso.SnapshotComplete:
		h.Kind = Complete
		h.Indexes = it.Indexes
	}
	h.Records = max(h.Envelopes, 1)
	return h
}

// EncodeItem appends the records of a lane item to dst, for partition 0 of
// topic, the last one with the header h. [Fill] is applied to h; the caller
// supplies what only the lane's writer knows: Through, Newest, Incarnation,
// Epoch, BuiltAt, Sequence and the Totals after this item. The item must have
// passed [flusso.CheckItem] and [Check], and h once filled [Header.Check]: a
// header that can't be read would end the lane for good. An envelope without
// BuiltAt, or with one before 1970, which Kafka can't carry, gets h's. The
// documents and the records share memory until the records are produced.
func EncodeItem(dst []*kgo.Record, topic string, item flusso.LaneItem, h Header) []*kgo.Record {
	h = Fill(h, item)
	var envelopes []flusso.Envelope
	if b, ok := item.(*flusso.Batch); ok {
		envelopes = b.Envelopes
	}

	// One buffer for all the keys and header values, one slab each for the
	// records and their headers.
	size, headers := maxHeaderText, 1
	for i := range envelopes {
		e := &envelopes[i]
		size += len(e.Index) + 1 + len(e.ID)
		if e.Position != h.Position {
			size += 20
			headers++
		}
	}
	if h.Kind == Complete {
		size += indexesSize(h.Indexes)
		headers++
	}
	text := make([]byte, 0, size)
	slab := make([]kgo.RecordHeader, 0, headers)
	records := make([]kgo.Record, h.Records)

	for i := range records {
		r := &records[i]
		r.Topic = topic
		r.Timestamp = h.BuiltAt
		first := len(slab)
		if i < len(envelopes) {
			e := &envelopes[i]
			start := len(text)
			text = append(append(append(text, e.Index...), '/'), e.ID...)
			r.Key = text[start:len(text):len(text)]
			if e.Op == flusso.Upsert {
				r.Value = e.Document
			}
			if e.BuiltAt.UnixMilli() >= 0 {
				r.Timestamp = e.BuiltAt
			}
			if e.Position != h.Position {
				start = len(text)
				text = strconv.AppendUint(text, uint64(e.Position), 10)
				slab = append(slab, kgo.RecordHeader{Key: HeaderPosition, Value: text[start:len(text):len(text)]})
			}
		}
		if i == len(records)-1 {
			start := len(text)
			text, _ = h.AppendText(text)
			text = appendPad(text, start)
			slab = append(slab, kgo.RecordHeader{Key: HeaderBatch, Value: text[start:len(text):len(text)]})
			if h.Kind == Complete {
				start = len(text)
				text = appendIndexes(text, h.Indexes)
				slab = append(slab, kgo.RecordHeader{Key: HeaderIndexes, Value: text[start:len(text):len(text)]})
			}
		}
		if len(slab) > first {
			r.Headers = slab[first:len(slab):len(slab)]
		}
		dst = append(dst, r)
	}
	return dst
}

// OwnFrom is where the values of HeaderBatch begin to differ between lanes that
// get the same items: [EncodeItem] pads what follows to one length, so that what
// lanes have in common can be compressed once.
const OwnFrom = " seq="

// paddedOwn holds all the counts until a lane has had some 10⁹ items.
const paddedOwn = 96

// appendPad pads the header's text that begins at start.
func appendPad(text []byte, start int) []byte {
	const key = " pad="
	own := len(text) - start - bytes.Index(text[start:], []byte(OwnFrom))
	if own >= paddedOwn-len(key) {
		return text
	}
	text = append(text, key...)
	for range paddedOwn - len(key) - own {
		text = append(text, '.')
	}
	return text
}

// HeaderOf returns the header that ends an item at r, Indexes included, or
// false where r has none: inside an item, or a control record. Errors are
// [*FormatError] and [*VersionError] with topic and offset.
func HeaderOf(r *kgo.Record) (Header, bool, error) {
	if len(r.Headers) == 0 || r.Attrs.IsControl() {
		return Header{}, false, nil
	}
	text, has, err := header(r, HeaderBatch)
	if err != nil {
		return Header{}, false, err
	}
	list, hasList, err := header(r, HeaderIndexes)
	if err != nil {
		return Header{}, false, err
	}
	if !has {
		if hasList {
			return Header{}, false, malformed(r, "record", HeaderIndexes+" without "+HeaderBatch)
		}
		return Header{}, false, nil
	}
	h, err := ParseHeader(text)
	if err != nil {
		return Header{}, false, at(err, r.Topic, flusso.Offset(r.Offset))
	}
	if hasList != (h.Kind == Complete) {
		return Header{}, false, malformed(r, "record", "a header "+HeaderIndexes+" belongs to every snapshot marker and to nothing else")
	}
	if hasList {
		if h.Indexes, err = parseIndexes(list); err != nil {
			return Header{}, false, at(err, r.Topic, flusso.Offset(r.Offset))
		}
	}
	return h, true, nil
}

// header finds a record header that may be there once.
func header(r *kgo.Record, key string) (value []byte, found bool, err error) {
	for i := range r.Headers {
		if r.Headers[i].Key != key {
			continue
		}
		if found {
			return nil, false, malformed(r, "record", "header "+key+" is repeated")
		}
		value, found = r.Headers[i].Value, true
	}
	return value, found, nil
}

// DecodeItem is the inverse of [EncodeItem]: records are all those of one
// item, in order. Errors are [*FormatError] and [*VersionError] with topic and
// offset. Documents share memory with the values of the records; everything
// else is copied.
func DecodeItem(records []*kgo.Record) (flusso.LaneItem, Header, error) {
	if len(records) == 0 {
		return nil, Header{}, &FormatError{What: "item", Offset: flusso.NoOffset, Reason: "no records"}
	}
	last := records[len(records)-1]
	h, ok, err := HeaderOf(last)
	switch {
	case err != nil:
		return nil, Header{}, err
	case !ok:
		return nil, Header{}, malformed(last, "record", "the last record of an item has no header "+HeaderBatch)
	}
	item, err := DecodeRecords(records, h)
	if err != nil {
		return nil, Header{}, err
	}
	return item, h, nil
}

// DecodeRecords is [DecodeItem] for who has the header already, as
// [Gather.Add] returns it with the last of the records.
func DecodeRecords(records []*kgo.Record, h Header) (flusso.LaneItem, error) {
	last := records[len(records)-1]
	if uint64(h.Records) != uint64(len(records)) {
		return nil, malformed(last, "item", "has "+strconv.Itoa(len(records))+" records, its header says "+strconv.FormatUint(uint64(h.Records), 10))
	}
	if h.Envelopes == 0 {
		return decodeBare(last, h)
	}

	b := &flusso.Batch{
		Envelopes: make([]flusso.Envelope, len(records)),
		Position:  h.Position,
		More:      h.More,
		Changes:   h.Changes,
	}
	size := 0
	for _, r := range records {
		size += len(r.Key)
	}
	var text strings.Builder
	text.Grow(size)
	for _, r := range records {
		text.Write(r.Key)
	}
	keys := text.String() // one string for all the names
	for i, r := range records {
		if err := follows(last, r, records[max(i-1, 0)], i); err != nil {
			return nil, err
		}
		key := keys[:len(r.Key)]
		keys = keys[len(r.Key):]
		if err := decodeEnvelope(&b.Envelopes[i], r, key, h.Position); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// decodeBare decodes an item of one record that carries headers only.
func decodeBare(r *kgo.Record, h Header) (flusso.LaneItem, error) {
	if r.Key != nil || r.Value != nil {
		return nil, malformed(r, "record", "key or value on an item without envelopes")
	}
	if _, has, err := header(r, HeaderPosition); err != nil || has {
		return nil, malformed(r, "record", HeaderPosition+" on an item without envelopes")
	}
	if h.Kind == Complete {
		return &flusso.SnapshotComplete{Indexes: h.Indexes}, nil
	}
	return &flusso.Batch{Position: h.Position, More: h.More, Changes: h.Changes}, nil
}

// follows checks that r, record i of the item that last ends, comes from the
// same write as the record before it.
func follows(last, r, before *kgo.Record, i int) error {
	if err := sameWrite(last, r, before, i); err != nil || r == last {
		return err
	}
	for j := range r.Headers {
		if k := r.Headers[j].Key; k == HeaderBatch || k == HeaderIndexes {
			return malformed(r, "record", "header "+k+" inside an item")
		}
	}
	return nil
}

// sameWrite checks what holds for all records that one writer wrote together.
func sameWrite(last, r, before *kgo.Record, i int) error {
	switch {
	case r.Attrs.IsControl():
		return malformed(r, "item", "contains a control record")
	case r.Topic != last.Topic || r.Partition != last.Partition:
		return malformed(r, "item", "its records are of different partitions")
	case r.ProducerID != last.ProducerID || r.ProducerEpoch != last.ProducerEpoch:
		return malformed(r, "item", "its records are of different producers")
	case i > 0 && r.Offset < before.Offset, i > 0 && r.Offset == before.Offset && r.Offset > 0:
		return malformed(r, "item", "its records are out of order")
	}
	return nil
}

// decodeEnvelope decodes a record with its key, of a batch at position.
func decodeEnvelope(e *flusso.Envelope, r *kgo.Record, key string, position flusso.Position) error {
	index, id, ok := strings.Cut(key, "/")
	if !ok {
		return malformed(r, "record", "key "+strconv.Quote(shorten(key))+" is not of the form index/id")
	}
	e.Index, e.ID = index, id
	if err := flusso.CheckIndex(e.Index); err != nil {
		return malformed(r, "record key", err.Error())
	}
	if err := flusso.CheckID(e.ID); err != nil {
		return malformed(r, "record key", err.Error())
	}
	switch {
	case r.Value == nil:
		e.Op = flusso.Delete
	case len(r.Value) == 0:
		return malformed(r, "record", "an empty document")
	default:
		e.Op, e.Document = flusso.Upsert, r.Value
	}
	if r.Timestamp.UnixMilli() < 0 {
		return malformed(r, "record", "no timestamp")
	}
	e.BuiltAt = r.Timestamp
	e.Position = position
	value, has, err := header(r, HeaderPosition)
	if err != nil || !has {
		return err
	}
	p := pairs{what: "record header " + HeaderPosition}
	n, err := p.positive(HeaderPosition, value, math.MaxUint64)
	switch {
	case err != nil:
		return at(err, r.Topic, flusso.Offset(r.Offset))
	case flusso.Position(n) >= position:
		return malformed(r, p.what, strconv.FormatUint(n, 10)+" is not below the batch's position "+position.String())
	}
	e.Position = flusso.Position(n)
	return nil
}

func malformed(r *kgo.Record, what, reason string) error {
	return &FormatError{What: what, Topic: r.Topic, Offset: flusso.Offset(r.Offset), Reason: reason}
}

func shorten(s string) string {
	const shown = 80
	if len(s) <= shown {
		return s
	}
	return s[:shown] + "…"
}

// recordOverhead bounds what Kafka adds to one record alone in its batch: 61
// bytes of batch and 31 of varints, attributes and header count.
const recordOverhead = 61 + 31

// headerOverhead bounds the two varints of a record header.
const headerOverhead = 10

// Size returns the bytes that an item adds to [Totals].Bytes, and an upper
// bound of its largest record on the wire: as the only one of its record
// batch, uncompressed, headers included. Compare that with the topic's
// max.message.bytes.
func Size(item flusso.LaneItem) (bytes uint64, largest int) {
	const last = recordOverhead + len(HeaderBatch) + maxHeaderText + headerOverhead
	switch it := item.(type) {
	case *flusso.SnapshotComplete:
		return 0, last + len(HeaderIndexes) + indexesSize(it.Indexes) + headerOverhead
	case *flusso.Batch:
		largest = last
		for i := range it.Envelopes {
			e := &it.Envelopes[i]
			n := len(e.Index) + 1 + len(e.ID) + len(e.Document)
			bytes += uint64(n)
			n += recordOverhead
			if e.Position != it.Position {
				n += len(HeaderPosition) + 20 + headerOverhead
			}
			if i == len(it.Envelopes)-1 {
				n += last - recordOverhead
			}
			largest = max(largest, n)
		}
	}
	return bytes, largest
}

// Check returns a [*flusso.LimitError] for an item that the format cannot
// carry. sink names the lane in it. The size of records is checked by those
// who know the topic's limit: see [Size].
func Check(sink string, item flusso.LaneItem) error {
	switch it := item.(type) {
	case *flusso.SnapshotComplete:
		// Measured as it is written: the bound of indexesSize is not sharp.
		if indexesSize(it.Indexes) <= MaxHeader {
			return nil
		}
		if n := len(appendIndexes(nil, it.Indexes)); n > MaxHeader {
			return &flusso.LimitError{
				What: "snapshot marker of the lane of sink " + sink, Limit: "size of header " + HeaderIndexes,
				Value: int64(n), Max: MaxHeader, Setting: "nothing (the format fixes it), complete the snapshot by several markers",
			}
		}
	case *flusso.Batch:
		if n := uint64(len(it.Envelopes)); n > math.MaxUint32 {
			return &flusso.LimitError{
				What: "batch of the lane of sink " + sink, Limit: "number of envelopes",
				Value: int64(n), Max: math.MaxUint32, Setting: "nothing (the format fixes it), mark the batch more",
			}
		}
	}
	return nil
}
