package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// A command that is begun while its broker starts, behind a proxy that takes
// connections for it, does what it was asked.
func TestCommandsWaitForABroker(t *testing.T) {
	c := kfaketest.NewTCP(t)
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"feed", "list"}, "no feed: create one"},
		{[]string{"read", "orders"}, "feed orders: no such feed"},
		{[]string{"append", "orders", "--record", "hello"}, "feed orders: no such feed"},
		{[]string{"status", "--pipeline", "shop"}, "pipeline shop has no lane"},
	} {
		broker := kfaketest.NewStarting(t, c.Addrs()[0], 3)
		env := map[string]string{connect.EnvBrokers: broker.Addr}
		var out, err bytes.Buffer
		run(t.Context(), tt.args, streams{out: &out, err: &err, getenv: func(name string) string { return env[name] }})
		if !strings.Contains(out.String()+err.String(), tt.says) || broker.Closed() != 3 {
			t.Errorf("%v, after %d connections: %s%s", tt.args, broker.Closed(), &out, &err)
		}
	}
}

// Nobody waits at a prompt.
func TestCompletionDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		refuse := func(context.Context, string, string) (net.Conn, error) {
			tries++
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		env := map[string]string{connect.EnvBrokers: "kafka:9092"}
		var out, err bytes.Buffer
		run(t.Context(), []string{"__complete", "status", "--pipeline", ""}, streams{
			out: &out, err: &err, getenv: func(name string) string { return env[name] }, client: []kgo.Opt{kgo.Dialer(refuse)},
		})
		if tries != 1 || strings.Contains(err.String(), "waiting") {
			t.Errorf("it connected %d times: %s", tries, &err)
		}
	})
}
