package pack_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/flusso/flusso-kafka/internal/pack"
)

// rowsOf reads a file as a pack, as far as it goes.
func rowsOf(file []byte) (rows []pack.Row, err error) {
	r, err := pack.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, err
	}
	for row, err := range r.From(0) {
		if err != nil {
			return rows, err
		}
		c := *row
		c.Key, c.Payload = bytes.Clone(c.Key), append([]byte{}, c.Payload...)
		rows = append(rows, c)
	}
	return rows, nil
}

func entriesOf(file []byte) (entries []pack.Entry, err error) {
	x, err := pack.OpenIndex(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, err
	}
	for e, err := range x.All() {
		if err != nil {
			return entries, err
		}
		c := *e
		c.Key = append([]byte{}, e.Key...)
		entries = append(entries, c)
	}
	return entries, nil
}

func indexFile(t testing.TB, entries ...pack.Entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := pack.NewIndexWriter(&out)
	for i := range entries {
		if err := w.Write(&entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func someEntries() []pack.Entry {
	v := uint64(1) << 63
	var entries []pack.Entry
	for i := range 40 {
		entries = append(entries, pack.Entry{Key: fmt.Appendf(nil, "k%02d", i), Sequence: uint64(100 - i), Pack: uint32(i % 3), Tombstone: i%4 == 0})
		if i%2 == 0 {
			entries[i].Version = &v
		}
	}
	return entries
}

func damaged(t *testing.T, what string, err error) {
	t.Helper()
	var d *pack.DamagedError
	if !errors.As(err, &d) || d.Reason == "" || d.Error() == "" {
		t.Errorf("%s: %v is no DamagedError", what, err)
	}
}

// TestAFlippedBitIsNoticedOrHarmless flips bits of every byte, one at a time:
// what is read is what was written, or there is an error.
func TestAFlippedBitIsNoticedOrHarmless(t *testing.T) {
	rows := rowsFrom(3, 9, 30, 40)
	file, _ := write(t, rows)
	entries := someEntries()
	index := indexFile(t, entries...)
	rng := rand.New(rand.NewPCG(1, 1))
	noticed := 0
	for i := range max(len(file), len(index)) {
		mask := byte(1) << rng.IntN(8)
		if i < len(file) {
			b := bytes.Clone(file)
			b[i] ^= mask
			got, err := rowsOf(b)
			if err != nil {
				damaged(t, fmt.Sprintf("bit %08b of byte %d of a pack", mask, i), err)
				noticed++
			} else if d := cmp.Diff(rows, got, cmp.Comparer(same)); d != "" {
				t.Errorf("bit %08b of byte %d of %d of a pack: %d rows, others than were written", mask, i, len(file), len(got))
			}
		}
		if i < len(index) {
			b := bytes.Clone(index)
			b[i] ^= mask
			got, err := entriesOf(b)
			if err != nil {
				damaged(t, fmt.Sprintf("bit %08b of byte %d of an index", mask, i), err)
				noticed++
			} else if d := cmp.Diff(entries, got); d != "" {
				t.Errorf("bit %08b of byte %d of %d of an index: other entries than were written", mask, i, len(index))
			}
		}
	}
	if noticed < len(file)/4 {
		t.Errorf("%d of %d flipped bits were noticed", noticed, len(file)+len(index))
	}
}

func TestACutFileIsNoticed(t *testing.T) {
	file, _ := write(t, rowsFrom(3, 9, 30, 40))
	index := indexFile(t, someEntries()...)
	for n := range file {
		if _, err := rowsOf(file[:n]); err == nil {
			t.Errorf("a pack cut to %d of %d bytes was read", n, len(file))
		}
	}
	for n := range index {
		if _, err := entriesOf(index[:n]); err == nil {
			t.Errorf("an index cut to %d of %d bytes was read", n, len(index))
		}
	}
}

// failing fails to read from an offset on, as a bucket does.
type failing struct {
	io.ReaderAt
	from int64
}

var errGone = errors.New("the bucket is gone")

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from {
		return 0, errGone
	}
	return f.ReaderAt.ReadAt(p, off)
}

func TestTheErrorOfTheBucketIsTold(t *testing.T) {
	file, _ := write(t, rowsFrom(3, 9, 30, 40))
	if _, err := pack.NewReader(failing{bytes.NewReader(file), 0}, int64(len(file))); !errors.Is(err, errGone) {
		t.Errorf("open: %v", err)
	}
	index := indexFile(t, someEntries()...)
	if _, err := pack.OpenIndex(failing{bytes.NewReader(index), 0}, int64(len(index))); !errors.Is(err, errGone) {
		t.Errorf("open: %v", err)
	}
}

// TestAFilterThatDeniesAKeyIsFound: what has no checksum in the file, and would
// make a key absent without a word.
func TestAFilterThatDeniesAKeyIsFound(t *testing.T) {
	file := indexOf(t, 500, spread)
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	m := f.Metadata().RowGroups[0].Columns[0].MetaData
	check := func(file []byte) (*pack.Index, error) {
		x, err := pack.OpenIndex(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		return x, x.Check()
	}
	if _, err := check(file); err != nil {
		t.Fatalf("what was written: %v", err)
	}
	rng := rand.New(rand.NewPCG(3, 1))
	for i := range 20 {
		b := bytes.Clone(file)
		// The filter's header is some bytes long, then come its blocks.
		at := m.BloomFilterOffset + 64 + rng.Int64N(int64(m.BloomFilterLength)-96)
		clear(b[at : at+32])
		x, err := check(b)
		damaged(t, "an index whose filter lost a block", err)
		if i > 0 {
			continue
		}
		denied := 0
		for i := range 500 {
			if _, found, err := x.Find(spread(i)); err == nil && !found {
				denied++
			}
		}
		if denied == 0 {
			t.Errorf("no key is denied with a block of the filter cleared at %d: the test shows nothing", at)
		}
	}
}

func FuzzReadPack(f *testing.F) {
	for _, n := range []int{0, 1, 20} {
		file, _ := write(f, rowsFrom(3, 9, n, 40))
		f.Add(file)
	}
	f.Add(indexFile(f, someEntries()...))
	f.Fuzz(func(t *testing.T, file []byte) {
		rows, err := rowsOf(file)
		if err != nil {
			damaged(t, "a pack", err)
			return
		}
		for i, r := range rows {
			if r.Sequence != rows[0].Sequence+uint64(i) {
				t.Errorf("row %d has sequence %d", i, r.Sequence)
			}
		}
	})
}

func FuzzReadIndex(f *testing.F) {
	f.Add(indexFile(f), []byte("k"))
	f.Add(indexFile(f, someEntries()...), []byte("k07"))
	file, _ := write(f, rowsFrom(3, 9, 5, 40))
	f.Add(file, []byte("k"))
	f.Fuzz(func(t *testing.T, file, key []byte) {
		x, err := pack.OpenIndex(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			damaged(t, "an index", err)
			return
		}
		e, found, err := x.Find(key)
		if err != nil {
			damaged(t, "an index", err)
		} else if found && !bytes.Equal(e.Key, key) {
			t.Errorf("key %q was found as %q", key, e.Key)
		}
		if _, err := entriesOf(file); err != nil {
			damaged(t, "an index", err)
		}
	})
}
