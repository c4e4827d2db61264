package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

const (
	pipeline     = "shop"
	postgresSink = "postgres"
	bleveSink    = "bleve"
)

var (
	slotLogged        = regexp.MustCompile(`msg="source opened" slot=(\S+)`)
	incarnationLogged = regexp.MustCompile(`msg="source opened" .*incarnation=(\S+)`)
	receivedLogged    = regexp.MustCompile(`msg=(received) `)
	appliedLogged     = regexp.MustCompile(`msg=applied .*items=(\d+)`)
	droppedLogged     = regexp.MustCompile(`(the feed replays) what the lanes hold already`)
)

// settings of a run, by FLUSSO_E2E_SEED and FLUSSO_E2E_KILLS.
func settings(t *testing.T, kills int) (seed uint64, n int) {
	t.Helper()
	seed, n = rand.Uint64(), kills
	for name, set := range map[string]func(string) error{
		"FLUSSO_E2E_SEED":  func(s string) (err error) { seed, err = strconv.ParseUint(s, 10, 64); return err },
		"FLUSSO_E2E_KILLS": func(s string) (err error) { n, err = strconv.Atoi(s); return err },
	} {
		if text, ok := os.LookupEnv(name); ok {
			if err := set(text); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	t.Logf("FLUSSO_E2E_SEED=%d FLUSSO_E2E_KILLS=%d", seed, n)
	return seed, n
}

// TestKill9 is the main job on real input: under a random load each of the
// three processes is killed again and again, and nothing is lost.
func TestKill9(t *testing.T) {
	database := containers.Postgres(t)
	for _, v := range []struct {
		version string
		kills   int
	}{
		{"4.3.1", 9},
		{"3.9.1", 5},
	} {
		t.Run(v.version, func(t *testing.T) {
			t.Parallel()
			kill9(t, database, v.version, v.kills)
		})
	}
}

func kill9(t *testing.T, database *containers.Database, version string, kills int) {
	seed, kills := settings(t, kills)
	rng := rand.New(rand.NewPCG(seed, 0))
	bin := binary(t)
	broker := containers.Kafka(t, containers.WithVersion(version))
	name := regexp.MustCompile(`\W`).ReplaceAllString(version, "_")
	source, target := database.NewDatabase(t, "source_"+name), database.NewDatabase(t, "target_"+name)
	execute(t, source, schema)

	dir, address := filepath.Join(t.TempDir(), "index"), freeAddress(t)
	env := []string{"FLUSSO_SOURCE_URL=" + source, "FLUSSO_TARGET_URL=" + target}
	common := []string{"--brokers", broker.Addr(), "--pipeline", pipeline, "--sinks", bleveSink + "," + postgresSink, "--log-level", "debug"}
	ingest := newProcess(t, bin, "ingest", env, append([]string{"ingest", "--slot", "shop_" + name, "--idle-every", "500ms"}, common...)...)
	tables := newProcess(t, bin, "sink-postgres", env, append([]string{"sink-postgres"}, common...)...)
	search := newProcess(t, bin, "sink-bleve", env, append([]string{"sink-bleve", "--dir", dir, "--listen", address}, common...)...)
	all := []*process{ingest, tables, search}
	for _, p := range all {
		p.start()
	}
	writes := startLoad(t, source, seed, 3, 40*time.Millisecond)
	probe.Eventually(t, "the ingest engine has opened its source", func(context.Context) error {
		if len(ingest.match(incarnationLogged)) == 0 {
			return errors.Join(errors.New("it has not"), ingest.alive())
		}
		return nil
	})
	w := watch(t, source, ingest.match(slotLogged)[0], broker.Addr(), pipeline, []string{bleveSink, postgresSink}, ingest.match(incarnationLogged)[0])

	began := time.Now()
	for i := range kills {
		// Every process gets its share, in random order, at any moment: also
		// before it is well again.
		if i%len(all) == 0 {
			rng.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		}
		pause(t, time.Second+time.Duration(rng.Int64N(int64(6*time.Second))))
		victim := all[i%len(all)]
		if rng.IntN(2) == 0 {
			// In the middle of work that has piled up.
			victim.freeze(2 * time.Second)
			pause(t, time.Duration(rng.Int64N(int64(300*time.Millisecond))))
		}
		victim.kill()
		victim.start()
		if err := errors.Join(w.failed(), writes.failed()); err != nil {
			t.Fatal(err)
		}
	}
	pause(t, 2*time.Second)
	counts := writes.end(t)
	t.Logf("load of %s: %s", time.Since(began).Round(time.Second), show(counts))
	for _, p := range all {
		if err := p.alive(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: killed %d times", p.name, p.kills)
	}

	last := position(t, source)
	settled := time.Now()
	var slot, mark flusso.Position
	probe.Within(t, 2*probe.Wait, "the slot is at the watermark and behind the last change", func(ctx context.Context) (err error) {
		for _, p := range all {
			if err := p.alive(); err != nil {
				t.Fatal(err)
			}
		}
		if slot, mark, err = w.sample(ctx); err != nil {
			return err
		}
		if slot != mark || slot < last {
			return fmt.Errorf("the slot is at %s, the watermark at %s, the last change at %s", lsn(slot), lsn(mark), lsn(last))
		}
		return nil
	})
	if err := w.failed(); err != nil {
		t.Fatal(err)
	}
	t.Logf("slot confirmed at %s, watermark %s, last change %s, reached %s after the load ended; in %d samples the slot was never ahead, at most %d bytes behind",
		lsn(slot), lsn(mark), lsn(last), time.Since(settled).Round(100*time.Millisecond), w.samples, w.behind)

	compare(t, bin, env, "target database")
	compare(t, bin, env, "search index", "--address", address)

	for sink, p := range map[string]*process{bleveSink: search, postgresSink: tables} {
		items := probe.Lane(t, broker.Addr(), probe.Names(t, pipeline, sink))
		if len(items) == 0 {
			t.Fatalf("the lane of sink %s is empty", sink)
		}
		h := items[len(items)-1].Header
		received, applied := len(p.match(receivedLogged)), p.sum(appliedLogged)
		if applied < len(items) {
			t.Errorf("sink %s applied %d items, its lane has %d", sink, applied, len(items))
		}
		t.Logf("lane of sink %s: %d items of %d writer sessions, %d envelopes, %d changes; no position is there twice; delivered %d times, %d of them again; applied %d times, %d of them again",
			sink, len(items), h.Epoch, h.Totals.Envelopes, h.Totals.Changes, received, received-len(items), applied, applied-len(items))
	}
	t.Logf("the ingest engine began with a replay of what the lanes held %d times", len(ingest.match(droppedLogged)))
}

// compare runs the example's own comparison.
func compare(t *testing.T, bin string, env []string, what string, args ...string) {
	t.Helper()
	cmd := exec.Command(bin, append([]string{"compare", "--wait", "60s", "--format", "json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			out = append(out, exit.Stderr...)
		}
		t.Fatalf("compare with the %s: %v\n%s", what, err, out)
	}
	var result []struct {
		Index                                          string
		Source, Sink, Equal, Missing, Extra, Different int
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("compare with the %s: %v\n%s", what, err, out)
	}
	total := 0
	for _, r := range result {
		total += r.Equal
		if r.Source != r.Equal || r.Sink != r.Equal {
			t.Errorf("%s, %+v", what, r)
		}
	}
	if len(result) != 3 || total == 0 {
		t.Errorf("%s: compared %d rows of %d tables, want 3 tables with rows", what, total, len(result))
	}
	t.Logf("%s: %d rows of %d tables compared, all equal", what, total, len(result))
}

// position is where the source's log ends.
func position(t *testing.T, url string) flusso.Position {
	t.Helper()
	var at int64
	conn := connect(t, url)
	if err := conn.QueryRow(t.Context(), "SELECT (pg_current_wal_lsn() - '0/0')::bigint").Scan(&at); err != nil {
		t.Fatal(err)
	}
	return flusso.Position(at)
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	if _, err := connect(t, url).Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// pause lets the load run.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(context.Cause(t.Context()))
	}
}
