package snappy_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/snappy"
)

// appended is what appends plain.
func appended(plain []byte) func([]byte) []byte {
	return func(dst []byte) []byte { return append(dst, plain...) }
}

// kept fails unless so many batches are kept, and bytes for them if any.
func kept(t *testing.T, c *snappy.Compressor, batches int) {
	t.Helper()
	remembered, prepared, n := c.Kept()
	if n != batches || (remembered+prepared > 0) != (n > 0) {
		t.Fatalf("%d batches are kept, of %d and %d bytes, want %d batches", n, remembered, prepared, batches)
	}
}

// TestWhatIsPreparedIsNotCompressedAgain: all topics that a batch was prepared for
// get it from what is kept, and behind the last of them it is gone.
func TestWhatIsPreparedIsNotCompressedAgain(t *testing.T) {
	for _, topics := range []int{1, 2, 3} {
		c := snappy.New(header, from)
		plain := batch("0", 10, 64, 400)
		if _, full := c.Prepare(topics, appended(plain)); full {
			t.Fatal("full at once")
		}
		for n := range topics {
			kept(t, c, 1)
			plain := batch(fmt.Sprint(n), 10, 64, 400)
			same(t, compress(t, c, plain), plain)
		}
		kept(t, c, 0)
		if hits, packed := c.Batches(); packed != 1 || hits != topics {
			t.Errorf("%d topics: %d batches were packed and %d times of use", topics, packed, hits)
		}
	}
}

// TestTopicsThatShareNothing: what was prepared is of use to its topic, nothing
// else is kept.
func TestTopicsThatShareNothing(t *testing.T) {
	c := snappy.New("", "")
	plain := batch("a", 10, 64, 400)
	c.Prepare(1, appended(plain))
	for range 2 {
		same(t, compress(t, c, plain), plain)
		kept(t, c, 0)
	}
	if hits, packed := c.Batches(); packed != 1 || hits != 1 {
		t.Errorf("%d batches were packed and %d times of use, want one and once", packed, hits)
	}
}

// TestWhatIsPreparedIsForgotten: by who prepared it, and nothing else with it,
// though the memory of a batch is used again for others.
func TestWhatIsPreparedIsForgotten(t *testing.T) {
	c := snappy.New(header, from)
	prepare := func(from, to int) (forget []func()) {
		for i := from; i < to; i++ {
			f, _ := c.Prepare(1, appended(batch("a", 4+i, 64, 400)))
			forget = append(forget, f)
		}
		return forget
	}
	used := prepare(0, 3)
	for i := range 3 {
		plain := batch("a", 4+i, 64, 400)
		same(t, compress(t, c, plain), plain)
	}
	kept(t, c, 0)
	later := prepare(3, 7) // in the memory of those, among others
	for _, forget := range used {
		forget()
		kept(t, c, 4)
	}
	for i, forget := range later {
		forget()
		forget()
		kept(t, c, 3-i)
	}
}

// TestWhatWasCompressedIsNotPrepared: who prepares and is overtaken does nothing
// for nobody.
func TestWhatWasCompressedIsNotPrepared(t *testing.T) {
	for _, c := range []*snappy.Compressor{snappy.New("", ""), snappy.New(header, from)} {
		plain := batch("a", 10, 64, 400)
		compress(t, c, plain)
		_, packed := c.Batches()
		forget, full := c.Prepare(2, appended(plain))
		forget()
		if _, n := c.Batches(); n != packed || full {
			t.Errorf("%d batches were packed behind their use, full: %v", n-packed, full)
		}
		same(t, compress(t, c, plain), plain)
	}
}

// TestWhatIsPreparedIsBounded: it is full before it is over its bound, and not any
// more when something was used.
func TestWhatIsPreparedIsBounded(t *testing.T) {
	c := snappy.New(header, from)
	var batches [][]byte
	for full := false; !full; {
		plain := batch("a", 300+len(batches), 10, 300)
		batches = append(batches, plain)
		_, full = c.Prepare(1, appended(plain))
		if _, prepared, _ := c.Kept(); prepared > snappy.PreparedBytes {
			t.Fatalf("%d bytes are prepared, at most %d are allowed", prepared, snappy.PreparedBytes)
		}
	}
	if len(batches) < 6 {
		t.Errorf("full with %d batches of the usual size", len(batches))
	}
	last := batches[len(batches)-1]
	same(t, compress(t, c, batches[0]), batches[0])
	if _, full := c.Prepare(1, appended(last)); full {
		t.Error("full though a batch was used")
	}
}

// TestWhatCannotBePreparedIsCompressed: bytes that are no records, too few, or too
// many, behind which those of the same topic need not be tried.
func TestWhatCannotBePreparedIsCompressed(t *testing.T) {
	c := snappy.New(header, from)
	for _, tt := range []struct {
		plain []byte
		full  bool
	}{{[]byte("few"), false}, {bytes.Repeat([]byte{0xff}, 1<<16), false}, {make([]byte, snappy.MostBatch+1), true}} {
		if _, full := c.Prepare(2, appended(tt.plain)); full != tt.full {
			t.Errorf("%d bytes: full: %v", len(tt.plain), full)
		}
		kept(t, c, 0)
		same(t, compress(t, c, tt.plain), tt.plain)
	}
}

// TestSmallBatchesAreKeptInLittleMemory: not in that of large ones before them.
func TestSmallBatchesAreKeptInLittleMemory(t *testing.T) {
	c := snappy.New(header, from)
	for range 3 {
		plain := batch("a", 300, 10, 300)
		c.Prepare(1, appended(plain))
		same(t, compress(t, c, plain), plain)
	}
	for i := range 8 {
		compress(t, c, batch("a", 1, 60+i, 100))
	}
	if remembered, _, n := c.Kept(); n < 4 || c.Memory() > 4*remembered {
		t.Errorf("%d batches of %d bytes keep %d", n, remembered, c.Memory())
	}
}

// TestPreparedWhileItIsUsed: topics ask for batches before, while and after they
// are prepared, or forgotten; each gets its own, and in the end nothing is kept
// but what is remembered.
func TestPreparedWhileItIsUsed(t *testing.T) {
	const n = 60
	c := snappy.New(header, from)
	var batches [2][n][]byte
	for topic := range 2 {
		for i := range n {
			batches[topic][i] = batch(fmt.Sprint(topic), 10+i, 10, 200)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		var forget []func()
		for i := range n {
			f, _ := c.Prepare(2, appended(batches[0][i]))
			if forget = append(forget, f); r.IntN(4) == 0 {
				forget[r.IntN(len(forget))]()
			}
		}
		for _, f := range forget {
			f()
		}
	})
	for topic := range 2 {
		wg.Go(func() {
			for _, plain := range batches[topic] {
				var dst bytes.Buffer
				packed, _ := c.Compress(&dst, plain)
				got, err := kgo.DefaultDecompressor().Decompress(packed, kgo.CodecSnappy)
				if err != nil || !bytes.Equal(got, plain) {
					t.Errorf("topic %d: %d bytes came back as %d, %v", topic, len(plain), len(got), err)
				}
			}
		})
	}
	wg.Wait()
	if remembered, prepared, _ := c.Kept(); prepared != 0 || remembered > snappy.RememberedBytes {
		t.Errorf("%d bytes are prepared, and %d remembered", prepared, remembered)
	}
}
