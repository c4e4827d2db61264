package ingest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	flusso "github.com/flusso/flusso-kafka"
)

const accounts = `
CREATE TABLE accounts (id int PRIMARY KEY, n bigint NOT NULL, big text);
ALTER TABLE accounts ALTER big SET STORAGE EXTERNAL;
INSERT INTO accounts SELECT g, 0, CASE WHEN g % 10 = 0 THEN repeat('b', 3000) END FROM generate_series(1, 2000) g;
CREATE SEQUENCE stamp;
`

// write changes random rows until the returned function is called. Every row
// that is written gets a number that only grows.
func (p *pipeline) write(workers int) (stop func() int64) {
	p.t.Helper()
	var wg sync.WaitGroup
	var total atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	for w := range workers {
		conn, err := pgx.Connect(ctx, p.source)
		if err != nil {
			p.t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(uint64(w), 7))
		wg.Go(func() {
			defer func() { _ = conn.Close(context.Background()) }()
			pace := time.NewTicker(25 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				<-pace.C
				id := r.IntN(2500) + 1
				var err error
				switch r.IntN(10) {
				case 0:
					_, err = conn.Exec(context.Background(), "DELETE FROM accounts WHERE id = $1", id)
				case 1, 2:
					_, err = conn.Exec(context.Background(), "INSERT INTO accounts VALUES ($1, nextval('stamp'), repeat('c', $2)) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, big = EXCLUDED.big", id, r.IntN(2)*4000)
				case 3:
					_, err = conn.Exec(context.Background(), "UPDATE accounts SET id = id + 3000, n = nextval('stamp') WHERE id = $1 AND NOT EXISTS (SELECT FROM accounts WHERE id = $1 + 3000)", id)
				case 4:
					_, err = conn.Exec(context.Background(), "UPDATE accounts SET id = id - 3000, n = nextval('stamp') WHERE id = $1 + 3000 AND NOT EXISTS (SELECT FROM accounts WHERE id = $1)", id)
				default:
					_, err = conn.Exec(context.Background(), "UPDATE accounts SET n = nextval('stamp') WHERE id BETWEEN $1 AND $1 + 3", id)
				}
				if err == nil {
					total.Add(1)
				}
			}
		})
	}
	return func() int64 {
		cancel()
		wg.Wait()
		return total.Load()
	}
}

// watched is a stream that keeps, for a sink, the newest state of each
// document as it is published, and notes when one goes back [D4].
type watched struct {
	flusso.Stream
	index string // whose documents count
	mu    sync.Mutex
	newer map[string]int64
	back  []string
	rows  int // from snapshots
	marks int // that end them
}

func newWatched(index string) *watched {
	return &watched{index: index, newer: make(map[string]int64)}
}

// at returns how many documents are in state n.
func (w *watched) at(n int64) (documents int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, now := range w.newer {
		if now == n {
			documents++
		}
	}
	return documents
}

func (w *watched) Commits(ctx context.Context) (flusso.Producer[flusso.Commit], error) {
	p, err := w.Stream.Commits(ctx)
	return &watchedProducer{p, w}, err
}

type watchedProducer struct {
	flusso.Producer[flusso.Commit]
	w *watched
}

func (p *watchedProducer) Submit(ctx context.Context, c flusso.Commit) (*flusso.Future, error) {
	p.w.mu.Lock()
	for _, r := range c.Items {
		b, ok := r.Item.(*flusso.Batch)
		if !ok {
			p.w.marks++
		}
		if !ok || r.Sink != tablesSink {
			continue
		}
		for _, e := range b.Envelopes {
			if !b.Live() && e.Op == flusso.Upsert {
				p.w.rows++
			}
			if e.Op != flusso.Upsert || e.Index != p.w.index {
				continue
			}
			var id int
			var n int64
			if _, err := fmt.Sscanf(string(e.Document), `{"id":%d,"n":%d`, &id, &n); err != nil {
				p.w.back = append(p.w.back, err.Error())
				continue
			}
			if old := p.w.newer[e.ID]; n < old {
				p.w.back = append(p.w.back, fmt.Sprintf("document %s went from %d back to %d (live: %t)", e.ID, old, n, b.Live()))
			}
			p.w.newer[e.ID] = n
		}
	}
	p.w.mu.Unlock()
	return p.Producer.Submit(ctx, c)
}

func TestD4_SnapshotsWhileWritesRun(t *testing.T) {
	p := newPipeline(t, accounts)
	p.cfg.ChunkRows = 150
	w := newWatched("public.accounts")
	p.wrap = func(s flusso.Stream) flusso.Stream { w.Stream = s; return w }
	stop := p.write(4)
	p.start()
	requests, err := p.stream.Requests().Producer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 4 {
		for _, s := range []string{tablesSink, searchSink} {
			if _, err := requests.Publish(t.Context(), &flusso.Backfill{Sink: s, Indexes: []string{"public.accounts"}}); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "requests served", func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.marks < 2*round+1 {
				return fmt.Errorf("%d markers", w.marks)
			}
			return nil
		})
	}
	total := stop()
	p.equal()
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d transactions, %d rows from snapshots", total, w.rows)
	if len(w.back) > 0 {
		t.Errorf("%d times a document went back, first: %s", len(w.back), w.back[0])
	}
	if w.rows < 2000 {
		t.Errorf("only %d rows came from snapshots", w.rows)
	}
}

// An engine that dies anywhere resumes at the slot, with its requests.
func TestD1_EngineAndSinksRestartWhileWritesRun(t *testing.T) {
	p := newPipeline(t, accounts)
	p.cfg.ChunkRows = 150
	stop := p.write(2)
	p.start()
	r := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		eventually(t, "some progress", func() error { return p.confirmedBeyond(r.IntN(3)) })
		switch r.IntN(3) {
		case 0:
			p.stop("ingest")
			p.startIngest()
			p.restartSinks()
		case 1:
			p.stop(tablesSink)
			p.startSink(tablesSink)
		case 2:
			p.stop(searchSink)
			p.startSink(searchSink)
		}
	}
	total := stop()
	p.equal()
	t.Logf("%d transactions", total)
}

// restartSinks moves the sinks to the newest view of the stream.
func (p *pipeline) restartSinks() {
	for _, s := range []string{tablesSink, searchSink} {
		p.stop(s)
		p.startSink(s)
	}
}

// confirmedBeyond returns nil once the slot has moved n times since it was
// first asked; the caller polls.
func (p *pipeline) confirmedBeyond(n int) error {
	lsn := p.confirmed()
	if p.moves == nil {
		p.moves = map[string]bool{}
	}
	p.moves[lsn] = true
	if len(p.moves) <= n {
		return fmt.Errorf("slot at %s", lsn)
	}
	p.moves = nil
	return nil
}

func (p *pipeline) confirmed() string {
	p.t.Helper()
	var lsn string
	if err := p.db.QueryRow(p.t.Context(), "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", p.slot).Scan(&lsn); err != nil {
		p.t.Fatal(err)
	}
	return lsn
}
