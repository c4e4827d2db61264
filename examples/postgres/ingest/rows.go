package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// rowReader reads rows by their keys as they are now.
type rowReader struct{ conn *pgx.Conn }

// read returns the documents of the keys in order, nil for a row that is not
// there, from one snapshot that sees what transaction xid did. Changes
// committed at or above upTo are not in it.
func (rr *rowReader) read(ctx context.Context, s *session, r *relation, keys [][][]byte, xid uint32) (docs [][]byte, upTo pglogrepl.LSN, err error) {
	gone := make([][]byte, len(keys))
	if r.table == nil {
		return gone, 0, nil
	}
	t, columns, sql, err := rr.query(ctx, s, r)
	if err != nil || t == nil {
		return gone, 0, err
	}
	params := make([][]byte, len(r.key))
	for i := range r.key {
		params[i] = textArray(keys, i)
	}
	delay := time.Millisecond
	for {
		docs, upTo, seen, err := rr.once(ctx, *s.types.Load(), t, columns, sql, params, keys, xid)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "42703") {
			// The table or a column went away since: the table watcher has
			// its index read again as a whole.
			s.nudgeTables()
			return gone, 0, nil
		}
		if err != nil || seen {
			return docs, upTo, err
		}
		if err := pause(ctx, delay); err != nil {
			return nil, 0, err
		}
		if delay = min(delay*2, time.Second); delay == time.Second {
			s.log.Warn("a committed transaction is not visible yet; is its session waiting for a synchronous standby?", "xid", xid)
		}
	}
}

// query is built from the catalog's columns of now.
func (rr *rowReader) query(ctx context.Context, s *session, r *relation) (t *table, key []int, sql string, err error) {
	c, err := loadTables(ctx, rr.conn, r.table.oid)
	if err != nil {
		return nil, nil, "", err
	}
	t = c.byOID[r.table.oid]
	if t == nil {
		return nil, nil, "", nil
	}
	if err := s.knowTypes(ctx, rr.conn, t.typeOIDs()); err != nil {
		return nil, nil, "", err
	}
	var args, names, on []string
	for i, name := range r.keyNames() {
		at := slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
		if at < 0 {
			return nil, nil, "", nil
		}
		key = append(key, at)
		args = append(args, fmt.Sprintf("$%d::text[]", i+1))
		names = append(names, fmt.Sprintf("k%d", i))
		on = append(on, fmt.Sprintf("t.%s = k.k%d::%s", pgx.Identifier{name}.Sanitize(), i, t.columns[at].typ))
	}
	sql = fmt.Sprintf("SELECT txid_current_snapshot()::text, pg_current_wal_insert_lsn()::text, k.n::text, (t.%s IS NOT NULL)::text, %s "+
		"FROM unnest(%s) WITH ORDINALITY AS k(%s, n) LEFT JOIN %s AS t ON %s",
		pgx.Identifier{r.keyNames()[0]}.Sanitize(), t.selectList("t."), strings.Join(args, ", "), strings.Join(names, ", "),
		t.from(), strings.Join(on, " AND "))
	return t, key, sql, nil
}

func (rr *rowReader) once(ctx context.Context, ts types, t *table, key []int, sql string, params [][]byte, keys [][][]byte, xid uint32) (docs [][]byte, upTo pglogrepl.LSN, seen bool, err error) {
	docs = make([][]byte, len(keys))
	res := rr.conn.PgConn().ExecParams(ctx, sql, params, nil, nil, nil)
	first := true
	for res.NextRow() {
		v := res.Values()
		if first {
			first = false
			snap, err := parseXids(string(v[0]))
			if err != nil {
				_, _ = res.Close()
				return nil, 0, false, err
			}
			seen = snap.sees(xid)
		}
		l, err := lsn(string(v[1]))
		if err != nil {
			_, _ = res.Close()
			return nil, 0, false, err
		}
		upTo = max(upTo, l)
		at, err := strconv.Atoi(string(v[2]))
		if err != nil || at < 1 || at > len(keys) {
			_, _ = res.Close()
			return nil, 0, false, fmt.Errorf("row number %q", v[2])
		}
		// A key that only counts as equal (1.0 and 1.00) is another document.
		if string(v[3]) == "true" && sameKey(keys[at-1], v[4:], key) {
			docs[at-1] = t.document(ts, v[4:])
		}
	}
	if _, err := res.Close(); err != nil {
		return nil, 0, false, err
	}
	return docs, upTo, seen, nil
}

func sameKey(want, row [][]byte, key []int) bool {
	for i, c := range key {
		if !bytes.Equal(want[i], row[c]) {
			return false
		}
	}
	return true
}

func (t *table) typeOIDs() []uint32 {
	out := make([]uint32, len(t.columns))
	for i, c := range t.columns {
		out[i] = c.oid
	}
	return out
}

// document is that of a row selected by selectList.
func (t *table) document(ts types, row [][]byte) []byte {
	fields := make([]field, len(t.columns))
	for i, c := range t.columns {
		fields[i] = field{c.name, c.oid, row[i]}
	}
	return ts.document(fields)
}

// textArray is the array literal of one column of the keys.
func textArray(keys [][][]byte, column int) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for _, c := range k[column] {
			if c == '"' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.Bytes()
}
