package demo

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"

	flusso "github.com/flusso/flusso-kafka"
)

// store is a sink's state: documents by index and id, on disk. It knows
// nothing of positions and offsets: where the sink goes on is known by its
// lane. Applying an item again leaves the same state.
type store struct {
	log     *journal
	indexes map[string]map[string][]byte
	whole   map[string]bool // indexes that a snapshot completed since they were dropped
}

// storeLine is a line of a store's journal: exactly one of Put, Drop and
// Whole is set.
type storeLine struct {
	Put   *document `json:"put,omitempty"`
	Drop  string    `json:"drop,omitempty"`  // the index and its documents are gone
	Whole string    `json:"whole,omitempty"` // the index is complete
}

type document struct {
	Index    string          `json:"index"`
	ID       string          `json:"id"`
	Document json.RawMessage `json:"document,omitempty"` // absent when it was deleted
}

// compactStoreAbove is the journal size at which an open rewrites it.
const compactStoreAbove = 4 << 20

func openStore(dir string) (*store, error) {
	s := &store{indexes: make(map[string]map[string][]byte), whole: make(map[string]bool)}
	log, err := openJournal(filepath.Join(dir, "documents.journal"), func(line []byte) error {
		var l storeLine
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		s.take(l)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.log = log
	if log.size > compactStoreAbove {
		if err := s.compact(); err != nil {
			return nil, errors.Join(err, log.close())
		}
	}
	return s, nil
}

func (s *store) take(l storeLine) {
	switch {
	case l.Put != nil && l.Put.Document == nil:
		delete(s.indexes[l.Put.Index], l.Put.ID)
	case l.Put != nil:
		if s.indexes[l.Put.Index] == nil {
			s.indexes[l.Put.Index] = make(map[string][]byte)
		}
		s.indexes[l.Put.Index][l.Put.ID] = l.Put.Document
	case l.Drop != "":
		delete(s.indexes, l.Drop)
		delete(s.whole, l.Drop)
	case l.Whole != "":
		s.whole[l.Whole] = true
	}
}

func (s *store) compact() error {
	var records []any
	for index, docs := range s.indexes {
		for id, doc := range docs {
			records = append(records, storeLine{Put: &document{index, id, doc}})
		}
	}
	for _, index := range slices.Sorted(maps.Keys(s.whole)) {
		records = append(records, storeLine{Whole: index})
	}
	return s.log.rewrite(records)
}

// write makes the lines durable and applies them.
func (s *store) write(lines []storeLine) error {
	if len(lines) == 0 {
		return nil
	}
	records := make([]any, len(lines))
	for i := range lines {
		records[i] = lines[i]
	}
	if err := s.log.append(records...); err != nil {
		return err
	}
	for _, l := range lines {
		s.take(l)
	}
	return nil
}

// lines turns a lane item into what is written for it.
func lines(item flusso.LaneItem) []storeLine {
	var out []storeLine
	switch it := item.(type) {
	case *flusso.Batch:
		for _, e := range it.Envelopes {
			out = append(out, storeLine{Put: &document{e.Index, e.ID, e.Document}})
		}
	case *flusso.SnapshotComplete:
		for _, index := range it.Indexes {
			out = append(out, storeLine{Whole: index})
		}
	}
	return out
}

func (s *store) close() error { return s.log.close() }
