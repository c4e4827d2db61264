package embedded

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestRepairSegment: a broker killed in the middle of a batch, with index
// entries missing, and with one too many.
func TestRepairSegment(t *testing.T) {
	batch := func(attributes byte) []byte {
		b := make([]byte, 61)
		b[11], b[22] = 61-12, attributes
		return b
	}
	data := bytes.Join([][]byte{batch(0), batch(transactional), batch(transactional | control), batch(transactional)}, nil)
	entry := func(epoch, flag byte) []byte {
		e := make([]byte, indexEntry)
		e[2] = epoch
		return entryLike(e, uint16(flag)*transactional)
	}
	whole := bytes.Join([][]byte{entry(7, 0), entry(7, 1), entry(7, 0), entry(7, 1)}, nil)
	for name, tt := range map[string]struct{ data, index []byte }{
		"nothing to do":      {data, whole},
		"half a batch":       {append(bytes.Clone(data), data[:40]...), whole},
		"an entry is missed": {data, whole[:3*indexEntry]},
		"half an entry":      {data, whole[:2*indexEntry+4]},
		"one too many":       {data, append(bytes.Clone(whole), entry(7, 1)...)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "partitions", "a-0")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			dat, idx := filepath.Join(dir, "0.dat"), filepath.Join(dir, "0.idx")
			for file, content := range map[string][]byte{dat: tt.data, idx: tt.index} {
				if err := os.WriteFile(file, content, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := repairSegments(filepath.Dir(filepath.Dir(dir))); err != nil {
				t.Fatal(err)
			}
			for file, want := range map[string][]byte{dat: data, idx: whole} {
				if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: got %d bytes %x, error %v, want %x", filepath.Base(file), len(got), got, err, want)
				}
			}
		})
	}
}
