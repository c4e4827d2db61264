package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"

	flusso "github.com/flusso/flusso-kafka"
)

// The tables of the source; each is an index of the sinks.
const (
	Customers = "customers"
	Orders    = "orders"
)

// Indexes returns the tables, sorted.
func Indexes() []string { return []string{Customers, Orders} }

// Source is a synthetic database with a change feed, honest in what matters:
// what it committed is on disk before anyone sees it, positions go on after a
// restart, and the feed is kept from the confirmed position like the log
// behind a replication slot. Its rows and its feed come from a number alone.
// All methods may be called concurrently.
type Source struct {
	mu          sync.Mutex
	log         *journal
	incarnation string
	seed        uint64
	position    flusso.Position
	confirmed   flusso.Position
	tables      tables        // at position
	base        tables        // at confirmed: what the journal starts with when it is rewritten
	feed        []Transaction // above confirmed, ascending
	changed     chan struct{} // closed and renewed by every commit
	replayed    bool
}

// tables holds the rows of every table by id.
type tables map[string]map[string][]byte

// Change is one changed row.
type Change struct {
	Table string          `json:"table"`
	ID    string          `json:"id"`
	Row   json.RawMessage `json:"row,omitempty"` // absent when the row was deleted
}

// Transaction is what the feed is made of. One without changes touched only
// tables that are not captured; its position is worth knowing all the same.
type Transaction struct {
	Position flusso.Position `json:"position"`
	Changes  []Change        `json:"changes,omitempty"`
}

// sourceLine is a line of the source's journal: exactly one field is set.
type sourceLine struct {
	Head      *sourceHead      `json:"head,omitempty"`
	Base      *Change          `json:"base,omitempty"`
	Commit    *Transaction     `json:"commit,omitempty"`
	Confirmed *flusso.Position `json:"confirmed,omitempty"`
}

type sourceHead struct {
	Incarnation string          `json:"incarnation"`
	Seed        uint64          `json:"seed"`
	Position    flusso.Position `json:"position"` // of the base rows, and confirmed
}

// OpenSource opens the source in dir, or creates it there with rows made from
// seed. A source that is there already keeps its own seed and incarnation.
func OpenSource(dir string, seed uint64) (*Source, error) {
	s := &Source{changed: make(chan struct{}), tables: newTables(), base: newTables()}
	log, err := openJournal(filepath.Join(dir, "source.journal"), s.replay)
	if err != nil {
		return nil, fmt.Errorf("open the demo's source: %w", err)
	}
	s.log = log
	if s.incarnation != "" {
		s.replayed = true
		if err := s.compact(); err != nil {
			return nil, errors.Join(err, log.close())
		}
		return s, nil
	}
	// Some random digits: a source made anew from the same seed is another
	// incarnation, its positions start again.
	s.seed = seed
	s.incarnation = fmt.Sprintf("demo-%d-%08x", seed, rand.Uint32())
	s.position, s.confirmed = 1, 1
	seedRows(rand.New(rand.NewPCG(seed, 0)), s.tables)
	s.base = s.tables.clone()
	if err := s.compact(); err != nil {
		return nil, errors.Join(err, log.close())
	}
	return s, nil
}

func newTables() tables {
	t := make(tables)
	for _, index := range Indexes() {
		t[index] = make(map[string][]byte)
	}
	return t
}

func (t tables) clone() tables {
	c := make(tables, len(t))
	for index, rows := range t {
		c[index] = maps.Clone(rows)
	}
	return c
}

func (t tables) apply(changes []Change) {
	for _, c := range changes {
		if c.Row == nil {
			delete(t[c.Table], c.ID)
		} else {
			t[c.Table][c.ID] = c.Row
		}
	}
}

// replay takes one line of the journal.
func (s *Source) replay(line []byte) error {
	var l sourceLine
	if err := json.Unmarshal(line, &l); err != nil {
		return err
	}
	switch {
	case l.Head != nil:
		s.incarnation, s.seed = l.Head.Incarnation, l.Head.Seed
		s.position, s.confirmed = l.Head.Position, l.Head.Position
	case l.Base != nil:
		s.tables.apply([]Change{*l.Base})
		s.base.apply([]Change{*l.Base})
	case l.Commit != nil:
		s.tables.apply(l.Commit.Changes)
		s.position = l.Commit.Position
		s.feed = append(s.feed, *l.Commit)
	case l.Confirmed != nil:
		s.truncate(*l.Confirmed)
	}
	return nil
}

// compact rewrites the journal as the rows at the confirmed position and the
// feed above it. Callers hold mu, or are alone.
func (s *Source) compact() error {
	records := []any{sourceLine{Head: &sourceHead{s.incarnation, s.seed, s.confirmed}}}
	for _, index := range Indexes() {
		for _, id := range slices.Sorted(maps.Keys(s.base[index])) {
			records = append(records, sourceLine{Base: &Change{index, id, s.base[index][id]}})
		}
	}
	for i := range s.feed {
		records = append(records, sourceLine{Commit: &s.feed[i]})
	}
	return s.log.rewrite(records)
}

// compactAbove is the journal size at which it is rewritten.
const compactAbove = 16 << 20

// commit makes the transactions durable and shows them to the feed's reader.
func (s *Source) commit(txs []Transaction) error {
	records := make([]any, len(txs))
	for i := range txs {
		records[i] = sourceLine{Commit: &txs[i]}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.log.append(records...); err != nil {
		return err
	}
	for _, tx := range txs {
		s.tables.apply(tx.Changes)
		s.position = tx.Position
		s.feed = append(s.feed, tx)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Confirm tells the source that everything at or below p is safe elsewhere;
// its feed is then cut off there. Going back is ignored, as a slot does; a
// position the source never reached is an error, and nothing is cut.
func (s *Source) Confirm(p flusso.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p > s.position {
		return fmt.Errorf("position %s confirmed, but the source is only at %s", p, s.position)
	}
	if p <= s.confirmed {
		return nil
	}
	if err := s.log.append(sourceLine{Confirmed: &p}); err != nil {
		return err
	}
	s.truncate(p)
	if s.log.size > compactAbove {
		return s.compact()
	}
	return nil
}

// truncate drops the feed at or below p. Callers hold mu, or are alone.
func (s *Source) truncate(p flusso.Position) {
	n := s.after(p)
	for _, tx := range s.feed[:n] {
		s.base.apply(tx.Changes)
	}
	s.feed = slices.Clone(s.feed[n:])
	s.confirmed = p
}

// after returns the index in feed of the first transaction above p.
func (s *Source) after(p flusso.Position) int {
	n, found := slices.BinarySearchFunc(s.feed, p, func(tx Transaction, p flusso.Position) int {
		switch {
		case tx.Position < p:
			return -1
		case tx.Position > p:
			return 1
		}
		return 0
	})
	if found {
		n++
	}
	return n
}

// Next returns the first transaction above p, or false and a channel that is
// closed when there may be one.
func (s *Source) Next(p flusso.Position) (Transaction, bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.after(p); n < len(s.feed) {
		return s.feed[n], true, nil
	}
	return Transaction{}, false, s.changed
}

// Chunk returns up to limit rows of a table with ids above the given one, in
// id order, and the position at which they were read: the chunk belongs into a
// lane after everything at or below it and before everything above.
func (s *Source) Chunk(table, above string, limit int) ([]Change, flusso.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Sorted(maps.Keys(s.tables[table]))
	n, found := slices.BinarySearch(ids, above)
	if found {
		n++
	}
	ids = ids[n:min(n+limit, len(ids))]
	out := make([]Change, len(ids))
	for i, id := range ids {
		out[i] = Change{Table: table, ID: id, Row: s.tables[table][id]}
	}
	return out, s.position
}

// Table returns a copy of a table's rows by id.
func (s *Source) Table(index string) map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.tables[index])
}

// Rows returns the number of rows in all tables.
func (s *Source) Rows() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, rows := range s.tables {
		n += len(rows)
	}
	return n
}

// Position returns the position of the last commit.
func (s *Source) Position() flusso.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position
}

// Confirmed returns the position from which the feed is kept.
func (s *Source) Confirmed() flusso.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

// Incarnation names this source and its feed; it outlives restarts.
func (s *Source) Incarnation() string { return s.incarnation }

// Seed returns the number that the source was created from.
func (s *Source) Seed() uint64 { return s.seed }

// Resumed reports whether the source was there before it was opened.
func (s *Source) Resumed() bool { return s.replayed }

// Close releases the source's files. Everything committed is on disk already.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.close()
}
