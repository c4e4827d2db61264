// Package postgres_test runs examples/postgres as its users do: three
// processes, a real Postgres, a real Kafka; and kills them.
package postgres_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "flusso-e2e-bin-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "flusso-postgres")
	cmd := exec.Command("go", "build", "-ldflags=-w", "-o", bin, "./cmd/flusso-postgres")
	cmd.Dir = filepath.Join("..", "..", "examples", "postgres")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build examples/postgres: %w\n%s", err, out)
	}
	return bin, nil
})

// binary builds the example once.
func binary(t *testing.T) string {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := built(); err == nil {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}
