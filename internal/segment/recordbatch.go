package segment

import (
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
)

// batchOverhead is the bytes of a record batch without its records, from its
// first offset to the number of records.
const batchOverhead = 61

// appendBatch appends records as they are in a record batch, before they are
// compressed, and returns how many they are: as many as the client puts into a
// batch of at most limit bytes. Where the client cuts otherwise, what is prepared
// is of no use, and nothing worse.
//
// Source: https://kafka.apache.org/documentation/#record, and for the cut what
// kgo 1.22.3 does with Produce requests of version 9 and later.
func appendBatch(dst []byte, rs []*kgo.Record, limit int) ([]byte, int) {
	began, first := len(dst), rs[0].Timestamp.UnixMilli()
	for i, r := range rs {
		delta := r.Timestamp.UnixMilli() - first
		length := recordLength(r, delta, i)
		batch := batchOverhead + len(dst) - began
		if i > 0 && kbin.UvarintLen(uint32(batch)+1)+batch+kbin.VarintLen(int32(length))+length > limit {
			return dst, i
		}
		dst = kbin.AppendVarint(dst, int32(length))
		dst = append(dst, 0) // attributes: none
		dst = kbin.AppendVarlong(dst, delta)
		dst = kbin.AppendVarint(dst, int32(i))
		dst = kbin.AppendVarintBytes(dst, r.Key)
		dst = kbin.AppendVarintBytes(dst, r.Value)
		dst = kbin.AppendVarint(dst, int32(len(r.Headers)))
		for _, h := range r.Headers {
			dst = kbin.AppendVarintString(dst, h.Key)
			dst = kbin.AppendVarintBytes(dst, h.Value)
		}
	}
	return dst, len(rs)
}

// recordLength is the bytes of the i-th record of a batch behind its length.
func recordLength(r *kgo.Record, delta int64, i int) int {
	content := func(n int) int { return kbin.VarintLen(int32(n)) + n }
	n := 1 + kbin.VarlongLen(delta) + kbin.VarintLen(int32(i)) +
		content(len(r.Key)) + content(len(r.Value)) + kbin.VarintLen(int32(len(r.Headers)))
	for _, h := range r.Headers {
		n += content(len(h.Key)) + content(len(h.Value))
	}
	return n
}
