package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	flusso "github.com/flusso/flusso-kafka"
)

// feedMessage is a keepalive, or one message of the output plugin.
type feedMessage struct {
	keepalive *pglogrepl.PrimaryKeepaliveMessage
	logical   pglogrepl.Message
}

// receive reads the feed. It is the only reader of the connection; the loop is
// the only writer.
func (s *session) receive(ctx context.Context) error {
	for {
		raw, err := s.feed.ReceiveMessage(ctx)
		if err != nil {
			return fmt.Errorf("read the feed of slot %s: %w", s.src.slot, err)
		}
		var m feedMessage
		switch raw := raw.(type) {
		case *pgproto3.CopyData:
			if m, err = parseFeed(raw.Data); err != nil {
				return fmt.Errorf("read the feed of slot %s: %w", s.src.slot, err)
			}
		case *pgproto3.ErrorResponse:
			return fmt.Errorf("read the feed of slot %s: %w", s.src.slot, pgconn.ErrorResponseToPgError(raw))
		case *pgproto3.CopyDone:
			return fmt.Errorf("read the feed of slot %s: the server ended it", s.src.slot)
		default:
			continue // notices and parameters
		}
		select {
		case s.messages <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func parseFeed(data []byte) (m feedMessage, err error) {
	if len(data) == 0 {
		return m, errors.New("empty message")
	}
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return m, err
		}
		m.keepalive = &k
	case pglogrepl.XLogDataByteID:
		x, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return m, err
		}
		if m.logical, err = pglogrepl.Parse(x.WALData); err != nil {
			return m, err
		}
	default:
		return m, fmt.Errorf("unknown message %q", data[0])
	}
	return m, nil
}

const (
	statusEvery = 5 * time.Second        // well within any sane wal_sender_timeout
	askEvery    = 100 * time.Millisecond // while a chunk, or all snapshots, wait for the feed
)

// loop decides the order of everything that is published: see [window]. It never
// blocks on a publish, so it answers the server however full the lanes are.
func (s *session) loop(ctx context.Context) error {
	status, ask := time.NewTicker(statusEvery), time.NewTicker(askEvery)
	defer status.Stop()
	defer ask.Stop()
	for {
		messages, commands, out, first := s.messages, s.commands, s.out, outgoing{}
		if len(s.queue) > 0 {
			// What is read must be published before more is read.
			messages, commands, first = nil, nil, s.queue[0]
		} else {
			out = nil
		}
		if s.tx.open || s.window.chunk != nil {
			commands = nil
		}
		var err error
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case out <- first:
			s.queue[0] = outgoing{}
			s.queue = s.queue[1:]
		case m := <-messages:
			err = s.handle(ctx, m)
		case c := <-commands:
			err = c.run(ctx, s)
		case p := <-s.marks:
			if l := pglogrepl.LSN(p); l > s.confirmed {
				s.confirmed = l
				err = s.status(ctx, false)
			}
		case <-status.C:
			err = s.status(ctx, false)
		case <-ask.C:
			if (s.window.chunk != nil || s.passed < s.begin) && len(s.queue) == 0 {
				err = s.status(ctx, true)
			}
			s.publishIdle()
		}
		if err != nil {
			return err
		}
	}
}

func (s *session) handle(ctx context.Context, m feedMessage) error {
	if k := m.keepalive; k != nil {
		if !s.tx.open {
			// The server has sent every transaction that committed below.
			s.pass(k.ServerWALEnd)
			s.idle = max(s.idle, k.ServerWALEnd)
			if k.ReplyRequested {
				// A server that shuts down asks, and waits until the feed is
				// confirmed to its end.
				s.idleAt = time.Time{}
			}
			s.publishIdle()
		}
		if k.ReplyRequested {
			return s.status(ctx, false)
		}
		return nil
	}
	switch m := m.logical.(type) {
	case *pglogrepl.RelationMessage:
		return s.describe(ctx, m)
	case *pglogrepl.BeginMessage:
		s.pass(m.FinalLSN)
		s.tx.begin(m)
	case *pglogrepl.CommitMessage:
		return s.commit(ctx, m)
	case *pglogrepl.InsertMessage, *pglogrepl.UpdateMessage, *pglogrepl.DeleteMessage:
		if err := s.change(m); err != nil {
			return err
		}
		if s.tx.full(s.cfg) {
			return s.cut(ctx, true)
		}
	case *pglogrepl.TruncateMessage:
		return s.truncated(ctx, m)
	}
	return nil
}

// pass notes that every commit record below l is queued, and lets go what
// waited for it: the snapshots, and a chunk.
func (s *session) pass(l pglogrepl.LSN) {
	if l > s.passed {
		if s.passed < s.begin && l >= s.begin {
			close(s.caughtUp)
		}
		s.passed = l
	}
	if c := s.window.chunk; c != nil && s.passed >= c.upTo {
		s.publishChunk()
	}
}

func (s *session) commit(ctx context.Context, m *pglogrepl.CommitMessage) error {
	if !s.tx.open || m.CommitLSN != s.tx.commit {
		return fmt.Errorf("the feed of slot %s ends a transaction at %s that it began at %s", s.src.slot, m.CommitLSN, s.tx.commit)
	}
	if err := s.cut(ctx, false); err != nil {
		return err
	}
	s.tx.open = false
	s.unseen[s.tx.xid] = struct{}{}
	if err := s.forgetSeen(ctx); err != nil {
		return err
	}
	s.pass(m.TransactionEndLSN)
	return nil
}

// cut publishes what the transaction has touched so far to every lane.
func (s *session) cut(ctx context.Context, more bool) error {
	if err := s.complete(ctx); err != nil {
		return err
	}
	large := s.tx.bytes > largeBatch
	b := s.tx.take(more)
	s.last = b.Position
	s.publishToAll(b, large)
	return nil
}

// largeBatch is the size from which a batch goes alone: if it is over a limit of
// the lanes, nothing must be submitted behind it before that is known.
const largeBatch = 2 << 20

func (s *session) publishToAll(b *flusso.Batch, alone bool) {
	c := flusso.Commit{Items: make([]flusso.Routed, 0, len(s.sinks))}
	for _, sink := range s.sinks {
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: b})
	}
	s.queue = append(s.queue, outgoing{commit: c, alone: alone})
}

// publishIdle publishes the position of a database that is quiet, or busy with
// tables that are left out: an empty batch behind everything else, so that it
// is acked after everything else [Case 26], and the slot follows [Case 25].
func (s *session) publishIdle() {
	if s.tx.open || len(s.queue) > 0 || flusso.Position(s.idle) <= s.last || time.Since(s.idleAt) < s.cfg.IdleEvery {
		return
	}
	s.idleAt = time.Now()
	s.last = flusso.Position(s.idle)
	s.publishToAll(&flusso.Batch{Position: s.last}, false)
}

// describe takes the feed's description of a table: it comes before the
// table's first change, and again after the table was altered.
func (s *session) describe(ctx context.Context, m *pglogrepl.RelationMessage) error {
	t := s.catalog.Load().byOID[m.RelationID]
	if t == nil {
		c, err := loadTables(ctx, s.rows.conn, 0)
		if err != nil {
			return err
		}
		t = c.byOID[m.RelationID]
	}
	r := newRelation(m, t)
	if err := s.knowTypes(ctx, s.rows.conn, r.oids); err != nil {
		return err
	}
	if old := s.relations[m.RelationID]; old != nil && !old.same(r) {
		s.nudgeTables()
	}
	if old := s.relations[m.RelationID]; r.skip != "" && (old == nil || old.skip != r.skip) {
		s.log.Warn("changes of a table are left out", "table", r.index, "reason", r.skip)
	}
	s.relations[m.RelationID] = r
	return nil
}

// truncated asks for a snapshot of the tables for every sink, before the
// transaction that emptied them is published. The ids that are gone are not
// known here; the snapshot tells each sink what is left. Should the engine die
// between the two, the transaction comes again and asks again.
func (s *session) truncated(ctx context.Context, m *pglogrepl.TruncateMessage) error {
	s.tx.changes++
	var indexes []string
	for _, oid := range m.RelationIDs {
		r, err := s.relation(oid)
		if err != nil {
			return err
		}
		if r.skip == "" {
			indexes = append(indexes, r.index)
		}
	}
	return s.seedAll(ctx, indexes, "truncated")
}

// forgetSeen keeps the set of transactions that may be invisible small.
func (s *session) forgetSeen(ctx context.Context) error {
	const many = 2000
	if len(s.unseen) < many {
		return nil
	}
	var text string
	if err := s.rows.conn.QueryRow(ctx, "SELECT txid_current_snapshot()::text").Scan(&text); err != nil {
		return fmt.Errorf("look at the running transactions: %w", err)
	}
	snap, err := parseXids(text)
	if err != nil {
		return err
	}
	for x := range s.unseen {
		if snap.sees(x) {
			delete(s.unseen, x)
		}
	}
	return nil
}
