package offsets

import (
	"context"
	"errors"
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// Gap is a half-open span of offsets between a committed offset and a later
// log start: what was in it is gone.
type Gap struct {
	From, To flusso.Offset
	// Items is how many items of the lane were lost in it, 0 when all that
	// was in it had been acked. It is exact when Known.
	Items uint64
	Known bool // the commit said how many items came before
}

// Lag is what waits in a lane behind the committed offset. Its counts are
// differences of running totals: exact, whatever the backlog, and never
// negative.
type Lag struct {
	// Batches, Envelopes, Bytes (keys and values, uncompressed) and Changes
	// (of the source) count the retained items that were not acked.
	Batches, Envelopes, Bytes, Changes uint64
	Age                                time.Duration // age of the first item not acked; 0 when caught up
	// Known is false without a committed offset: how much waits is then not
	// known, the counts and Age are 0, and Retained says what could.
	Known    bool
	Retained Totals // everything in the log, while Known is false
	Gap      *Gap   // the committed offset is below the log start; nil otherwise

	Committed flusso.Offset   // NoOffset when nothing is committed
	Through   flusso.Position // through of the newest item below Committed, NoPosition when unknown
	Start     flusso.Offset   // log start
	Tail      flusso.Offset   // offset after the newest item, NoOffset when the lane has none
	Newest    flusso.Position // position of the newest live batch in its incarnation
	NewestTo  flusso.Position // through of the newest item
	// AckedTotals are the running totals of the newest acked item, TailTotals
	// those of the newest item; nil where they are not known, or none is there.
	AckedTotals, TailTotals *Totals
	First                   *Found // the first item that was not acked; nil when caught up or not known
	Seeding                 bool   // the first item not acked is a part of a snapshot: a batch of it, or its marker
	Undecided               bool   // something lies behind the last stable offset, in a transaction that is still open
	ReadAt                  time.Time
	Err                     error // the look-up failed: no number above counts
	CommitMeta              *Metadata
}

// Lag returns the lag of each lane. It reads the committed offsets first and
// the ends after them, so that a race with producer and consumer can only make
// it larger than it is. One deleted lane has its error and the others their
// numbers. It costs one OffsetFetch for each coordinator, Metadata and three
// ListOffsets, and two small reads for all lanes of a leader together, with a
// third for those that are behind; less where the indexes help.
func (s *Store) Lag(ctx context.Context, lanes []topics.Lane) (map[topics.Lane]Lag, error) {
	lanes = unique(lanes)
	commits, _ := s.Commits(ctx, lanes) // each lane has its error
	tails, _ := s.tails(ctx, lanes, 0)
	out := s.lag(ctx, lanes, commits, tails)
	return out, everyErr(lanes, out, func(l Lag) error { return l.Err })
}

// lag is the lag of lanes between commits and tails.
func (s *Store) lag(ctx context.Context, lanes []topics.Lane, commits map[topics.Lane]Commit, tails map[topics.Lane]Tail) map[topics.Lane]Lag {
	now := time.Now()
	out := make(map[topics.Lane]Lag, len(lanes))
	var behind []*measure
	for _, l := range lanes {
		m := newMeasure(l, commits[l], tails[l], now)
		out[l] = m.lag
		if m.lag.Err == nil && m.tail.Found {
			behind = append(behind, m)
		}
	}
	s.measure(ctx, behind)
	for _, m := range behind {
		out[m.lane] = m.lag
	}
	return out
}

// measure is the lag of one lane in the making.
type measure struct {
	lane   topics.Lane
	commit Commit
	tail   Tail
	lag    Lag
	before *search // newest item that was acked
	first  *search // first item that was not
}

func newMeasure(l topics.Lane, c Commit, t Tail, now time.Time) *measure {
	m := &measure{lane: l, commit: c, tail: t}
	m.lag = Lag{
		Known: c.State == Present, Committed: c.Offset, Start: t.Start, Tail: flusso.NoOffset,
		Undecided: t.High > t.Stable, ReadAt: now, CommitMeta: c.Meta,
	}
	switch {
	case c.State == Failed:
		m.fail(c.Err)
		return m
	case t.Err != nil:
		m.fail(t.Err)
		return m
	}
	if t.Found {
		m.lag.Tail = t.At + 1
		m.lag.Newest, m.lag.NewestTo = t.Header.Newest, t.Header.Through
		m.lag.TailTotals = &t.Header.Totals
	} else if c.Own() && c.Meta.Sequence == 0 {
		m.lag.AckedTotals = new(Totals) // attached, and there was nothing yet
	}
	switch {
	case c.Own() && c.Meta.TopicID != t.TopicID:
		m.fail(Start(l, c, Commit{}, t.Ends).Err)
	case c.State == Present && c.Offset > t.High:
		m.fail(fmt.Errorf("lag of sink %q: %w", l.Sink, &UnknownError{
			Lane: l, What: fmt.Sprintf("items behind committed offset %s", c.Offset), Start: t.Start,
			Reason: fmt.Sprintf("the log ends at offset %s already: it was truncated, or the offset was set by another tool", t.High),
		}))
	case c.State == Present && c.Offset < t.Start:
		m.lag.Gap = &Gap{From: c.Offset, To: t.Start}
	}
	if c.Own() {
		m.lag.Through = c.Meta.Through
	}
	return m
}

func (m *measure) fail(err error) {
	m.lag.Known, m.lag.Err, m.lag.AckedTotals, m.lag.First = false, err, nil, nil
}

// caughtUp reports whether the newest item is acked.
func (m *measure) caughtUp() bool { return m.lag.Known && m.tail.At < m.commit.Offset }

// from is where the items that count begin.
func (m *measure) from() flusso.Offset {
	if !m.lag.Known {
		return m.tail.Start
	}
	return max(m.commit.Offset, m.tail.Start)
}

// measure reads what the lags of lanes need.
func (s *Store) measure(ctx context.Context, ms []*measure) {
	var befores, firsts []*search
	for _, m := range ms {
		if m.caughtUp() && m.commit.Own() {
			continue // its metadata has the through
		}
		if m.from() > m.tail.Start {
			m.before = below(m.lane, m.from(), 1)
			befores = append(befores, m.before)
		}
		if !m.caughtUp() {
			m.first = above(m.lane, m.from())
			firsts = append(firsts, m.first)
		}
	}
	_ = s.run(ctx, identityAge, befores...) // each search has its error
	for _, m := range ms {
		if m.first != nil && (m.before == nil || errors.Is(m.before.err, ErrUnknown)) {
			m.first.weigh = true // no totals before it: its own bytes must be read
		}
	}
	_ = s.run(ctx, identityAge, firsts...)
	for _, m := range ms {
		m.finish()
	}
}

func (m *measure) finish() {
	if m.before != nil && m.before.found != nil {
		m.lag.Through = m.before.found.Header.Through
	}
	for _, q := range []*search{m.before, m.first} {
		if q != nil && q.err != nil && !errors.Is(q.err, ErrUnknown) {
			m.fail(q.err)
			return
		}
	}
	if m.caughtUp() {
		m.lag.AckedTotals = m.lag.TailTotals
		return
	}
	if m.first.found == nil {
		// Trimmed, or recreated, while it was looked at.
		m.fail(fmt.Errorf("lag of sink %q: %w", m.lane.Sink, m.first.err))
		return
	}
	first := &m.first.found.Header
	var base Totals
	if m.before != nil && m.before.found != nil {
		base = m.before.found.Header.Totals
	} else {
		base = first.Totals
		base.Batches--
		base.Envelopes -= min(base.Envelopes, uint64(first.Envelopes))
		base.Changes -= min(base.Changes, first.Changes)
		base.Bytes -= min(base.Bytes, m.first.payload)
	}
	waiting, ok := minus(m.tail.Header.Totals, base)
	if !ok {
		m.fail(fmt.Errorf("lag of sink %q: running totals go back between sequence %d and %d of topic %s: two writers, or a foreign one",
			m.lane.Sink, first.Sequence, m.tail.Header.Sequence, m.lane.Topic()))
		return
	}
	m.lag.First = m.first.found
	m.lag.Seeding = first.Kind == wire.Snapshot || first.Kind == wire.Complete
	if !m.lag.Known {
		m.lag.Retained = waiting
		return
	}
	m.lag.Batches, m.lag.Envelopes, m.lag.Bytes, m.lag.Changes = waiting.Batches, waiting.Envelopes, waiting.Bytes, waiting.Changes
	m.lag.Age = max(0, m.lag.ReadAt.Sub(first.BuiltAt))
	if g := m.lag.Gap; g != nil && m.commit.Own() && first.Sequence > m.commit.Meta.Sequence {
		g.Known, g.Items = true, first.Sequence-1-m.commit.Meta.Sequence
	}
	if g := m.lag.Gap; g == nil || g.Known && g.Items == 0 {
		m.lag.AckedTotals = &base
	}
}

// minus returns a - b, or false where a total would be negative.
func minus(a, b Totals) (Totals, bool) {
	ok := a.Batches >= b.Batches && a.Envelopes >= b.Envelopes && a.Bytes >= b.Bytes && a.Changes >= b.Changes
	return Totals{
		Batches: a.Batches - b.Batches, Envelopes: a.Envelopes - b.Envelopes,
		Bytes: a.Bytes - b.Bytes, Changes: a.Changes - b.Changes,
	}, ok
}
