// Package snappy compresses record batches for clients that write the same
// records to several topics: what the topics have in common is compressed once.
//
// The two things to know are [Compressor], which plugs into a kgo client, and
// the mask: bytes that each topic has for itself are compressed as bytes that
// nothing else is like. They end up in the block as they are, nothing refers to
// them, and so each topic's own can be put there instead.
package snappy

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/s2"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Compressor is a [kgo.Compressor]. Its methods may be called concurrently, and
// several clients may share it: what one of them compressed serves all.
type Compressor struct {
	header, from string
	memo         memo
}

var _ kgo.Compressor = (*Compressor)(nil)

// New returns a compressor for topics whose records differ in nothing but the
// value of the record header of that key, which must be a record's last but for
// others that differ too, and there from the text from on. The value must be as
// long in each topic.
func New(header, from string) *Compressor {
	return &Compressor{header: header, from: from, memo: memo{byKey: make(map[uint64]*batch)}}
}

// Compress implements [kgo.Compressor]. The result is a block of snappy of about
// the size that a client comes to, framed as the Java client frames it.
func (c *Compressor) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	dst.Grow(len(frame) + s2.MaxEncodedLen(len(src)))
	out := dst.AvailableBuffer()
	b := c.memo.blank()
	defer c.memo.release(b)
	if !b.lay(src, c.header, c.from) {
		return compress(out, src), kgo.CodecSnappy
	}
	key := c.memo.key(src, b.own)
	if known := c.memo.acquire(key); known != nil {
		defer c.memo.release(known)
		if known.like(src, b.own) {
			c.memo.hit()
			return known.with(out, src), kgo.CodecSnappy
		}
	}
	if !c.memo.worthwhile() || !b.pack(src) {
		return compress(out, src), kgo.CodecSnappy
	}
	c.memo.remember(key, b)
	return b.with(out, src), kgo.CodecSnappy
}

// frame opens the framing that snappy has in Kafka, and a block in it: magic,
// version, least version that can read it, and then, before the only block, its
// length in four bytes, big-endian. Without the framing brokers gather a record
// batch in a buffer that grows before they look at it.
//
// Source: SnappyOutputStream of https://github.com/xerial/snappy-java
const frame = "\x82SNAPPY\x00" + "\x00\x00\x00\x01" + "\x00\x00\x00\x01" + "\x00\x00\x00\x00"

// compress returns src as a block in its frame, in the room of out where it fits.
func compress(out, src []byte) []byte {
	out = append(out, frame...)
	if free := cap(out) - len(out); free < s2.MaxEncodedLen(len(src)) {
		out = slices.Grow(out, s2.MaxEncodedLen(len(src)))
	}
	block := s2.EncodeSnappy(out[len(out):cap(out)], src)
	return framed(out[:len(out)+len(block)])
}

// framed completes the frame of what out holds.
func framed(out []byte) []byte {
	binary.BigEndian.PutUint32(out[len(frame)-4:], uint32(len(out)-len(frame)))
	return out
}

// like reports whether src is the batch but for what is its own.
func (b *batch) like(src []byte, own []span) bool {
	if len(src) != len(b.plain) || !slices.Equal(own, b.own) {
		return false
	}
	at := 0
	for _, o := range own {
		if !bytes.Equal(src[at:o.start], b.plain[at:o.start]) {
			return false
		}
		at = o.end
	}
	return bytes.Equal(src[at:], b.plain[at:])
}

// with returns the batch's block with what src has for itself, in its frame.
func (b *batch) with(out, src []byte) []byte {
	out = append(append(out, frame...), b.packed...)
	for i, o := range b.own {
		copy(out[len(frame)+b.at[i]:], src[o.start:o.end])
	}
	return framed(out)
}
