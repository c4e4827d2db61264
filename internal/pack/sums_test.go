package pack_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/flusso/flusso-kafka/internal/pack"
)

func sumsOf(t testing.TB, file []byte) pack.Sums {
	t.Helper()
	s := pack.NewSummer()
	// However it is cut into writes.
	for rest := file; len(rest) > 0; {
		n := min(len(rest), 1+len(rest)/3)
		if _, err := s.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	return s.Sums()
}

// TestSumsAreTheVectors compares with vectors, which docs/feed-format.md names
// for readers in other languages.
func TestSumsAreTheVectors(t *testing.T) {
	content, err := os.ReadFile("testdata/sums.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Repeat string    `json:"repeat"` // again and again, up to the size
		Size   int       `json:"size"`
		Sums   pack.Sums `json:"sums"`
	}
	if err := json.Unmarshal(content, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		file := bytes.Repeat([]byte(v.Repeat), v.Size/len(v.Repeat)+1)[:v.Size]
		got := sumsOf(t, file)
		if got.Piece != v.Sums.Piece || !bytes.Equal(got.CRC32C, v.Sums.CRC32C) {
			text, _ := json.Marshal(got)
			t.Errorf("%d bytes of %q have sums %s", v.Size, v.Repeat, text)
		}
		if err := v.Sums.Check(bytes.NewReader(file), int64(v.Size)); err != nil {
			t.Errorf("%d bytes of %q: %v", v.Size, v.Repeat, err)
		}
		// The dumb second opinion.
		for i := 0; i*int(got.Piece) < len(file); i++ {
			part := file[i*int(got.Piece) : min(len(file), (i+1)*int(got.Piece))]
			if want := crc32.Checksum(part, crc32.MakeTable(crc32.Castagnoli)); binary.BigEndian.Uint32(got.CRC32C[4*i:]) != want {
				t.Errorf("%d bytes of %q: piece %d is another than %08x", v.Size, v.Repeat, i, want)
			}
		}
	}
	if len(vectors) == 0 {
		t.Error("no vectors")
	}
}

// TestNoFlippedBitHidesAKey: with sums a look-up finds a key, or says that the
// index is damaged, whichever bit of it was flipped: of a filter, of bounds, of
// the places of pages, of the footer, of a page.
func TestNoFlippedBitHidesAKey(t *testing.T) {
	const n = 3000
	file := indexOf(t, n, spread)
	sums := sumsOf(t, file)
	rng := rand.New(rand.NewPCG(8, 8))
	look := func(open func(file []byte) (*pack.Index, error), file []byte) (hidden, told int) {
		x, err := open(file)
		if err != nil {
			return 0, 1
		}
		for range 20 {
			i := rng.IntN(n)
			e, found, err := x.Find(spread(i))
			switch {
			case err != nil:
				damaged(t, "a look-up in an index with a flipped bit", err)
				told++
			case !found || e.Sequence != uint64(i+1):
				hidden++
			}
		}
		return hidden, told
	}
	checked := func(file []byte) (*pack.Index, error) {
		return pack.OpenCheckedIndex(bytes.NewReader(file), int64(len(file)), sums)
	}
	if hidden, told := look(checked, file); hidden+told > 0 {
		t.Fatalf("of what was written %d keys are hidden, %d look-ups fail", hidden, told)
	}
	noticed, without := 0, 0
	for range 200 {
		b := bytes.Clone(file)
		at := rng.IntN(len(b))
		for i := at; i < min(len(b), at+64); i++ {
			b[i] &= byte(rng.Uint32()) // some bits are cleared
		}
		hidden, told := look(checked, b)
		if hidden > 0 {
			t.Errorf("with bits cleared at byte %d of %d, %d keys are hidden or another is found", at, len(b), hidden)
		}
		if told > 0 {
			noticed++
		}
		hidden, _ = look(func(file []byte) (*pack.Index, error) { return pack.OpenIndex(bytes.NewReader(file), int64(len(file))) }, b)
		if hidden > 0 {
			without++
		}
	}
	if noticed == 0 || without == 0 {
		t.Errorf("%d of 200 were noticed, %d hide a key where there are no sums: the test shows nothing", noticed, without)
	}
	t.Logf("%d of 200 damages were noticed by 20 look-ups, %d hide a key where there are no sums", noticed, without)
}

func TestSumsThatCannotBeThoseOfTheFile(t *testing.T) {
	file := indexOf(t, 3000, spread)
	good := sumsOf(t, file)
	for name, s := range map[string]pack.Sums{
		"none":           {},
		"one too few":    {Piece: good.Piece, CRC32C: good.CRC32C[4:]},
		"one too many":   {Piece: good.Piece, CRC32C: append(bytes.Clone(good.CRC32C), 0, 0, 0, 0)},
		"half a one":     {Piece: good.Piece, CRC32C: good.CRC32C[:len(good.CRC32C)-2]},
		"of no pieces":   {Piece: 0, CRC32C: good.CRC32C},
		"of huge pieces": {Piece: 1 << 40, CRC32C: good.CRC32C[:4]},
	} {
		_, err := pack.OpenCheckedIndex(bytes.NewReader(file), int64(len(file)), s)
		damaged(t, name, err)
		damaged(t, name, s.Check(bytes.NewReader(file), int64(len(file))))
	}
	changed := bytes.Clone(file)
	changed[len(changed)/2] ^= 1
	damaged(t, "a bit was flipped", good.Check(bytes.NewReader(changed), int64(len(file))))
	damaged(t, "it is cut", good.Check(bytes.NewReader(file[:len(file)-1]), int64(len(file))))
	if err := good.Check(failing{bytes.NewReader(file), 10}, int64(len(file))); !errors.Is(err, errGone) {
		t.Errorf("the bucket is gone: %v", err)
	}
	if err := good.Check(bytes.NewReader(file), int64(len(file))); err != nil {
		t.Errorf("what was written: %v", err)
	}
}
