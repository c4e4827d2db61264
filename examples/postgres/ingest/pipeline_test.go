package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/channel"
	"github.com/flusso/flusso-kafka/examples/postgres/blevesink"
	"github.com/flusso/flusso-kafka/examples/postgres/compare"
	"github.com/flusso/flusso-kafka/examples/postgres/ingest"
	"github.com/flusso/flusso-kafka/examples/postgres/internal/pgtest"
	"github.com/flusso/flusso-kafka/examples/postgres/pgsink"
	"github.com/flusso/flusso-kafka/examples/postgres/sink"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// pipeline is a source and two sinks in one process, over the channel adapter.
type pipeline struct {
	t        *testing.T
	source   string
	target   string
	db       *pgx.Conn // source
	cfg      ingest.Config
	stream   *channel.Stream
	tables   *pgsink.Store
	search   *blevesink.Store
	logs     *log
	running  map[string]func() error
	slot     string
	capacity int
	wrap     func(flusso.Stream) flusso.Stream
	moves    map[string]bool
}

type log struct {
	t  *testing.T
	ch chan struct{}
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.ch <- struct{}{}
	defer func() { <-l.ch }()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.ch <- struct{}{}
	defer func() { <-l.ch }()
	return l.b.String()
}

const (
	tablesSink = "tables"
	searchSink = "search"
)

func newPipeline(t *testing.T, schema string) *pipeline {
	t.Helper()
	p := &pipeline{t: t, source: pgtest.Database(t), target: pgtest.Database(t), running: make(map[string]func() error)}
	p.logs = &log{t: t, ch: make(chan struct{}, 1)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.logs.String())
		}
	})
	logger := slog.New(slog.NewTextHandler(p.logs, nil))
	var err error
	if p.db, err = pgx.Connect(t.Context(), p.source); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.db.Close(context.Background()) })
	p.exec(schema)
	p.cfg = ingest.Config{Source: p.source, Slot: p.db.Config().Database, IdleEvery: 50 * time.Millisecond, TablesEvery: 300 * time.Millisecond, Logger: logger}
	p.tables = pgsink.New(p.target, "flusso", logger)
	p.search = blevesink.New(t.TempDir(), logger)
	t.Cleanup(p.dropSlots)
	t.Cleanup(p.stopAll)
	return p
}

func (p *pipeline) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.db.Exec(p.t.Context(), sql, args...); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}

// run starts f under a name; stop ends it and returns its error.
func (p *pipeline) run(name string, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	p.running[name] = func() error {
		cancel()
		return <-done
	}
}

func (p *pipeline) stop(name string) {
	p.t.Helper()
	if f := p.running[name]; f != nil {
		delete(p.running, name)
		if err := f(); err != nil {
			p.t.Errorf("%s ended: %v", name, err)
		}
	}
}

func (p *pipeline) stopAll() {
	for _, name := range []string{"second", "ingest", tablesSink, searchSink} {
		p.stop(name)
	}
	if p.stream != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.stream.Close(ctx)
	}
}

func (p *pipeline) dropSlots() {
	conn, err := pgx.Connect(context.Background(), p.source)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	eventually(p.t, "drop the slots", func() error {
		var left int
		if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND active").Scan(&left); err != nil || left > 0 {
			return fmt.Errorf("%d active, %w", left, err)
		}
		_, err := conn.Exec(context.Background(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
		return err
	})
}

// open opens the source, and the stream for its incarnation.
func (p *pipeline) open() *ingest.Source {
	p.t.Helper()
	s, err := ingest.Open(p.t.Context(), p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.slot = s.Slot()
	if p.stream == nil {
		p.stream, err = channel.New(channel.Config{Capacity: p.capacity, Sinks: []string{tablesSink, searchSink}, Incarnation: s.Incarnation()})
	} else {
		p.stream, err = p.stream.Reopen(s.Incarnation())
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *pipeline) startIngest() {
	p.t.Helper()
	s := p.open()
	stream := flusso.Stream(p.stream)
	if p.wrap != nil {
		stream = p.wrap(stream)
	}
	p.run("ingest", func(ctx context.Context) error { return s.Run(ctx, stream) })
}

func (p *pipeline) startSink(name string) {
	store := sink.Store(p.tables)
	if name == searchSink {
		store = p.search
	}
	stream := p.stream
	p.run(name, func(ctx context.Context) error {
		return sink.Run(ctx, sink.Config{Stream: stream, Sink: name, Store: store, Logger: p.cfg.Logger})
	})
}

func (p *pipeline) start() {
	p.t.Helper()
	p.startIngest()
	p.startSink(tablesSink)
	p.startSink(searchSink)
}

// eventually polls until ok returns nil.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

func (p *pipeline) diff(of compare.Reader) error {
	ctx := p.t.Context()
	source, err := compare.Read(func(f func(string, string, []byte) error) error { return ingest.Read(ctx, p.source, f) })
	if err != nil {
		return err
	}
	other, err := compare.Read(of)
	if err != nil {
		return err
	}
	if r := compare.Diff(source, other); !r.Same() {
		var b strings.Builder
		_ = r.Print(&b)
		return fmt.Errorf("source and sink differ:\n%s", b.String())
	}
	return nil
}

// equal waits until both sinks equal the source, row by row.
func (p *pipeline) equal() {
	p.t.Helper()
	eventually(p.t, "target database", func() error {
		return p.diff(func(f func(string, string, []byte) error) error {
			return pgsink.Read(p.t.Context(), p.target, "flusso", f)
		})
	})
	eventually(p.t, "search index", func() error {
		return p.diff(func(f func(string, string, []byte) error) error { return p.search.Each(p.t.Context(), f) })
	})
}

func (p *pipeline) logged(text string) {
	p.t.Helper()
	eventually(p.t, "log", func() error {
		if !strings.Contains(p.logs.String(), text) {
			return fmt.Errorf("%q was not logged", text)
		}
		return nil
	})
}

var answer = regexp.MustCompile(`msg="snapshot requests answered" requests=(\d+)`)

// answers is the number of snapshot requests that were answered.
func (p *pipeline) answers() (n int) {
	for _, m := range answer.FindAllStringSubmatch(p.logs.String(), -1) {
		requests, _ := strconv.Atoi(m[1]) // digits
		n += requests
	}
	return n
}

// answered waits until that many were.
func (p *pipeline) answered(want int) {
	p.t.Helper()
	eventually(p.t, "requests answered", func() error {
		if n := p.answers(); n < want {
			return fmt.Errorf("%d of %d snapshot requests were answered", n, want)
		}
		return nil
	})
}

// document returns the document that the target has.
func (p *pipeline) document(index, id string) string {
	p.t.Helper()
	var out string
	err := pgsink.Read(p.t.Context(), p.target, "flusso", func(i, d string, document []byte) error {
		if i == index && d == id {
			out = string(document)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}
