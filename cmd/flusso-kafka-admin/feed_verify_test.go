package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// What is wrong with the log of a feed is told beside what its commits are.
func TestFeedVerify_ALogOutOfOrderHidesNoCommit(t *testing.T) {
	t.Parallel()
	c := kfaketest.NewTCP(t)
	do := func(args ...string) (out, told string, code int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "flusso-kafka-admin", args...)
		cmd.Env = append(os.Environ(), connect.EnvBrokers+"="+strings.Join(c.Addrs(), ","), "GORACE=atexit_sleep_ms=10", "FLUSSO_KAFKA_CONFIG=")
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run() // its exit code tells
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	if _, told, code := do("append", "orders", "--create", "--bucket", t.TempDir(), "--record", "a"); code != 0 {
		t.Fatal(told)
	}
	if out, told, code := do("feed", "verify", "orders"); code != 0 || !strings.Contains(out, "fine") {
		t.Fatal(out, told)
	}
	beside := func(out string) string { // the last line
		lines := strings.Split(strings.TrimSpace(out), "\n")
		return lines[len(lines)-1]
	}
	if out, told, code := do("feed", "verify", "orders", "--format", "json"); code != 0 || beside(out) != `{"feed":"orders","log":{"fine":true},"leftovers":0}` {
		t.Error(out, told)
	}
	// Its first event comes once more, of somebody who holds no lease.
	const log = "orders.feed.log"
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ConsumeTopics(log), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	first := cl.PollRecords(t.Context(), 1).Records()
	if len(first) != 1 {
		t.Fatalf("the log begins with %d events", len(first))
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: log, Key: first[0].Key, Value: first[0].Value, Timestamp: first[0].Timestamp}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	out, told, code := do("feed", "verify", "orders")
	if code != exitFailed || !strings.Contains(out, "fine") || !strings.Contains(told, "a feed is created once") {
		t.Errorf("exit code %d, %q, %q: want 1, the commit that is fine, and what is wrong with the log", code, out, told)
	}
	out, _, code = do("feed", "verify", "orders", "--format", "json")
	if got := beside(out); code != exitFailed || !strings.HasPrefix(got, `{"feed":"orders","log":{"fine":false,"error":"the log of feed orders: `) || !strings.HasSuffix(got, `,"leftovers":0}`) {
		t.Errorf("exit code %d, as JSON: %s", code, out)
	}
}
