package ingest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	flusso "github.com/flusso/flusso-kafka"
)

// ErrNewFeed tells that the source is not the one that the stream was opened for: its
// slot is gone, or the server was restored or failed over. Close the stream,
// call [Open] again and open a stream for the new incarnation; the sinks are
// seeded again by that.
var ErrNewFeed = errors.New("the change feed is not the one this stream was opened for")

// SlotMovedError tells that the slot is ahead of everything that the sinks have
// acked. Only somebody else can have moved it, or created it anew: the changes
// in between are lost. (A slot that is ahead of some of the sinks is no error:
// they are seeded again.)
type SlotMovedError struct {
	Slot      string
	Confirmed flusso.Position // where the slot is
	Acked     flusso.Position // the highest that any sink acked
	Sinks     []string        // those that are behind
}

func (e *SlotMovedError) Error() string {
	return fmt.Sprintf("slot %s is confirmed at %s, but of the sinks %s none has acked more than %s: somebody else advanced it or created it anew, "+
		"and changes in between are lost: drop it with SELECT pg_drop_replication_slot('%s') and start again: "+
		"a new slot is made and every sink is seeded again; or, when the sinks were rewound by hand and the lanes still hold it all, start with --trust-slot",
		e.Slot, lsnOf(e.Confirmed), strings.Join(e.Sinks, ", "), lsnOf(e.Acked), e.Slot)
}

// SlotError tells that the slot cannot be used.
type SlotError struct {
	Slot   string
	Reason string // what is wrong and the way out
}

func (e *SlotError) Error() string { return "replication slot " + e.Slot + ": " + e.Reason }

// SnapshotStuckError tells that a table could not be read page by page: the
// page behind a key began at or before that key.
type SnapshotStuckError struct {
	Index   string   // the table
	Columns []string // of its key, in the key's order
	ID      string   // the document that came again
}

func (e *SnapshotStuckError) Error() string {
	return fmt.Sprintf("table %s is not read forward in the order of its key (%s): document %s came again behind itself: "+
		"its comparison operators or its key's index disagree with the order of the rows: run REINDEX TABLE (after a change of the collation's version, say), "+
		"see that no operator of another schema hides the one of the key's type, or leave the table out: drop it from the publication and take SELECT on it from the user",
		e.Index, strings.Join(e.Columns, ", "), e.ID)
}

// ServerError tells that the server's settings or version do not allow it.
type ServerError struct{ Reason string }

func (e *ServerError) Error() string { return "source database: " + e.Reason }

// final reports whether trying again cannot help.
func final(err error) bool {
	for _, target := range []error{flusso.ErrFenced, flusso.ErrSuperseded, ErrNewFeed} {
		if errors.Is(err, target) {
			return true
		}
	}
	var (
		moved      *SlotMovedError
		slot       *SlotError
		server     *ServerError
		stuck      *SnapshotStuckError
		name       *flusso.NameError
		invalid    *flusso.InvalidError
		limit      *flusso.LimitError
		position   *flusso.PositionError
		sink       *flusso.UnknownSinkError
		gap        *flusso.GapError
		unverified *flusso.UnverifiedError
		pg         *pgconn.PgError
	)
	if errors.As(err, &moved) || errors.As(err, &slot) || errors.As(err, &server) || errors.As(err, &stuck) || errors.As(err, &name) ||
		errors.As(err, &invalid) || errors.As(err, &limit) || errors.As(err, &position) || errors.As(err, &sink) ||
		errors.As(err, &gap) || errors.As(err, &unverified) {
		return true
	}
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "28000", "28P01", "3D000", "42501": // authentication, no such database, privileges
		return true
	}
	return false
}
