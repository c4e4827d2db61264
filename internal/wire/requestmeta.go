package wire

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	flusso "github.com/flusso/flusso-kafka"
)

// RequestMetadata goes with an offset that is committed for the request lane.
type RequestMetadata struct {
	Offset  flusso.Offset   // the offset it was committed with: everything below is acked
	TopicID [16]byte        // identity of the topic, so that a recreated one is noticed
	Acked   []flusso.Offset // offsets above Offset that are acked as well, ascending
}

const whatRequestMetadata = "request metadata"

// maxAckedAbove bounds what the runs of a request metadata may expand to.
const maxAckedAbove = 4096

// The ranks of a request metadata's keys: their order in the text.
const (
	rankReq = iota
	rankReqTid
	rankAcked
)

// FormatRequestMetadata returns the text that is committed together with
// m.Offset, at most [MaxMetadata] bytes. Acked offsets that do not fit are
// left out, the highest first, as are those not above Offset: a request that
// is left out is delivered once more, and nothing is ever acked that was not.
// Acked may be in any order.
func FormatRequestMetadata(m RequestMetadata) string {
	b := make([]byte, 0, MaxMetadata)
	b = append(b, "v=1 req="...)
	b = strconv.AppendInt(b, int64(m.Offset), 10)
	b = appendTopicID(b, m.TopicID)

	acked := slices.Clone(m.Acked)
	slices.Sort(acked)
	acked = slices.Compact(acked)
	from, found := slices.BinarySearch(acked, m.Offset)
	if found {
		from++
	}
	acked = acked[from:min(len(acked), from+maxAckedAbove)]

	separator := " acked="
	for i := 0; i < len(acked); {
		end := i + 1
		for end < len(acked) && acked[end] == acked[end-1]+1 {
			end++
		}
		before := len(b)
		b = append(b, separator...)
		b = strconv.AppendInt(b, int64(acked[i]-m.Offset), 10)
		if end > i+1 {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(acked[end-1]-m.Offset), 10)
		}
		if len(b) > MaxMetadata {
			b = b[:before]
			break
		}
		separator, i = ",", end
	}
	return string(b)
}

// ParseRequestMetadata is the inverse of [FormatRequestMetadata], as
// [ParseMetadata] is of FormatMetadata.
func ParseRequestMetadata(s string) (RequestMetadata, error) {
	m, err := parseRequestMetadata(s)
	if err != nil {
		return RequestMetadata{}, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return m, nil
}

func parseRequestMetadata(s string) (RequestMetadata, error) {
	m := RequestMetadata{Offset: flusso.NoOffset}
	p, err := begin(whatRequestMetadata, []byte(s))
	if err != nil {
		return m, err
	}
	for p.more() {
		key, value, err := p.next()
		if err != nil {
			return m, err
		}
		rank := unknownKey
		switch string(key) {
		case "req":
			rank = rankReq
		case "tid":
			rank = rankReqTid
		case "acked":
			rank = rankAcked
		case "v":
			return m, p.bad("key v is repeated")
		}
		if rank == unknownKey {
			continue
		}
		if err := p.rank(key, rank); err != nil {
			return m, err
		}
		if m.Offset < 0 && rank != rankReq {
			return m, p.bad("no offset: key req is missing")
		}
		switch rank {
		case rankReq:
			n, err := p.within("req", value, math.MaxInt64)
			if err != nil {
				return m, err
			}
			m.Offset = flusso.Offset(n)
		case rankReqTid:
			if m.TopicID, err = p.topicID(value); err != nil {
				return m, err
			}
		case rankAcked:
			if m.Acked, err = p.runs(m.Offset, value); err != nil {
				return m, err
			}
		}
	}
	if m.Offset < 0 {
		return m, p.bad("no offset: key req is missing")
	}
	return m, nil
}

// runs reads distances from base, single or as first-last, in their only form:
// ascending, with neighbours joined.
func (p *pairs) runs(base flusso.Offset, value []byte) ([]flusso.Offset, error) {
	limit := uint64(math.MaxInt64 - base)
	var acked []flusso.Offset
	above := uint64(0) // the next run starts above this
	for {
		item, rest, more := cut(value, ',')
		low, high, isRun := cut(item, '-')
		first, err := p.number("acked", low)
		last := first
		if err == nil && isRun {
			last, err = p.number("acked", high)
		}
		switch {
		case err != nil:
			return nil, err
		case len(low) == 0 || isRun && last <= first || first <= above || last > limit:
			return nil, p.badNumber("acked", item)
		case last-first >= uint64(maxAckedAbove-len(acked)):
			return nil, p.bad("more than " + strconv.Itoa(maxAckedAbove) + " offsets acked above the floor")
		}
		for n := first; n <= last; n++ {
			acked = append(acked, base+flusso.Offset(n))
		}
		if !more {
			return acked, nil
		}
		value, above = rest, last+1
	}
}

func cut(b []byte, sep byte) (before, after []byte, found bool) {
	for i, c := range b {
		if c == sep {
			return b[:i], b[i+1:], true
		}
	}
	return b, nil, false
}
