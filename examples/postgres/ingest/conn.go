package ingest

import (
	"context"
	"fmt"
	"maps"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flusso/flusso-kafka/examples/postgres/internal/pgerr"
)

// textForm makes the text form of every value independent of the server's and
// the user's settings, and the same on each connection: the change feed and
// queries must give equal documents for equal rows.
var textForm = map[string]string{
	"client_encoding":    "UTF8",
	"DateStyle":          "ISO, YMD",
	"IntervalStyle":      "postgres",
	"TimeZone":           "UTC",
	"extra_float_digits": "3",
	"bytea_output":       "hex",
	"application_name":   "flusso-postgres",
	"statement_timeout":  "0",
}

// connect opens an ordinary connection; kind shows in pg_stat_activity.
func connect(ctx context.Context, source, kind string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(source)
	if err != nil {
		return nil, fmt.Errorf("source connection string: %w", err)
	}
	maps.Copy(cfg.RuntimeParams, textForm)
	cfg.RuntimeParams["application_name"] = "flusso-postgres " + kind
	// What little we commit here is made again if it is lost; waiting for a
	// standby that is down would stop the feed.
	cfg.RuntimeParams["synchronous_commit"] = "local"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the source for %s: %w", kind, pgerr.Connect(err))
	}
	if err := findOperators(ctx, conn.PgConn()); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// connectFeed opens a connection that speaks the replication protocol.
func connectFeed(ctx context.Context, source string) (*pgconn.PgConn, error) {
	cfg, err := pgconn.ParseConfig(source)
	if err != nil {
		return nil, fmt.Errorf("source connection string: %w", err)
	}
	maps.Copy(cfg.RuntimeParams, textForm)
	cfg.RuntimeParams["application_name"] = "flusso-postgres feed"
	cfg.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the source for its change feed: %w", pgerr.Connect(err))
	}
	if err := findOperators(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// findOperators appends to the search path the schemas in which extensions
// have put types that can be keys, citext say: with that of the table's order
// out of sight, a comparison would silently take another one.
func findOperators(ctx context.Context, conn *pgconn.PgConn) error {
	const sql = `SELECT set_config('search_path', current_setting('search_path') || coalesce((
  SELECT string_agg(DISTINCT ', ' || quote_ident(n.nspname), '') FROM pg_opclass o
  JOIN pg_namespace n ON n.oid = o.opcnamespace JOIN pg_am a ON a.oid = o.opcmethod
  WHERE a.amname = 'btree' AND n.nspname <> 'pg_catalog'), ''), false)`
	if _, err := conn.Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("set the search path: %w", err)
	}
	return nil
}

// inOneSnapshot runs f in a transaction in which every query sees the same
// rows. locks are taken before the snapshot is: a table that was rewritten or
// truncated after the snapshot but before the lock would look empty.
func inOneSnapshot(ctx context.Context, conn *pgx.Conn, locks []string, f func(pgx.Tx) error) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for _, l := range locks {
		if _, err := tx.Exec(ctx, l); err != nil {
			return err
		}
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func lsn(text string) (pglogrepl.LSN, error) {
	l, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0, fmt.Errorf("log position %q: %w", text, err)
	}
	return l, nil
}
