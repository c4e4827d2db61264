package snappy

// RememberedBytes and PreparedBytes bound what is kept.
const (
	RememberedBytes = rememberedBytes
	PreparedBytes   = preparedBytes
	MostBatch       = mostBatch
)

// Batches returns how often a batch was of use to a topic, and how many were packed for it.
func (c *Compressor) Batches() (hits, packed int) {
	c.memo.mu.Lock()
	defer c.memo.mu.Unlock()
	return c.memo.hits, c.memo.packed
}

// Kept returns how many bytes are remembered and prepared, and of how
// many batches.
func (c *Compressor) Kept() (remembered, prepared, batches int) {
	c.memo.mu.Lock()
	defer c.memo.mu.Unlock()
	return c.memo.held, c.memo.ahead, len(c.memo.byKey)
}

// Memory returns how many bytes the batches hold on to that are kept.
func (c *Compressor) Memory() (n int) {
	c.memo.mu.Lock()
	defer c.memo.mu.Unlock()
	for _, b := range c.memo.byKey {
		n += cap(b.plain) + cap(b.packed)
	}
	return n
}
