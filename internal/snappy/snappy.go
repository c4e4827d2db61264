// Package snappy compresses record batches for clients that know ahead what they
// will send, or write the same records to several topics: what the topics have in
// common is compressed once.
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
// long in each topic. With an empty header no topics have anything in common.
func New(header, from string) *Compressor {
	return &Compressor{header: header, from: from, memo: memo{byKey: make(map[uint64]*batch)}}
}

// Compress implements [kgo.Compressor]. The result is a block of snappy of about
// the size that a client comes to, framed as the Java client frames it. It waits
// for a block that is in work.
func (c *Compressor) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	dst.Grow(len(frame) + s2.MaxEncodedLen(len(src)))
	out := dst.AvailableBuffer()
	b := blank()
	defer c.memo.release(b)
	if !b.lay(src, c.header, c.from) {
		return compress(out, src), kgo.CodecSnappy
	}
	key := key(src, b.own)
	if known := c.memo.find(key); known != nil {
		defer c.memo.release(known)
		if <-known.ready; known.good && known.like(src) {
			out = known.with(out, src)
			c.memo.hit(known)
			return out, kgo.CodecSnappy
		}
	}
	if c.header == "" || !c.memo.remember(key, b, len(src)) {
		return compress(out, src), kgo.CodecSnappy
	}
	b.fit(len(src))
	b.plain = append(b.plain, src...)
	good := b.pack()
	c.memo.settle(b, good)
	if !good {
		return compress(out, src), kgo.CodecSnappy
	}
	return b.with(out, src), kgo.CodecSnappy
}

// Prepare compresses ahead of time what Compress will be called with for so many
// topics, the one whose records appendTo appends and others that differ from it as
// [New] says. It is kept until all of them had it, or forget is called. What was
// compressed already is left alone. It is full where nothing was done, since so
// much is kept or batches are too large to be.
func (c *Compressor) Prepare(topics int, appendTo func([]byte) []byte) (forget func(), full bool) {
	forget = func() {}
	b := blank()
	defer c.memo.release(b)
	b.plain = appendTo(b.plain[:0])
	if len(b.plain) > mostBatch {
		return forget, true // as all of them will be
	}
	if !b.lay(b.plain, c.header, c.from) {
		return forget, false
	}
	key, ready := key(b.plain, b.own), b.ready
	taken, full := c.memo.prepare(key, b, topics)
	if !taken {
		return forget, full
	}
	if topics == 1 {
		b.own = b.own[:0] // nobody will put anything else in its place
	}
	c.memo.settle(b, b.pack())
	return func() { c.memo.forget(key, ready) }, false
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
func (b *batch) like(src []byte) bool {
	if len(src) != len(b.plain) {
		return false
	}
	at := 0
	for _, o := range b.own {
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
