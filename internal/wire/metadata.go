package wire

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// The most bytes of commit metadata this package writes: of a lane that counts,
// and of one that is retired, which says by whom and why. Kafka's own limit,
// offset.metadata.max.bytes, is 4,096 by default.
const (
	MaxMetadata        = 200
	MaxRetiredMetadata = 1024
)

const whatMetadata = "commit metadata"

// The ranks of a metadata's keys: their order in the text.
const (
	rankOff = iota
	rankMetaThru
	rankMetaSeq
	rankMetaEp
	rankTid
	rankMetaInc
	rankRet
	rankBy
	rankWhy
)

var topicIDs = base64.RawURLEncoding.Strict()

// FormatMetadata returns the text that is committed together with m.Offset.
// It is at most [MaxMetadata] bytes long for every valid incarnation, and at
// most [MaxRetiredMetadata] with a retirement that [Retirement.Check] accepts.
func FormatMetadata(m Metadata) string {
	b := make([]byte, 0, MaxMetadata)
	b = append(b, "v=1 off="...)
	b = strconv.AppendInt(b, int64(m.Offset), 10)
	b = appendPair(b, "thru", uint64(m.Through))
	b = appendPair(b, "seq", m.Sequence)
	b = appendPair(b, "ep", m.Epoch)
	b = appendTopicID(b, m.TopicID)
	if m.Incarnation != "" {
		b = append(b, " inc="...)
		b = append(b, m.Incarnation...)
	}
	return string(appendRetirement(b, m.Retired))
}

func appendTopicID(b []byte, id [16]byte) []byte {
	if id == [16]byte{} {
		return b
	}
	b = append(b, " tid="...)
	return topicIDs.AppendEncode(b, id[:])
}

func metadataRank(key []byte) int {
	switch string(key) {
	case "off":
		return rankOff
	case "thru":
		return rankMetaThru
	case "seq":
		return rankMetaSeq
	case "ep":
		return rankMetaEp
	case "tid":
		return rankTid
	case "inc":
		return rankMetaInc
	case "ret":
		return rankRet
	case "by":
		return rankBy
	case "why":
		return rankWhy
	}
	return unknownKey
}

// ParseMetadata is the inverse of [FormatMetadata]; keys it does not know are
// skipped. Every error is an [ErrForeign], beside a [*FormatError] or
// [*VersionError] that says what was found. That the metadata belongs to the
// committed offset is the caller's to check: compare Offset.
func ParseMetadata(s string) (Metadata, error) {
	m, err := parseMetadata(s)
	if err != nil {
		return Metadata{}, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return m, nil
}

func parseMetadata(s string) (Metadata, error) {
	m := Metadata{Offset: flusso.NoOffset}
	p, err := begin(whatMetadata, []byte(s))
	if err != nil {
		return m, err
	}
	for p.more() {
		key, value, err := p.next()
		if err != nil {
			return m, err
		}
		rank := metadataRank(key)
		if rank == unknownKey {
			if string(key) == "v" {
				return m, p.bad("key v is repeated")
			}
			continue
		}
		if err := p.rank(key, rank); err != nil {
			return m, err
		}
		if err := m.set(&p, rank, value); err != nil {
			return m, err
		}
	}
	if reason := m.inconsistency(); reason != "" {
		return m, p.bad(reason)
	}
	return m, nil
}

func (m *Metadata) set(p *pairs, rank int, value []byte) error {
	var n uint64
	var err error
	switch rank {
	case rankOff:
		n, err = p.within("off", value, math.MaxInt64)
		m.Offset = flusso.Offset(n)
	case rankMetaThru:
		n, err = p.positive("thru", value, math.MaxUint64)
		m.Through = flusso.Position(n)
	case rankMetaSeq:
		m.Sequence, err = p.positive("seq", value, math.MaxUint64)
	case rankMetaEp:
		m.Epoch, err = p.positive("ep", value, math.MaxUint64)
	case rankTid:
		m.TopicID, err = p.topicID(value)
	case rankMetaInc:
		m.Incarnation = string(value)
	case rankRet:
		n, err = p.positive("ret", value, maxRetiredAt)
		m.Retired.At = time.UnixMilli(int64(n)).UTC()
	case rankBy:
		m.Retired.By, err = p.escaped("by", value, MaxRetiredBy)
	case rankWhy:
		m.Retired.Why, err = p.escaped("why", value, MaxRetiredWhy)
	}
	return err
}

func (m *Metadata) inconsistency() string {
	switch {
	case m.Offset < 0:
		return "no offset: key off is missing"
	case (m.Sequence == 0) != (m.Epoch == 0):
		return "sequence and writer epoch go together"
	case m.Sequence == 0 && m.Through != flusso.NoPosition:
		return "a through, but no item was acked"
	case m.Sequence != 0 && m.Incarnation == "":
		return "no incarnation: key inc is missing"
	case m.Incarnation != "" && flusso.CheckIncarnation(m.Incarnation) != nil:
		return flusso.CheckIncarnation(m.Incarnation).Error()
	case !m.Retired.IsZero() && (m.Retired.At.IsZero() || m.Retired.By == "" || m.Retired.Why == ""):
		return "keys ret, by and why go together"
	}
	return ""
}

// topicID reads a topic ID in the form that Kafka's own tools print: 22
// characters of base64url.
func (p *pairs) topicID(value []byte) (id [16]byte, err error) {
	var buf [18]byte
	n := 0
	if len(value) == 22 {
		n, err = topicIDs.Decode(buf[:], value)
	}
	if err != nil || n != len(id) {
		return id, p.bad("value " + strconv.Quote(string(value)) + " of key tid is not a topic ID")
	}
	copy(id[:], buf[:])
	if id == [16]byte{} {
		return id, p.bad("key tid is zero and should be left out")
	}
	return id, nil
}
