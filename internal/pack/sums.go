package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"
)

// Sums are checksums of a file, piece by piece, so that a reader of some pieces
// knows that they are what was written. Parquet has checksums of pages alone: of
// a damaged filter, or of bounds, a look-up would take that a key is not there.
type Sums struct {
	// Piece is the size of a piece; the last one is what is left.
	Piece int64 `json:"piece"`
	// CRC32C are the checksums of the pieces in their order, four bytes each, the
	// highest first; in JSON base64.
	CRC32C []byte `json:"crc32c"`
}

const (
	// sumPiece is as much as a look-up reads at a time.
	sumPiece = indexRead
	// What a piece of a file that is read may have: less would be a checksum for
	// nothing, more is not what a look-up is to read.
	leastPiece, mostPiece = 1 << 10, 1 << 20

	sumBytes = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Summer computes the sums of what is written to it.
type Summer struct {
	sums Sums
	hash hash.Hash32
	in   int64 // bytes of the piece that is open
}

// NewSummer returns one of a file that begins.
func NewSummer() *Summer { return &Summer{sums: Sums{Piece: sumPiece}, hash: crc32.New(castagnoli)} }

// Write implements [io.Writer].
func (s *Summer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(int64(len(rest)), s.sums.Piece-s.in)
		_, _ = s.hash.Write(rest[:n]) // never fails
		rest = rest[n:]
		if s.in += n; s.in == s.sums.Piece {
			s.close()
		}
	}
	return len(p), nil
}

func (s *Summer) close() {
	s.sums.CRC32C = s.hash.Sum(s.sums.CRC32C)
	s.hash.Reset()
	s.in = 0
}

// Sums returns the sums of all that was written.
func (s *Summer) Sums() Sums {
	if s.in > 0 {
		s.close()
	}
	return s.sums
}

// Check reads a whole file. It is a [*DamagedError] where that is not what the
// sums are of.
func (s Sums) Check(r io.ReaderAt, size int64) error {
	if reason := s.fault(size); reason != "" {
		return damagedIndex(reason)
	}
	_, err := io.Copy(io.Discard, io.NewSectionReader(&checked{r: r, size: size, sums: s}, 0, size))
	return err
}

// fault says why these can't be the sums of a file of that size, or "".
func (s Sums) fault(size int64) string {
	if s.Piece < leastPiece || s.Piece > mostPiece {
		return fmt.Sprintf("its checksums are of pieces of %d bytes", s.Piece)
	}
	if want := (size + s.Piece - 1) / s.Piece; int64(len(s.CRC32C)) != want*sumBytes {
		return fmt.Sprintf("it has %d pieces and checksums of %d bytes", want, len(s.CRC32C))
	}
	return ""
}

// holds reports whether a piece is the one that was written.
func (s Sums) holds(piece int64, content []byte) bool {
	return crc32.Checksum(content, castagnoli) == binary.BigEndian.Uint32(s.CRC32C[piece*sumBytes:])
}

// checked reads whole pieces of a file, each by its checksum, and keeps those of
// the last reads: reads next to each other meet the same ones.
type checked struct {
	r    io.ReaderAt
	size int64
	sums Sums

	mu   sync.Mutex
	kept []piece // the oldest first
}

type piece struct {
	at      int64
	content []byte
}

// keptPieces is how many are kept: those of the two reads of a look-up that
// lie furthest apart and come back, the end of the file and a page's.
const keptPieces = 8

// ReadAt implements [io.ReaderAt].
func (c *checked) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= c.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), c.size-off)]
	c.mu.Lock()
	defer c.mu.Unlock()
	first, last := off/c.sums.Piece, (off+int64(len(want))-1)/c.sums.Piece
	some, err := c.pieces(first, last)
	if err != nil {
		return 0, err
	}
	copy(want, some[off-first*c.sums.Piece:])
	if len(want) < len(p) {
		err = io.EOF
	}
	return len(want), err
}

// pieces returns the pieces from first to last, read at once but for those at
// both ends that are kept.
func (c *checked) pieces(first, last int64) ([]byte, error) {
	all := make([]byte, min((last+1)*c.sums.Piece, c.size)-first*c.sums.Piece)
	part := func(i int64) []byte {
		return all[(i-first)*c.sums.Piece : min((i+1-first)*c.sums.Piece, int64(len(all)))]
	}
	from, to := first, last
	for ; from <= to && c.take(from, part(from)); from++ {
	}
	for ; to >= from && c.take(to, part(to)); to-- {
	}
	if from > to {
		return all, nil
	}
	read := all[(from-first)*c.sums.Piece : min((to+1-first)*c.sums.Piece, int64(len(all)))]
	if n, err := c.r.ReadAt(read, from*c.sums.Piece); n < len(read) {
		if errors.Is(err, io.EOF) {
			return nil, damagedIndex("it is shorter than what was written")
		}
		return nil, err
	}
	for i := from; i <= to; i++ {
		if !c.sums.holds(i, part(i)) {
			return nil, damagedIndex(fmt.Sprintf("bytes %d to %d are not those that were written", i*c.sums.Piece, i*c.sums.Piece+int64(len(part(i)))-1))
		}
		c.keep(i, part(i))
	}
	return all, nil
}

func (c *checked) take(at int64, into []byte) bool {
	for _, k := range c.kept {
		if k.at == at {
			copy(into, k.content)
			return true
		}
	}
	return false
}

func (c *checked) keep(at int64, content []byte) {
	if len(c.kept) == keptPieces {
		c.kept = append(c.kept[:0], c.kept[1:]...)
	}
	c.kept = append(c.kept, piece{at, content})
}
