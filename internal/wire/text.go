package wire

import (
	"math"
	"strconv"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// The ranks of a header's keys: their order in the text.
const (
	rankKind = iota
	rankPos
	rankMore
	rankThru
	rankNew
	rankRec
	rankEnv
	rankChg
	rankInc
	rankEp
	rankAt
	rankSeq
	rankTotalBatches
	rankTotalEnvelopes
	rankTotalBytes
	rankTotalChanges
	unknownKey
)

const whatHeader = "record header " + HeaderBatch

// maxHeaderText is the length of the longest text that AppendText writes.
const maxHeaderText = len("v=1 kind=snapshot pos= more=1 thru= new= rec= env= chg= inc= ep= at= seq= tbatch= tenv= tbytes= tchg=") +
	10*20 + // ten 64-bit numbers
	2*10 + // rec and env
	19 + // at
	flusso.MaxIncarnation

// String returns "live", "snapshot" or "complete".
func (k Kind) String() string {
	switch k {
	case Live:
		return "live"
	case Snapshot:
		return "snapshot"
	case Complete:
		return "complete"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// AppendText appends the value of the record header flusso-batch. Indexes are
// not part of it: they have a record header of their own. The text of a header
// that fails [Header.Check] cannot be parsed. The error is always nil.
func (h *Header) AppendText(b []byte) ([]byte, error) {
	b = append(b, "v=1 kind="...)
	b = append(b, h.Kind.String()...)
	b = appendPair(b, "pos", uint64(h.Position))
	if h.More {
		b = append(b, " more=1"...)
	}
	b = appendPair(b, "thru", uint64(h.Through))
	b = appendPair(b, "new", uint64(h.Newest))
	b = appendPair(b, "rec", uint64(h.Records))
	b = appendPair(b, "env", uint64(h.Envelopes))
	b = appendPair(b, "chg", h.Changes)
	b = append(b, " inc="...)
	b = append(b, h.Incarnation...)
	b = appendPair(b, "ep", h.Epoch)
	b = append(b, " at="...)
	b = strconv.AppendInt(b, h.BuiltAt.UnixMilli(), 10)
	b = appendPair(b, "seq", h.Sequence)
	b = appendPair(b, "tbatch", h.Totals.Batches)
	b = appendPair(b, "tenv", h.Totals.Envelopes)
	b = appendPair(b, "tbytes", h.Totals.Bytes)
	return appendPair(b, "tchg", h.Totals.Changes), nil
}

func headerRank(key []byte) int {
	switch string(key) {
	case "kind":
		return rankKind
	case "pos":
		return rankPos
	case "more":
		return rankMore
	case "thru":
		return rankThru
	case "new":
		return rankNew
	case "rec":
		return rankRec
	case "env":
		return rankEnv
	case "chg":
		return rankChg
	case "inc":
		return rankInc
	case "ep":
		return rankEp
	case "at":
		return rankAt
	case "seq":
		return rankSeq
	case "tbatch":
		return rankTotalBatches
	case "tenv":
		return rankTotalEnvelopes
	case "tbytes":
		return rankTotalBytes
	case "tchg":
		return rankTotalChanges
	}
	return unknownKey
}

// ParseHeader reads the value of the record header flusso-batch. It is the
// inverse of [Header.AppendText]; keys it does not know are skipped. Errors
// are [*FormatError] and [*VersionError]. The result holds nothing of text.
func ParseHeader(text []byte) (Header, error) {
	var h Header
	if len(text) > MaxHeader {
		return h, &FormatError{What: whatHeader, Offset: flusso.NoOffset, Reason: strconv.Itoa(len(text)) + " bytes long, at most " + strconv.Itoa(MaxHeader)}
	}
	p, err := begin(whatHeader, text)
	if err != nil {
		return h, err
	}
	hasTime := false
	for p.more() {
		key, value, err := p.next()
		if err != nil {
			return Header{}, err
		}
		rank := headerRank(key)
		if rank == unknownKey {
			if string(key) == "v" {
				return Header{}, p.bad("key v is repeated")
			}
			continue
		}
		if err := p.rank(key, rank); err != nil {
			return Header{}, err
		}
		hasTime = hasTime || rank == rankAt
		if err := h.set(&p, rank, value); err != nil {
			return Header{}, err
		}
	}
	if !hasTime {
		return Header{}, p.bad("no build time: key at is missing")
	}
	if reason := h.inconsistency(); reason != "" {
		return Header{}, p.bad(reason)
	}
	return h, nil
}

// set stores the value of one key.
func (h *Header) set(p *pairs, rank int, value []byte) error {
	var n uint64
	var err error
	switch rank {
	case rankKind:
		switch string(value) {
		case "live":
			h.Kind = Live
		case "snapshot":
			h.Kind = Snapshot
		case "complete":
			h.Kind = Complete
		default:
			err = p.bad("unknown kind " + strconv.Quote(string(value)))
		}
	case rankPos:
		n, err = p.positive("pos", value, math.MaxUint64)
		h.Position = flusso.Position(n)
	case rankMore:
		_, err = p.positive("more", value, 1)
		h.More = true
	case rankThru:
		n, err = p.positive("thru", value, math.MaxUint64)
		h.Through = flusso.Position(n)
	case rankNew:
		n, err = p.positive("new", value, math.MaxUint64)
		h.Newest = flusso.Position(n)
	case rankRec:
		n, err = p.positive("rec", value, math.MaxUint32)
		h.Records = uint32(n)
	case rankEnv:
		n, err = p.positive("env", value, math.MaxUint32)
		h.Envelopes = uint32(n)
	case rankChg:
		h.Changes, err = p.positive("chg", value, math.MaxUint64)
	case rankInc:
		h.Incarnation = string(value)
	case rankEp:
		h.Epoch, err = p.positive("ep", value, math.MaxUint64)
	case rankAt:
		n, err = p.within("at", value, math.MaxInt64)
		h.BuiltAt = time.UnixMilli(int64(n))
	case rankSeq:
		h.Sequence, err = p.positive("seq", value, math.MaxUint64)
	case rankTotalBatches:
		h.Totals.Batches, err = p.positive("tbatch", value, math.MaxUint64)
	case rankTotalEnvelopes:
		h.Totals.Envelopes, err = p.positive("tenv", value, math.MaxUint64)
	case rankTotalBytes:
		h.Totals.Bytes, err = p.positive("tbytes", value, math.MaxUint64)
	case rankTotalChanges:
		h.Totals.Changes, err = p.positive("tchg", value, math.MaxUint64)
	}
	return err
}

// Check returns a [*FormatError] when the fields contradict each other, so
// that a writer finds out before a reader does. Indexes are not looked at.
func (h *Header) Check() error {
	if reason := h.inconsistency(); reason != "" {
		return &FormatError{What: whatHeader, Reason: reason, Offset: flusso.NoOffset}
	}
	return nil
}

// inconsistency returns what is wrong with the fields, or "".
func (h *Header) inconsistency() string {
	if reason := h.shape(); reason != "" {
		return reason
	}
	switch {
	case h.Records == 0:
		return "no record count: key rec is missing"
	case h.Envelopes != h.Records && (h.Envelopes != 0 || h.Records != 1):
		return strconv.Itoa(int(h.Envelopes)) + " envelopes in " + strconv.Itoa(int(h.Records)) + " records"
	case h.Incarnation == "":
		return "no incarnation: key inc is missing"
	case flusso.CheckIncarnation(h.Incarnation) != nil:
		return flusso.CheckIncarnation(h.Incarnation).Error()
	case h.Epoch == 0:
		return "no writer epoch: key ep is missing"
	case h.BuiltAt.UnixMilli() < 0:
		return "built before 1970"
	case h.Sequence == 0:
		return "no sequence: key seq is missing"
	case h.Totals.Batches == 0:
		return "no total of batches: key tbatch is missing"
	case h.Totals.Envelopes < uint64(h.Envelopes):
		return "the total of envelopes is less than those of the item"
	case h.Totals.Changes < h.Changes:
		return "the total of changes is less than those of the item"
	}
	return ""
}

// shape checks what each kind asks of the positions and counts.
func (h *Header) shape() string {
	switch h.Kind {
	case Live:
		switch {
		case h.Position == flusso.NoPosition:
			return "a live batch without a position"
		case h.Newest != h.Position:
			return "a live batch that is not the newest: pos=" + h.Position.String() + " new=" + h.Newest.String()
		case h.More && h.Through >= h.Position:
			return "through " + h.Through.String() + " covers position " + h.Position.String() + ", of which more follows"
		case !h.More && h.Through != h.Position:
			return "through " + h.Through.String() + " of the complete position " + h.Position.String()
		}
		return ""
	case Snapshot, Complete:
		switch {
		case h.Position != flusso.NoPosition:
			return "a position on a " + h.Kind.String() + " item"
		case h.More:
			return "more on a " + h.Kind.String() + " item"
		case h.Through > h.Newest:
			return "through " + h.Through.String() + " is above the newest position " + h.Newest.String()
		case h.Kind == Snapshot && h.Envelopes == 0:
			return "a snapshot batch without envelopes"
		case h.Kind == Complete && (h.Envelopes != 0 || h.Changes != 0):
			return "a snapshot marker with envelopes or changes"
		}
		return ""
	}
	return "no kind: key kind is missing"
}
