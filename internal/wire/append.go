package wire

import (
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
)

// The keys of record headers in a feed's WAL.
const (
	HeaderAppend      = "flusso-append"      // on the last record of each batch: the text of an Append
	HeaderVersion     = "flusso-version"     // where a record has a version: decimal
	HeaderTombstone   = "flusso-tombstone"   // "1" on a tombstone
	HeaderFingerprint = "flusso-fingerprint" // 32 bytes, where it is not the SHA-256 of the payload
)

// Limits of a feed's format.
const (
	MaxBatchID  = 64        // bytes of a client batch id
	MaxSequence = 1<<53 - 1 // so that every JSON reader can hold one
)

const whatAppend = "record header " + HeaderAppend

// Append ends every batch of a feed's WAL: it is on the last record of each.
type Append struct {
	Stream  uint64    // number of the stream, 1 and up
	Epoch   uint64    // writer epoch of the session, 1 and up
	First   uint64    // sequence of the batch's first record in its stream, 1 and up
	Last    uint64    // and of its last; the batch has Last − First + 1 records
	Bytes   uint64    // keys and payloads of the stream so far, this batch included
	At      time.Time // when it was appended; milliseconds
	BatchID string    // what the client called the batch; empty for none
}

// Records returns how many records the batch has.
func (a *Append) Records() uint64 { return a.Last - a.First + 1 }

// The ranks of an append's keys: their order in the text.
const (
	rankStream = iota
	rankAppendEp
	rankFirst
	rankLast
	rankStreamBytes
	rankAppendAt
	rankID
)

// AppendText appends the value of the record header flusso-append. The error
// is always nil.
func (a *Append) AppendText(b []byte) ([]byte, error) {
	b = append(b, "v=1"...)
	b = appendPair(b, "stream", a.Stream)
	b = appendPair(b, "ep", a.Epoch)
	b = appendPair(b, "first", a.First)
	b = appendPair(b, "last", a.Last)
	b = appendPair(b, "bytes", a.Bytes)
	b = append(b, " at="...)
	b = strconv.AppendInt(b, a.At.UnixMilli(), 10)
	if a.BatchID != "" {
		b = append(b, " id="...)
		b = append(b, a.BatchID...)
	}
	return b, nil
}

// CheckBatchID accepts a client batch id: 1 to [MaxBatchID] visible ASCII
// characters.
func CheckBatchID(id string) error {
	bad := func(reason string) error {
		return &flusso.NameError{Kind: "client batch id", Name: id, Reason: reason}
	}
	if id == "" {
		return bad("empty")
	}
	if len(id) > MaxBatchID {
		return bad(strconv.Itoa(len(id)) + " bytes long, at most " + strconv.Itoa(MaxBatchID))
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return bad("byte " + strconv.Itoa(i) + " is not visible ASCII")
		}
	}
	return nil
}

// ParseAppend reads the value of the record header flusso-append. It is the
// inverse of [Append.AppendText]; keys it does not know are skipped. Errors
// are [*FormatError] and [*VersionError].
func ParseAppend(text []byte) (Append, error) {
	var a Append
	if len(text) > MaxHeader {
		return a, &FormatError{What: whatAppend, Offset: flusso.NoOffset, Reason: strconv.Itoa(len(text)) + " bytes long, at most " + strconv.Itoa(MaxHeader)}
	}
	p, err := begin(whatAppend, text)
	if err != nil {
		return a, err
	}
	hasTime := false
	for p.more() {
		key, value, err := p.next()
		if err != nil {
			return Append{}, err
		}
		rank := appendRank(key)
		if rank == unknownKey {
			if string(key) == "v" {
				return Append{}, p.bad("key v is repeated")
			}
			continue
		}
		if err := p.rank(key, rank); err != nil {
			return Append{}, err
		}
		hasTime = hasTime || rank == rankAppendAt
		if err := a.set(&p, rank, value); err != nil {
			return Append{}, err
		}
	}
	switch {
	case a.Stream == 0:
		return Append{}, p.bad("no stream: key stream is missing")
	case a.Epoch == 0:
		return Append{}, p.bad("no writer epoch: key ep is missing")
	case a.First == 0 || a.Last == 0:
		return Append{}, p.bad("no sequences: key first or last is missing")
	case a.Last < a.First:
		return Append{}, p.bad("last=" + strconv.FormatUint(a.Last, 10) + " is before first=" + strconv.FormatUint(a.First, 10))
	case !hasTime:
		return Append{}, p.bad("no time: key at is missing")
	}
	return a, nil
}

func appendRank(key []byte) int {
	switch string(key) {
	case "stream":
		return rankStream
	case "ep":
		return rankAppendEp
	case "first":
		return rankFirst
	case "last":
		return rankLast
	case "bytes":
		return rankStreamBytes
	case "at":
		return rankAppendAt
	case "id":
		return rankID
	}
	return unknownKey
}

func (a *Append) set(p *pairs, rank int, value []byte) error {
	var err error
	switch rank {
	case rankStream:
		a.Stream, err = p.positive("stream", value, MaxSequence)
	case rankAppendEp:
		a.Epoch, err = p.positive("ep", value, MaxSequence)
	case rankFirst:
		a.First, err = p.positive("first", value, MaxSequence)
	case rankLast:
		a.Last, err = p.positive("last", value, MaxSequence)
	case rankStreamBytes:
		a.Bytes, err = p.positive("bytes", value, MaxSequence)
	case rankAppendAt:
		var n uint64
		n, err = p.within("at", value, math.MaxInt64)
		a.At = time.UnixMilli(int64(n))
	case rankID:
		a.BatchID = string(value)
		if cerr := CheckBatchID(a.BatchID); cerr != nil {
			err = p.bad(cerr.Error())
		}
	}
	return err
}

// AppendOf returns the header that ends a batch at r, or false where r has
// none: inside a batch, or a control record. Errors are [*FormatError] and
// [*VersionError] with topic and offset.
func AppendOf(r *kgo.Record) (Append, bool, error) {
	if r.Attrs.IsControl() {
		return Append{}, false, nil
	}
	value, ok, err := header(r, HeaderAppend)
	if err != nil || !ok {
		return Append{}, false, err
	}
	a, err := ParseAppend(value)
	if err != nil {
		return Append{}, false, at(err, r.Topic, flusso.Offset(r.Offset))
	}
	return a, true, nil
}
