package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// indexEntry is the size of what kfake keeps of each record batch in the .idx
// file beside a .dat file: version, checksum of the rest, epoch (4), a time (8)
// that it recomputes, and a flag for batches of transactions. The n-th entry
// belongs to the n-th batch, by count alone.
const indexEntry = 15

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// repairSegments brings data and index files of a killed broker together. It
// may have been killed in the middle of a batch, or between a batch and its
// index entry. kfake appends behind either, and from there on takes each
// batch's flag from its neighbour: then aborted data shows.
func repairSegments(dir string) error {
	segments, err := filepath.Glob(filepath.Join(dir, "partitions", "*", "*.dat"))
	if err != nil {
		return err
	}
	for _, data := range segments {
		if err := repairSegment(data, strings.TrimSuffix(data, ".dat")+".idx"); err != nil {
			return fmt.Errorf("repair segment %s: %w", data, err)
		}
	}
	return nil
}

func repairSegment(data, index string) error {
	raw, err := os.ReadFile(data)
	if err != nil {
		return err
	}
	whole, attributes := batches(raw)
	if whole < len(raw) {
		if err := os.Truncate(data, int64(whole)); err != nil {
			return err
		}
	}
	entries, err := os.ReadFile(index)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) == len(attributes)*indexEntry {
		return nil
	}
	have := min(len(entries)/indexEntry, len(attributes))
	entries = entries[:have*indexEntry]
	for _, a := range attributes[have:] {
		entries = append(entries, entryLike(entries, a)...)
	}
	return os.WriteFile(index, entries, 0o644)
}

// batches returns where the last whole record batch ends, and the attributes
// of all.
func batches(raw []byte) (whole int, attributes []uint16) {
	const attributesAt = 21 // in a record batch of format 2
	for len(raw)-whole >= 12 {
		size := 12 + int(binary.BigEndian.Uint32(raw[whole+8:]))
		if size < attributesAt+2 || size > len(raw)-whole {
			break
		}
		attributes = append(attributes, binary.BigEndian.Uint16(raw[whole+attributesAt:]))
		whole += size
	}
	return whole, attributes
}

// entryLike returns the entry of a batch with these attributes, with version
// and epoch of the one before it.
func entryLike(before []byte, attributes uint16) []byte {
	entry := make([]byte, indexEntry)
	entry[0] = 1
	if n := len(before); n > 0 {
		copy(entry, before[n-indexEntry:])
	}
	entry[indexEntry-1] = 0
	if attributes&transactional != 0 && attributes&control == 0 {
		entry[indexEntry-1] = 1
	}
	entry[1] = byte(crc32.Checksum(entry[2:], castagnoli))
	return entry
}
