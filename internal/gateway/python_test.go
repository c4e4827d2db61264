package gateway

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flusso/flusso-kafka/feeds"
)

// A producer in another language, as docs/gateway.md shows it: with nothing but
// the address of nodes, of which one is not there and one loses a reply.
func TestPythonProducer(t *testing.T) {
	w := newWorld(t, feeds.CreateOptions{})
	a := w.node("a")
	var behind atomic.Pointer[string]
	proxy, cut := cuttingProxy(t, &behind)
	behind.Store(&a.url)
	cut(true) // what is asked through it is done, and not answered
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "../../examples/gateway/producer.py", feed, "one", "zwei", "troisième", "--node", proxy, "--node", nobody, "--node", a.url)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if lines := strings.Count(string(out), "\n"); lines != 4 || !strings.Contains(string(out), `"commit": 1`) {
		t.Errorf("it printed %s", out)
	}
	if diff := cmp.Diff([]string{"1:1 one", "1:2 zwei", "1:3 troisième"}, w.node("b").records("?sealed=true")); diff != "" {
		t.Error(diff)
	}
}
