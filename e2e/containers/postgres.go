package containers

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/testcontainers/testcontainers-go"
)

// Database is a PostgreSQL server that is ready for logical replication.
type Database struct{ *server }

// Postgres starts a PostgreSQL server for one test. Its settings are given as
// "name=value".
func Postgres(t testing.TB, settings ...string) *Database {
	t.Helper()
	d, err := startPostgres(settings)
	if err != nil {
		t.Fatalf("containers: PostgreSQL: %v", err)
	}
	d.cleanup(t)
	return d
}

func startPostgres(settings []string) (*Database, error) {
	img, err := image("postgres")
	if err != nil {
		return nil, err
	}
	cmd := []string{"postgres"}
	for _, s := range append([]string{"wal_level=logical", "max_replication_slots=20", "max_wal_senders=20"}, settings...) {
		cmd = append(cmd, "-c", s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := run(ctx, "5432/tcp", func(ctx context.Context, port testcontainers.ContainerCustomizer) (testcontainers.Container, error) {
		c, err := testcontainers.Run(ctx, img, port,
			testcontainers.WithExposedPorts("5432/tcp"),
			testcontainers.WithEnv(map[string]string{"POSTGRES_USER": "flusso", "POSTGRES_PASSWORD": "flusso", "POSTGRES_DB": "flusso"}),
			testcontainers.WithCmd(cmd...))
		if c == nil {
			return nil, err
		}
		return c, err
	})
	if err != nil {
		return nil, err
	}
	d := &Database{s}
	s.ready = func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, d.URL())
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	if err := s.await(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.tail())
	}
	return d, nil
}

// URL is the connection string of the database that the server comes with, for
// its superuser.
func (d *Database) URL() string { return d.url("flusso") }

func (d *Database) url(name string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("flusso", "flusso"), Host: d.addr(), Path: name, RawQuery: "sslmode=disable"}
	return u.String()
}

// NewDatabase creates an empty database and returns its connection string.
func (d *Database) NewDatabase(t testing.TB, name string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.URL())
	if err != nil {
		t.Fatalf("containers: %v", err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		t.Fatalf("containers: %v", err)
	}
	return d.url(name)
}

// Stop shuts the server down in an orderly way, ending its sessions, and
// returns when it is gone.
func (d *Database) Stop(t testing.TB) {
	t.Helper()
	if err := d.docker.ContainerKill(t.Context(), d.GetContainerID(), "INT"); err != nil {
		t.Fatalf("containers: stop: %v", err)
	}
	d.awaitExit(t)
}
