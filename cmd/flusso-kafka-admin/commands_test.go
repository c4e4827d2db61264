package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/lanefile"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// calls are the arguments that each command which asks brokers is called with
// below: a new command says here how it is called. What it does not get to
// (a file it would write) need not exist; FILE stands for a saved item.
var calls = map[string][]string{
	"append":            {"orders", "--record", "k1=hello", "--message", "hourly poll"},
	"feed create":       {"orders", "--bucket", "bucket", "--yes"},
	"feed delete":       {"orders", "--yes"},
	"feed describe":     {"orders"},
	"feed discard":      {"orders", "1", "--yes"},
	"feed history":      {"orders"},
	"feed list":         {},
	"feed repair":       {"orders", "--yes"},
	"feed resume":       {"orders", "1", "--yes"},
	"feed verify":       {"orders"},
	"lag":               {},
	"lane accept":       {"search", "--dry-run"},
	"lane delete":       {"search", "--dry-run"},
	"lane describe":     {"search"},
	"lane list":         {},
	"lane peek":         {"search"},
	"lane replay":       {"FILE", "--dry-run"},
	"lane restore":      {"search", "--dry-run"},
	"lane retire":       {"search", "--why", "it moved", "--dry-run"},
	"lane rewind":       {"search", "--to-earliest", "--dry-run"},
	"lane skip":         {"search", "--save", "item.flusso", "--dry-run"},
	"lane trim":         {"search", "--dry-run"},
	"latest":            {"orders", "k1"},
	"offset translate":  {"search", "7"},
	"read":              {"orders"},
	"request cancel":    {"--all", "--yes"},
	"request list":      {},
	"request send":      {"search", "orders", "--yes"},
	"status":            {},
	"topic apply":       {"--sinks", "search", "--yes"},
	"topic check":       {},
	"topic plan":        {},
	"watermark":         {},
	"watermark explain": {},
	"writer describe":   {},
	"writer fence":      {"--yes"},
}

// offline are commands that ask no broker, or go on without one, and why.
var offline = map[string]string{
	"":             "it only holds others",
	"completion":   "a script is written from the commands alone",
	"demo":         "it brings its broker with it",
	"feed":         "it only holds others",
	"lane":         "it only holds others",
	"offset":       "it only holds others",
	"profile":      "it only holds others",
	"profile list": "it reads the profile file",
	"profile show": "it reads the profile file",
	"request":      "it only holds others",
	"serve":        "it serves that brokers do not answer, until it is interrupted",
	"serve feeds":  "it goes on until it is interrupted",
	"topic":        "it only holds others",
	"version":      "it knows by itself",
	"writer":       "it only holds others",
}

func TestEveryCommandIsCalled(t *testing.T) {
	all := tree(t)
	for path := range all {
		_, online := calls[path]
		if _, off := offline[path]; online == off {
			t.Errorf("%q: say in calls how it is called, or in offline why no broker is asked", path)
		}
	}
	for _, path := range append(slices.Collect(maps.Keys(calls)), slices.Collect(maps.Keys(offline))...) {
		if all[path] == nil {
			t.Errorf("there is no command %q", path)
		}
	}
}

// outcome is what became of a call.
type outcome struct {
	code     int
	out, err string
}

// savedItem writes the file of an item that was skipped.
func savedItem(t *testing.T) string {
	t.Helper()
	s := &lanefile.Saved{Pipeline: "shop", Sink: "search", Topic: "shop.lane.search", TopicID: [16]byte{1}, SavedAt: time.Now().UTC()}
	b := &flusso.Batch{Position: 10, Changes: 1, Envelopes: []flusso.Envelope{{
		Index: "orders", ID: "1", Op: flusso.Delete, Position: 10, BuiltAt: time.Now(),
	}}}
	bytes, _ := wire.Size(b)
	s.Records = wire.EncodeItem(nil, s.Topic, b, wire.Header{
		Through: 10, Newest: 10, Incarnation: "test-1", Epoch: 1, BuiltAt: time.Now(), Sequence: 1,
		Totals: wire.Totals{Batches: 1, Envelopes: 1, Bytes: bytes, Changes: 1},
	})
	for _, r := range s.Records {
		r.LeaderEpoch = -1
	}
	path := filepath.Join(t.TempDir(), "item")
	if err := lanefile.Create(path, s); err != nil {
		t.Fatal(err)
	}
	return path
}

// call runs a command in this process, with the environment given.
func call(ctx context.Context, t *testing.T, env map[string]string, path string, args ...string) outcome {
	t.Helper()
	return callWith(ctx, t, nil, env, path, args...)
}

// callWith is call with more for every Kafka client.
func callWith(ctx context.Context, t *testing.T, client []kgo.Opt, env map[string]string, path string, args ...string) outcome {
	t.Helper()
	for i, arg := range args {
		if arg == "FILE" {
			args[i] = savedItem(t)
		}
	}
	var out, err bytes.Buffer
	words := append(strings.Fields(path), args...)
	code := run(ctx, words, streams{out: &out, err: &err, getenv: func(name string) string { return env[name] }, client: client, patience: connect.Once})
	return outcome{code, out.String(), err.String()}
}

// silent is a listener that takes connections and never answers. A connection
// on which something was asked is told on asked.
func silent(t *testing.T) (address string, asked <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{}, 1)
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			all.Go(func() {
				b := make([]byte, 1)
				if _, err := conn.Read(b); err != nil {
					return
				}
				select {
				case told <- struct{}{}:
				default:
				}
				_, _ = io.Copy(io.Discard, conn) // until the client gives up
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String(), told
}

func environment(broker string) map[string]string {
	return map[string]string{"FLUSSO_KAFKA_BROKERS": broker, "FLUSSO_KAFKA_PIPELINE": "shop"}
}

// patience ends a test that would otherwise hang; no test waits for it.
const patience = time.Minute

// mute connects to a broker that takes whatever it is asked and never answers:
// in memory, so that a bubble's time goes on while a command waits for it.
func mute(context.Context, string, string) (net.Conn, error) {
	client, broker := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, broker) }() // until the client gives up
	return client, nil
}

// A broker that takes connections and never answers ends every command at its
// timeout, which says what was asked and who did not answer. The time is a
// bubble's: on a busy machine nothing might have been asked by then.
func TestASilentBrokerEndsAtTheTimeout(t *testing.T) {
	t.Parallel()
	const address = "127.0.0.1:9092"
	for path, args := range calls {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				began := time.Now()
				got := callWith(ctx, t, []kgo.Opt{kgo.Dialer(mute)}, environment(address), path, append(slices.Clone(args), "--timeout", "3s")...)
				if took := time.Since(began); ctx.Err() != nil || took != 3*time.Second {
					t.Errorf("it did not end at its timeout of 3s, but after %s", took)
				}
				if got.code != exitFailed || got.out != "" || !strings.Contains(got.err, "no answer within") || !strings.Contains(got.err, address) || !strings.Contains(got.err, "--timeout") {
					t.Errorf("exit code %d, %q, %q", got.code, got.out, got.err)
				}
			})
		})
	}
}

// An interrupt ends every command where it waits: for the broker.
func TestAnInterruptEndsEveryCommand(t *testing.T) {
	t.Parallel()
	for path, args := range calls {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			address, asked := silent(t)
			safe, done := context.WithTimeout(t.Context(), patience)
			defer done()
			ctx, interrupt := context.WithCancel(safe)
			defer interrupt()
			ended := make(chan outcome, 1)
			go func() {
				ended <- call(ctx, t, environment(address), path, append(slices.Clone(args), "--timeout", "1h")...)
			}()
			select {
			case <-asked: // it waits for an answer now
			case got := <-ended:
				t.Fatalf("ended before the interrupt: exit code %d, %q", got.code, got.err)
			}
			interrupt()
			got := <-ended
			if safe.Err() != nil {
				t.Fatal("the interrupt did not end it")
			}
			if got.code != exitFailed || got.out != "" || got.err != program+": interrupted\n" {
				t.Errorf("exit code %d, %q, %q", got.code, got.out, got.err)
			}
		})
	}
}

// Exit codes of every command: 1 where it failed, 2 where it was not
// understood, before a broker is asked. 0 is shown by the scripts.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	nobody := environment("127.0.0.1:1")
	all := tree(t)
	for path, args := range calls {
		with := func(more ...string) []string { return append(slices.Clone(args), more...) }
		tests := []struct {
			name string
			env  map[string]string
			args []string
			code int
			says string
		}{
			{"no broker there", nobody, with(), exitFailed, "check --brokers"},
			{"unknown flag", nobody, with("--nonsense"), exitUsage, "see flusso-kafka-admin " + path + " --help"},
			{"unknown format", nobody, with("--format", "yaml"), exitUsage, `--format "yaml": text or json`},
			{"no timeout", nobody, with("--timeout", "0s"), exitUsage, "--timeout 0s"},
			{"bad pipeline", nobody, with("--pipeline", "Sh op"), exitUsage, "invalid pipeline"},
			{"no pipeline", map[string]string{"FLUSSO_KAFKA_BROKERS": "127.0.0.1:1"}, with(), exitUsage, "no pipeline named: give --pipeline"},
			{"no broker named", map[string]string{"FLUSSO_KAFKA_PIPELINE": "shop"}, with(), exitUsage, "no broker named: give --brokers"},
			{"bad broker", nobody, with("--brokers", "a:b:c"), exitUsage, "--brokers"},
			{"no secret", nobody, with("--sasl-mechanism", "PLAIN", "--sasl-user", "ann"), exitUsage, "--sasl-password-file: no secret"},
			{"no profile file", nobody, with("--profile", "prod"), exitUsage, "there is no profile file"},
			{"bad variable", map[string]string{"FLUSSO_KAFKA_TIMEOUT": "soon"}, with(), exitUsage, `$FLUSSO_KAFKA_TIMEOUT: "soon" is no value for --timeout`},
		}
		for _, tt := range tests {
			if strings.HasSuffix(tt.name, " pipeline") && (path == "lane replay" || all[path].Flag("pipeline") == nil) {
				continue // the file says which, and a feed has none
			}
			t.Run(path+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				got := call(t.Context(), t, tt.env, path, tt.args...)
				if got.code != tt.code || got.out != "" || !strings.Contains(got.err, tt.says) {
					t.Errorf("exit code %d, want %d; %q, %q, want %q", got.code, tt.code, got.out, got.err, tt.says)
				}
			})
		}
	}
	for path := range offline {
		t.Run(path+"/unknown flag", func(t *testing.T) {
			t.Parallel()
			if got := call(t.Context(), t, nil, path, "--nonsense"); got.code != exitUsage {
				t.Errorf("exit code %d, %q", got.code, got.err)
			}
		})
	}
}

// An action does nothing, and asks nobody, before it is confirmed.
func TestEveryActionWantsAYes(t *testing.T) {
	for path, cmd := range tree(t) {
		if cmd.Flags().Lookup("yes") == nil {
			continue
		}
		t.Run(path, func(t *testing.T) {
			if cmd.Flags().Lookup("dry-run") == nil {
				t.Fatal("it has --yes and no --dry-run")
			}
			bare := slices.DeleteFunc(slices.Clone(calls[path]), func(a string) bool { return a == "--yes" || a == "--dry-run" })
			for _, args := range [][]string{bare, append(slices.Clone(bare), "--yes", "--dry-run")} {
				if got := call(t.Context(), t, environment("127.0.0.1:1"), path, args...); got.code != exitUsage || !strings.Contains(got.err, "--yes") {
					t.Errorf("%v: exit code %d, %q", args, got.code, got.err)
				}
			}
		})
	}
}
