//go:build schemathesis

package gateway

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
)

// Schemathesis asks a node whatever openapi.json allows, and what it forbids,
// and finds each answer documented. make test-gateway runs it.
func TestSchemathesis(t *testing.T) {
	tool := os.Getenv("SCHEMATHESIS")
	if tool == "" {
		t.Fatal("SCHEMATHESIS is not set: make test-gateway installs it and runs this")
	}
	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	n := w.node("a", func(c *Config) { c.Timeout, c.SealTimeout = 5*time.Second, 5*time.Second })
	sealed := n.open()
	into[rangeJSON](t, n.append(sealed, 0, "b1", "one", "two"), http.StatusOK)
	into[commitJSON](t, n.seal(sealed, "the first"), http.StatusOK)

	t.Run("whatever", func(t *testing.T) {
		run(t, tool, n, "", "--max-time", "40", "--max-examples", "30")
	})
	// With the token of a session, so that it gets further.
	s := n.resume()
	t.Run("with a session", func(t *testing.T) {
		run(t, tool, n, fmt.Sprintf("feed = %q\n\"path.stream\" = %d\nfencingToken = %d\n", feed, s.Stream, s.FencingToken),
			"--max-time", "20", "--max-examples", "30", "--include-operation-id", "append", "--include-operation-id", "read", "--include-operation-id", "latest")
	})
	if d := into[descriptionJSON](t, n.get("/v1/feeds/orders"), http.StatusOK); d.Epoch != s.FencingToken || len(d.Streams) == 0 {
		t.Errorf("the feed is %+v", d)
	}
}

func run(t *testing.T, tool string, n *node, config string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	// What depends on the state of the feed is no reason to refuse the data.
	config = "[parameters]\nfollow = false\n" + config + `
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 413, 415, 421, 422, "5xx"]
negative_data_rejection.expected-statuses = ["4xx"]
not_a_server_error.expected-statuses = ["2xx", "4xx", 502, 503, 504, 507]

# Some of its parameters exclude others, which no schema can say.
[[operations]]
include-operation-id = "read"
checks.positive_data_acceptance.enabled = false

# Three of its parameters belong to one of the types of its body.
[[operations]]
include-operation-id = "append"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 413, 415, 421, 422, "5xx"]
`
	file := filepath.Join(dir, "schemathesis.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, append([]string{"--config-file", file, "run", n.url + "/openapi.json", "--no-color", "--continue-on-failure", "--request-timeout", "15"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("schemathesis: %v", err)
	}
}
