package snappy

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/klauspost/compress/s2"
)

// pack compresses the batch with masks in place of what is its own. It is false
// where they did not do: too few bytes are left for fences, or the masks are not in
// the block as they are.
//
// That nothing but the masks depends on them follows from how they are made, for
// a compressor that copies no less than four bytes. A mask has fences, bytes that
// the batch has nowhere else, at both ends and in each fourth place: any four bytes
// that reach into a mask have one, and so would what is copied from them, which
// could only be in a mask again. But a mask that stands in the block as it is, was
// not copied. (Its other bytes are at random: nothing else is taken for it.)
func (b *batch) pack() bool {
	if len(b.own) > 0 && !b.mask() {
		return false
	}
	b.packed = s2.EncodeSnappy(b.packed[:cap(b.packed)], b.plain)
	return b.find()
}

// fit empties the batch for so many bytes. Memory that is much too large for them
// would be kept with it.
func (b *batch) fit(size int) {
	b.plain = b.plain[:0]
	if cap(b.plain) > 2*size {
		b.plain, b.packed = make([]byte, 0, size), nil
	}
}

// maskSeed is another one in each process, so that nothing is made to be like a mask.
var maskSeed = [32]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(make([]byte, 16), rand.Uint64()), rand.Uint64()))

// mask overwrites what is own. It is false where too few bytes are left for fences.
//
// What stands before and behind a mask is often the same as with one before. Where
// their first or last bytes are the same, too, a copy would go on into them: so there are
// as many different ones as there can be.
func (b *batch) mask() bool {
	var left [256]byte
	fences := b.unused(left[:0])
	if len(fences) < leastFences {
		return false
	}
	rng := rand.NewChaCha8(maskSeed)
	for i, o := range b.own {
		m, fence := b.plain[o.start:o.end], fences[i%len(fences)]
		_, _ = rng.Read(m) // it never fails
		for j := 0; j < len(m); j += 4 {
			m[j] = fence
		}
		m[len(m)-1] = fence
	}
	return true
}

const leastFences = 2

// unused appends the bytes from 0x80 on that nothing holds but what is own. Text
// leaves many of them, and is looked through 32 bytes at a time.
func (b *batch) unused(out []byte) []byte {
	var used [256]bool
	at := 0
	for _, o := range b.own {
		note(&used, b.plain[at:o.start])
		at = o.end
	}
	note(&used, b.plain[at:])
	for c := 0x80; c <= 0xff; c++ {
		if !used[c] {
			out = append(out, byte(c))
		}
	}
	return out
}

func note(used *[256]bool, s []byte) {
	const high = 0x8080808080808080
	for len(s) >= 32 {
		ascii := (binary.LittleEndian.Uint64(s)|binary.LittleEndian.Uint64(s[8:])|
			binary.LittleEndian.Uint64(s[16:])|binary.LittleEndian.Uint64(s[24:]))&high == 0
		if !ascii {
			for _, c := range s[:32] {
				used[c] = true
			}
		}
		s = s[32:]
	}
	for _, c := range s {
		used[c] = true
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
