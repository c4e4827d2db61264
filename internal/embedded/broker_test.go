package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/flusso/flusso-kafka/internal/embedded"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// childDir, when set, makes the test binary a broker over that directory, to
// be killed.
const childDir = "FLUSSO_TEST_EMBEDDED_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		b, err := embedded.Open(context.Background(), dir)
		if err != nil {
			_, _ = fmt.Fprintln(os.Stdout, "error", err)
			os.Exit(1)
		}
		_, _ = fmt.Fprintln(os.Stdout, "addr", b.Addr())
		select {}
	}
	goleak.VerifyTestMain(m)
}

// child is a broker in a process of its own.
type child struct {
	cmd  *exec.Cmd
	addr string
}

func startChild(t *testing.T, dir string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), childDir+"="+dir)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "addr ")
	if err != nil || !ok {
		t.Fatalf("child says %q, %v", line, err)
	}
	c.addr = addr
	return c
}

// kill is kill -9.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) opts() []kgo.Opt { return []kgo.Opt{kgo.SeedBrokers(c.addr)} }

func open(t *testing.T, dir string, opts ...embedded.Option) *embedded.Broker {
	t.Helper()
	b, err := embedded.Open(t.Context(), dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.DisableClientMetrics(), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func createTopics(t *testing.T, opts []kgo.Opt, topics ...string) {
	t.Helper()
	resp, err := kadm.NewClient(client(t, opts...)).CreateTopics(t.Context(), 1, 1, nil, topics...)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// read returns what a read_committed reader finds in a topic up to the high
// watermark.
func read(t *testing.T, opts []kgo.Opt, topic string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ends, err := kadm.NewClient(client(t, opts...)).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	cl := client(t, append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	defer cl.Close()
	var values []string
	for at := int64(0); at < end.Offset; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read topic %s at offset %d of %d: %v", topic, at, end.Offset, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at = r.Offset + 1
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		})
	}
	return values
}

func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	b := open(t, dir)
	createTopics(t, b.Opts(), "a")
	for i := range 3 {
		cl := client(t, b.Opts()...)
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		offsets := kadm.Offsets{}
		offsets.AddOffset("a", 0, int64(i+1), -1)
		if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), "g", offsets); err != nil {
			t.Fatal(err)
		}
		cl.Close()
		port := 0
		if _, err := fmt.Sscanf(b.Addr(), "127.0.0.1:%d", &port); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		addr := b.Addr()
		if b = open(t, dir, embedded.Port(port)); b.Addr() != addr {
			t.Errorf("listens on %s, want the fixed port of %s", b.Addr(), addr)
		}
	}
	if got, want := fmt.Sprint(read(t, b.Opts(), "a")), "[0 1 2]"; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	offsets, err := kadm.NewClient(client(t, b.Opts()...)).FetchOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := offsets.Lookup("a", 0); o.At != 3 {
		t.Errorf("committed %d, want 3", o.At)
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	var locked *embedded.LockedError
	if _, err := embedded.Open(t.Context(), dir); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("second open: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, dir)
	if _, err := embedded.Open(t.Context(), dir); !errors.As(err, &locked) || locked.PID != c.cmd.Process.Pid {
		t.Errorf("open beside another process: %v", err)
	}
	c.kill()
	open(t, dir) // a dead owner blocks nobody
}

func TestUnusable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	bad := t.TempDir()
	if err := os.WriteFile(filepath.Join(bad, "meta.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), bad} {
		var unusable *embedded.DirError
		if _, err := embedded.Open(t.Context(), dir); !errors.As(err, &unusable) || unusable.Dir != dir {
			t.Errorf("open %s: %v", dir, err)
		}
	}
	// A port in use.
	b := open(t, t.TempDir())
	port := 0
	if _, err := fmt.Sscanf(b.Addr(), "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := embedded.Open(t.Context(), dir, embedded.Port(port)); err == nil {
		t.Error("opened on a port in use")
	}
	open(t, dir) // the lock was given back
}

// attempt is one transaction of the kill test.
type attempt struct {
	value   string
	outcome string // "committed", "aborted", "unknown"
}

// write runs transactions over both topics until the broker is gone.
func write(ctx context.Context, cl *kgo.Client, name string, r *rand.Rand, ended func()) []attempt {
	var out []attempt
	for n := 0; ; n++ {
		if cl.BeginTransaction() != nil {
			return out
		}
		a := attempt{value: fmt.Sprintf("%s-%d", name, n), outcome: "unknown"}
		commit := kgo.TransactionEndTry(r.IntN(3) > 0)
		err := cl.ProduceSync(ctx, &kgo.Record{Topic: "a", Value: []byte(a.value)}, &kgo.Record{Topic: "b", Value: []byte(a.value)}).FirstErr()
		if err != nil {
			a.outcome = "aborted" // its commit was never asked for
			return append(out, a)
		}
		err = kfaketest.EndTransaction(ctx, cl, bool(commit), "a", "b")
		switch {
		case !bool(commit):
			a.outcome = "aborted"
		case err == nil:
			a.outcome = "committed"
		}
		out = append(out, a)
		if err != nil {
			return out
		}
		ended()
	}
}

// TestCase42_Kill kills the broker with -9 in the middle of transactions, again and
// again: aborted data never shows, committed data never hides, and what is in
// between is in both topics or in none.
func TestCase42_Kill(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	expect := make(map[string]string) // outcome by value
	for round := range 4 {
		c := startChild(t, dir)
		if round == 0 {
			createTopics(t, c.opts(), "a", "b")
		}
		ctx, cancel := context.WithCancel(t.Context())
		enough := make(chan struct{})
		var (
			mu      sync.Mutex
			count   int
			wg      sync.WaitGroup
			clients []*kgo.Client
		)
		ended := func() {
			mu.Lock()
			defer mu.Unlock()
			if count++; count == 40 {
				close(enough)
			}
		}
		for w := range 3 {
			name := fmt.Sprintf("%d-%d", round, w)
			cl := client(t, append(c.opts(), kgo.WithContext(ctx), kgo.TransactionalID(fmt.Sprint("tx", w)))...)
			clients = append(clients, cl)
			seed := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
			wg.Go(func() {
				attempts := write(ctx, cl, name, seed, ended)
				mu.Lock()
				defer mu.Unlock()
				for _, a := range attempts {
					expect[a.value] = a.outcome
				}
			})
		}
		<-enough
		c.kill()
		cancel()
		for _, cl := range clients {
			cl.Close() // it alone fails what is buffered
		}
		wg.Wait()

		b := open(t, dir)
		a, other := read(t, b.Opts(), "a"), read(t, b.Opts(), "b")
		compare(t, round, expect, a, other)
		if round%2 == 0 {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			b = open(t, dir) // and after a clean stop as well
			compare(t, round, expect, read(t, b.Opts(), "a"), read(t, b.Opts(), "b"))
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func compare(t *testing.T, round int, expect map[string]string, a, b []string) {
	t.Helper()
	seen := make(map[string]int)
	for _, v := range a {
		seen[v] |= 1
	}
	for _, v := range b {
		seen[v] |= 2
	}
	if len(a) != len(b) {
		t.Errorf("round %d: topic a holds %d, topic b %d", round, len(a), len(b))
	}
	var committed int
	for v, outcome := range expect {
		switch {
		case outcome == "committed" && seen[v] != 3, outcome == "aborted" && seen[v] != 0, seen[v] == 1 || seen[v] == 2:
			t.Errorf("round %d: %s is %s and in topics %b", round, v, outcome, seen[v])
		case outcome == "unknown" && seen[v] == 3:
			expect[v] = "committed" // settled, and for good
		case outcome == "unknown":
			expect[v] = "aborted"
		}
		if expect[v] == "committed" {
			committed++
		}
	}
	if committed != len(a) {
		t.Errorf("round %d: %d committed, %d read", round, committed, len(a))
	}
}

// TestHalfCommit kills the broker between the two markers of one commit.
func TestHalfCommit(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, dir)
	createTopics(t, c.opts(), "a", "b")
	cl := client(t, append(c.opts(), kgo.TransactionalID("tx"))...)
	produce := func(v string) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Value: []byte(v)}, &kgo.Record{Topic: "b", Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce("whole")
	if err := kfaketest.EndTransaction(t.Context(), cl, true, "a", "b"); err != nil {
		t.Fatal(err)
	}
	produce("half")
	id, epoch, err := cl.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed = id, epoch, true
	mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	mt.Topic, mt.Partitions = "b", []int32{0}
	m.Topics = append(m.Topics, mt)
	req.Markers = append(req.Markers, m)
	if _, err := req.RequestWith(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
	c.kill()
	b := open(t, dir)
	for range 2 {
		for _, topic := range []string{"a", "b"} {
			if got, want := fmt.Sprint(read(t, b.Opts(), topic)), "[whole half]"; got != want {
				t.Errorf("topic %s holds %s, want %s", topic, got, want)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = open(t, dir)
	}
}

func TestRecoveryHonoursContext(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, dir)
	createTopics(t, c.opts(), "a")
	c.kill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := embedded.Open(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	open(t, dir)
}
