package partition

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A fetch is bounded in bytes as they are on the wire, compressed: of records
// that hold next to nothing a few of them are a hundred thousand records. So a
// reader, which holds two fetches, asks for as many bytes as the ones before say
// that it can hold.
const (
	firstFetch   = 256 << 10
	leastFetch   = 16 << 10
	mostFetch    = 2 << 20
	fetchHolds   = 16 << 20 // bytes of memory that a fetch is to take
	recordWeight = 256      // what a record takes beside its content
)

// fetchSize chooses the size of fetches. It is a hook of the client.
type fetchSize struct {
	wire, memory atomic.Int64 // of what was fetched since the last choice
	chosen       int32
}

// OnFetchBatchRead implements [kgo.HookFetchBatchRead].
func (f *fetchSize) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	f.wire.Add(int64(m.CompressedBytes))
	f.memory.Add(int64(m.UncompressedBytes) + recordWeight*int64(m.NumRecords))
}

// next chooses anew where something was fetched.
func (f *fetchSize) next() (bytes int32, changed bool) {
	wire, memory := f.wire.Swap(0), f.memory.Swap(0)
	if wire <= 0 || memory <= 0 {
		return 0, false
	}
	bytes = int32(min(max(fetchHolds*wire/memory, leastFetch), mostFetch))
	changed = bytes != f.chosen
	f.chosen = bytes
	return bytes, changed
}
