package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/examples/postgres/ingest"
)

// reaches waits until the slot is confirmed at or above where the log is now.
func (p *pipeline) reaches(what string) {
	p.t.Helper()
	var end string
	if err := p.db.QueryRow(p.t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&end); err != nil {
		p.t.Fatal(err)
	}
	eventually(p.t, what, func() error {
		if p.lsn(p.confirmed()) < p.lsn(end) {
			return fmt.Errorf("slot at %s, log at %s", p.confirmed(), end)
		}
		return nil
	})
}

func (p *pipeline) lsn(text string) pglogrepl.LSN {
	p.t.Helper()
	l, err := pglogrepl.ParseLSN(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

const small = `CREATE TABLE small (id int PRIMARY KEY, v text); CREATE TABLE nokey (v text)`

// The position of a quiet database moves, by tables that are left out or by
// the server's own doing, and the slot follows.
func TestCase25_QuietDatabase(t *testing.T) {
	p := newPipeline(t, small)
	p.start()
	p.reaches("after the start")
	for range 3 {
		p.exec(`INSERT INTO nokey SELECT repeat('x', 1000) FROM generate_series(1, 100)`)
		p.reaches("after changes that nobody follows")
	}
	p.exec(`CHECKPOINT`)
	p.reaches("after a checkpoint")
}

// While a sink has not acked, no keepalive moves the slot over its batch.
func TestCase26_KeepaliveBehindABatchInFlight(t *testing.T) {
	p := newPipeline(t, small)
	p.startIngest()
	p.startSink(tablesSink)
	p.startSink(searchSink)
	p.reaches("after the start")
	p.stop(searchSink)
	p.exec(`INSERT INTO small VALUES (1, 'in flight')`)
	var commit string
	if err := p.db.QueryRow(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&commit); err != nil {
		t.Fatal(err)
	}
	p.exec(`INSERT INTO nokey SELECT repeat('x', 1000) FROM generate_series(1, 100)`)
	// The other sink gets it, and the keepalives behind it.
	eventually(t, "the sink that runs", func() error {
		if p.document("public.small", "1") == "" {
			return errors.New("not there yet")
		}
		mark, err := p.stream.Watermark(t.Context())
		if err != nil {
			return err
		}
		for _, f := range mark.Floors {
			if f.Sink == tablesSink && f.Through >= flusso.Position(p.lsn(commit)) {
				return nil
			}
		}
		return fmt.Errorf("floors %+v", mark.Floors)
	})
	if got := p.lsn(p.confirmed()); got >= p.lsn(commit) {
		t.Errorf("slot at %s, but the commit at %s is not acked", got, commit)
	}
	p.startSink(searchSink)
	p.reaches("after the sink came back")
	p.equal()
}

// sizes notes the batches of each position, and the live heap while they go.
type sizes struct {
	flusso.Stream
	mu      sync.Mutex
	batches map[flusso.Position][]*flusso.Batch
	count   int
	heap    uint64
	largest int
}

type sizesProducer struct {
	flusso.Producer[flusso.Commit]
	w *sizes
}

func (w *sizes) Commits(ctx context.Context) (flusso.Producer[flusso.Commit], error) {
	p, err := w.Stream.Commits(ctx)
	return &sizesProducer{p, w}, err
}

func (p *sizesProducer) Submit(ctx context.Context, c flusso.Commit) (*flusso.Future, error) {
	if b, ok := c.Items[0].Item.(*flusso.Batch); ok && b.Live() {
		size := 0
		for _, e := range b.Envelopes {
			size += len(e.Document)
		}
		p.w.mu.Lock()
		p.w.largest = max(p.w.largest, size)
		p.w.batches[b.Position] = append(p.w.batches[b.Position], &flusso.Batch{Position: b.Position, More: b.More, Changes: b.Changes})
		if p.w.count++; p.w.count%100 == 0 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			p.w.heap = max(p.w.heap, m.HeapAlloc)
		}
		p.w.mu.Unlock()
	}
	return p.Producer.Submit(ctx, c)
}

func TestLargeTransactionInBatchesOfOnePosition(t *testing.T) {
	p := newPipeline(t, small)
	p.cfg.BatchBytes = 64 << 10
	w := &sizes{batches: make(map[flusso.Position][]*flusso.Batch)}
	p.wrap = func(s flusso.Stream) flusso.Stream { w.Stream = s; return w }
	p.capacity = 8
	p.startIngest()
	p.drain(tablesSink)
	p.drain(searchSink)
	p.reaches("after the start")
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const rows, size = 8_000, 5_000
	p.exec(fmt.Sprintf(`INSERT INTO small SELECT g, repeat('x', %d) FROM generate_series(1, %d) g`, size, rows))
	p.reaches("after the transaction")
	w.mu.Lock()
	defer w.mu.Unlock()
	var largest []*flusso.Batch
	for _, b := range w.batches {
		if len(b) > len(largest) {
			largest = b
		}
	}
	var changes uint64
	for i, b := range largest {
		changes += b.Changes
		if more := i < len(largest)-1; b.More != more {
			t.Errorf("batch %d of %d: more is %t", i, len(largest), b.More)
		}
	}
	more := (int64(w.heap) - int64(before.HeapAlloc)) >> 10
	t.Logf("%d batches, the largest of %d bytes; at most %d KiB more heap in use for %d MiB of rows", len(largest), w.largest, more, rows*size>>20)
	if changes != rows || len(largest) < rows*size/(p.cfg.BatchBytes+2*size) {
		t.Errorf("%d changes in %d batches", changes, len(largest))
	}
	if w.largest > p.cfg.BatchBytes+2*size {
		t.Errorf("a batch of %d bytes", w.largest)
	}
	if more > 10<<10 {
		t.Errorf("%d KiB more heap in use", more)
	}
}

// drain acks a lane's items and forgets them.
func (p *pipeline) drain(name string) {
	lane, err := p.stream.Lane(name)
	if err != nil {
		p.t.Fatal(err)
	}
	p.run(name, func(ctx context.Context) error {
		c, err := lane.Consumer(ctx)
		for err == nil {
			var d flusso.Delivery[flusso.LaneItem]
			if d, err = c.Receive(ctx); err == nil {
				err = d.Ack(ctx)
			}
		}
		if ctx.Err() != nil {
			return c.Close(context.WithoutCancel(ctx))
		}
		return err
	})
}

// The feed is behind the table, so the rows it leaves incomplete are read in a
// later state than the changes that follow in the feed.
func TestD4_IncompleteRowsNeverGoBack(t *testing.T) {
	p := newPipeline(t, accounts)
	w := newWatched("public.accounts")
	p.wrap = func(s flusso.Stream) flusso.Stream { w.Stream = s; return w }
	p.start()
	p.equal()
	p.stop("ingest")
	for i := range 20 {
		p.exec(`UPDATE accounts SET n = nextval('stamp') WHERE id <= 100`)
		switch i % 5 {
		case 1:
			p.exec(`UPDATE accounts SET n = nextval('stamp'), big = repeat('d', 3000 + $1) WHERE id <= 50`, i)
		case 2:
			p.exec(`DELETE FROM accounts WHERE id % 20 = 0 AND id <= 100`)
			p.exec(`INSERT INTO accounts SELECT g, nextval('stamp'), repeat('e', 3000) FROM generate_series(20, 100, 20) g`)
		case 3:
			p.exec(`UPDATE accounts SET id = id + 5000, n = nextval('stamp') WHERE id BETWEEN 30 AND 40`)
		case 4:
			p.exec(`UPDATE accounts SET id = id - 5000, n = nextval('stamp') WHERE id > 5000`)
		}
	}
	p.startIngest()
	p.restartSinks()
	p.equal()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.back) > 0 {
		t.Errorf("%d times a document went back, first: %s", len(w.back), w.back[0])
	}
}

// With synchronous replication a transaction is in the feed long before other
// sessions see it: a snapshot that is taken meanwhile does not have it.
func TestD4_CommittedButNotYetVisible(t *testing.T) {
	p := newPipeline(t, accounts)
	w := newWatched("public.accounts")
	p.wrap = func(s flusso.Stream) flusso.Stream { w.Stream = s; return w }
	p.start()
	p.equal()
	p.exec(`ALTER SYSTEM SET synchronous_standby_names = 'nowhere'`)
	p.exec(`SELECT pg_reload_conf()`)
	t.Cleanup(p.noStandby)
	waiting, err := pgx.Connect(t.Context(), p.source)
	if err != nil {
		t.Fatal(err)
	}
	committed := make(chan error, 1)
	go func() {
		_, err := waiting.Exec(context.Background(), `SET synchronous_commit = on; UPDATE accounts SET n = 1000 WHERE id = 7`)
		_ = waiting.Close(context.Background())
		committed <- err
	}()
	eventually(t, "the feed", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := w.newer["7"]; n != 1000 {
			return fmt.Errorf("published with %d", n)
		}
		return nil
	})
	requests, err := p.stream.Requests().Producer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := requests.Publish(t.Context(), &flusso.Backfill{Sink: tablesSink, Indexes: []string{"public.accounts"}}); err != nil {
		t.Fatal(err)
	}
	p.exec(`SET synchronous_commit = local`)
	eventually(t, "the snapshot's first chunk", func() error {
		if n := strings.Count(p.logs.String(), `msg="serving snapshot requests"`); n < 2 {
			return fmt.Errorf("%d rounds", n)
		}
		return nil
	})
	select {
	case err := <-committed:
		t.Fatalf("the transaction did not wait: %v", err)
	default:
	}
	p.noStandby()
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	eventually(t, "the snapshot", func() error {
		if n := strings.Count(p.logs.String(), `msg="snapshot requests answered"`); n < 2 {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	})
	p.equal()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.back) > 0 {
		t.Errorf("%d times a document went back, first: %s", len(w.back), w.back[0])
	}
}

func (p *pipeline) noStandby() {
	conn, err := pgx.Connect(context.Background(), p.source)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range []string{`SET synchronous_commit = local`, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`} {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			p.t.Error(err)
		}
	}
}

// A slot that was dropped has lost what changed since; the next one is another
// feed, and every sink is seeded again, deletes included.
func TestLostSlotSeedsEverySinkAgain(t *testing.T) {
	p := newPipeline(t, small+`; INSERT INTO small SELECT g, 'old' FROM generate_series(1, 20) g; CREATE TABLE gone (id int PRIMARY KEY); INSERT INTO gone VALUES (1)`)
	p.start()
	p.equal()
	first := p.slot
	p.stop("ingest")
	p.slotFree()
	p.exec(`SELECT pg_drop_replication_slot($1)`, first)
	p.exec(`DELETE FROM small WHERE id < 5; UPDATE small SET v = 'new' WHERE id > 10; INSERT INTO small VALUES (99, 'missed'); DROP TABLE gone`)
	p.startIngest()
	if p.slot == first {
		t.Errorf("the new slot has the old one's name, %s", first)
	}
	p.restartSinks()
	p.equal()
	p.reaches("with the new slot")
}

// slotFree waits until the server has noticed that the engine is gone.
func (p *pipeline) slotFree() {
	p.t.Helper()
	eventually(p.t, "slot", func() error {
		var active bool
		if err := p.db.QueryRow(p.t.Context(), "SELECT active FROM pg_replication_slots WHERE slot_name = $1", p.slot).Scan(&active); err != nil || active {
			return fmt.Errorf("active: %t, %w", active, err)
		}
		return nil
	})
}

func TestSlotMovedBySomebodyElse(t *testing.T) {
	p := newPipeline(t, small)
	p.start()
	p.exec(`INSERT INTO small VALUES (1, 'x')`)
	p.equal()
	p.reaches("after the start")
	p.stop("ingest")
	p.exec(`INSERT INTO small VALUES (2, 'lost')`)
	p.slotFree()
	p.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, p.slot)
	s := p.open()
	err := s.Run(t.Context(), p.stream)
	if _, ok := errors.AsType[*ingest.SlotMovedError](err); !ok {
		t.Fatalf("got %v, want a SlotMovedError", err)
	}
	if !strings.Contains(err.Error(), "pg_drop_replication_slot('"+p.slot+"')") {
		t.Errorf("the error does not tell the way out: %v", err)
	}
}

// A second engine waits for the slot, and does not fence the first.
func TestSecondEngineOnTheSlot(t *testing.T) {
	p := newPipeline(t, small)
	p.start()
	p.reaches("after the start")
	second, err := ingest.Open(t.Context(), p.cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.run("second", func(ctx context.Context) error { return second.Run(ctx, p.stream) })
	p.logged("another engine runs on this slot")
	p.exec(`INSERT INTO small VALUES (1, 'from the first')`)
	p.equal()
	p.stop("second")
}

func TestServerThatCannot(t *testing.T) {
	p := newPipeline(t, small)
	for name, c := range map[string]struct {
		cfg  ingest.Config
		want string
	}{
		"slot name":   {ingest.Config{Source: p.source, Slot: "With Space"}, "use 1 to 30 characters"},
		"no server":   {ingest.Config{Source: "postgres://127.0.0.1:1/x", Slot: "s"}, "connect to the source"},
		"no database": {ingest.Config{Source: strings.Replace(p.source, p.cfg.Slot, "nosuch", 1), Slot: "s"}, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := ingest.Open(ctx, c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	t.Run("dropped publication", func(t *testing.T) {
		p.open()
		p.exec(`DROP PUBLICATION ` + p.cfg.Slot)
		_, err := ingest.Open(t.Context(), p.cfg)
		if _, ok := errors.AsType[*ingest.SlotError](err); !ok {
			t.Errorf("got %v, want a SlotError", err)
		}
	})
}

// A transaction's commit record can begin exactly where the log ended at the
// last keepalive: its position is above that of the keepalive all the same.
func TestCommitRightBehindAKeepalive(t *testing.T) {
	p := newPipeline(t, small)
	p.start()
	p.reaches("after the start")
	open, err := pgx.Connect(t.Context(), p.source)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close(context.Background()) }()
	for i := range 5 {
		if _, err := open.Exec(t.Context(), fmt.Sprintf(`BEGIN; INSERT INTO small VALUES (%d, 'late')`, i)); err != nil {
			t.Fatal(err)
		}
		p.exec(`INSERT INTO nokey VALUES ('moves the log')`)
		p.reaches("behind the open transaction")
		if _, err := open.Exec(t.Context(), `COMMIT`); err != nil {
			t.Fatal(err)
		}
		p.equal()
	}
}

// A request that was answered is not served again.
func TestD2_AnsweredRequestsStayAnswered(t *testing.T) {
	p := newPipeline(t, small+`; INSERT INTO small VALUES (1, 'x')`)
	p.start()
	p.equal()
	p.answered(2) // each sink asked for all there is
	rounds := func() int { return strings.Count(p.logs.String(), `msg="serving snapshot requests"`) }
	before := rounds()
	p.stop("ingest")
	p.startIngest()
	p.restartSinks()
	p.exec(`INSERT INTO small VALUES (2, 'y')`)
	p.equal()
	p.reaches("after the restart")
	if got := rounds(); got != before {
		t.Errorf("%d rounds of snapshots, %d before the restart", got, before)
	}
}
