package snappy

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/klauspost/compress/s2"
)

// pack compresses the batch with masks in place of what is its own. It is false
// where they did not do: too few bytes are left for fences, the masks are not in the
// block as they are, or something in the block depends on them.
//
// A mask has a fence, a byte that stands nowhere but in masks, at both ends and in
// each fourth place. A compressor copies no less than four bytes, and any four that reach
// into a mask have its fence. Where no two masks have the same one, nothing outside
// of a mask is like them: no other byte depends on it, it depends on none, and stands in one
// literal. (The rest of it is at random: nothing else is taken for it.) Where some have,
// a copy may go on into the first byte of a mask, and the tag of what follows be taken
// for that byte: then it is proved that nothing depends on masks.
func (b *batch) pack() bool {
	fences := 0
	if len(b.own) > 0 {
		if fences = b.mask(); fences < leastFences {
			return false
		}
	}
	b.packed = s2.EncodeSnappy(b.packed[:cap(b.packed)], b.plain)
	return b.find() && (fences >= len(b.own) || b.independent())
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

// mask overwrites what is own, and returns how many fences there are: what is own is
// left alone where these are less than leastFences.
//
// What stands before and behind a mask is often the same as with one before. Where
// their fences are the same, too, a copy would go on into them, so there are as many
// different ones as there can be.
func (b *batch) mask() (fences int) {
	var left [256]byte
	unused := b.unused(left[:0])
	if len(unused) < leastFences {
		return len(unused)
	}
	rng := rand.NewChaCha8(maskSeed)
	for i, o := range b.own {
		m, fence := b.plain[o.start:o.end], unused[i%len(unused)]
		_, _ = rng.Read(m) // it never fails
		for j := range m {
			if m[j] &= 0x7f; j%4 == 0 {
				m[j] = fence
			}
		}
		m[len(m)-1] = fence
	}
	return len(unused)
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
