// Package pgsink keeps documents in tables of a Postgres database: one table
// for each index, in one schema, with the columns id, document and generation.
// [Store] is a sink.Store.
package pgsink

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/examples/postgres/internal/pgerr"
	"github.com/flusso/flusso-kafka/examples/postgres/sink"
)

// Store applies each group of steps in one transaction. The advisory lock that
// makes this process the only one is held by the connection that the
// transactions run on: who lost the one has lost the other.
type Store struct {
	target string
	schema string
	log    *slog.Logger
	conn   *pgx.Conn
	tables map[string]string // index to table, sanitized
}

var _ sink.Store = (*Store)(nil)

// New returns a store in a schema of the database that target connects to. No
// connection is made yet. A nil logger logs nothing.
func New(target, schema string, log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Store{target: target, schema: schema, log: log}
}

// Acquire implements sink.Store.
func (s *Store) Acquire(ctx context.Context) error {
	conn, err := open(ctx, s.target)
	if err != nil {
		return err
	}
	if err := s.take(ctx, conn); err != nil {
		// A context that ended before a query was sent leaves the connection
		// open, and with it the lock: the next attempt would wait for itself.
		_ = conn.Close(ctx)
		return err
	}
	s.conn, s.tables = conn, make(map[string]string)
	return nil
}

func open(ctx context.Context, target string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(target)
	if err != nil {
		return nil, fmt.Errorf("target connection string: %w", err)
	}
	cfg.RuntimeParams["application_name"] = "flusso-postgres sink"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the target: %w", pgerr.Connect(err))
	}
	return conn, nil
}

func (s *Store) lock(ctx context.Context, conn *pgx.Conn) error {
	var got bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended('flusso ' || $1, 0))", s.schema).Scan(&got); err != nil {
		return fmt.Errorf("lock schema %q of the target: %w", s.schema, err)
	}
	if got {
		return nil
	}
	s.log.Warn("another process works on this schema of the target; waiting for it to end", "schema", s.schema)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended('flusso ' || $1, 0))", s.schema); err != nil {
		return fmt.Errorf("lock schema %q of the target: %w", s.schema, err)
	}
	return nil
}

// take locks the schema, and creates what is missing in it.
func (s *Store) take(ctx context.Context, conn *pgx.Conn) error {
	if err := s.lock(ctx, conn); err != nil {
		return err
	}
	if err := s.create(ctx, conn); err != nil {
		return fmt.Errorf("create schema %q of the target: %w", s.schema, err)
	}
	return nil
}

func (s *Store) name(table string) string { return pgx.Identifier{s.schema, table}.Sanitize() }

func (s *Store) create(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, strings.NewReplacer(
		"SCHEMA_NAME", pgx.Identifier{s.schema}.Sanitize(), "STORE", s.name(storeTable), "INDEXES", s.name(indexesTable),
	).Replace(`
CREATE SCHEMA IF NOT EXISTS SCHEMA_NAME;
CREATE TABLE IF NOT EXISTS STORE (one boolean PRIMARY KEY DEFAULT true CHECK (one), asked text[] NOT NULL DEFAULT '{}',
  generation bigint NOT NULL DEFAULT 0, everything bigint NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS INDEXES (index text PRIMARY KEY, name text NOT NULL UNIQUE, opened bigint NOT NULL DEFAULT 0);
INSERT INTO STORE DEFAULT VALUES ON CONFLICT DO NOTHING;`))
	return err
}

const (
	storeTable   = "_store"   // what was asked for, and the generation that rows are stamped with
	indexesTable = "_indexes" // the table of each index, and the generation its snapshot began with
)

// Release implements sink.Store.
func (s *Store) Release(ctx context.Context) error {
	if s.conn == nil {
		return nil
	}
	conn := s.conn
	s.conn = nil
	if conn.IsClosed() {
		return nil
	}
	return conn.Close(ctx)
}

// Asked implements sink.Store.
func (s *Store) Asked(ctx context.Context) (asked []string, err error) {
	if err := s.conn.QueryRow(ctx, "SELECT asked FROM "+s.name(storeTable)).Scan(&asked); err != nil {
		return nil, fmt.Errorf("look what was asked for: %w", err)
	}
	return asked, nil
}

// SetAsked implements sink.Store.
func (s *Store) SetAsked(ctx context.Context, indexes []string) error {
	if _, err := s.conn.Exec(ctx, "UPDATE "+s.name(storeTable)+" SET asked = $1", indexes); err != nil {
		return fmt.Errorf("record what was asked for: %w", err)
	}
	return nil
}

// Apply implements sink.Store.
func (s *Store) Apply(ctx context.Context, steps []sink.Step) error {
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	// Whatever the server's default: what is acked must be durable.
	if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on"); err != nil {
		return err
	}
	created := make(map[string]string)
	for _, step := range steps {
		switch {
		case step.Open != "":
			err = s.open(ctx, tx, created, step.Open)
		case step.Complete != nil:
			err = s.complete(ctx, tx, created, step.Complete)
		default:
			err = s.write(ctx, tx, created, step.Documents)
		}
		if err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	maps.Copy(s.tables, created)
	return nil
}

// table returns the table of an index, creating it at first use.
func (s *Store) table(ctx context.Context, tx pgx.Tx, created map[string]string, index string) (string, error) {
	if t, ok := s.tables[index]; ok {
		return t, nil
	}
	if t, ok := created[index]; ok {
		return t, nil
	}
	name := tableName(index)
	if _, err := tx.Exec(ctx, "INSERT INTO "+s.name(indexesTable)+" (index, name) VALUES ($1, $2) ON CONFLICT DO NOTHING", index, name); err != nil {
		return "", fmt.Errorf("create table of index %s: %w", index, err)
	}
	// json and not jsonb: jsonb refuses documents that json accepts in the
	// source (\u0000), and one such would stop the lane.
	_, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+s.name(name)+
		` (id text COLLATE "C" PRIMARY KEY, document json NOT NULL, generation bigint NOT NULL)`)
	if err != nil {
		return "", fmt.Errorf("create table of index %s: %w", index, err)
	}
	created[index] = s.name(name)
	return created[index], nil
}

// tableName is the index's name, shortened where Postgres would do so
// silently, and kept apart from our own two.
func tableName(index string) string {
	const longest = 63
	if len(index) <= longest && !strings.HasPrefix(index, "_") {
		return index
	}
	sum := sha256.Sum256([]byte(index))
	suffix := "~" + hex.EncodeToString(sum[:8])
	cut := strings.ToValidUTF8(index[:min(len(index), longest-len(suffix))], "")
	return strings.TrimLeft(cut, "_") + suffix
}

func (s *Store) open(ctx context.Context, tx pgx.Tx, created map[string]string, index string) error {
	if index == sink.Every {
		_, err := tx.Exec(ctx, "UPDATE "+s.name(storeTable)+" SET generation = generation + 1, everything = generation + 1")
		return err
	}
	if _, err := s.table(ctx, tx, created, index); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "WITH g AS (UPDATE "+s.name(storeTable)+" SET generation = generation + 1 RETURNING generation) "+
		"UPDATE "+s.name(indexesTable)+" SET opened = g.generation FROM g WHERE index = $1", index)
	return err
}

// complete removes what was not written since the snapshot began.
func (s *Store) complete(ctx context.Context, tx pgx.Tx, created map[string]string, indexes []string) error {
	rows, err := tx.Query(ctx, "SELECT i.index, greatest(CASE WHEN i.index = ANY($1) THEN i.opened ELSE 0 END, CASE WHEN $2 = ANY($1) THEN s.everything ELSE 0 END) "+
		"FROM "+s.name(indexesTable)+" i, "+s.name(storeTable)+" s", indexes, sink.Every)
	if err != nil {
		return err
	}
	since := make(map[string]int64)
	var index string
	var opened int64
	if _, err := pgx.ForEachRow(rows, []any{&index, &opened}, func() error { since[index] = opened; return nil }); err != nil {
		return err
	}
	for index, opened := range since {
		if opened == 0 {
			continue
		}
		table, err := s.table(ctx, tx, created, index)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE generation < $1", opened); err != nil {
			return fmt.Errorf("remove what the snapshot of %s does not have: %w", index, err)
		}
	}
	return nil
}

func (s *Store) write(ctx context.Context, tx pgx.Tx, created map[string]string, docs []flusso.Envelope) error {
	type group struct{ ids, documents, gone []string }
	groups := make(map[string]*group)
	var order []string
	for i := range docs {
		e := &docs[i]
		g := groups[e.Index]
		if g == nil {
			g = &group{}
			groups[e.Index] = g
			order = append(order, e.Index)
		}
		if e.Op == flusso.Delete {
			g.gone = append(g.gone, e.ID)
		} else {
			g.ids = append(g.ids, e.ID)
			g.documents = append(g.documents, string(e.Document))
		}
	}
	for _, index := range order {
		table, err := s.table(ctx, tx, created, index)
		if err != nil {
			return err
		}
		g := groups[index]
		if len(g.gone) > 0 {
			if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE id = ANY($1)", g.gone); err != nil {
				return fmt.Errorf("delete from index %s: %w", index, err)
			}
		}
		if len(g.ids) == 0 {
			continue
		}
		_, err = tx.Exec(ctx, "INSERT INTO "+table+" (id, document, generation) "+
			"SELECT u.id, u.document::json, s.generation FROM unnest($1::text[], $2::text[]) AS u(id, document), "+s.name(storeTable)+" s "+
			"ON CONFLICT (id) DO UPDATE SET document = EXCLUDED.document, generation = EXCLUDED.generation", g.ids, g.documents)
		if err != nil {
			return fmt.Errorf("write to index %s: %w", index, err)
		}
	}
	return nil
}

// Passing implements sink.Store: the network, a server that restarts or is
// full, a conflict.
func (s *Store) Passing(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code[:2] {
		case "08", "40", "53", "55", "57", "58":
			return true
		}
		return false
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		pgconn.SafeToRetry(err) || s.conn != nil && s.conn.IsClosed()
}

// Read calls f with every document of the store, from one snapshot of it. It
// needs no lock and changes nothing.
func Read(ctx context.Context, target, schema string, f func(index, id string, document []byte) error) error {
	conn, err := open(ctx, target)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	s := &Store{schema: schema}
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.name(indexesTable)).Scan(&there); err != nil || !there {
			return err // the sink was never here
		}
		rows, err := tx.Query(ctx, "SELECT index, name FROM "+s.name(indexesTable)+" ORDER BY index")
		if err != nil {
			return fmt.Errorf("read the target: %w", err)
		}
		var indexes [][2]string
		var index, name string
		if _, err := pgx.ForEachRow(rows, []any{&index, &name}, func() error {
			indexes = append(indexes, [2]string{index, name})
			return nil
		}); err != nil {
			return fmt.Errorf("read the target: %w", err)
		}
		for _, ix := range indexes {
			rows, err := tx.Query(ctx, "SELECT id, document::text FROM "+s.name(ix[1]))
			if err != nil {
				return fmt.Errorf("read index %s of the target: %w", ix[0], err)
			}
			var id, document string
			if _, err := pgx.ForEachRow(rows, []any{&id, &document}, func() error { return f(ix[0], id, []byte(document)) }); err != nil {
				return fmt.Errorf("read index %s of the target: %w", ix[0], err)
			}
		}
		return nil
	})
}
