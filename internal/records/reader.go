package records

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/flusso/flusso-kafka/internal/wire"
)

// Reader reads records one by one.
type Reader struct {
	in        *bufio.Reader
	format    Format
	separator string
	n         uint64 // lines or frames begun
	begin, at int64  // bytes before the frame that was read last, and behind it
}

// NewReader returns a reader of a format; it reads ahead from in. separator
// stands between key and payload of a line, empty for lines without keys.
func NewReader(in io.Reader, format Format, separator string) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 64<<10), format: format, separator: separator}
}

// Next returns the next record, [io.EOF] behind the last, or an [*Error] for
// one that is none: reading ends there. What could not be read is its error.
// The record is the caller's.
func (r *Reader) Next() (Record, error) {
	if r.format == Binary {
		return r.frame()
	}
	for {
		line, err := r.line()
		if err != nil {
			return Record{}, err
		}
		if r.format == Lines {
			return ParsePair(line, r.separator), nil
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		rec, err := parseJSON(line)
		if err != nil {
			return Record{}, r.bad(err.Error())
		}
		return rec, nil
	}
}

// Place says where the record is that Next returned last.
func (r *Reader) Place() string {
	if r.format == Binary {
		return framePlace(r.n, r.begin)
	}
	return fmt.Sprintf("line %d", r.n)
}

func (r *Reader) bad(reason string) error { return &Error{Place: r.Place(), Reason: reason} }

// ParsePair reads KEY, separator, payload; what has no separator has no key,
// and without a separator nothing has.
func ParsePair(text []byte, separator string) Record {
	if separator != "" {
		if key, value, ok := bytes.Cut(text, []byte(separator)); ok {
			return Record{Key: append([]byte{}, key...), Payload: append([]byte{}, value...)}
		}
	}
	return Record{Payload: append([]byte{}, text...)}
}

// line returns the next line without its end, \n or \r\n; the last one may
// have none.
func (r *Reader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > MaxRecord {
			r.n++
			return nil, r.bad(fmt.Sprintf("it is longer than %d MiB", MaxRecord>>20))
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
		case err != nil:
			return nil, err
		}
		r.n++
		line = bytes.TrimSuffix(line, []byte("\n"))
		return bytes.TrimSuffix(line, []byte("\r")), nil
	}
}

// Marks of a frame.
const (
	hasKey         = 1 << 0
	hasVersion     = 1 << 1
	isTombstone    = 1 << 2
	hasFingerprint = 1 << 3
	knownMarks     = hasKey | hasVersion | isTombstone | hasFingerprint
)

func (r *Reader) frame() (Record, error) {
	var head [4]byte
	r.begin = r.at
	switch n, err := io.ReadFull(r.in, head[:]); {
	case errors.Is(err, io.EOF):
		return Record{}, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.n++
		return Record{}, r.bad(fmt.Sprintf("the input ends %d bytes into its length", n))
	case err != nil:
		return Record{}, err
	}
	r.n++
	size, reason := frameSize(head[:])
	if reason != "" {
		return Record{}, r.bad(reason)
	}
	// Grown as it comes: a wrong length takes no memory.
	var body bytes.Buffer
	n, err := io.CopyN(&body, r.in, int64(size))
	if errors.Is(err, io.EOF) {
		return Record{}, r.bad(fmt.Sprintf("the input ends after %d of its %d bytes", n, size))
	}
	if err != nil {
		return Record{}, err
	}
	rec, reason := parseFrame(body.Bytes())
	if reason != "" {
		return Record{}, r.bad(reason)
	}
	r.at += 4 + int64(size)
	return rec, nil
}

// frameSize reads how many bytes follow the length of a frame.
func frameSize(head []byte) (size uint32, reason string) {
	size = binary.BigEndian.Uint32(head)
	if size < 1 || size > MaxRecord {
		return 0, fmt.Sprintf("its length is %d bytes, 1 to %d may be: is this the binary format?", size, MaxRecord)
	}
	return size, ""
}

// Frames returns the records of frames that are in memory already, with which
// the records share it, and those before one that is none with
// the [*Error] that says why.
func Frames(b []byte) ([]Record, error) {
	var out []Record
	for at := 0; at < len(b); {
		bad := func(reason string) ([]Record, error) {
			return out, &Error{Place: framePlace(uint64(len(out))+1, int64(at)), Reason: reason}
		}
		rest := b[at:]
		if len(rest) < 4 {
			return bad(fmt.Sprintf("the input ends %d bytes into its length", len(rest)))
		}
		size, reason := frameSize(rest)
		if reason != "" {
			return bad(reason)
		}
		rest = rest[4:]
		if uint64(len(rest)) < uint64(size) {
			return bad(fmt.Sprintf("the input ends after %d of its %d bytes", len(rest), size))
		}
		rec, reason := parseFrame(rest[:size:size])
		if reason != "" {
			return bad(reason)
		}
		out = append(out, rec)
		at += 4 + int(size)
	}
	return out, nil
}

func framePlace(n uint64, at int64) string { return fmt.Sprintf("record %d at byte %d", n, at) }

func parseFrame(b []byte) (r Record, reason string) {
	marks := b[0]
	b = b[1:]
	if marks&^knownMarks != 0 {
		return r, fmt.Sprintf("marks %#02x are not known: is this the binary format?", marks&^knownMarks)
	}
	take := func(n uint64) (part []byte, ok bool) {
		if n > uint64(len(b)) {
			return nil, false
		}
		part, b = b[:n:n], b[n:]
		return part, true
	}
	const short = "its length is too small for what its marks say"
	if marks&hasKey != 0 {
		size, ok := take(4)
		if !ok {
			return r, short
		}
		if r.Key, ok = take(uint64(binary.BigEndian.Uint32(size))); !ok {
			return r, short
		}
	}
	if marks&hasVersion != 0 {
		v, ok := take(8)
		if !ok {
			return r, short
		}
		r.Version = new(binary.BigEndian.Uint64(v))
	}
	if marks&hasFingerprint != 0 {
		var ok bool
		if r.Fingerprint, ok = take(wire.FingerprintSize); !ok {
			return r, short
		}
	}
	r.Tombstone = marks&isTombstone != 0
	r.Payload = b
	return r, ""
}

// AppendFrame appends a record in the binary format.
func AppendFrame(dst []byte, r *Record) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0)
	marks := byte(0)
	if r.Key != nil {
		marks |= hasKey
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Key)))
		dst = append(dst, r.Key...)
	}
	if r.Version != nil {
		marks |= hasVersion
		dst = binary.BigEndian.AppendUint64(dst, *r.Version)
	}
	if r.Fingerprint != nil {
		marks |= hasFingerprint
		dst = append(dst, r.Fingerprint...)
	}
	if r.Tombstone {
		marks |= isTombstone
	}
	dst = append(dst, r.Payload...)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	dst[at+4] = marks
	return dst
}
