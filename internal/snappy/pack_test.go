package snappy

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/s2"
	"pgregory.net/rapid"
)

// laid is a batch with two ranges of its own among bytes that compress.
func laid(size int) (src []byte, own []span) {
	src = bytes.Repeat([]byte("all that lanes have in common, "), 400)
	for i := range 2 {
		start := 2000 + i*5000
		copy(src[start:], bytes.Repeat([]byte{'x'}, size))
		own = append(own, span{start, start + size})
	}
	return src, own
}

// TestMaskCanBeReplaced: a block that was packed is one of whatever is put in
// place of the mask.
func TestMaskCanBeReplaced(t *testing.T) {
	src, own := laid(96)
	b := &batch{own: own, plain: bytes.Clone(src)}
	if !b.pack() {
		t.Fatal("the mask did not do")
	}
	for _, fill := range []byte{'x', 0, 0xff} {
		for _, o := range own {
			copy(src[o.start:o.end], bytes.Repeat([]byte{fill}, o.end-o.start))
		}
		framed := b.with(nil, src)
		if got, err := s2.Decode(nil, framed[len(frame):]); err != nil || !bytes.Equal(got, src) {
			t.Errorf("filled with %#x: %d bytes, %v, want what was packed", fill, len(got), err)
		}
	}
}

// TestMaskIsLikeNothingElse: where records hold the bytes of masks, others are
// taken for their fences; with too few that are left the batch is refused.
func TestMaskIsLikeNothingElse(t *testing.T) {
	src, own := laid(96)
	masks := &batch{own: own, plain: bytes.Clone(src)}
	if !masks.mask() {
		t.Fatal("no fence is left")
	}
	for i, o := range own {
		copy(src[500+100*i:], masks.plain[o.start:o.end])
		copy(src[4000+100*i:], masks.plain[o.start+1:o.end])
	}
	left := (&batch{own: own, plain: src}).unused(nil)
	for len(left) > 0 {
		b := &batch{own: own, plain: bytes.Clone(src)}
		packed, want := b.pack(), len(left) >= leastFences
		if packed != want || packed && !b.independent() {
			t.Fatalf("with %d fences left: packed %t, want %t, and nothing to depend on a mask", len(left), packed, want)
		}
		src[9000+len(left)] = left[0]
		left = left[1:]
	}
}

// TestNothingDependsOnAMask: what is packed comes back whatever is put in place of
// the masks, also where contents are made of what masks are made of.
func TestNothingDependsOnAMask(t *testing.T) {
	packed, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.ByteMin(0x80)), 1, 130).Draw(t, "alphabet")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		b := &batch{}
		for range rapid.IntRange(1, 60).Draw(t, "records") {
			for range rapid.SampledFrom([]int{0, 1, 3, 50, 700}).Draw(t, "size") {
				b.plain = append(b.plain, alphabet[rng.IntN(len(alphabet))])
			}
			start := len(b.plain)
			b.plain = append(b.plain, make([]byte, rapid.IntRange(leastOwn, 2*leastOwn).Draw(t, "own"))...)
			b.own = append(b.own, span{start, len(b.plain)})
		}
		if all++; b.pack() {
			packed++
			if !b.independent() {
				t.Fatal("something depends on a mask")
			}
		}
	})
	if packed < all/10 {
		t.Errorf("only %d of %d batches were packed at all", packed, all)
	}
}

// independent proves for one block, without regard to how it was made, that
// nothing in it but the masks themselves depends on them: with each of their bits
// turned over, in the block and in what it was made from, the one still comes to the
// other.
func (b *batch) independent() bool {
	plain, packed := bytes.Clone(b.plain), bytes.Clone(b.packed)
	for i, o := range b.own {
		invert(plain[o.start:o.end])
		invert(packed[b.at[i] : b.at[i]+o.end-o.start])
	}
	got, err := s2.Decode(nil, packed)
	return err == nil && bytes.Equal(got, plain)
}

func invert(bits []byte) {
	for i := range bits {
		bits[i] = ^bits[i]
	}
}
