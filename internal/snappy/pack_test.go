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
	if masks.mask() < leastFences {
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

// TestATagIsNotTakenForAFence: masks with the same fence stand behind the same text,
// so that a copy goes on into the first byte of the second, and the length of the literal
// behind it is the fence. Whether it does depends on what is at random in the masks, so
// there are several such batches.
func TestATagIsNotTakenForAFence(t *testing.T) {
	taken := 0
	for seed := range uint64(8) {
		for gap := range 170 {
			b := alike(t, seed, gap)
			if b.packed = s2.EncodeSnappy(nil, b.plain); b.find() && !b.independent() {
				taken++
			}
			if b.pack() && !b.independent() {
				t.Errorf("seed %d, %d bytes behind the mask: something depends on it", seed, gap)
			}
		}
	}
	if taken == 0 {
		t.Error("no tag was like a fence")
	}
}

// alike is a batch with its masks, of which the first and the last have the same fence
// and stand behind the same text. So many other bytes are between the last and
// text that is copied.
func alike(t *testing.T, seed uint64, gap int) *batch {
	t.Helper()
	const free = 2
	rng := rand.New(rand.NewPCG(seed, 2))
	b := &batch{}
	add := func(text []byte) { b.plain = append(b.plain, text...) }
	random := func(n int) []byte {
		out := make([]byte, n)
		for i := range out {
			out[i] = byte(rng.IntN(0x80))
		}
		return out
	}
	own := func() {
		start := len(b.plain)
		add(make([]byte, 96+seed)) // other sizes, other masks
		b.own = append(b.own, span{start, len(b.plain)})
	}
	before, known := random(300), random(300)
	add(known)
	for c := 0x80; c < 0x100-free; c++ {
		add([]byte{byte(c), byte(rng.IntN(0x80))})
	}
	add(before)
	own()
	for range free - 1 {
		add(random(800))
		own()
	}
	add(random(500))
	add(before)
	own()
	add(random(gap))
	add(known)
	if fences := b.mask(); fences != free {
		t.Fatalf("%d fences are left, want %d", fences, free)
	}
	return b
}
