package pack_test

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/flusso/flusso-kafka/internal/pack"
)

// keysOf are keys of all kinds that sort awkwardly: long common beginnings,
// beginnings of each other, bytes that are no text.
func keysOf(rng *rand.Rand, n int) [][]byte {
	seen := map[string]bool{"": true}
	keys := [][]byte{{}}
	long := strings.Repeat("x", 300)
	for len(keys) < n {
		var k string
		switch rng.IntN(4) {
		case 0:
			k = long + fmt.Sprint(rng.IntN(n))
		case 1:
			k = long[:rng.IntN(300)]
		case 2:
			k = string([]byte{0xff, byte(rng.IntN(256)), byte(rng.IntN(256))})
		default:
			k = fmt.Sprintf("k%06d", rng.IntN(10*n))
		}
		if !seen[k] {
			seen[k] = true
			keys = append(keys, []byte(k))
		}
	}
	return keys
}

func index(t testing.TB, newer pack.Newer, runs ...iter.Seq2[*pack.Entry, error]) *pack.Index {
	t.Helper()
	var out bytes.Buffer
	w := pack.NewIndexWriter(&out)
	if err := pack.Merge(w, newer, runs...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	x, err := pack.OpenIndex(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestAnIndexFindsEveryKeyAndNoOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	keys := keysOf(rng, 4_000)
	present, absent := keys[:3_000], keys[3_000:]
	run := pack.NewRun(pack.BySequence)
	for i, k := range present {
		run.Add(&pack.Row{Key: k, Sequence: uint64(i + 1)}, uint32(i%7))
	}
	x := index(t, pack.BySequence, run.Sorted())
	if x.Entries() != uint64(len(present)) {
		t.Errorf("%d entries, want %d", x.Entries(), len(present))
	}
	for i, k := range present {
		if i%13 != 0 && len(k) < 256 {
			continue
		}
		e, found, err := x.Find(k)
		if err != nil || !found || e.Sequence != uint64(i+1) || e.Pack != uint32(i%7) || !bytes.Equal(e.Key, k) {
			t.Fatalf("find %q: %+v, %t, %v; want sequence %d", k, e, found, err, i+1)
		}
	}
	for _, k := range absent {
		if _, found, err := x.Find(k); err != nil || found {
			t.Fatalf("find %q, which is not there: %t, %v", k, found, err)
		}
	}
}

// The dumb second opinion: a map.
func TestMergedRunsHoldTheNewestOfEachKey(t *testing.T) {
	for name, newer := range map[string]pack.Newer{"sequence": pack.BySequence, "version": pack.ByVersion} {
		rng := rand.New(rand.NewPCG(11, 2))
		want := map[string]pack.Entry{}
		var runs []iter.Seq2[*pack.Entry, error]
		sequence := uint64(0)
		for p := range uint32(9) {
			run := pack.NewRun(newer)
			for range 300 {
				sequence++
				v := rng.Uint64N(20)
				row := &pack.Row{Key: fmt.Appendf(nil, "k%d", rng.IntN(400)), Sequence: sequence, Version: &v, Tombstone: rng.IntN(9) == 0}
				run.Add(row, p)
				e := pack.Entry{Key: row.Key, Sequence: sequence, Version: &v, Tombstone: row.Tombstone, Pack: p}
				old, ok := want[string(row.Key)]
				if !ok || name == "sequence" || v >= *old.Version {
					want[string(row.Key)] = e
				}
			}
			runs = append(runs, run.Sorted())
		}
		var got []string
		for e, err := range index(t, newer, runs...).All() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, text(*e))
		}
		var wanted []string
		for _, e := range want {
			wanted = append(wanted, text(e))
		}
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("by %s: %d entries, want %d; first of them %.3q, want %.3q", name, len(got), len(wanted), got, wanted)
		}
	}
}

func text(e pack.Entry) string {
	return fmt.Sprintf("%s %d %d %t %d", e.Key, e.Sequence, *e.Version, e.Tombstone, e.Pack)
}

func TestMergeRefusesMoreRunsThanItHoldsPagesFor(t *testing.T) {
	runs := make([]iter.Seq2[*pack.Entry, error], pack.MaxMerge+1)
	for i := range runs {
		runs[i] = pack.NewRun(pack.BySequence).Sorted()
	}
	if err := pack.Merge(pack.NewIndexWriter(new(bytes.Buffer)), pack.BySequence, runs...); err == nil {
		t.Errorf("%d runs were merged at once", len(runs))
	}
}
