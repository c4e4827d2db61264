package snappy

// MemoBytes is the bound of what is remembered.
const MemoBytes = memoBytes

// Batches returns how often a batch was of use to another topic, and how many were packed for it.
func (c *Compressor) Batches() (hits, packed int) {
	c.memo.mu.Lock()
	defer c.memo.mu.Unlock()
	return c.memo.hits, c.memo.packed
}

// Remembered returns how many bytes are remembered.
func (c *Compressor) Remembered() int {
	c.memo.mu.Lock()
	defer c.memo.mu.Unlock()
	return c.memo.bytes
}
