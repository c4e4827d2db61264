package group

import (
	"math/bits"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// records lends the memory of fetched records to the clients of all consumers:
// a record is of no use any more when its item is made, and it takes some 200
// bytes. What is read, keys and documents, is not in it.
//
// A [Reader] gives records back by [kgo.Record.Recycle]. Those that nobody gives
// back, as of a fetch that is dropped, are the garbage collector's.
type records struct {
	// By the logarithm of their capacity, so that a small batch of records does
	// not hold the memory of a large one.
	slabs [bits.UintSize]sync.Pool
}

var recordPool kgo.PoolRecords = new(records)

// leastSlab is the fewest records that are worth it: markers come one by one.
const leastSlab = 16

// GetRecords implements [kgo.PoolRecords].
func (p *records) GetRecords(n int) []kgo.Record {
	if n < leastSlab {
		return nil
	}
	if s, ok := p.slabs[bits.Len(uint(n))].Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return *s
	}
	return make([]kgo.Record, min(n+n/8, 1<<bits.Len(uint(n))-1)) // the next batch may hold a few more
}

// PutRecords implements [kgo.PoolRecords].
func (p *records) PutRecords(s []kgo.Record) {
	if cap(s) >= leastSlab {
		p.slabs[bits.Len(uint(cap(s)))].Put(&s)
	}
}
