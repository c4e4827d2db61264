package ingest

import (
	"fmt"
	"strconv"
	"strings"
)

// xids is a Postgres snapshot in the form of txid_current_snapshot: which
// transactions a query sees.
type xids struct {
	min, max uint64 // all below min are seen, none from max on
	running  map[uint64]struct{}
}

// parseXids reads "10:20:10,14,15".
func parseXids(text string) (xids, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return xids{}, fmt.Errorf("snapshot %q: want min:max:running", text)
	}
	var s xids
	var err error
	if s.min, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return xids{}, fmt.Errorf("snapshot %q: %w", text, err)
	}
	if s.max, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return xids{}, fmt.Errorf("snapshot %q: %w", text, err)
	}
	if parts[2] == "" {
		return s, nil
	}
	s.running = make(map[uint64]struct{})
	for x := range strings.SplitSeq(parts[2], ",") {
		n, err := strconv.ParseUint(x, 10, 64)
		if err != nil {
			return xids{}, fmt.Errorf("snapshot %q: %w", text, err)
		}
		s.running[n] = struct{}{}
	}
	return s, nil
}

// sees reports whether the snapshot contains what a committed top-level
// transaction did. The change feed gives only the low 32 bits of its id; of
// the ids that have them the one nearest to the snapshot is meant, since
// Postgres itself cannot have two that are farther apart.
func (s xids) sees(xid uint32) bool {
	x := s.max&^0xffffffff | uint64(xid)
	const half = 1 << 31
	switch {
	case x > s.max+half && x >= 1<<32:
		x -= 1 << 32
	case x+half < s.max:
		x += 1 << 32
	}
	if x >= s.max {
		return false
	}
	if x < s.min {
		return true
	}
	_, running := s.running[x]
	return !running
}
