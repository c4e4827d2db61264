package wire

import (
	"crypto/sha256"
	"math"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// FingerprintSize is the length of a fingerprint in bytes.
const FingerprintSize = sha256.Size

// Record is what a feed holds: payload bytes with what identifies them.
type Record struct {
	Key         []byte  // nil: keyless; an empty key is a key
	Payload     []byte  // may be empty
	Version     *uint64 // of the keyed thing; nil for none
	Tombstone   bool    // says that the keyed thing is gone
	Fingerprint []byte  // 32 bytes; nil: the SHA-256 of Payload
}

// Identity returns the fingerprint that the record has: the one given, or the
// SHA-256 of its payload. The caller must not change it.
func (r *Record) Identity() []byte {
	if r.Fingerprint != nil {
		return r.Fingerprint
	}
	sum := sha256.Sum256(r.Payload)
	return sum[:]
}

// EncodeBatch appends the Kafka records of a batch of a feed's WAL to dst, for
// partition 0 of topic, the last one with the header a. a.First and a.Last
// must fit the number of records, of which there is at least one, and
// fingerprints must be nil or 32 bytes long. Keys and payloads share memory
// with the records.
func EncodeBatch(dst []*kgo.Record, topic string, batch []Record, a Append) []*kgo.Record {
	records := make([]kgo.Record, len(batch))
	for i := range batch {
		in, r := &batch[i], &records[i]
		r.Topic, r.Timestamp = topic, a.At
		r.Key, r.Value = in.Key, in.Payload
		if r.Value == nil {
			r.Value = []byte{} // null would be a tombstone to Kafka's tools, and is not what was given
		}
		if in.Version != nil {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderVersion, Value: strconv.AppendUint(nil, *in.Version, 10)})
		}
		if in.Tombstone {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderTombstone, Value: []byte("1")})
		}
		if in.Fingerprint != nil {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderFingerprint, Value: in.Fingerprint})
		}
		if i == len(batch)-1 {
			text, _ := a.AppendText(nil)
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderAppend, Value: text})
		}
		dst = append(dst, r)
	}
	return dst
}

// DecodeBatch is the inverse of [EncodeBatch]: records are all those of one
// batch, in order. Errors are [*FormatError] and [*VersionError] with topic
// and offset. Keys, payloads and fingerprints share memory with the records.
func DecodeBatch(records []*kgo.Record) ([]Record, Append, error) {
	if len(records) == 0 {
		return nil, Append{}, &FormatError{What: "batch", Offset: flusso.NoOffset, Reason: "no records"}
	}
	last := records[len(records)-1]
	a, ok, err := AppendOf(last)
	switch {
	case err != nil:
		return nil, Append{}, err
	case !ok:
		return nil, Append{}, malformed(last, "record", "the last record of a batch has no header "+HeaderAppend)
	case a.Records() != uint64(len(records)):
		return nil, Append{}, malformed(last, "batch", "has "+strconv.Itoa(len(records))+" records, its header says "+strconv.FormatUint(a.Records(), 10))
	}
	batch := make([]Record, len(records))
	for i, r := range records {
		if err := sameWrite(last, r, records[max(i-1, 0)], i); err != nil {
			return nil, Append{}, err
		}
		if _, inner, err := header(r, HeaderAppend); err != nil || inner && r != last {
			return nil, Append{}, malformed(r, "record", "header "+HeaderAppend+" inside a batch")
		}
		if err := decodeRecord(&batch[i], r); err != nil {
			return nil, Append{}, err
		}
	}
	return batch, a, nil
}

func decodeRecord(out *Record, r *kgo.Record) error {
	if r.Value == nil {
		return malformed(r, "record", "no payload: its value is null")
	}
	out.Key, out.Payload = r.Key, r.Value
	version, has, err := header(r, HeaderVersion)
	if err != nil {
		return err
	}
	if has {
		p := pairs{what: "record header " + HeaderVersion}
		n, err := p.within(HeaderVersion, version, math.MaxUint64)
		if err != nil {
			return at(err, r.Topic, flusso.Offset(r.Offset))
		}
		out.Version = &n
	}
	mark, has, err := header(r, HeaderTombstone)
	switch {
	case err != nil:
		return err
	case has && string(mark) != "1":
		return malformed(r, "record header "+HeaderTombstone, strconv.Quote(shorten(string(mark)))+" is not 1")
	case has && r.Key == nil:
		return malformed(r, "record header "+HeaderTombstone, "on a record without a key")
	}
	out.Tombstone = has
	fingerprint, has, err := header(r, HeaderFingerprint)
	switch {
	case err != nil:
		return err
	case has && len(fingerprint) != FingerprintSize:
		return malformed(r, "record header "+HeaderFingerprint, strconv.Itoa(len(fingerprint))+" bytes long, a fingerprint has 32")
	case has:
		out.Fingerprint = slices.Clip(fingerprint)
	}
	return nil
}

// RecordSize returns the bytes of key and payload, and an upper bound of the
// record on the wire: alone in its record batch, uncompressed, headers
// included, as the last of its batch. Compare that with the topic's
// max.message.bytes.
func RecordSize(r *Record) (bytes, wire int) {
	const maxAppendText = len("v=1 stream= ep= first= last= bytes= at= id=") + 5*16 + 19 + MaxBatchID
	bytes = len(r.Key) + len(r.Payload)
	wire = bytes + recordOverhead + len(HeaderAppend) + maxAppendText + headerOverhead
	if r.Version != nil {
		wire += len(HeaderVersion) + 20 + headerOverhead
	}
	if r.Tombstone {
		wire += len(HeaderTombstone) + 1 + headerOverhead
	}
	if r.Fingerprint != nil {
		wire += len(HeaderFingerprint) + FingerprintSize + headerOverhead
	}
	return bytes, wire
}
