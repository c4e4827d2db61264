package snappy

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/klauspost/compress/s2"
)

// pack compresses the batch with the mask in place of what is its own. It is
// false where the mask did not do: the bytes are not in the block as they are, or
// something in the block is copied from them.
func (b *batch) pack() bool {
	b.mask()
	b.packed = s2.EncodeSnappy(b.packed[:cap(b.packed)], b.plain)
	return len(b.own) == 0 || b.find() && b.independent()
}

// fit empties the batch for so many bytes. Memory that is much too large for them
// would be kept with it.
func (b *batch) fit(size int) {
	b.plain = b.plain[:0]
	if cap(b.plain) > 2*size {
		b.plain, b.packed = make([]byte, 0, size), nil
	}
}

// maskSeed is another one in each process, so that no document is made to be like
// a mask.
var maskSeed = [32]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(make([]byte, 16), rand.Uint64()), rand.Uint64()))

// mask overwrites what is own by bytes at random, above those of ASCII. What
// ends up next to what, decides whether a match goes on into the mask: so the
// first and the last byte of one are others than those of the masks before it.
func (b *batch) mask() {
	rng := rand.NewChaCha8(maskSeed)
	for i, o := range b.own {
		m := b.plain[o.start:o.end]
		_, _ = rng.Read(m) // it never fails
		for j := range m {
			m[j] |= 0x80
		}
		m[0], m[len(m)-1] = 0x80|byte(i), 0x80|byte(i)
	}
}

// find looks up where in the block the masks are.
func (b *batch) find() bool {
	b.at = b.at[:0]
	from := 0
	for _, o := range b.own {
		i := bytes.Index(b.packed[from:], b.plain[o.start:o.end])
		if i < 0 {
			return false
		}
		b.at = append(b.at, from+i)
		from += i + o.end - o.start
	}
	return true
}

// independent proves that nothing in the block but the masks themselves depends
// on them: with each of their bits turned over, in the block and in what it was
// made from, the one still comes to the other. Where all that was turned over
// stands in literals, each byte of it comes to one byte of a mask and there are as
// many of these, so that they correspond in order, and no other byte is copied
// from one. Were it in the place of an element's tag instead, which takes bytes
// that happen to be those of a mask, what follows would have to come out the same
// from other elements.
func (b *batch) independent() bool {
	for i, o := range b.own {
		invert(b.plain[o.start:o.end])
		invert(b.packed[b.at[i] : b.at[i]+o.end-o.start])
	}
	scratch := scratches.Get().(*[]byte)
	defer scratches.Put(scratch)
	got, err := s2.Decode((*scratch)[:cap(*scratch)], b.packed)
	if err != nil {
		return false
	}
	*scratch = got
	return bytes.Equal(got, b.plain)
}

func invert(bits []byte) {
	for i := range bits {
		bits[i] = ^bits[i]
	}
}
