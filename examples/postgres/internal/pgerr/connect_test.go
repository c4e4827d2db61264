package pgerr_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flusso/flusso-kafka/examples/postgres/internal/pgerr"
	"github.com/flusso/flusso-kafka/examples/postgres/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// The test server has no TLS, as the default of most packages.
func TestConnectShowsTheRealCause(t *testing.T) {
	url := pgtest.Database(t)
	for name, c := range map[string]struct{ url, code, want string }{
		"role":         {strings.Replace(url, "postgres@", "nobody@", 1), "28000", `role "nobody" does not exist`},
		"database":     {url + "x", "3D000", "does not exist"},
		"TLS required": {url + "?sslmode=require", "", "server refused TLS connection"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pgx.Connect(t.Context(), c.url)
			err = pgerr.Connect(err)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			pg, ok := errors.AsType[*pgconn.PgError](err)
			if c.code != "" && (!ok || pg.Code != c.code) {
				t.Errorf("the server's error is not reached: %v", err)
			}
			if c.code != "" && strings.Contains(err.Error(), "TLS") {
				t.Errorf("not the real cause only: %v", err)
			}
			if _, ok := errors.AsType[*pgconn.ConnectError](err); !ok {
				t.Errorf("the driver's error is not reached: %v", err)
			}
		})
	}
	if err := pgerr.Connect(nil); err != nil {
		t.Errorf("got %v for nil", err)
	}
}
