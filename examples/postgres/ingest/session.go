package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	flusso "github.com/flusso/flusso-kafka"
)

// session is one run of the feed, from the slot's position to the first error:
// of the feed, of a query, or of a publish. All its state starts anew with it.
type session struct {
	src    *Source
	cfg    *Config
	log    *slog.Logger
	stream flusso.Stream
	sinks  []string

	feed     *pgconn.PgConn
	rows     rowReader
	types    atomic.Pointer[types]
	catalog  atomic.Pointer[catalog]
	commits  flusso.Producer[flusso.Commit]
	requests flusso.Producer[flusso.Request]
	nudge    chan struct{}
	seeded   map[string]flusso.Position // see remembered; fixed once open returns

	// Of the loop's goroutine.
	relations map[uint32]*relation
	tx        transaction
	reread    rereads
	window    window
	unseen    map[uint32]struct{} // published transactions that no snapshot is known to see
	passed    pglogrepl.LSN       // every commit record below it is published or queued
	begin     pglogrepl.LSN       // commit records of what the lanes held before this session lie below it
	caughtUp  chan struct{}       // closed once begin is passed; fixed once open returns
	idle      pglogrepl.LSN       // passed at the last keepalive: may be published as a position
	idleAt    time.Time
	last      flusso.Position // newest position queued
	confirmed pglogrepl.LSN
	queue     []outgoing

	messages chan feedMessage
	out      chan outgoing
	pending  chan pendingPublish
	commands chan command
	marks    chan flusso.Position
	newest   atomic.Uint64 // position of the newest durable live batch
	dropped  atomic.Uint64
	asked    inbox
}

// outgoing is a commit on its way to the publisher.
type outgoing struct {
	commit flusso.Commit
	alone  bool        // nothing is submitted behind it before it is durable
	done   func(error) // may be nil
}

type pendingPublish struct {
	outgoing
	future *flusso.Future
}

// Run publishes the change feed to every lane of the stream, serves the
// requests, and confirms the slot at the watermark, until ctx ends (then it
// returns nil) or an error that trying again cannot help. The stream must have
// been opened for [Source.Incarnation]. After any other error it goes on by
// itself: with a new writer session, from the watermark.
func (s *Source) Run(ctx context.Context, stream flusso.Stream) error {
	delay := backoff{}
	for {
		began := time.Now()
		err := s.session(ctx, stream)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // stopped by the caller: whatever ended with it is no failure
		case err == nil:
			err = errors.New("the change feed ended")
		case final(err):
			return err
		}
		wait := delay.next(time.Since(began))
		s.log.Warn("the feed stopped; it goes on from the watermark with a new writer session",
			"slot", s.slot, "error", err, "after", wait.Round(time.Millisecond))
		if pause(ctx, wait) != nil {
			return nil //nolint:nilerr // as above
		}
	}
}

func (s *Source) session(ctx context.Context, stream flusso.Stream) error {
	se := &session{
		src: s, cfg: &s.cfg, log: s.log, stream: stream, sinks: stream.Sinks(),
		nudge: make(chan struct{}, 1), relations: make(map[uint32]*relation), reread: make(rereads), unseen: make(map[uint32]struct{}),
		messages: make(chan feedMessage, 64), out: make(chan outgoing, 8), pending: make(chan pendingPublish, 1024),
		commands: make(chan command), marks: make(chan flusso.Position, 1), asked: newInbox(), caughtUp: make(chan struct{}),
	}
	defer se.close(ctx)
	if err := se.open(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		se.receive, se.loop, se.publish, se.settle, se.watch, se.watchTables, se.receiveRequests, se.serveRequests,
	} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// open connects, checks that slot and stream fit together, starts the feed, and
// then takes the writer's lease: not before, so that a second engine on a slot
// that is in use does not fence the first.
func (s *session) open(ctx context.Context) error {
	var err error
	if s.rows.conn, err = connect(ctx, s.cfg.Source, "rows"); err != nil {
		return err
	}
	if s.confirmed, err = s.src.slotPosition(ctx, s.rows.conn); err != nil {
		return err
	}
	mark, err := s.stream.Watermark(ctx)
	if err != nil {
		return fmt.Errorf("look at the watermark: %w", err)
	}
	passed, err := s.checkSlot(ctx, mark)
	if err != nil {
		return err
	}
	s.last = mark.Position
	s.newest.Store(uint64(mark.Position))
	if s.feed, err = connectFeed(ctx, s.cfg.Source); err != nil {
		return err
	}
	id, err := pglogrepl.IdentifySystem(ctx, s.feed)
	if err != nil {
		return fmt.Errorf("identify the source: %w", err)
	}
	if now := incarnationOf(id, s.src.slot); now != s.src.incarnation {
		return fmt.Errorf("%w: it was %s, it is %s", ErrNewFeed, s.src.incarnation, now)
	}
	memory, err := s.loadCatalog(ctx, s.rows.conn)
	if err != nil {
		return err
	}
	if err := s.startFeed(ctx); err != nil {
		return err
	}
	if s.commits, err = s.stream.Commits(ctx); err != nil {
		return fmt.Errorf("take the writer's lease: %w", err)
	}
	// Behind the lease: no other session adds to the lanes from here on.
	if s.begin, err = endOfLog(ctx, s.rows.conn); err != nil {
		return err
	}
	if s.requests, err = s.stream.Requests().Producer(ctx); err != nil {
		return fmt.Errorf("open the request lane: %w", err)
	}
	if err := s.seed(ctx, passed, []string{EveryID}); err != nil {
		return err
	}
	if err := s.seedWhatChanged(ctx, s.rows.conn, memory, mark); err != nil {
		return err
	}
	s.src.known = s.remembering()
	s.log.Info("feed started", "slot", s.src.slot, "incarnation", s.src.incarnation, "publication", s.cfg.Publication,
		"from", s.confirmed.String(), "watermark", lsnOf(mark.Position).String(), "tables", len(s.catalog.Load().tables))
	return nil
}

func (s *session) startFeed(ctx context.Context) error {
	name := "'" + strings.ReplaceAll(pgx.Identifier{s.cfg.Publication}.Sanitize(), "'", "''") + "'"
	err := pglogrepl.StartReplication(ctx, s.feed, s.src.slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names " + name},
	})
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "55006":
		return fmt.Errorf("start the feed: %w: another engine runs on this slot, or one was killed a moment ago", err)
	case err != nil:
		return fmt.Errorf("start the feed of slot %s: %w", s.src.slot, err)
	}
	return nil
}

// close ends what the session opened, within its own time: its ctx is over.
func (s *session) close(ctx context.Context) {
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if s.commits != nil {
		if err := s.commits.Close(ctx); err != nil && !errors.Is(err, flusso.ErrClosed) {
			s.log.Info("closing the writer", "error", err)
		}
	}
	if s.requests != nil {
		if err := s.requests.Close(ctx); err != nil && !errors.Is(err, flusso.ErrClosed) {
			s.log.Info("closing the request lane", "error", err)
		}
	}
	// Closing a connection that broke tells nothing new.
	if s.feed != nil {
		s.confirmLast(ctx)
		_ = s.feed.Close(ctx)
	}
	if s.rows.conn != nil {
		_ = s.rows.conn.Close(ctx)
	}
}

// confirmLast takes the slot to the watermark once more, so that an engine
// that is stopped after everything was acked leaves it there.
func (s *session) confirmLast(ctx context.Context) {
	if s.feed.IsClosed() {
		return
	}
	if mark, err := s.stream.Watermark(ctx); err == nil && mark.Incarnation == s.src.incarnation {
		s.confirmed = max(s.confirmed, pglogrepl.LSN(mark.Position))
	}
	_ = s.status(ctx, false)
}

// status tells the server how far the feed is confirmed. What was received
// but not acked is not mentioned in any field: the server takes each of them
// for a reason to forget.
func (s *session) status(ctx context.Context, replyWanted bool) error {
	err := pglogrepl.SendStandbyStatusUpdate(ctx, s.feed, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: s.confirmed, WALFlushPosition: s.confirmed, WALApplyPosition: s.confirmed, ReplyRequested: replyWanted,
	})
	if err != nil {
		return fmt.Errorf("confirm slot %s at %s: %w", s.src.slot, s.confirmed, err)
	}
	return nil
}
