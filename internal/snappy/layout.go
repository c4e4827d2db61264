package snappy

import (
	"bytes"
	"encoding/binary"
)

// span is a range of bytes of a batch.
type span struct{ start, end int }

// batch is the records of one topic's record batch, and where in them is what
// other topics have otherwise.
type batch struct {
	plain  []byte // with the mask in place of what is own
	own    []span // in order
	packed []byte // what plain was compressed to
	at     []int  // where in it the own begin

	// Of the memo, under its lock:
	key    uint64
	users  int           // who may use it, the memo among them
	topics int           // that it was prepared for and have not come to it; 0: it is remembered
	ready  chan struct{} // closed when it is packed, or could not be
	good   bool          // it is; it can be read behind ready
}

// A batch is compressed for itself where keeping it is not worth it, or would
// take the room of too many others, and where more than one byte in so many is
// its own: those are not compressed. What is own must also be long enough for a
// mask that is like nothing else.
const (
	leastBatch = 4 << 10
	mostBatch  = 4 << 20
	mostOwn    = 32
	leastOwn   = 16
)

// lay finds what src, a sequence of records, has for itself: what follows from
// in the last header of a record. It is false for a batch that is to be
// compressed for itself.
//
// Source: https://kafka.apache.org/documentation/#record
func (b *batch) lay(src []byte, header, from string) bool {
	b.own = b.own[:0]
	if len(src) < leastBatch || len(src) > mostBatch {
		return false
	}
	if header == "" {
		return true // nothing is
	}
	bytesOwn := 0
	for at := 0; at < len(src); {
		length, n := binary.Varint(src[at:])
		if n <= 0 || length <= 0 || length > int64(len(src)-at-n) {
			return false
		}
		start := at + n
		at = start + int(length)
		if src[at-1] == 0 {
			continue // the number of headers comes last: there are none
		}
		if i := ownFrom(src[start:at], header, from); i >= 0 {
			if at-start-i < leastOwn {
				return false
			}
			b.own = append(b.own, span{start + i, at})
			bytesOwn += at - start - i
		}
	}
	return bytesOwn*mostOwn <= len(src)
}

// ownFrom returns where a record, read behind its length, begins to differ from
// topic to topic, or -1.
func ownFrom(record []byte, header, from string) int {
	f := fields{record}
	f.skip(1)   // attributes
	f.number()  // timestamp
	f.number()  // offset
	f.content() // key
	f.content() // value
	for n := f.number(); n > 0 && len(f.rest) > 0; n-- {
		key, before := f.content(), len(record)-len(f.rest)
		f.content()
		if string(key) == header {
			if i := bytes.Index(record[before:len(record)-len(f.rest)], []byte(from)); i >= 0 {
				return before + i
			}
		}
	}
	return -1
}

// fields reads the fields of a record one after the other. Past the end, or
// where there is no number, it is empty.
type fields struct{ rest []byte }

func (f *fields) skip(n int) { f.rest = f.rest[min(n, len(f.rest)):] }

func (f *fields) number() int64 {
	v, n := binary.Varint(f.rest)
	if n <= 0 {
		f.rest = nil
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

// content reads a length and as many bytes. A length of -1 is null.
func (f *fields) content() []byte {
	n := int(min(max(f.number(), 0), int64(len(f.rest))))
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}
