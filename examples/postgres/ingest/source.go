package ingest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	flusso "github.com/flusso/flusso-kafka"
)

// Source is a database whose publication and slot are in place.
type Source struct {
	cfg         Config
	log         *slog.Logger
	slot        string
	incarnation string
	known       *remembered // by the last session, for where the comment is not ours to write; of Run's goroutine
}

// Open finds or creates the publication and the slot, and tells which change
// feed it is: [Source.Incarnation].
//
// The slot's name is Config.Slot, an underscore and ten random characters: a
// slot has no other attribute that stays with it for life, and one that was
// dropped and created anew must not pass for the old one, since what changed in
// between is not in it. A slot of exactly the given name is used as it is.
//
// The publication lists tables. FOR ALL TABLES is taken when it is there, and
// never created: it makes every UPDATE of a table without a key fail in the
// application.
func Open(ctx context.Context, cfg Config) (*Source, error) {
	if err := cfg.prepare(); err != nil {
		return nil, err
	}
	s := &Source{cfg: cfg, log: cfg.Logger}
	conn, err := connect(ctx, cfg.Source, "set-up")
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := checkServer(ctx, conn); err != nil {
		return nil, err
	}
	slot, err := findSlot(ctx, conn, cfg.Slot)
	if err != nil {
		return nil, err
	}
	pub, err := loadPublication(ctx, conn, cfg.Publication)
	if err != nil {
		return nil, err
	}
	if slot != "" && !pub.exists {
		return nil, &SlotError{slot, fmt.Sprintf("exists, but publication %q does not: what changed while it was missing cannot be read: "+
			"drop the slot with SELECT pg_drop_replication_slot('%s') and start again; every sink is then seeded again", cfg.Publication, slot)}
	}
	if !pub.exists {
		// Before the slot: a feed starts where its slot does, and the server
		// makes a slot wait for every transaction that runs.
		if err := createPublication(ctx, conn, cfg.Publication); err != nil {
			return nil, err
		}
		s.log.Info("publication created", "publication", cfg.Publication)
	}
	if slot == "" {
		slot = cfg.Slot + "_" + strings.ToLower(rand.Text()[:10])
		s.log.Info("creating the slot; this waits for every transaction that is running", "slot", slot)
		if _, err := conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot); err != nil {
			return nil, fmt.Errorf("create replication slot %s: %w", slot, err)
		}
	}
	s.slot = slot
	feed, err := connectFeed(ctx, cfg.Source)
	if err != nil {
		return nil, err
	}
	defer func() { _ = feed.Close(ctx) }()
	id, err := pglogrepl.IdentifySystem(ctx, feed)
	if err != nil {
		return nil, fmt.Errorf("identify the source: %w", err)
	}
	s.incarnation = incarnationOf(id, slot)
	if err := flusso.CheckIncarnation(s.incarnation); err != nil {
		return nil, err
	}
	return s, nil
}

// Incarnation names the change feed: system identifier, timeline and slot.
// After a restore or a fail-over positions do not compare with the old ones,
// hence the timeline.
func (s *Source) Incarnation() string { return s.incarnation }

// Slot returns the full name of the replication slot.
func (s *Source) Slot() string { return s.slot }

func incarnationOf(id pglogrepl.IdentifySystemResult, slot string) string {
	name := fmt.Sprintf("%s:%d:%s", id.SystemID, id.Timeline, slot)
	if len(name) <= flusso.MaxIncarnation {
		return name
	}
	sum := sha256.Sum256([]byte(slot))
	return fmt.Sprintf("%s:%d:%s", id.SystemID, id.Timeline, hex.EncodeToString(sum[:10]))
}

func checkServer(ctx context.Context, conn *pgx.Conn) error {
	var version int
	var level string
	var standby bool
	err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery()").
		Scan(&version, &level, &standby)
	switch {
	case err != nil:
		return fmt.Errorf("look at the source's settings: %w", err)
	case version < 130000:
		return &ServerError{fmt.Sprintf("version %d is too old: PostgreSQL 13 is the first that is supported", version/10000)}
	case level != "logical":
		return &ServerError{fmt.Sprintf("wal_level is %s: run ALTER SYSTEM SET wal_level = 'logical' and restart the server", level)}
	case standby:
		return &ServerError{"it is a standby: connect to the primary"}
	}
	return nil
}

// findSlot returns the name of the slot, or "" when there is none.
func findSlot(ctx context.Context, q querier, base string) (string, error) {
	rows, err := q.Query(ctx, `SELECT slot_name::text, coalesce(plugin::text, ''), coalesce(wal_status, ''),
  coalesce(database::text, '') = current_database()
FROM pg_replication_slots WHERE slot_name = $1 OR slot_name ~ ('^' || $1 || '_[a-z0-9]{10}$')
ORDER BY slot_name = $1 DESC, slot_name`, base)
	if err != nil {
		return "", fmt.Errorf("look for replication slot %s: %w", base, err)
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var name, plugin, status string
		var ours bool
		if err := rows.Scan(&name, &plugin, &status, &ours); err != nil {
			return "", fmt.Errorf("look for replication slot %s: %w", base, err)
		}
		switch {
		case !ours && name == base:
			return "", &SlotError{name, "belongs to another database: choose another --slot"}
		case !ours:
			continue
		case plugin != "pgoutput":
			return "", &SlotError{name, fmt.Sprintf("has plugin %q, not pgoutput: choose another --slot", plugin)}
		case status == "lost":
			return "", &SlotError{name, fmt.Sprintf("the server has removed log that it needed (max_slot_wal_keep_size): changes are lost: "+
				"drop it with SELECT pg_drop_replication_slot('%s') and start again: a new slot is made and every sink is seeded again", name)}
		}
		found = append(found, name)
	}
	if err := rows.Err(); err != nil {
		return "", fmt.Errorf("look for replication slot %s: %w", base, err)
	}
	if len(found) == 0 {
		return "", nil
	}
	if len(found) > 1 && found[0] != base {
		return "", &SlotError{base, "there are several: " + strings.Join(found, ", ") +
			": drop those that are not in use, or name one in full"}
	}
	return found[0], nil
}

// slotPosition returns what the slot has confirmed.
func (s *Source) slotPosition(ctx context.Context, q querier) (pglogrepl.LSN, error) {
	var text, status string
	err := q.QueryRow(ctx, "SELECT confirmed_flush_lsn::text, coalesce(wal_status, '') FROM pg_replication_slots WHERE slot_name = $1", s.slot).
		Scan(&text, &status)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("%w: replication slot %s is gone", ErrNewFeed, s.slot)
	case err != nil:
		return 0, fmt.Errorf("look at replication slot %s: %w", s.slot, err)
	case status == "lost":
		return 0, &SlotError{s.slot, fmt.Sprintf("the server has removed log that it needed (max_slot_wal_keep_size): "+
			"drop it with SELECT pg_drop_replication_slot('%s') and start again: every sink is then seeded again", s.slot)}
	}
	return lsn(text)
}

// endOfLog lies above every commit record that a feed can have shown so far.
func endOfLog(ctx context.Context, q querier) (pglogrepl.LSN, error) {
	var text string
	if err := q.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&text); err != nil {
		return 0, fmt.Errorf("look where the source's log ends: %w", err)
	}
	return lsn(text)
}

// lsnOf is for messages: people compare it with pg_replication_slots.
func lsnOf(p flusso.Position) pglogrepl.LSN { return pglogrepl.LSN(p) }
