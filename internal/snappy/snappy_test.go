package snappy_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/flusso/flusso-kafka/internal/snappy"
)

const (
	header = "mine"
	from   = " seq="
)

// batch returns the records of a batch as they are before compression: runs of
// so many records of size bytes, the last of each with a header of its own.
func batch(topic string, runs, records, size int) []byte {
	rng := rand.New(rand.NewPCG(1, 2)) // the same for each topic
	var b []byte
	delta := int32(0)
	for run := range runs {
		for i := range records {
			value := make([]byte, size)
			for j := range value {
				value[j] = 'a' + byte(rng.IntN(8))
			}
			r := kmsg.Record{OffsetDelta: delta, Key: fmt.Appendf(nil, "key %d", i), Value: value}
			if i == records-1 {
				r.Headers = []kmsg.Header{{Key: "theirs", Value: []byte("x")}, {Key: header, Value: fmt.Appendf(nil, "common seq=%-40s", fmt.Sprint(topic, run))}}
			}
			b = appendRecord(b, r)
			delta++
		}
	}
	return b
}

func appendRecord(b []byte, r kmsg.Record) []byte {
	encoded := r.AppendTo(nil)
	r.Length = int32(len(encoded) - 1) // its own length took one byte
	return r.AppendTo(b)
}

func compress(t testing.TB, c *snappy.Compressor, plain []byte) []byte {
	t.Helper()
	var dst bytes.Buffer
	packed, codec := c.Compress(&dst, plain)
	if codec != kgo.CodecSnappy {
		t.Fatalf("codec %d", codec)
	}
	return packed
}

// same fails unless the client's own decompression gives plain.
func same(t rapid.TB, packed, plain []byte) {
	t.Helper()
	got, err := kgo.DefaultDecompressor().Decompress(packed, kgo.CodecSnappy)
	if err != nil {
		t.Fatalf("decompress %d bytes: %v", len(packed), err)
	}
	if !bytes.Equal(got, plain) {
		t.Fatalf("%d bytes came back as %d others", len(plain), len(got))
	}
}

// TestWhatTopicsHaveInCommonIsCompressedOnce: the batches of all topics but
// the first are hits over, and no larger than if they had been compressed.
func TestWhatTopicsHaveInCommonIsCompressedOnce(t *testing.T) {
	c := snappy.New(header, from)
	for n, topic := range []string{"a", "b", "c, of another length"} {
		plain := batch(topic, 10, 64, 400)
		packed := compress(t, c, plain)
		same(t, packed, plain)
		if hits, packed := c.Batches(); packed != 1 || hits != n {
			t.Errorf("after topic %s: %d batches were packed and %d times of use, want 1 and %d", topic, packed, hits, n)
		}
		if alone := compress(t, snappy.New("", ""), plain); len(packed) > len(alone)*101/100 {
			t.Errorf("topic %s: %d bytes, compressed alone they are %d", topic, len(packed), len(alone))
		}
	}
}

// TestAnythingComesBack: whatever records there are, and bytes that are no
// records at all, the decompressor of the client gives them back.
func TestAnythingComesBack(t *testing.T) {
	shared := snappy.New(header, from)
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom([]*snappy.Compressor{shared, snappy.New(header, from), snappy.New("", "")}).Draw(t, "compressor")
		var plain []byte
		value := rapid.SliceOfN(rapid.Byte(), 0, 100)
		for range rapid.IntRange(0, 40).Draw(t, "records") {
			r := kmsg.Record{OffsetDelta: rapid.Int32().Draw(t, "delta"), TimestampDelta64: rapid.Int64().Draw(t, "timestamp")}
			if rapid.Bool().Draw(t, "has key") {
				r.Key = value.Draw(t, "key")
			}
			if rapid.Bool().Draw(t, "has value") {
				r.Value = bytes.Repeat(value.Draw(t, "value"), rapid.SampledFrom([]int{1, 1, 10, 1000}).Draw(t, "repeats"))
			}
			for range rapid.IntRange(0, 3).Draw(t, "headers") {
				r.Headers = append(r.Headers, kmsg.Header{Key: rapid.SampledFrom([]string{"", header, "theirs"}).Draw(t, "header"), Value: append(bytes.Repeat([]byte(from), rapid.IntRange(0, 2).Draw(t, "own")), value.Draw(t, "header value")...)})
			}
			plain = appendRecord(plain, r)
		}
		plain = append(plain, value.Draw(t, "no record")...)
		if len(plain) == 0 {
			return // a batch has a record at least
		}
		for range 2 {
			var dst bytes.Buffer
			packed, _ := c.Compress(&dst, plain)
			same(t, packed, plain)
		}
	})
}

// TestWhatIsOnlyAlikeIsNotTakenForTheSame: batches of one length that begin alike
// are found by the same key.
func TestWhatIsOnlyAlikeIsNotTakenForTheSame(t *testing.T) {
	c := snappy.New(header, from)
	plain := batch("a", 3, 20, 400)
	compress(t, c, plain)
	for _, at := range []int{len(plain) / 2, len(plain) - 300} {
		other := bytes.Clone(plain)
		other[at]++
		same(t, compress(t, c, other), other)
	}
	if hits, _ := c.Batches(); hits != 0 {
		t.Errorf("%d batches were taken for the same", hits)
	}
}

// TestClientsMayShareIt compresses the batches of several topics at once, more
// than are remembered.
func TestClientsMayShareIt(t *testing.T) {
	c := snappy.New(header, from)
	var batches [][]byte
	for i := range 12 {
		batches = append(batches, batch("a", 20+i, 64, 900))
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, plain := range batches {
				var dst bytes.Buffer
				packed, _ := c.Compress(&dst, plain)
				got, err := kgo.DefaultDecompressor().Decompress(packed, kgo.CodecSnappy)
				if err != nil || !bytes.Equal(got, plain) {
					t.Errorf("%d bytes came back as %d, %v", len(plain), len(got), err)
				}
			}
		})
	}
	wg.Wait()
}

// TestWhatIsRememberedIsBounded: old batches make room for new ones, and are
// compressed again when they come back.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	c := snappy.New(header, from)
	both := func(runs, records int) {
		t.Helper()
		for _, topic := range []string{"a", "b"} {
			plain := batch(topic, runs, records, 300)
			same(t, compress(t, c, plain), plain)
		}
	}
	both(1, 64)
	for i := range 50 {
		both(8, 100+i) // other lengths, other batches
		if held, _, _ := c.Kept(); held > snappy.RememberedBytes {
			t.Fatalf("%d bytes are remembered, at most %d are allowed", held, snappy.RememberedBytes)
		}
	}
	both(1, 64)
	if hits, packed := c.Batches(); hits != 52 || packed != 52 {
		t.Errorf("%d batches were packed and %d times of use, want 52 each: the first must have made room", packed, hits)
	}
}

// TestWhatIsTooLargeIsLeftAlone: a batch that would not be remembered is not packed
// for it, which takes memory and time for nothing.
func TestWhatIsTooLargeIsLeftAlone(t *testing.T) {
	c := snappy.New(header, from)
	for _, topic := range []string{"a", "b"} {
		plain := batch(topic, 10, 10, snappy.MostBatch/100)
		same(t, compress(t, c, plain), plain)
	}
	if hits, packed := c.Batches(); hits != 0 || packed != 0 {
		t.Errorf("%d batches were packed and %d times of use, want none", packed, hits)
	}
}

// TestWhatIsOfNoUseIsNotRemembered: where no other topic gets the same, few
// batches are remembered, and as soon as one does, all are again.
func TestWhatIsOfNoUseIsNotRemembered(t *testing.T) {
	c := snappy.New(header, from)
	for i := range 80 {
		compress(t, c, batch("a", 1, 30+i, 300))
	}
	_, packed := c.Batches()
	if packed < 10 || packed > 30 {
		t.Errorf("%d of 80 batches were packed, want some at first and now and then", packed)
	}
	for i := range 100 {
		for _, topic := range []string{"a", "b"} {
			compress(t, c, batch(topic, 1, 200+i, 100))
		}
	}
	if hits, _ := c.Batches(); hits < 60 {
		t.Errorf("%d of 100 batches were of use to a second topic, want nearly all", hits)
	}
}

func BenchmarkCompress(b *testing.B) {
	pairs := documents(24, 20, 64)
	for _, bb := range []struct {
		name string
		c    func() kgo.Compressor
	}{
		{"client", func() kgo.Compressor { c, _ := kgo.DefaultCompressor(kgo.SnappyCompression()); return c }},
		{"of no use", func() kgo.Compressor { return snappy.New("", "") }},
		{"two topics", func() kgo.Compressor { return snappy.New(header, from) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			c := bb.c()
			var dst bytes.Buffer
			b.SetBytes(int64(2 * len(pairs[0][0])))
			b.ReportAllocs()
			out := 0
			for i := 0; b.Loop(); i++ {
				for _, src := range pairs[i%len(pairs)] {
					dst.Reset()
					packed, _ := c.Compress(&dst, src)
					out = len(packed)
				}
			}
			b.ReportMetric(float64(out)/float64(len(pairs[0][0])), "ratio")
		})
	}
}

// documents returns n batches like those of lanes, each as two topics have it.
func documents(n, runs, records int) [][2][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var words []string
	for range 3000 {
		word := make([]byte, 3+rng.IntN(8))
		for i := range word {
			word[i] = 'a' + byte(rng.IntN(26))
		}
		words = append(words, string(word))
	}
	out := make([][2][]byte, n)
	for k := range out {
		delta := int32(0)
		for run := range runs {
			for i := range records {
				v := fmt.Appendf(nil, `{"id":%d,"customer":"%x"`, rng.Uint64(), rng.Uint64())
				for len(v) < 512 {
					v = fmt.Appendf(v, `,"%s":"%s"`, words[rng.IntN(40)], words[rng.IntN(3000)])
				}
				r := kmsg.Record{OffsetDelta: delta, Key: fmt.Appendf(nil, "orders/%d", rng.Uint64()), Value: v}
				for t := range 2 {
					if i == records-1 {
						r.Headers = []kmsg.Header{{Key: header, Value: fmt.Appendf(nil, "v=1 kind=live pos=503548 thru=503548 new=503548 rec=2 env=2 chg=2 inc=demo-1-79b9f37d ep=1 at=1795996081891 seq=%-91d", 695+run+t*300000)}}
					}
					out[k][t] = appendRecord(out[k][t], r)
				}
				delta++
			}
		}
	}
	return out
}
