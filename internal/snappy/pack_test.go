package snappy

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/s2"
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

// TestMaskThatIsCopiedIsRefused: where records hold the bytes of a mask, those
// behind it are copied from the mask, and the mask behind them is a copy of them:
// replaced, it would take them with it.
func TestMaskThatIsCopiedIsRefused(t *testing.T) {
	mask := make([]byte, 96)
	_, _ = rand.NewChaCha8(maskSeed).Read(mask)
	for i := range mask {
		mask[i] |= 0x80
	}
	for name, at := range map[string]int{"before the mask": 500, "behind the mask": 4000} {
		src, own := laid(96)
		copy(src[at:], mask[1:95]) // but for its first and last byte, which have a meaning
		if b := (&batch{own: own, plain: src}); b.pack() {
			t.Errorf("%s: a batch was packed whose records depend on the mask", name)
		}
	}
}
