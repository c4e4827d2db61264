package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	flusso "github.com/flusso/flusso-kafka"
)

// publication is what the catalog says of it.
type publication struct {
	exists bool
	owned  bool
	all    bool            // FOR ALL TABLES
	tables map[uint32]bool // value: has a row filter or a column list
	spaces []uint32        // schemas taken as a whole
	memory memory
}

// memory is what the engine remembers in the source: a JSON comment on the
// publication, by slot name as configured: which feed the sinks were last
// seeded for, the shape that each table had then, and which sinks these were.
type memory map[string]*remembered

type remembered struct {
	Incarnation string            `json:"incarnation"`
	Tables      map[string]string `json:"tables"` // index to shape
	// Sinks are those of the last session; nil in a comment that is older than
	// this field.
	Sinks []string `json:"sinks,omitempty"`
	// Seeded tells for which sinks a snapshot was asked because the slot had
	// passed them, and where the slot was then.
	Seeded map[string]flusso.Position `json:"seeded,omitempty"`
}

func loadPublication(ctx context.Context, q querier, name string) (publication, error) {
	p := publication{tables: make(map[uint32]bool)}
	wrap := func(err error) error { return fmt.Errorf("look at publication %q: %w", name, err) }
	var oid uint32
	var complete bool
	var comment string
	err := q.QueryRow(ctx, `SELECT oid, puballtables, pubinsert AND pubupdate AND pubdelete AND pubtruncate,
  pg_has_role(pubowner, 'MEMBER'), coalesce(obj_description(oid, 'pg_publication'), '')
FROM pg_publication WHERE pubname = $1`, name).Scan(&oid, &p.all, &complete, &p.owned, &comment)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return p, nil
	case err != nil:
		return p, wrap(err)
	case !complete:
		return p, &ServerError{fmt.Sprintf("publication %q does not publish everything: run ALTER PUBLICATION %s SET (publish = 'insert, update, delete, truncate')",
			name, pgx.Identifier{name}.Sanitize())}
	}
	p.exists = true
	if json.Unmarshal([]byte(comment), &p.memory) != nil {
		p.memory = nil // somebody's own words
	}
	// The row as JSON: the two columns came with version 15.
	rows, err := q.Query(ctx, `SELECT prrelid, to_jsonb(r)->>'prqual' IS NOT NULL OR to_jsonb(r)->>'prattrs' IS NOT NULL
FROM pg_publication_rel r WHERE prpubid = $1`, oid)
	if err != nil {
		return p, wrap(err)
	}
	var rel uint32
	var partial bool
	if _, err := pgx.ForEachRow(rows, []any{&rel, &partial}, func() error { p.tables[rel] = partial; return nil }); err != nil {
		return p, wrap(err)
	}
	var schemas bool
	if err := q.QueryRow(ctx, "SELECT to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL").Scan(&schemas); err != nil {
		return p, wrap(err)
	}
	if schemas {
		if rows, err = q.Query(ctx, "SELECT pnnspid FROM pg_publication_namespace WHERE pnpubid = $1", oid); err != nil {
			return p, wrap(err)
		}
		if p.spaces, err = pgx.CollectRows(rows, pgx.RowTo[uint32]); err != nil {
			return p, wrap(err)
		}
	}
	return p, nil
}

// createPublication creates it with all tables that can be taken.
func createPublication(ctx context.Context, conn *pgx.Conn, name string) error {
	c, err := loadTables(ctx, conn, 0)
	if err != nil {
		return err
	}
	sql := "CREATE PUBLICATION " + pgx.Identifier{name}.Sanitize()
	var list []string
	for _, t := range c.tables {
		if t.owned {
			list = append(list, t.from())
		}
	}
	if len(list) > 0 {
		sql += " FOR TABLE " + strings.Join(list, ", ")
	}
	sql += " WITH (publish = 'insert, update, delete, truncate')"
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("create publication %q: %w", name, err)
	}
	return nil
}

// publish makes sure that every usable table is in the publication, and moves
// those that cannot be to the ones left out.
func (s *Source) publish(ctx context.Context, conn *pgx.Conn, c *catalog, p publication) error {
	schemas := make(map[string]bool)
	if len(p.spaces) > 0 {
		rows, err := conn.Query(ctx, "SELECT nspname::text FROM pg_namespace WHERE oid = ANY($1)", p.spaces)
		if err != nil {
			return fmt.Errorf("look at publication %q: %w", s.cfg.Publication, err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("look at publication %q: %w", s.cfg.Publication, err)
		}
		for _, n := range names {
			schemas[n] = true
		}
	}
	var added []*table
	c.tables = slices.DeleteFunc(c.tables, func(t *table) bool {
		partial, in := p.tables[t.oid]
		switch {
		case partial:
			t.unusable = fmt.Sprintf("publication %q has a row filter or a column list for it: the sinks could never equal it", s.cfg.Publication)
		case in, p.all, schemas[t.schema]:
		case !t.owned || !p.owned:
			t.unusable = fmt.Sprintf("this user does not own both it and the publication: run ALTER PUBLICATION %s ADD TABLE %s as somebody who does",
				pgx.Identifier{s.cfg.Publication}.Sanitize(), t.from())
		default:
			if err := s.addTable(ctx, conn, t); err != nil {
				t.unusable = fmt.Sprintf("it could not be added to the publication, and will be tried again: %v", err)
			} else {
				added = append(added, t)
			}
		}
		if t.unusable == "" {
			return false
		}
		c.leftOut = append(c.leftOut, t)
		delete(c.byIndex, t.index)
		return true
	})
	for _, t := range added {
		s.log.Info("table added to the publication", "table", t.index)
		if err := awaitWriters(ctx, conn, t); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) addTable(ctx context.Context, conn *pgx.Conn, t *table) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "ALTER PUBLICATION "+pgx.Identifier{s.cfg.Publication}.Sanitize()+" ADD TABLE "+t.from()); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// awaitWriters returns when every transaction has ended that held a lock for
// writing on the table when the table had just been added: what such a one
// wrote before is not in the feed, and would not be in a snapshot that was
// taken before its end.
func awaitWriters(ctx context.Context, q querier, t *table) error {
	holders := func() (map[string]bool, error) {
		rows, err := q.Query(ctx, `SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND granted AND relation::bigint = ANY($1::bigint[]) AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AND pid IS DISTINCT FROM pg_backend_pid()`,
			relations(t))
		if err != nil {
			return nil, err
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, err
		}
		out := make(map[string]bool, len(list))
		for _, v := range list {
			out[v] = true
		}
		return out, nil
	}
	wrap := func(err error) error { return fmt.Errorf("wait for writers of %s: %w", t.index, err) }
	first, err := holders()
	if err != nil {
		return wrap(err)
	}
	for len(first) > 0 {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return wrap(err)
		}
		now, err := holders()
		if err != nil {
			return wrap(err)
		}
		for v := range first {
			if !now[v] {
				delete(first, v)
			}
		}
	}
	return nil
}

func relations(t *table) []int64 {
	out := []int64{int64(t.oid)}
	for _, l := range t.leaves {
		out = append(out, int64(l))
	}
	return out
}

// remember stores what the sinks were seeded for.
func (s *Source) remember(ctx context.Context, conn *pgx.Conn, r *remembered) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("comment on publication %q: %w", s.cfg.Publication, err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	// Several pipelines may share the publication.
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('flusso ' || $1))", s.cfg.Publication); err != nil {
		return fmt.Errorf("comment on publication %q: %w", s.cfg.Publication, err)
	}
	p, err := loadPublication(ctx, tx, s.cfg.Publication)
	if err != nil {
		return err
	}
	if p.memory == nil {
		p.memory = make(memory)
	}
	p.memory[s.cfg.Slot] = r
	text, err := json.Marshal(p.memory)
	if err != nil {
		return fmt.Errorf("comment on publication %q: %w", s.cfg.Publication, err)
	}
	if _, err := tx.Exec(ctx, "COMMENT ON PUBLICATION "+pgx.Identifier{s.cfg.Publication}.Sanitize()+" IS "+quote(text)); err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "42501" {
			s.log.Warn("cannot comment on the publication, so a new or changed table is not noticed across restarts",
				"publication", s.cfg.Publication, "error", err)
			return nil
		}
		return fmt.Errorf("comment on publication %q: %w", s.cfg.Publication, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("comment on publication %q: %w", s.cfg.Publication, err)
	}
	return nil
}

// quote returns a string literal, whatever standard_conforming_strings says.
func quote(text []byte) string {
	s := "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return "E" + strings.ReplaceAll(s, `\`, `\\`)
	}
	return s
}

// pause waits, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
