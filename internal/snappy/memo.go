package snappy

import (
	"hash/maphash"
	"sync"
)

// memoBytes bounds what is remembered, batches and their blocks: a topic's
// batches are compressed shortly behind those of another.
const memoBytes = 8 << 20

// Where so many batches in a row were of no use to another topic, only so many
// in a row of each period are remembered: topics take turns.
const (
	uselessMost   = 8
	uselessPeriod = 8 * uselessMost
)

var (
	seed      = maphash.MakeSeed()
	scratches = sync.Pool{New: func() any { return new([]byte) }}
)

// memo remembers the newest batches that were compressed.
type memo struct {
	mu      sync.Mutex
	byKey   map[uint64]*batch
	order   []*batch // oldest first
	free    []*batch
	bytes   int
	useless int // batches since one was of use

	packed, hits int // so far
}

// keyBytes is of how many bytes a batch's key is made.
const keyBytes = 512

// key returns what batches are found by that begin alike and are as long. It
// proves nothing: contents are compared.
func (m *memo) key(src []byte, own []span) uint64 {
	n := min(len(src), keyBytes)
	if len(own) > 0 {
		n = min(n, own[0].start)
	}
	return maphash.Bytes(seed, src[:n]) ^ uint64(len(src))
}

// blank returns a batch to be laid out. It must be released.
func (m *memo) blank() *batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &batch{}
	if n := len(m.free); n > 0 {
		b = m.free[n-1]
		m.free = m.free[:n-1]
	}
	b.users = 1
	return b
}

// acquire returns the batch of the key, or nil. It must be released.
func (m *memo) acquire(key uint64) *batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.byKey[key]
	if b != nil {
		b.users++
	}
	return b
}

// mostFree bounds how many batches are kept for their buffers.
const mostFree = 2

// release gives a batch back. Who had it may not use it then.
func (m *memo) release(b *batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releaseLocked(b)
}

func (m *memo) releaseLocked(b *batch) {
	b.users--
	if b.users == 0 && len(m.free) < mostFree {
		m.free = append(m.free, b)
	}
}

// worthwhile reports whether the next batch is to be remembered.
func (m *memo) worthwhile() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.useless++
	return m.useless%uselessPeriod <= uselessMost
}

// hit counts that a batch was of use.
func (m *memo) hit() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hits++
	m.useless = 0
}

// remember keeps a batch that is packed.
func (m *memo) remember(key uint64, b *batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.packed++
	if b.size() > memoBytes/2 {
		return
	}
	for m.bytes+b.size() > memoBytes {
		m.forgetLocked()
	}
	b.key = key
	b.users++
	m.byKey[key] = b
	m.order = append(m.order, b)
	m.bytes += b.size()
}

func (m *memo) forgetLocked() {
	b := m.order[0]
	m.order = m.order[1:]
	m.bytes -= b.size()
	if m.byKey[b.key] == b {
		delete(m.byKey, b.key)
	}
	m.releaseLocked(b)
}

func (b *batch) size() int { return cap(b.plain) + cap(b.packed) }
