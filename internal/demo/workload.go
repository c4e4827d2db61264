package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// The workload: bursts of small transactions, quiet seconds in which only the
// position moves, and now and then one large transaction.
const (
	tick          = 20 * time.Millisecond // one burst of transactions, one sync
	perTick       = 3                     // transactions of a burst, at most
	quietEvery    = 4 * time.Second       // busy and quiet times take turns
	quietFor      = 800 * time.Millisecond
	largeEvery    = 900 // one transaction in so many is large
	largeRows     = 700
	seedCustomers = 200
	seedOrders    = 500
)

// Write commits transactions until ctx ends, then returns nil; any other
// return is a failed commit. What a transaction changes comes from the seed
// and the position; only when it is written is up to the clock.
func (s *Source) Write(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	w := workload{tables: s.snapshot()}
	start := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		var txs []Transaction
		quiet := time.Since(start)%quietEvery > quietEvery-quietFor
		p := s.Position()
		for range perTick {
			rng := rand.New(rand.NewPCG(s.seed, uint64(p)))
			tx := w.next(rng, p, quiet)
			txs = append(txs, tx)
			p = tx.Position
			if quiet {
				break
			}
		}
		if err := s.commit(txs); err != nil {
			return fmt.Errorf("write to the demo's source: %w", err)
		}
	}
}

// snapshot returns a copy of the tables, for the workload to pick from.
func (s *Source) snapshot() tables {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables.clone()
}

// workload makes transactions over its own copy of the tables.
type workload struct {
	tables tables
	ids    map[string][]string // sorted ids by table, kept beside tables for picking
}

func (w *workload) next(rng *rand.Rand, after flusso.Position, quiet bool) Transaction {
	// What is not captured moves the position too.
	tx := Transaction{Position: after + 64}
	if quiet {
		return tx
	}
	n := 1 + rng.IntN(4)
	if rng.IntN(largeEvery) == 0 {
		n = largeRows
	}
	for range n {
		c := w.change(rng, after)
		w.apply(c)
		tx.Changes = append(tx.Changes, c)
		tx.Position += flusso.Position(48 + len(c.Row))
	}
	return tx
}

// change makes one: mostly updates, more inserts than deletes.
func (w *workload) change(rng *rand.Rand, p flusso.Position) Change {
	table := Orders
	if rng.IntN(5) == 0 {
		table = Customers
	}
	what := rng.IntN(10)
	switch {
	case what < 3 || len(w.pool(table)) == 0:
		id := fmt.Sprintf("%s-%d-%06d", table[:1], p, rng.IntN(1_000_000))
		return Change{table, id, makeRow(rng, table, id)}
	case what < 8:
		id := w.pick(rng, table)
		return Change{table, id, makeRow(rng, table, id)}
	default:
		return Change{Table: table, ID: w.pick(rng, table)}
	}
}

func (w *workload) pool(table string) []string {
	if w.ids == nil {
		w.ids = make(map[string][]string)
		for name, rows := range w.tables {
			w.ids[name] = slices.Sorted(maps.Keys(rows))
		}
	}
	return w.ids[table]
}

func (w *workload) pick(rng *rand.Rand, table string) string {
	ids := w.pool(table)
	return ids[rng.IntN(len(ids))]
}

func (w *workload) apply(c Change) {
	w.tables.apply([]Change{c})
	ids := w.pool(c.Table)
	n, found := slices.BinarySearch(ids, c.ID)
	switch {
	case c.Row == nil && found:
		w.ids[c.Table] = slices.Delete(ids, n, n+1)
	case c.Row != nil && !found:
		w.ids[c.Table] = slices.Insert(ids, n, c.ID)
	}
}

// seedRows fills the tables of a new source: rows from before the feed, which
// only a backfill can bring into a sink.
func seedRows(rng *rand.Rand, t tables) {
	for i := range seedCustomers {
		id := fmt.Sprintf("c-0-%06d", i)
		t[Customers][id] = makeRow(rng, Customers, id)
	}
	for i := range seedOrders {
		id := fmt.Sprintf("o-0-%06d", i)
		t[Orders][id] = makeRow(rng, Orders, id)
	}
}

var (
	cities = []string{"Antwerpen", "Bergamo", "Cluj", "Dresden", "Évora", "Florø", "Genève", "Łódź"}
	goods  = []string{"anvil", "bellows", "chisel", "drill", "easel", "funnel", "gimlet", "hammer"}
	states = []string{"open", "paid", "packed", "sent", "returned"}
)

func makeRow(rng *rand.Rand, table, id string) json.RawMessage {
	var row any
	switch table {
	case Customers:
		row = struct {
			ID, City string
			Credit   int
		}{id, cities[rng.IntN(len(cities))], rng.IntN(100_000)}
	default:
		row = struct {
			ID, Customer, Item, State string
			Quantity, Cents           int
		}{
			id, fmt.Sprintf("c-0-%06d", rng.IntN(seedCustomers)), goods[rng.IntN(len(goods))],
			states[rng.IntN(len(states))], 1 + rng.IntN(9), rng.IntN(1_000_000),
		}
	}
	b, err := json.Marshal(row)
	if err != nil {
		// Strings and ints always marshal.
		return json.RawMessage(`{}`)
	}
	return b
}
