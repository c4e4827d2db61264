package flusso

import (
	"slices"
)

// Snapshot is one index and all the sinks that wait for a snapshot of it.
type Snapshot struct {
	Index string
	Sinks []string // sorted, each once
}

// Coalesce turns requests that wait together into the fewest snapshots: one
// for each index, for all the lanes that asked for it, in the order in which
// the indexes were first asked for.
func Coalesce(requests []Request) []Snapshot {
	var out []Snapshot
	at := make(map[string]int)
	for _, r := range requests {
		b, ok := r.(*Backfill)
		if !ok {
			continue // the set of requests is closed: see Request
		}
		for _, index := range b.Indexes {
			i, seen := at[index]
			if !seen {
				i = len(out)
				at[index] = i
				out = append(out, Snapshot{Index: index})
			}
			if j, found := slices.BinarySearch(out[i].Sinks, b.Sink); !found {
				out[i].Sinks = slices.Insert(out[i].Sinks, j, b.Sink)
			}
		}
	}
	return out
}
