package pack_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/flusso/flusso-kafka/internal/pack"
)

// counting counts what is read of a file.
type counting struct {
	io.ReaderAt

	bytes, reads int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.bytes += int64(len(p))
	c.reads++
	return c.ReaderAt.ReadAt(p, off)
}

// indexOf writes an index of n keys, the sequence of each its place.
func indexOf(t testing.TB, n int, key func(i int) []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := pack.NewIndexWriter(&out)
	for i := range n {
		if err := w.Write(&pack.Entry{Key: key(i), Sequence: uint64(i + 1), Pack: uint32(i % 5)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// spread returns keys that look like hashes, in order.
func spread(i int) []byte {
	return fmt.Appendf(nil, "%08x%016x", i, uint64(i)*0x9e3779b97f4a7c15)
}

// TestALookUpReadsPagesAndNotTheFile: what a look-up costs where each read is
// a request to a bucket.
func TestALookUpReadsPagesAndNotTheFile(t *testing.T) {
	const n = 100_000
	long := bytes.Repeat([]byte("x"), 400)
	for name, test := range map[string]struct {
		n     int
		key   func(i int) []byte
		bytes int64 // of one look-up, at most
		reads int64
	}{
		"hashes": {n, spread, 288 << 10, 5},
		// No bound tells these apart: the first keys of pages are searched.
		"long beginnings in common": {20_000, func(i int) []byte { return binary.BigEndian.AppendUint32(slices.Clone(long), uint32(i)) }, 200 << 10, 6},
	} {
		file := indexOf(t, test.n, test.key)
		sums := sumsOf(t, file)
		r := &counting{ReaderAt: bytes.NewReader(file)}
		rng := rand.New(rand.NewPCG(9, 9))
		for range 20 {
			i := rng.IntN(test.n)
			*r = counting{ReaderAt: r.ReaderAt}
			x, err := pack.OpenCheckedIndex(r, int64(len(file)), sums)
			if err != nil {
				t.Fatal(err)
			}
			e, found, err := x.Find(test.key(i))
			if err != nil || !found || e.Sequence != uint64(i+1) {
				t.Fatalf("%s: key %d: %+v, %t, %v", name, i, e, found, err)
			}
			if r.bytes > test.bytes || r.reads > test.reads {
				t.Errorf("%s: a look-up in %d keys, %d bytes, read %d bytes by %d reads, want %d by %d at most", name, test.n, len(file), r.bytes, r.reads, test.bytes, test.reads)
			}
		}
		t.Logf("%s: a look-up in %d keys, %d KiB, reads %d KiB by %d reads", name, test.n, len(file)>>10, r.bytes>>10, r.reads)
	}
}

// TestOneRecordCostsAPageOfEachColumn: not the row group, which has 8 MiB.
func TestOneRecordCostsAPageOfEachColumn(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	var file bytes.Buffer
	w := pack.NewWriter(&file)
	payload := make([]byte, 1<<10)
	const n = 9_000
	for i := range n {
		for j := range payload {
			payload[j] = byte(rng.Uint32())
		}
		if err := w.Write(&pack.Row{Sequence: uint64(100 + i), Key: spread(i), Payload: payload, Fingerprint: [32]byte(payload[:32])}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := &counting{ReaderAt: bytes.NewReader(file.Bytes())}
	for _, i := range []int{0, 1, 4_321, 8_100, n - 1} {
		*r = counting{ReaderAt: r.ReaderAt}
		p, err := pack.NewReader(r, int64(file.Len()))
		if err != nil {
			t.Fatal(err)
		}
		row, found, err := p.At(uint64(100 + i))
		if err != nil || !found || !bytes.Equal(row.Key, spread(i)) || !bytes.Equal(row.Payload[:32], row.Fingerprint[:]) {
			t.Fatalf("record %d: %d, %t, %v", i, row.Sequence, found, err)
		}
		t.Logf("record %d of %d, %d KiB: %d KiB by %d reads", i, n, file.Len()>>10, r.bytes>>10, r.reads)
		if r.bytes > 1<<20 || r.reads > 20 {
			t.Errorf("record %d cost %d bytes by %d reads, want 1 MiB by 20 at most", i, r.bytes, r.reads)
		}
	}
	p, err := pack.NewReader(r, int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for _, sequence := range []uint64{0, 99, 100 + n} {
		if _, found, err := p.At(sequence); found || err != nil {
			t.Errorf("sequence %d, which it does not hold: %t, %v", sequence, found, err)
		}
	}
}

// TestFindAmongKeysThatBoundsCannotTell holds look-ups to a map, where bounds
// are cut within keys, and where keys are all bytes 0xFF.
func TestFindAmongKeysThatBoundsCannotTell(t *testing.T) {
	var keys [][]byte
	for _, c := range []byte{0, 'x', 0xff} {
		for _, n := range []int{0, 1, 255, 256, 257, 300} {
			beginning := bytes.Repeat([]byte{c}, n)
			for i := range 1500 {
				keys = append(keys, binary.BigEndian.AppendUint16(slices.Clone(beginning), uint16(i*3)))
			}
			keys = append(keys, beginning)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	file := indexOf(t, len(keys), func(i int) []byte { return keys[i] })
	x, err := pack.OpenIndex(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(keys); i += 89 {
		if e, found, err := x.Find(keys[i]); err != nil || !found || e.Sequence != uint64(i+1) {
			t.Fatalf("key %d, %d bytes: %+v, %t, %v", i, len(keys[i]), e, found, err)
		}
		absent := append(slices.Clone(keys[i]), 1, 1)
		if _, found, err := x.Find(absent); err != nil || found {
			t.Fatalf("key %d, 2 bytes longer: %t, %v", i, found, err)
		}
	}
}

func TestMergeTakesAsManyRunsAsItSays(t *testing.T) {
	var runs []iter.Seq2[*pack.Entry, error]
	for i := range pack.MaxMerge {
		run := pack.NewRun(pack.BySequence)
		for k := range 20 {
			run.Add(&pack.Row{Key: fmt.Appendf(nil, "k%d", (k*7+i)%40), Sequence: uint64(20*i + k + 1)}, uint32(i))
		}
		runs = append(runs, run.Sorted())
	}
	if x := index(t, pack.BySequence, runs...); x.Entries() != 40 {
		t.Errorf("%d entries, want 40", x.Entries())
	}
}

// heap returns the most memory in use while f runs, above what was before, as
// far as sampled finds out.
func heap(f func(sampled func())) (most uint64) {
	var m runtime.MemStats
	use := func() uint64 {
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := use()
	f(func() { most = max(most, use()) })
	return most - min(most, before)
}

// discard counts what a pack writes.
type discard int64

func (d *discard) Write(p []byte) (int, error) {
	*d += discard(len(p))
	return len(p), nil
}

// TestAWriterHoldsOneRowGroup: however many records, of whatever size.
func TestAWriterHoldsOneRowGroup(t *testing.T) {
	payload := make([]byte, 1<<20)
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range payload {
		payload[i] = byte(rng.Uint32())
	}
	for name, test := range map[string]struct {
		n, size int
		most    uint64
	}{"120 records of 1 MiB": {120, 1 << 20, 96 << 20}, "many small ones": {250_000, 20, 96 << 20}, "many empty ones": {250_000, 0, 96 << 20}} {
		var out discard
		most := heap(func(sampled func()) {
			w := pack.NewWriter(&out)
			for i := range test.n {
				row := pack.Row{Sequence: uint64(i + 1), Key: fmt.Appendf(nil, "k%d", i), Payload: payload[:test.size]}
				if err := w.Write(&row); err != nil {
					t.Fatal(err)
				}
				if i%(test.n/20) == test.n/20-1 {
					sampled()
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %d MiB of a pack, %d MiB of memory at most", name, out>>20, most>>20)
		if most > test.most {
			t.Errorf("%s: %d MiB of memory at most, want %d", name, most>>20, test.most>>20)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			payload := make([]byte, size)
			rng := rand.New(rand.NewPCG(4, 4))
			for i := range payload {
				payload[i] = byte(rng.Uint32())
			}
			w := pack.NewWriter(new(discard))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			row := pack.Row{Key: []byte("key"), Payload: payload}
			for b.Loop() {
				row.Sequence++
				if err := w.Write(&row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	const n = 300_000
	file := indexOf(b, n, spread)
	x, err := pack.OpenIndex(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if err := x.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	const n = 300_000
	file := indexOf(b, n, spread)
	x, err := pack.OpenIndex(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 7919) % n
		if _, found, err := x.Find(spread(i)); err != nil || !found {
			b.Fatal(found, err)
		}
	}
}
