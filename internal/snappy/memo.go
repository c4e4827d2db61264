package snappy

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
)

const (
	// rememberedBytes bounds what is remembered of batches for topics that come
	// to them later, batches and their blocks: a topic's batches are compressed
	// shortly behind those of another.
	rememberedBytes = 8 << 20
	// preparedBytes bounds likewise what is prepared and was not asked for yet:
	// eight batches of the usual limit.
	preparedBytes = 20 << 20
	// Where so many batches in a row were of no use to another topic, only so
	// many in a row of each period are remembered: topics take turns.
	uselessMost   = 8
	uselessPeriod = 8 * uselessMost
	// keyBytes is of how many bytes a batch's key is made.
	keyBytes = 512
	// overtaken is how many keys are kept of batches that nobody had prepared.
	overtaken = 16
)

var (
	seed      = maphash.MakeSeed()
	scratches = sync.Pool{New: func() any { return new([]byte) }}
	batches   = sync.Pool{New: func() any { return new(batch) }} // of all sessions of the process: idle ones hold none
)

// memo has batches that are compressed, or in work. They are in it for topics
// that have not come to them: so many for those that were prepared, unknown for
// the others, which make room for each other.
type memo struct {
	mu      sync.Mutex
	byKey   map[uint64]*batch
	order   []*batch          // those that are remembered, oldest first
	held    int               // bytes of those in order
	ahead   int               // bytes of those that are prepared
	missed  [overtaken]uint64 // keys of the newest batches that were not there
	misses  int
	useless int // batches since one was of use
	// So far:
	packed, hits int
}

// key returns what batches are found by that begin alike and are as long. It
// proves nothing: contents are compared.
func key(src []byte, own []span) uint64 {
	n := min(len(src), keyBytes)
	if len(own) > 0 {
		n = min(n, own[0].start)
	}
	return maphash.Bytes(seed, src[:n]) ^ uint64(len(src))
}

// blank returns a batch to be laid out. It must be released.
func blank() *batch {
	b := batches.Get().(*batch)
	b.users, b.topics, b.ready, b.good = 1, 0, make(chan struct{}), false
	return b
}

// find returns the batch of the key, which may be in work, or nil. It must be
// released.
func (m *memo) find(key uint64) *batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.byKey[key]
	if b == nil {
		m.missed[m.misses%overtaken] = key
		m.misses++
		return nil
	}
	b.users++
	return b
}

// remember takes b in, to be packed from so many bytes, unless another one is in
// its place, it would take too much, or it is hardly worth it. Who is told true
// must settle it.
func (m *memo) remember(key uint64, b *batch, size int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.useless++
	return m.useless%uselessPeriod <= uselessMost && room(size) <= rememberedBytes/2 && m.takeLocked(key, b)
}

// prepare takes b in for so many topics, to be packed, unless it was compressed
// already, or there is no room. Who is told true must settle it.
func (m *memo) prepare(key uint64, b *batch, topics int) (taken, full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := room(len(b.plain))
	if m.ahead+size > preparedBytes {
		return false, true
	}
	if slices.Contains(m.missed[:], key) || !m.takeLocked(key, b) {
		return false, false
	}
	b.topics = topics
	m.ahead += size
	return true, false
}

func (m *memo) takeLocked(key uint64, b *batch) bool {
	if m.byKey[key] != nil {
		return false
	}
	b.key = key
	b.users++
	m.byKey[key] = b
	return true
}

// settle tells those who wait for a batch that it is packed, or could not be.
func (m *memo) settle(b *batch, good bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.good = good
	close(b.ready)
	if good {
		m.packed++
	}
	switch {
	case !good:
		m.dropLocked(b)
	case b.topics == 0:
		m.held += room(len(b.plain))
		for m.held > rememberedBytes {
			oldest := m.order[0]
			m.order = m.order[1:]
			m.dropLocked(oldest)
		}
		m.order = append(m.order, b)
	}
}

// hit counts that a batch was of use, and drops it behind its last topic.
func (m *memo) hit(b *batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hits++
	m.useless = 0
	switch {
	case b.topics == 1:
		m.dropLocked(b)
	case b.topics > 1:
		b.topics--
	}
}

// forget drops the batch that was prepared by that key, unless it is gone: another
// one of the key has another channel.
func (m *memo) forget(key uint64, ready chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.byKey[key]; b != nil && b.ready == ready {
		m.dropLocked(b)
	}
}

func (m *memo) dropLocked(b *batch) {
	delete(m.byKey, b.key)
	if b.topics > 0 {
		m.ahead -= room(len(b.plain))
	} else if b.good {
		m.held -= room(len(b.plain))
	}
	b.topics = 0
	m.releaseLocked(b)
}

// release gives a batch back. Who had it may not use it then.
func (m *memo) release(b *batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releaseLocked(b)
}

func (m *memo) releaseLocked(b *batch) {
	if b.users--; b.users == 0 && cap(b.plain) <= 2*mostBatch {
		batches.Put(b)
	}
}

// room is what a batch of so many bytes takes, with its block.
func room(size int) int { return size + s2.MaxEncodedLen(size) }
