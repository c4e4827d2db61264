package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/examples/postgres/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A broker that is not there leaves nothing behind in the source.
func TestBrokersAreAskedBeforeTheSource(t *testing.T) {
	url := pgtest.Database(t)
	var out, errs bytes.Buffer
	env := map[string]string{"FLUSSO_SOURCE_URL": url}
	code := run(t.Context(), []string{"ingest", "--brokers", "127.0.0.1:1"}, streams{out: &out, err: &errs, getenv: func(k string) string { return env[k] }})
	if code != exitFailed || !strings.Contains(errs.String(), "127.0.0.1:1") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var left int
	if err := conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots)").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d publications and slots were created, %v", left, err)
	}
}

func TestStrayLanes(t *testing.T) {
	got := strays("postgres", []string{"bleve"}, []string{
		"postgres.lane.bleve", "postgres.lane.old", "postgres.requests", "other.lane.old", "postgres.lane.", "foreign",
	})
	if len(got) != 1 || got[0].Topic() != "postgres.lane.old" || got[0].Group() != "postgres.sink.old" {
		t.Errorf("got %v", got)
	}
}

func TestTooLargeNamesEachLaneAndTheFlag(t *testing.T) {
	p := pipeline{name: "shop", sinks: []string{"search", "copy"}}
	limit := &flusso.LimitError{What: "record t/1 in the lane of sink \"copy\"", Limit: "record size in bytes", Value: 9 << 20, Max: 8 << 20, Setting: "max.message.bytes of topic shop.lane.copy"}
	err := p.tooLarge(fmt.Errorf("publish: %w", limit))
	for _, want := range []string{"shop.lane.copy, shop.lane.search", "--max-message-bytes 11534336", "record t/1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if !errors.Is(err, limit) {
		t.Errorf("the cause is not reached: %v", err)
	}
	limit.Value = 100 << 20
	if err := p.tooLarge(limit); strings.Contains(err.Error(), "--max-message-bytes") {
		t.Errorf("promises what cannot be: %v", err)
	}
	other := &flusso.LimitError{What: "commit", Setting: "Config.MaxBatchBytes"}
	if err := p.tooLarge(other); !errors.Is(err, other) || err.Error() != other.Error() {
		t.Errorf("got %v", err)
	}
	if p.tooLarge(nil) != nil {
		t.Error("an error for none")
	}
}
