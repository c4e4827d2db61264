package pack_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flusso/flusso-kafka/internal/pack"
)

func rowsFrom(seed uint64, first uint64, n, size int) []pack.Row {
	rng := rand.New(rand.NewPCG(seed, 1))
	rows := make([]pack.Row, n)
	for i := range rows {
		r := &rows[i]
		r.Sequence = first + uint64(i)
		r.Payload = make([]byte, rng.IntN(size+1))
		for j := range r.Payload {
			r.Payload[j] = byte(rng.Uint32())
		}
		switch rng.IntN(4) {
		case 0:
			r.Key = []byte{}
		case 1:
			r.Key = []byte{0xff, 0xfe, byte(i)} // not UTF-8
		case 2:
			r.Key = fmt.Appendf(nil, "key-%d", rng.IntN(50))
		}
		if rng.IntN(2) == 0 {
			v := rng.Uint64()
			r.Version = &v
		}
		r.Tombstone = r.Key != nil && rng.IntN(5) == 0
		r.Fingerprint = sha256.Sum256(r.Payload)
		r.AppendedAt = 1_700_000_000_000 + int64(i)
	}
	return rows
}

func write(t testing.TB, rows []pack.Row) ([]byte, pack.Summary) {
	t.Helper()
	var out bytes.Buffer
	w := pack.NewWriter(&out)
	for i := range rows {
		if err := w.Write(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), w.Summary()
}

func read(t testing.TB, file []byte, from uint64) []pack.Row {
	t.Helper()
	r, err := pack.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var out []pack.Row
	for row, err := range r.From(from) {
		if err != nil {
			t.Fatal(err)
		}
		c := *row
		c.Key, c.Payload = bytes.Clone(c.Key), append([]byte{}, c.Payload...)
		out = append(out, c)
	}
	return out
}

func TestAPackReturnsWhatWasWritten(t *testing.T) {
	for _, test := range []struct {
		n, size int
	}{{0, 0}, {1, 0}, {1, 1 << 20}, {500, 100}, {60, 1 << 20}} {
		rows := rowsFrom(7, 41, test.n, test.size)
		file, sum := write(t, rows)
		if sum.Records != uint64(test.n) {
			t.Errorf("%d rows: summary %+v", test.n, sum)
		}
		for _, from := range []uint64{0, 41, 42, 41 + uint64(test.n)/2, 41 + uint64(test.n)} {
			want := rows[min(len(rows), int(max(from, 41)-41)):]
			if len(want) == 0 {
				want = nil
			}
			if diff := cmp.Diff(want, read(t, file, from), cmp.Comparer(same)); diff != "" {
				t.Errorf("%d rows of up to %d bytes from %d (-want +got):\n%.2000s", test.n, test.size, from, diff)
			}
		}
	}
}

func TestAPackWithoutHoles(t *testing.T) {
	w := pack.NewWriter(new(bytes.Buffer))
	if err := w.Write(&pack.Row{Sequence: 4}); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&pack.Row{Sequence: 6}); err == nil {
		t.Error("sequence 6 was taken behind 4")
	}
}

func TestADamagedPackIsNoticed(t *testing.T) {
	file, _ := write(t, rowsFrom(3, 1, 200, 300))
	read := func(b []byte) error {
		r, err := pack.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return err
		}
		for _, err := range r.From(1) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, b := range [][]byte{nil, file[:len(file)/2], []byte("PAR1 but no more than that PAR1")} {
		var damaged *pack.DamagedError
		if err := read(b); !errors.As(err, &damaged) {
			t.Errorf("a file of %d bytes: %v", len(b), err)
		}
	}
}

// same tells an empty key from none.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
