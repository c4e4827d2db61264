package browser_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/kafka"
)

// world is a pipeline with what a test drives of it.
type world struct {
	t       *testing.T
	cluster *kfaketest.Cluster
	stream  *kafka.Stream
	commits flusso.Producer[flusso.Commit]
	sinks   []string
	at      flusso.Position
}

func newWorld(t *testing.T, sinks ...string) *world {
	t.Helper()
	w := &world{t: t, cluster: kfaketest.NewTCP(t), sinks: sinks}
	var err error
	w.stream, err = kafka.Open(t.Context(), kafka.Config{
		Pipeline: "shop", Sinks: sinks, Incarnation: "browser-1", CreateTopics: true,
		Client: []kgo.Opt{kgo.SeedBrokers(w.cluster.Addrs()...)}, TrimAfter: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(w.stream.Close) })
	if w.commits, err = w.stream.Commits(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// closing winds up what a test has left; that something was not acked is no
// finding there.
func closing(end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = end(ctx)
}

// publish puts n batches into every lane, at 100 positions from each other.
func (w *world) publish(n int) {
	w.t.Helper()
	for range n {
		w.at += 100
		b := &flusso.Batch{Position: w.at, Changes: 1, Envelopes: []flusso.Envelope{{
			Index: "orders", ID: fmt.Sprint(w.at), Op: flusso.Upsert, Document: []byte(`{"total":42}`), Position: w.at,
		}}}
		var commit flusso.Commit
		for _, sink := range w.sinks {
			commit.Items = append(commit.Items, flusso.Routed{Sink: sink, Item: b})
		}
		if _, err := w.commits.Publish(w.t.Context(), commit); err != nil {
			w.t.Fatal(err)
		}
	}
}

// attach attaches a consumer to a lane, until the test ends.
func (w *world) attach(sink string) flusso.Consumer[flusso.LaneItem] {
	w.t.Helper()
	lane, err := w.stream.Lane(sink)
	if err != nil {
		w.t.Fatal(err)
	}
	in, err := lane.Consumer(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { closing(in.Close) })
	return in
}

// ack receives and acks n items, durably.
func (w *world) ack(in flusso.Consumer[flusso.LaneItem], n int) {
	w.t.Helper()
	for range n {
		d, err := in.Receive(w.t.Context())
		if err == nil {
			err = d.Ack(w.t.Context())
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if err := in.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// served is a process of flusso-kafka-admin serve.
type served struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	done chan struct{}
}

// serve starts one, on a port of its own unless args name another.
func (w *world) serve(args ...string) *served {
	w.t.Helper()
	return start(w.t, append([]string{"--pipeline", "shop", "--brokers", strings.Join(w.cluster.Addrs(), ",")}, args...)...)
}

func start(t *testing.T, args ...string) *served {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(t.TempDir(), "stderr"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary(t), append([]string{"serve", "--listen", "127.0.0.1:0", "--interval", "200ms", "--format", "json"}, args...)...)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, cmd: cmd, done: make(chan struct{})}
	var said struct{ URL string }
	err = json.NewDecoder(bufio.NewReader(out)).Decode(&said)
	s.url = said.URL
	go func() {
		defer close(s.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("serve said:\n%s", text)
		}
		_ = log.Close()
	})
	if err != nil {
		t.Fatalf("serve did not say where it listens: %v", err)
	}
	return s
}

// stop interrupts it and waits until it is gone.
func (s *served) stop() {
	s.t.Helper()
	_ = s.cmd.Process.Signal(os.Interrupt)
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.done
		s.t.Error("serve did not end by an interrupt")
	}
}

// answer is what the page is compared with: read without the types of the
// program under test.
type answer struct {
	Healthy   bool
	Watermark struct {
		Position string
		Holders  []string
	}
	Lanes []struct {
		Sink, State string
		Acked, Tail *string
		Batches     *int
	}
	Findings []struct{ Severity, Code, Sink, Text, Help string }
}

func (s *served) status(ctx context.Context) (answer, error) {
	var a answer
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"status.json", nil)
	if err != nil {
		return a, err
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		return a, err
	}
	if got.StatusCode != http.StatusOK {
		return a, errors.New(got.Status + ": " + string(body))
	}
	return a, json.Unmarshal(body, &a)
}
