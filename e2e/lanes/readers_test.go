package lanes_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

// A lane with all that can be in one, aborted transactions of a killed writer
// included, is read with kcat, and by a reader in another language that was
// written from docs/wire-format.md alone [F5].
func TestF5_a_live_lane_read_with_kcat_and_in_python(t *testing.T) {
	t.Parallel()
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Fatal("kcat is missing: run \"make setup\", or install the package kcat")
	}
	p := open(t, nil, "a", "b")
	killed := spawn(t, p, "writer", "a", "b")
	killed.await("published", 100)
	killed.signal(syscall.SIGKILL)
	s := use(t, p.Stream(t, inc))
	w := s.writer("a")
	deletes := live(2_000_001, "1", "2")
	deletes.Envelopes[1].Op, deletes.Envelopes[1].Document = flusso.Delete, nil
	s.publish(w, live(2_000_000), deletes,
		&flusso.Batch{Changes: 1, Envelopes: []flusso.Envelope{{Index: "Bestellungen", ID: "ä/ö"[:2], Op: flusso.Upsert, Document: []byte("<xml/>")}}},
		&flusso.SnapshotComplete{Indexes: []string{"Bestellungen", `a "quoted" one`}},
		&flusso.Batch{Position: 2_000_002, More: true, Changes: 1, Envelopes: live(2_000_002, "1").Envelopes},
		live(2_000_002, "2"),
		large(2_000_003, document(900<<10, true)))

	topic := p.Lane(t, "a").Topic()
	var stderr bytes.Buffer
	read := exec.Command(kcat, "-C", "-J", "-X", "check.crcs=true", "-e", "-q", "-b", containers.Shared(t).Addr(), "-t", topic)
	read.Stderr = &stderr
	out, err := read.Output()
	if err != nil {
		t.Fatalf("kcat: %v\n%s", err, &stderr)
	}
	reader := exec.Command("python3", filepath.Join("..", "..", "internal", "wire", "testdata", "reader.py"), "lane")
	reader.Stdin, reader.Stderr = bytes.NewReader(out), &stderr
	text, err := reader.Output()
	if err != nil {
		t.Fatalf("reader.py lane: %v\n%s", err, &stderr)
	}
	var summary struct {
		Items, Live, Snapshot, Complete, Records int
		Envelopes, Bytes, Changes                uint64
		Sequence, Epoch                          uint64
		Through, Newest                          flusso.Position
		Incarnation                              string
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		t.Fatalf("reader.py lane printed %q: %v", text, err)
	}
	items := probe.Lane(t, containers.Shared(t).Addr(), p.Lane(t, "a"))
	h := items[len(items)-1].Header
	if summary.Items != len(items) || summary.Sequence != h.Sequence || summary.Envelopes != h.Totals.Envelopes || summary.Bytes != h.Totals.Bytes ||
		summary.Changes != h.Totals.Changes || summary.Through != h.Through || summary.Newest != h.Newest || summary.Epoch != h.Epoch || summary.Incarnation != inc ||
		summary.Snapshot != 1 || summary.Complete != 1 {
		t.Errorf("reader.py sees %s, the header of the last item is %+v", text, h)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != summary.Records {
		t.Errorf("kcat printed %d records, reader.py read %d", len(lines), summary.Records)
	}
	readWithJava(t, topic, len(lines))
	t.Logf("kcat printed %d records; reader.py: %s", len(lines), bytes.TrimSpace(text))
	for _, line := range lines[len(lines)-8 : len(lines)-1] {
		t.Logf("kcat: %s", line)
	}
}

// readWithJava reads a topic with the client that comes with Kafka, which must
// see as many records.
func readWithJava(t *testing.T, topic string, want int) {
	t.Helper()
	out := tool(t, "kafka-console-consumer", "--topic", topic, "--from-beginning", "--isolation-level", "read_committed",
		"--max-messages", strconv.Itoa(want), "--timeout-ms", "60000", "--property", "print.headers=true", "--property", "print.value=false")
	got := 0
	for line := range strings.Lines(out) {
		if strings.Contains(line, "flusso-batch:v=1 ") || strings.TrimSpace(line) == "NO_HEADERS" || strings.HasPrefix(line, "flusso-position:") {
			got++
		}
	}
	if got != want {
		t.Errorf("kafka-console-consumer printed %d records, want %d:\n%.2000s", got, want, out)
	}
}
