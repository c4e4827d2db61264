package ingest

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	flusso "github.com/flusso/flusso-kafka"
)

// ErrNewFeed tells that the source is not the one that the stream was opened for: its
// slot is gone, or the server was restored or failed over. Close the stream,
// call [Open] again and open a stream for the new incarnation; the sinks are
// seeded again by that.
var ErrNewFeed = errors.New("the change feed is not the one this stream was opened for")

// SlotMovedError tells that the slot is ahead of everything that the sinks have acked.
// Only somebody else can have moved it, or created it anew: the changes in
// between are lost.
type SlotMovedError struct {
	Slot      string
	Confirmed flusso.Position // where the slot is
	Acked     flusso.Position // the highest that any sink acked
}

func (e *SlotMovedError) Error() string {
	return fmt.Sprintf("slot %s is confirmed at %s, but no sink has acked more than %s: somebody else advanced it or created it anew, "+
		"and changes in between are lost: drop it with SELECT pg_drop_replication_slot('%s') and start again: "+
		"a new slot is made and every sink is seeded again", e.Slot, lsnOf(e.Confirmed), lsnOf(e.Acked), e.Slot)
}

// SlotError tells that the slot cannot be used.
type SlotError struct {
	Slot   string
	Reason string // what is wrong and the way out
}

func (e *SlotError) Error() string { return "replication slot " + e.Slot + ": " + e.Reason }

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
		name       *flusso.NameError
		invalid    *flusso.InvalidError
		limit      *flusso.LimitError
		position   *flusso.PositionError
		sink       *flusso.UnknownSinkError
		gap        *flusso.GapError
		unverified *flusso.UnverifiedError
		pg         *pgconn.PgError
	)
	if errors.As(err, &moved) || errors.As(err, &slot) || errors.As(err, &server) || errors.As(err, &name) ||
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
