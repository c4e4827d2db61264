package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// snapshot serves the backfill requests that waited together: each index is
// read once, for all the sinks that asked for it, chunk by chunk.
type snapshot struct {
	source   *Source
	requests []flusso.Delivery[flusso.Request]
	parts    []flusso.Snapshot
	refused  []flusso.Snapshot // what was asked for and the source has no table of

	part  int    // the one being read
	above string // last id read of it

	// The chunk that was read and may go out once the feed is published up to
	// readAt: every older state is then before it, every newer one behind it.
	chunk  []Change
	readAt flusso.Position
}

func newSnapshot(source *Source, requests []flusso.Delivery[flusso.Request]) *snapshot {
	asked := make([]flusso.Request, len(requests))
	for i, d := range requests {
		asked[i] = d.Item()
	}
	s := &snapshot{source: source, requests: requests}
	for _, part := range flusso.Coalesce(asked) {
		if slices.Contains(Indexes(), part.Index) {
			s.parts = append(s.parts, part)
		} else {
			s.refused = append(s.refused, part)
		}
	}
	s.read()
	return s
}

// read takes the next chunk, going to the next index at the end of one.
func (s *snapshot) read() {
	for ; s.part < len(s.parts); s.part, s.above = s.part+1, "" {
		s.chunk, s.readAt = s.source.Chunk(s.parts[s.part].Index, s.above, chunkRows)
		if len(s.chunk) > 0 {
			s.above = s.chunk[len(s.chunk)-1].ID
			return
		}
	}
	s.chunk = nil
}

// ready reports whether next may be called while the feed is published up to at.
func (s *snapshot) ready(at flusso.Position) bool {
	return s.chunk == nil || at >= s.readAt
}

// next returns what to publish now, and whether that completes the snapshot:
// a marker for each request, together with its ack. A request for nothing that
// the source has is acked without one.
func (s *snapshot) next() (c flusso.Commit, done bool) {
	if s.chunk == nil {
		for _, d := range s.requests {
			b, ok := d.Item().(*flusso.Backfill)
			if !ok {
				continue
			}
			served := slices.DeleteFunc(slices.Clone(b.Indexes), func(index string) bool { return !slices.Contains(Indexes(), index) })
			if len(served) > 0 {
				c.Items = append(c.Items, flusso.Routed{Sink: b.Sink, Item: &flusso.SnapshotComplete{Indexes: served}})
			}
		}
		c.Acks = s.requests
		return c, true
	}
	now := time.Now()
	b := &flusso.Batch{Envelopes: make([]flusso.Envelope, len(s.chunk))}
	for i, row := range s.chunk {
		b.Envelopes[i] = envelope(row, flusso.NoPosition, now)
	}
	c = toAll(s.parts[s.part].Sinks, b)
	s.read()
	return c, false
}

// done says what became of the snapshot, a line each.
func (s *snapshot) done() []string {
	var out []string
	if len(s.parts) > 0 {
		out = append(out, fmt.Sprintf("snapshot of %s for %s complete", indexesOf(s.parts), sinksOf(s.parts)))
	}
	for _, r := range s.refused {
		out = append(out, fmt.Sprintf("%s asked for index %s: the source has no such index", strings.Join(r.Sinks, ", "), r.Index))
	}
	return out
}

func indexesOf(parts []flusso.Snapshot) string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Index
	}
	return strings.Join(names, ", ")
}

func sinksOf(parts []flusso.Snapshot) string {
	var names []string
	for _, p := range parts {
		names = append(names, p.Sinks...)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
