package snappy_test

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/snappy"
)

// FuzzCompress: two topics get the same but for what is their own, and bytes that
// are no records get there as well: the client's decompressor gives all of them
// back. Documents may be made of whatever the mask is made of.
func FuzzCompress(f *testing.F) {
	f.Add([]byte("a document"), []byte("1 tbatch=1"), []byte("2 tbatch=3"), uint16(40), uint8(3))
	f.Add(bytes.Repeat([]byte{0x80, 0x81, 0xff}, 40), bytes.Repeat([]byte{0x80}, 91), []byte{0xff}, uint16(300), uint8(1))
	f.Add([]byte{0}, []byte{}, []byte{}, uint16(5000), uint8(0))
	c := snappy.New(header, from) // remembers across inputs
	f.Fuzz(func(t *testing.T, document, mine, theirs []byte, repeats uint16, every uint8) {
		topics := [2][]byte{mine, append(bytes.Clone(theirs), make([]byte, max(0, len(mine)-len(theirs)))...)[:len(mine)]}
		var plain [2][]byte
		for i, own := range topics {
			for n := range int32(repeats%512) + 1 {
				r := kmsg.Record{OffsetDelta: n, Key: document[:len(document)/2], Value: bytes.Repeat(document, int(n%5))}
				if every > 0 && n%int32(every) == 0 {
					r.Headers = []kmsg.Header{{Key: header, Value: append([]byte("same"+from), own...)}, {Key: "last", Value: document[:len(document)/3]}}
				}
				plain[i] = appendRecord(plain[i], r)
			}
		}
		if every%2 == 0 {
			forget, _ := c.Prepare(1+int(repeats%3), appended(plain[0]))
			defer forget()
		}
		raw := bytes.Repeat(append(bytes.Clone(document), mine...), int(repeats%64))
		for _, src := range [][]byte{plain[0], plain[1], raw} {
			if len(src) == 0 {
				continue // a batch has a record at least
			}
			var dst bytes.Buffer
			packed, _ := c.Compress(&dst, src)
			got, err := kgo.DefaultDecompressor().Decompress(packed, kgo.CodecSnappy)
			if err != nil || !bytes.Equal(got, src) {
				t.Fatalf("%d bytes came back as %d, %v", len(src), len(got), err)
			}
		}
	})
}
