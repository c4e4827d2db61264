package ingest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	flusso "github.com/flusso/flusso-kafka"
)

const closeLimit = 5 * time.Second

// loadCatalog reads the tables, takes new ones into the publication, and
// returns what the sinks were last seeded for.
func (s *session) loadCatalog(ctx context.Context, q *pgx.Conn) (*remembered, error) {
	p, err := loadPublication(ctx, q, s.cfg.Publication)
	if err != nil {
		return nil, err
	}
	if !p.exists {
		return nil, &ServerError{"publication \"" + s.cfg.Publication + "\" is gone: what changes while it is missing cannot be read: " +
			"drop slot " + s.src.slot + " and start again: every sink is then seeded again"}
	}
	c, err := loadTables(ctx, q, 0)
	if err != nil {
		return nil, err
	}
	if err := s.src.publish(ctx, q, c, p); err != nil {
		return nil, err
	}
	old := s.catalog.Load()
	for _, t := range c.leftOut {
		if old == nil || !slices.ContainsFunc(old.leftOut, func(o *table) bool { return o.oid == t.oid && o.unusable == t.unusable }) {
			s.log.Warn("table is left out", "table", t.index, "reason", t.unusable)
		}
	}
	if err := s.knowTypes(ctx, q, nil); err != nil {
		return nil, err
	}
	s.catalog.Store(c)
	return p.memory[s.cfg.Slot], nil
}

// knowTypes reads pg_type again when one of the types is new.
func (s *session) knowTypes(ctx context.Context, q querier, oids []uint32) error {
	known := s.types.Load()
	if known != nil && !slices.ContainsFunc(oids, func(oid uint32) bool { _, ok := (*known)[oid]; return !ok }) {
		return nil
	}
	ts, err := loadTypes(ctx, q)
	if err != nil {
		return err
	}
	for _, oid := range oids {
		if _, ok := ts[oid]; !ok {
			ts[oid] = valueType{} // dropped since: text
		}
	}
	s.types.Store(&ts)
	return nil
}

func shapes(c *catalog) map[string]string {
	out := make(map[string]string, len(c.tables))
	for _, t := range c.tables {
		out[t.index] = t.shape
	}
	return out
}

// seedWhatChanged asks for snapshots of what the feed does not carry: of
// everything when the feed is another one than the sinks were seeded for, since
// what changed between the two is in neither; of tables that are new (rows
// from before they were published), that look different (a column with a default
// comes without changes), or that are gone. In a pipeline's first feed it asks
// for nothing: fresh sinks ask for themselves.
//
// What was asked for is durable before it is remembered, so a crash in between asks twice.
func (s *session) seedWhatChanged(ctx context.Context, q *pgx.Conn, old *remembered, mark flusso.Watermark) error {
	now := s.remembering()
	switch {
	case old == nil:
		if slices.ContainsFunc(mark.Floors, func(f flusso.LaneFloor) bool { return f.State == flusso.FloorOther }) {
			if err := s.seedAll(ctx, []string{EveryID}, "the sinks have acked another change feed"); err != nil {
				return err
			}
		}
	case old.Incarnation != now.Incarnation:
		if err := s.seedAll(ctx, []string{EveryID}, "the change feed is new: it was "+old.Incarnation); err != nil {
			return err
		}
	case maps.Equal(old.Tables, now.Tables):
		if slices.Equal(old.Sinks, now.Sinks) && maps.Equal(old.Seeded, now.Seeded) {
			return nil
		}
	default:
		var changed []string
		for index, shape := range now.Tables {
			if old.Tables[index] != shape {
				changed = append(changed, index)
			}
		}
		for index := range old.Tables {
			if _, ok := now.Tables[index]; !ok {
				changed = append(changed, index)
			}
		}
		slices.Sort(changed)
		if err := s.seedAll(ctx, changed, "new, altered or dropped"); err != nil {
			return err
		}
	}
	return s.src.remember(ctx, q, now)
}

// remembering is what a session that has seeded all that it must remembers.
func (s *session) remembering() *remembered {
	return &remembered{
		Incarnation: s.src.incarnation, Tables: shapes(s.catalog.Load()),
		Sinks: slices.Sorted(slices.Values(s.sinks)), Seeded: s.seeded,
	}
}

func (s *session) nudgeTables() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// watchTables looks at the catalog now and then: the feed says nothing of a
// table that was created, altered or dropped.
func (s *session) watchTables(ctx context.Context) error {
	conn, err := connect(ctx, s.cfg.Source, "catalog")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tick := time.NewTicker(s.cfg.TablesEvery)
	defer tick.Stop()
	var memory *remembered
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		case <-s.nudge:
		}
		stored, err := s.loadCatalog(ctx, conn)
		if err != nil {
			return errors.Join(errors.New("watch the tables of the source"), err)
		}
		if memory == nil {
			memory = stored
		}
		if memory != nil {
			if err := s.seedWhatChanged(ctx, conn, memory, flusso.Watermark{}); err != nil {
				return err
			}
		}
		// From here on not from the comment, which may not be ours to write.
		memory = s.remembering()
	}
}
