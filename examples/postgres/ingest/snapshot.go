package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	flusso "github.com/flusso/flusso-kafka"
)

// snapshotReader reads tables chunk by chunk, in the order of their keys.
type snapshotReader struct {
	conn    *pgx.Conn
	session *session
}

// snapshot publishes all rows of an index to the sinks that asked, opened by
// the delete of [EveryID] and without a marker.
func (sr *snapshotReader) snapshot(ctx context.Context, snap flusso.Snapshot) (rows int, err error) {
	s := sr.session
	mark := &flusso.Batch{Envelopes: []flusso.Envelope{{Index: snap.Index, ID: EveryID, Op: flusso.Delete, BuiltAt: time.Now()}}}
	c := flusso.Commit{}
	for _, sink := range snap.Sinks {
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: mark})
	}
	if err := s.order(ctx, outgoing{commit: c}); err != nil {
		return 0, err
	}
	if snap.Index == EveryID {
		return 0, nil
	}
	t := s.catalog.Load().byIndex[snap.Index]
	if t == nil {
		s.log.Warn("a snapshot was asked for of an index that is no table which can be followed: the sinks have none of it", "index", snap.Index)
		return 0, nil
	}
	var last [][]byte
	under := progress{told: time.Now()}
	for {
		index := snap.Index
		if err := s.do(ctx, func(_ context.Context, s *session) error {
			s.window.opened(index, s.unseen)
			return nil
		}); err != nil {
			return rows, err
		}
		if under.due(rows, time.Now()) {
			s.log.Info("snapshot under way", "index", index, "sinks", snap.Sinks, "rows", rows)
		}
		page, err := sr.read(ctx, t, last)
		var pg *pgconn.PgError
		if errors.Is(err, errNoTable) || errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "42703") {
			// It went away, or its key did: the table watcher sees that and
			// asks again.
			s.log.Warn("a table changed while its snapshot was taken; it is asked for again", "index", index, "error", err)
			s.nudgeTables()
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		again := make(chan bool, 1)
		page.chunk.sinks, page.chunk.again = snap.Sinks, again
		n := len(page.chunk.envelopes)
		if err := s.do(ctx, func(ctx context.Context, s *session) error { return s.offer(ctx, page.chunk) }); err != nil {
			return rows, err
		}
		select {
		case retry := <-again:
			if retry {
				if err := pause(ctx, 20*time.Millisecond); err != nil {
					return rows, err
				}
				continue
			}
		case <-ctx.Done():
			return rows, context.Cause(ctx)
		}
		rows += n
		if page.end {
			return rows, nil
		}
		last = page.last
	}
}

// progress decides when a snapshot that runs is to be mentioned: a large table
// takes hours, and a log without it looks like one of an engine that hangs.
type progress struct {
	told time.Time
	rows int
}

const (
	progressEvery = 10 * time.Second
	progressRows  = 250_000
)

func (p *progress) due(rows int, now time.Time) bool {
	if rows == p.rows || now.Sub(p.told) < progressEvery && rows-p.rows < progressRows {
		return false
	}
	p.told, p.rows = now, rows
	return true
}

// offer takes a chunk that was read, to be published when the feed is there.
func (s *session) offer(ctx context.Context, c *chunk) error {
	for x := range s.unseen {
		if c.snapshot.sees(x) {
			delete(s.unseen, x)
		}
	}
	if !s.window.take(c) {
		s.window = window{}
		c.again <- true
		return nil
	}
	if s.passed >= c.upTo {
		s.publishChunk()
		return nil
	}
	return s.status(ctx, true) // a keepalive comes back
}

func (s *session) publishChunk() {
	c := s.window.chunk
	rows := s.window.rows()
	for len(rows) > 0 {
		n, size := 0, 0
		for n < len(rows) && n < s.cfg.BatchEnvelopes && (n == 0 || size < s.cfg.BatchBytes) {
			size += len(rows[n].Document) + len(rows[n].ID) + len(rows[n].Index)
			n++
		}
		b := &flusso.Batch{Envelopes: rows[:n:n]}
		o := outgoing{alone: size > largeBatch}
		for _, sink := range c.sinks {
			o.commit.Items = append(o.commit.Items, flusso.Routed{Sink: sink, Item: b})
		}
		s.queue = append(s.queue, o)
		rows = rows[n:]
	}
	c.again <- false
}

// page is a chunk and where the next one begins.
type page struct {
	chunk *chunk
	last  [][]byte
	end   bool
}

// read reads the rows behind the key last.
func (sr *snapshotReader) read(ctx context.Context, t *table, last [][]byte) (p page, err error) {
	wanted := t
	err = inOneSnapshot(ctx, sr.conn, []string{t.lock()}, func(tx pgx.Tx) error {
		var snap, upTo string
		if err := tx.QueryRow(ctx, "SELECT txid_current_snapshot()::text, pg_current_wal_insert_lsn()::text").Scan(&snap, &upTo); err != nil {
			return err
		}
		p.chunk = &chunk{}
		if p.chunk.snapshot, err = parseXids(snap); err != nil {
			return err
		}
		if p.chunk.upTo, err = pglogrepl.ParseLSN(upTo); err != nil {
			return err
		}
		c, err := loadTables(ctx, tx, t.oid)
		if err != nil {
			return err
		}
		if t = c.byIndex[wanted.index]; t == nil || !slices.Equal(t.names(t.page), wanted.names(wanted.page)) {
			return fmt.Errorf("%s: %w", wanted.index, errNoTable)
		}
		if err := sr.session.knowTypes(ctx, tx, t.typeOIDs()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sr.query(t, last)); err != nil {
			return err
		}
		return sr.fetch(ctx, tx, t, last, &p)
	})
	if err != nil {
		return page{}, err
	}
	if err := makeLogVisible(ctx, sr.conn); err != nil {
		return page{}, err
	}
	return p, nil
}

// makeLogVisible has the feed pass what the log has so far: it shows only what
// is on disk, and nothing may make the server write that. A tiny commit does.
func makeLogVisible(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'flusso', '')"); err != nil {
		return fmt.Errorf("have the source write its log: %w", err)
	}
	return nil
}

func (sr *snapshotReader) query(t *table, last [][]byte) string {
	quoted := make([]string, len(t.page))
	values := make([]string, len(t.page))
	for i, c := range t.page {
		quoted[i] = pgx.Identifier{t.columns[c].name}.Sanitize()
		if last != nil {
			values[i] = quote(last[i]) + "::" + t.columns[c].typ
		}
	}
	key := strings.Join(quoted, ", ")
	where := ""
	if last != nil {
		where = fmt.Sprintf(" WHERE (%s) > (%s)", key, strings.Join(values, ", "))
	}
	return fmt.Sprintf("DECLARE flusso NO SCROLL CURSOR FOR SELECT %s FROM %s%s ORDER BY %s LIMIT %d",
		t.selectList(""), t.from(), where, key, sr.session.cfg.ChunkRows)
}

// fetch reads until the chunk is full, a few rows at a time while their size
// is not known. A page begins behind the key last, so that key in it means that
// the table does not go forward in the order of its key: page upon page would
// be the same one, without end.
func (sr *snapshotReader) fetch(ctx context.Context, tx pgx.Tx, t *table, last [][]byte, p *page) error {
	ts := *sr.session.types.Load()
	size, step := 0, 16
	for len(p.chunk.envelopes) < sr.session.cfg.ChunkRows && size < sr.session.cfg.ChunkBytes {
		res := tx.Conn().PgConn().ExecParams(ctx, fmt.Sprintf("FETCH FORWARD %d FROM flusso", step), nil, nil, nil, nil)
		n, fetched := 0, 0
		for res.NextRow() {
			row := res.Values()
			n++
			key := make([][]byte, len(t.id))
			for i, c := range t.id {
				key[i] = row[c]
			}
			doc := t.document(ts, row)
			fetched += len(doc)
			p.chunk.envelopes = append(p.chunk.envelopes, flusso.Envelope{
				Index: t.index, ID: documentID(key), Op: flusso.Upsert, Document: doc, BuiltAt: time.Now(),
			})
			p.last = make([][]byte, len(t.page))
			for i, c := range t.page {
				p.last[i] = slices.Clone(row[c])
			}
			if last != nil && slices.EqualFunc(last, p.last, bytes.Equal) {
				_, _ = res.Close()
				return &SnapshotStuckError{Index: t.index, Columns: t.names(t.page), ID: documentID(key)}
			}
		}
		if _, err := res.Close(); err != nil {
			return err
		}
		size += fetched
		if n < step {
			p.end = len(p.chunk.envelopes) < sr.session.cfg.ChunkRows
			return nil
		}
		if fetched < 256<<10 {
			step = min(step*4, 1024)
		}
	}
	return nil
}
