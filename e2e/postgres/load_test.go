package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// schema has the kinds of keys and columns that make a difference on the way:
// a key of two columns, a key that is no number, values large enough to be left
// out of an update that does not touch them.
const schema = `
CREATE TABLE customers (
	id bigserial PRIMARY KEY, name text NOT NULL, email text, balance numeric NOT NULL DEFAULT 0,
	tags jsonb NOT NULL DEFAULT '[]', joined timestamptz NOT NULL DEFAULT now());
CREATE TABLE orders (
	customer bigint NOT NULL, no int NOT NULL, status text NOT NULL, total numeric NOT NULL, placed date NOT NULL DEFAULT current_date,
	PRIMARY KEY (customer, no));
CREATE TABLE papers (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), title text NOT NULL, body text NOT NULL, scan bytea);
INSERT INTO customers (name, email) SELECT 'customer ' || i, i || '@example.org' FROM generate_series(1, 1500) i;
INSERT INTO orders (customer, no, status, total) SELECT 1 + i % 1500, i / 1500, 'new', i FROM generate_series(0, 4499) i;
INSERT INTO papers (title, body, scan) SELECT 'paper ' || i, (SELECT string_agg(md5(i::text || j), ' ') FROM generate_series(1, 400) j), sha256(i::text::bytea) FROM generate_series(1, 150) i;
`

// change is one kind of statement of the load.
type change struct {
	weight int
	kind   string
	sql    string
}

// $1 is a random number from 0 to 999,999, $2 a small one.
var changes = []change{
	{10, "insert", `INSERT INTO customers (name, email, tags) VALUES ('customer ' || $1::int, NULL, jsonb_build_array($1::int, $2::int))`},
	{10, "insert", `INSERT INTO orders (customer, no, status, total) VALUES ($1::int % 3000, 10 + $2::int, 'new', $1::int / 100.0) ON CONFLICT (customer, no) DO UPDATE SET status = 'again'`},
	{3, "insert", `INSERT INTO papers (title, body) VALUES ('paper ' || $1::int, (SELECT string_agg(md5($1::int::text || j), ' ') FROM generate_series(1, 100 + 10 * $2::int) j))`},
	{15, "update", `UPDATE customers SET balance = balance + $2::int, name = 'renamed ' || $1::int WHERE id = (SELECT id FROM customers WHERE id >= $1::int % (SELECT max(id) FROM customers) ORDER BY id LIMIT 1)`},
	{15, "update", `UPDATE orders SET status = 'status ' || $2::int, total = $1::int WHERE (customer, no) = (SELECT customer, no FROM orders WHERE customer >= $1::int % 3000 ORDER BY customer, no LIMIT 1)`},
	{5, "update", `UPDATE papers SET title = 'new title ' || $2::int || $1::int WHERE id = (SELECT id FROM papers WHERE id >= md5($1::int::text)::uuid ORDER BY id LIMIT 1)`},
	{2, "update", `UPDATE papers SET body = body || $1::int || $2::int WHERE id = (SELECT id FROM papers WHERE id >= md5($1::int::text)::uuid ORDER BY id LIMIT 1)`},
	{8, "delete", `DELETE FROM customers WHERE id = (SELECT id FROM customers WHERE id >= $1::int % (SELECT max(id) FROM customers) AND $2::int >= 0 ORDER BY id LIMIT 1)`},
	{6, "delete", `DELETE FROM orders WHERE (customer, no) = (SELECT customer, no FROM orders WHERE customer >= $1::int % 3000 AND $2::int >= 0 ORDER BY customer, no LIMIT 1)`},
	{2, "delete", `DELETE FROM papers WHERE id = (SELECT id FROM papers WHERE id >= md5($1::int::text)::uuid AND $2::int >= 0 ORDER BY id LIMIT 1)`},
	{3, "key change", `UPDATE customers SET id = nextval('customers_id_seq') WHERE id = (SELECT id FROM customers WHERE id >= $1::int % (SELECT max(id) FROM customers) AND $2::int >= 0 ORDER BY id LIMIT 1)`},
	{3, "key change", `UPDATE orders SET no = 1000 + $1::int WHERE (customer, no) = (SELECT customer, no FROM orders WHERE customer >= ($1::int + $2::int) % 3000 ORDER BY customer, no LIMIT 1)`},
}

// large are the transactions of several batches.
var large = []string{
	`INSERT INTO orders (customer, no, status, total) SELECT 1000000 + $1::int, i, 'bulk ' || $2::int, i FROM generate_series(1, 6000) i ON CONFLICT DO NOTHING`,
	`UPDATE orders SET total = total + $2::int WHERE $1::int >= 0 AND customer = (SELECT max(customer) FROM orders) AND no <= 3000`,
	`DELETE FROM orders WHERE customer = (SELECT max(customer) FROM orders WHERE customer >= 1000000) AND no % 2 = $1::int % 2 AND $2::int >= 0`,
}

// load writes to the source until it is stopped.
type load struct {
	stop context.CancelFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	counts map[string]int
	err    error
}

// startLoad starts workers that each do a transaction every pause.
func startLoad(t *testing.T, url string, seed uint64, workers int, pause time.Duration) *load {
	t.Helper()
	l := &load{counts: make(map[string]int)}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	for w := range workers {
		l.all.Go(func() {
			if err := l.work(ctx, url, rand.New(rand.NewPCG(seed, uint64(w))), pause); err != nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.err = errors.Join(l.err, err)
			}
		})
	}
	t.Cleanup(func() {
		l.stop()
		l.all.Wait()
	})
	return l
}

// end stops the load and returns how many of each kind are committed.
func (l *load) end(t *testing.T) map[string]int {
	t.Helper()
	l.stop()
	l.all.Wait()
	if l.err != nil {
		t.Fatalf("the load: %v", l.err)
	}
	return l.counts
}

// failed returns what ended a worker.
func (l *load) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *load) work(ctx context.Context, url string, rng *rand.Rand, pause time.Duration) error {
	// The statements are not cut off in the middle: what they did must be known.
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		done, err := transaction(conn, rng)
		var pg *pgconn.PgError
		switch {
		case errors.As(err, &pg) && (pg.Code == "40P01" || pg.Code == "23505"):
			done = map[string]int{"refused": 1} // a deadlock, or a key that is there
		case err != nil:
			return err
		}
		l.mu.Lock()
		for kind, n := range done {
			l.counts[kind] += n
		}
		l.mu.Unlock()
	}
}

func transaction(conn *pgx.Conn, rng *rand.Rand) (map[string]int, error) {
	ctx := context.Background()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	done := map[string]int{"transaction": 1}
	if rng.IntN(100) == 0 {
		done["large transaction"]++
		_, err = tx.Exec(ctx, large[rng.IntN(len(large))], rng.IntN(1_000_000), rng.IntN(10))
	}
	for range 1 + rng.IntN(4) {
		if err != nil {
			return nil, err
		}
		c := pick(rng)
		done[c.kind]++
		_, err = tx.Exec(ctx, c.sql, rng.IntN(1_000_000), rng.IntN(10))
	}
	if err != nil {
		return nil, err
	}
	if rng.IntN(20) == 0 {
		return map[string]int{"rolled back": 1}, tx.Rollback(ctx)
	}
	return done, tx.Commit(ctx)
}

func pick(rng *rand.Rand) change {
	total := 0
	for _, c := range changes {
		total += c.weight
	}
	n := rng.IntN(total)
	for _, c := range changes {
		if n -= c.weight; n < 0 {
			return c
		}
	}
	panic("the weights do not add up")
}

func show(counts map[string]int) string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d × %s", counts[kind], kind))
	}
	return strings.Join(out, ", ")
}
