package ingest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	flusso "github.com/flusso/flusso-kafka"
)

// relation is a table as the change feed describes it at this point: its
// columns may be older than the catalog's.
type relation struct {
	oid    uint32
	table  *table // what the catalog has; nil when it was dropped since
	index  string
	skip   string // why its changes are left out
	full   bool   // REPLICA IDENTITY FULL: old rows come whole
	names  []string
	oids   []uint32
	order  []int // columns in the document's order
	key    []int // columns of the id, in the document's order
	fields []field
}

func newRelation(m *pglogrepl.RelationMessage, t *table) *relation {
	r := &relation{oid: m.RelationID, table: t, full: m.ReplicaIdentity == 'f'}
	flagged := make(map[string]bool)
	for i, c := range m.Columns {
		r.names = append(r.names, c.Name)
		r.oids = append(r.oids, c.DataType)
		r.order = append(r.order, i)
		if c.Flags&1 != 0 {
			flagged[c.Name] = true
		}
	}
	if t == nil {
		r.index = indexName(m.Namespace, m.RelationName)
		if r.full {
			r.skip = "the table is gone, and its feed does not say what its key was"
		}
	} else {
		r.index, r.skip = t.index, t.unusable
		if r.full {
			flagged = make(map[string]bool)
			for _, n := range t.names(t.id) {
				flagged[n] = true
			}
		}
		// A partition's columns may be in another order than the table's.
		rank := make(map[string]int, len(t.columns))
		for i, c := range t.columns {
			rank[c.name] = i + 1
		}
		slices.SortStableFunc(r.order, func(a, b int) int { return rank[r.names[a]] - rank[r.names[b]] })
	}
	for _, i := range r.order {
		if flagged[r.names[i]] {
			r.key = append(r.key, i)
		}
	}
	if len(r.key) == 0 && r.skip == "" {
		r.skip = "no key"
	}
	r.fields = make([]field, len(r.order))
	return r
}

// same reports whether documents of the two are built in the same way.
func (r *relation) same(o *relation) bool {
	return r.index == o.index && slices.Equal(r.names, o.names) && slices.Equal(r.oids, o.oids) && slices.Equal(r.key, o.key)
}

func (r *relation) keyNames() []string {
	out := make([]string, len(r.key))
	for i, c := range r.key {
		out[i] = r.names[c]
	}
	return out
}

// keyOf returns the key's values, or false when the row does not have them.
func (r *relation) keyOf(row [][]byte) ([][]byte, bool) {
	key := make([][]byte, len(r.key))
	for i, c := range r.key {
		if row[c] == nil {
			return nil, false
		}
		key[i] = row[c]
	}
	return key, true
}

func (r *relation) document(ts types, row [][]byte) []byte {
	for i, c := range r.order {
		r.fields[i] = field{r.names[c], r.oids[c], row[c]}
	}
	return ts.document(r.fields)
}

// rereadLimit is how many documents of a batch are read from their tables: it
// bounds memory, since their size is not known before.
const rereadLimit = 32

// touched is a document that a transaction changed, in its newest state.
type touched struct {
	envelope flusso.Envelope
	rel      *relation
	key      [][]byte
	reread   bool
}

// transaction gathers what a source transaction did, document by document,
// until a batch is cut.
type transaction struct {
	open     bool
	position flusso.Position
	commit   pglogrepl.LSN // of its commit record
	xid      uint32

	docs    []touched
	at      map[string]int // index/id to docs
	bytes   int
	rereads int
	changes uint64
	cuts    int
}

func (t *transaction) begin(m *pglogrepl.BeginMessage) {
	*t = transaction{open: true, position: after(m.FinalLSN), commit: m.FinalLSN, xid: m.Xid, at: make(map[string]int)}
}

// after is the position of a transaction whose commit record is at l: the
// first at which that record is passed. The server skips a transaction when
// its commit record lies below what the slot has confirmed, and the commit
// record of the next can begin where the log ended at a keepalive: so l+1 is the
// smallest number that is confirmed by confirming it, is known when the
// transaction begins, and lies above every keepalive before it.
func after(l pglogrepl.LSN) flusso.Position { return flusso.Position(l) + 1 }

// touch records a document's new state. Of several in one batch the last counts.
func (t *transaction) touch(d touched) {
	name := d.envelope.Index + "/" + d.envelope.ID
	if i, ok := t.at[name]; ok {
		old := &t.docs[i]
		t.bytes -= len(old.envelope.Document)
		if old.reread {
			t.rereads--
		}
		*old = d
	} else {
		t.at[name] = len(t.docs)
		t.docs = append(t.docs, d)
		t.bytes += len(name)
	}
	t.bytes += len(d.envelope.Document)
	if d.reread {
		t.rereads++
	}
}

// full reports whether a batch must be cut before the transaction's end.
func (t *transaction) full(cfg *Config) bool {
	return t.bytes >= cfg.BatchBytes || len(t.docs) >= cfg.BatchEnvelopes || t.rereads >= rereadLimit
}

// take ends the batch.
func (t *transaction) take(more bool) *flusso.Batch {
	b := &flusso.Batch{Position: t.position, More: more, Changes: t.changes}
	now := time.Now()
	for _, d := range t.docs {
		d.envelope.Position, d.envelope.BuiltAt = t.position, now
		b.Envelopes = append(b.Envelopes, d.envelope)
	}
	t.docs, t.at, t.bytes, t.rereads, t.changes = nil, make(map[string]int), 0, 0, 0
	t.cuts++
	return b
}

// change turns a row change into touched documents.
func (s *session) change(m pglogrepl.Message) error {
	switch m := m.(type) {
	case *pglogrepl.InsertMessage:
		r, err := s.relation(m.RelationID)
		if err != nil || r.skip != "" {
			return err
		}
		s.tx.changes++
		return s.upsert(r, nil, m.Tuple, false)
	case *pglogrepl.UpdateMessage:
		r, err := s.relation(m.RelationID)
		if err != nil || r.skip != "" {
			return err
		}
		s.tx.changes++
		return s.upsert(r, m.OldTuple, m.NewTuple, m.OldTupleType == pglogrepl.UpdateMessageTupleTypeOld)
	case *pglogrepl.DeleteMessage:
		r, err := s.relation(m.RelationID)
		if err != nil || r.skip != "" {
			return err
		}
		s.tx.changes++
		row, _ := values(m.OldTuple)
		key, ok := r.keyOf(row)
		if !ok {
			return fmt.Errorf("delete from %s at %s: the feed has no key", r.index, s.tx.commit)
		}
		s.remove(r, key)
		return nil
	}
	return nil
}

func (s *session) relation(oid uint32) (*relation, error) {
	r, ok := s.relations[oid]
	if !ok {
		return nil, fmt.Errorf("change of relation %d at %s, which the feed has not described", oid, s.tx.commit)
	}
	return r, nil
}

// values returns a tuple's values, nil for NULL, and which are missing because
// they were stored out of line and did not change.
func values(t *pglogrepl.TupleData) (row [][]byte, missing []int) {
	row = make([][]byte, len(t.Columns))
	for i, c := range t.Columns {
		switch c.DataType {
		case pglogrepl.TupleDataTypeText, pglogrepl.TupleDataTypeBinary:
			if row[i] = c.Data; c.Data == nil {
				row[i] = []byte{}
			}
		case pglogrepl.TupleDataTypeToast:
			missing = append(missing, i)
		}
	}
	return row, missing
}

func (s *session) upsert(r *relation, old, now *pglogrepl.TupleData, oldWhole bool) error {
	row, missing := values(now)
	var oldRow [][]byte
	if old != nil {
		var absent []int
		oldRow, absent = values(old)
		// An old row that came whole has every value; one that came as a key
		// has those of the key.
		missing = slices.DeleteFunc(missing, func(c int) bool {
			if slices.Contains(absent, c) || !oldWhole && !slices.Contains(r.key, c) {
				return false
			}
			row[c] = oldRow[c]
			return true
		})
	}
	key, ok := r.keyOf(row)
	if !ok {
		return fmt.Errorf("change of %s at %s: the feed has no key", r.index, s.tx.commit)
	}
	id := documentID(key)
	if oldRow != nil {
		if oldKey, ok := r.keyOf(oldRow); ok && documentID(oldKey) != id {
			s.remove(r, oldKey)
		}
	}
	d := touched{envelope: flusso.Envelope{Index: r.index, ID: id, Op: flusso.Upsert}, rel: r, key: key}
	if len(missing) > 0 || s.reread.covers(r.index, id, s.tx.commit) {
		d.reread = true
	} else {
		d.envelope.Document = r.document(*s.types.Load(), row)
	}
	s.touch(d)
	return nil
}

func (s *session) remove(r *relation, key [][]byte) {
	id := documentID(key)
	s.touch(touched{
		envelope: flusso.Envelope{Index: r.index, ID: id, Op: flusso.Delete}, rel: r, key: key,
		reread: s.reread.covers(r.index, id, s.tx.commit),
	})
}

func (s *session) touch(d touched) {
	s.tx.touch(d)
	s.window.touch(d.envelope.Index, d.envelope.ID, s.tx.xid, d.reread)
}

// complete reads the documents that the feed did not give whole, as the tables
// have them now.
//
// Why whole rows, and not the missing values: the feed is behind the tables, so
// a value read now may be newer than the change, and pieced together with older
// columns it would be a row that never was. What is read now is a row that was
// there, in a state at or after the change. But then the feed goes on to
// changes that this state contains already: publishing those would go back in
// time [D4]. So every later change of a document that was read is read again,
// until the feed has passed the log position that the read was at: see
// [rereads]. That is forgotten with the session: where sinks acked such a
// row, and the next session goes on behind it, the changes up to that position
// take the row back, and forward again.
//
// The read must see the change itself, which is committed but, for a moment,
// may be invisible (its session is still waiting for a synchronous standby, or
// has not been scheduled again).
func (s *session) complete(ctx context.Context) error {
	if s.tx.rereads == 0 {
		return nil
	}
	groups := make(map[*relation][]int)
	for i, d := range s.tx.docs {
		if d.reread {
			groups[d.rel] = append(groups[d.rel], i)
		}
	}
	for r, list := range groups {
		keys := make([][][]byte, len(list))
		for i, at := range list {
			keys[i] = s.tx.docs[at].key
		}
		docs, upTo, err := s.rows.read(ctx, s, r, keys, s.tx.xid)
		if err != nil {
			return fmt.Errorf("read rows of %s changed at %s: %w", r.index, s.tx.commit, err)
		}
		for i, at := range list {
			d := &s.tx.docs[at]
			d.reread = false
			if d.envelope.Op, d.envelope.Document = flusso.Upsert, docs[i]; docs[i] == nil {
				d.envelope.Op = flusso.Delete
			}
			s.tx.bytes += len(docs[i])
			s.reread.add(r.index, d.envelope.ID, upTo)
		}
	}
	s.tx.rereads = 0
	return nil
}

// rereads remembers which documents were published in a state read from the
// tables, and up to which log position changes of them may be older than that.
type rereads map[string]*rereadIndex

type rereadIndex struct {
	upTo pglogrepl.LSN
	ids  map[string]struct{} // nil: any
}

// rereadIDs is how many documents of an index are remembered one by one; with
// more of them all of the index count.
const rereadIDs = 50_000

func (r rereads) covers(index, id string, commit pglogrepl.LSN) bool {
	x := r[index]
	if x == nil {
		return false
	}
	if commit >= x.upTo {
		delete(r, index)
		return false
	}
	if x.ids == nil {
		return true
	}
	_, ok := x.ids[id]
	return ok
}

func (r rereads) add(index, id string, upTo pglogrepl.LSN) {
	x := r[index]
	if x == nil {
		x = &rereadIndex{ids: make(map[string]struct{})}
		r[index] = x
	}
	x.upTo = max(x.upTo, upTo)
	if x.ids == nil {
		return
	}
	if x.ids[id] = struct{}{}; len(x.ids) > rereadIDs {
		x.ids = nil
	}
}
