package ingest

import (
	"github.com/jackc/pglogrepl"

	flusso "github.com/flusso/flusso-kafka"
)

// window is the time between the moment when a chunk of a table is asked for
// and the moment when its rows are published.
//
// The argument for [D4], that on a lane a document's later message is its
// newer state. A chunk is read in a snapshot S of the server; S contains exactly
// the transactions that [xids.sees] says. upTo is the end of the log read after S
// was taken: the commit record of each transaction in S lies below it. The
// session's loop is the only publisher. It publishes the chunk at the first moment when
// the feed has passed upTo, between two transactions. Then, for a row of it:
//
//   - Nothing that comes later is older. A transaction that is published later
//     has its commit record at or above upTo, so it is not in S, and its change of the
//     row is newer than what S saw.
//   - Nothing that came before is newer. A transaction that was published before and is
//     not in S may have changed the row. If it was published while the window was open,
//     the row was noted here, and is dropped from the chunk: the lanes
//     have it whole already, in a newer state. If it was published before the window
//     opened, the chunk is read again, after a pause, until S contains it. (There are such:
//     a commit is in the log before others see it; with synchronous replication, long
//     before.)
//   - A row that was published in a state read from its table (see
//     [session.complete]) is dropped from the chunk in any case: which of the two
//     reads was later is not known, and the one that was published is followed by all that it lacks.
//
// It holds within a session: what was read from tables is forgotten with it, see
// [session.complete].
//
// The mark that opens a snapshot in a lane comes before the window opens, and no
// snapshot begins before the feed shows only what the lanes do not hold yet (see
// [session.catchUp]), so a row that is dropped has been published behind the mark.
//
// Memory: as soon as S is known only rows touched by transactions that are not in it are
// noted. However far behind the feed is, these are the few that committed while the
// chunk was read.
type window struct {
	index   string // "" when closed
	before  map[uint32]struct{}
	touched map[string]uint32   // id to the last transaction not known to be in S
	read    map[string]struct{} // ids published in a state read from the table
	chunk   *chunk
}

// chunk is rows of one table as one snapshot has them.
type chunk struct {
	envelopes []flusso.Envelope
	snapshot  xids
	upTo      pglogrepl.LSN
	sinks     []string
	again     chan<- bool // whether to read it again; answered when it is published
}

// opened starts a window. unseen are the transactions published so far that
// no snapshot has been known to contain.
func (w *window) opened(index string, unseen map[uint32]struct{}) {
	*w = window{index: index, before: make(map[uint32]struct{}, len(unseen)), touched: make(map[string]uint32), read: make(map[string]struct{})}
	for x := range unseen {
		w.before[x] = struct{}{}
	}
}

// touch notes a document that is published from the feed.
func (w *window) touch(index, id string, xid uint32, reread bool) {
	switch {
	case w.index != index || index == "":
	case reread:
		w.read[id] = struct{}{}
	case w.chunk == nil || !w.chunk.snapshot.sees(xid):
		w.touched[id] = xid
	}
}

// take gives the window its chunk. It reports false when the chunk must be
// read again.
func (w *window) take(c *chunk) bool {
	for x := range w.before {
		if !c.snapshot.sees(x) {
			return false
		}
	}
	w.chunk = c
	for id, x := range w.touched {
		if c.snapshot.sees(x) {
			delete(w.touched, id)
		}
	}
	return true
}

// rows closes the window and returns what of its chunk is to be published.
func (w *window) rows() []flusso.Envelope {
	var out []flusso.Envelope
	for _, e := range w.chunk.envelopes {
		_, touched := w.touched[e.ID]
		_, read := w.read[e.ID]
		if !touched && !read {
			out = append(out, e)
		}
	}
	*w = window{}
	return out
}
