package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Read calls f with every row of the source as the document that it would be
// in a lane, from one snapshot of the database.
func Read(ctx context.Context, source string, f func(index, id string, document []byte) error) error {
	conn, err := connect(ctx, source, "compare")
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	return inOneSnapshot(ctx, conn, nil, func(tx pgx.Tx) error {
		c, err := loadTables(ctx, tx, 0)
		if err != nil {
			return err
		}
		ts, err := loadTypes(ctx, tx)
		if err != nil {
			return err
		}
		for _, t := range c.tables {
			res := tx.Conn().PgConn().ExecParams(ctx, "SELECT "+t.selectList("")+" FROM "+t.from(), nil, nil, nil, nil)
			for res.NextRow() {
				row := res.Values()
				key := make([][]byte, len(t.id))
				for i, column := range t.id {
					key[i] = row[column]
				}
				if err := f(t.index, documentID(key), t.document(ts, row)); err != nil {
					_, _ = res.Close()
					return err
				}
			}
			if _, err := res.Close(); err != nil {
				return fmt.Errorf("read table %s: %w", t.index, err)
			}
		}
		return nil
	})
}
