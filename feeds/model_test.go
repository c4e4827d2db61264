package feeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/bucket"
	"github.com/flusso/flusso-kafka/internal/feedtest"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

var (
	modelSeed = flag.Uint64("feeds.seed", 1, "first seed of the model test")
	modelRuns = flag.Int("feeds.runs", 4, "how many seeds the model test runs")
	modelOps  = flag.Int("feeds.ops", 100, "steps of a run of the model test")
)

// TestModel runs random steps of writers, administrators and readers, with
// processes that die, a broker that loses answers and a bucket that fails, and
// compares what can be read in the end with what was acknowledged. A seed that
// failed runs again by -feeds.seed=N -feeds.runs=1; what goroutines do between
// the steps differs.
func TestModel(t *testing.T) {
	for i := range *modelRuns {
		seed := *modelSeed + uint64(i)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, seed)
			for range *modelOps {
				m.step()
			}
			m.finish()
		})
	}
}

// cable is the network of one process, which can be cut for good.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *cable) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

type model struct {
	t     *testing.T
	r     *rand.Rand
	w     *kfaketest.Cluster
	store *store
	log   []string

	n         int // processes so far
	writers   []*process
	all       []*process
	dead      sync.WaitGroup
	followers []*feedtest.Follower

	ledger  *feedtest.Ledger
	batches int
	faults  map[string]int
}

// process is a client with a network of its own.
type process struct {
	name    string
	client  *feeds.Client
	cable   *cable
	session *feeds.Session
	pending []*submitted
}

type submitted struct {
	batch  string
	future *feeds.Future
}

func newModel(t *testing.T, seed uint64) *model {
	name := fmt.Sprintf("model-%d-%s", seed, strings.ReplaceAll(time.Now().Format("150405.000000"), ".", ""))
	m := &model{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), w: kfaketest.NewTCP(t),
		ledger: feedtest.NewLedger(), faults: make(map[string]int),
	}
	var address string
	m.store, address = newStore(name)
	p := m.process("creator")
	if _, err := p.client.Create(t.Context(), feed, feeds.CreateOptions{Keyed: true, Bucket: address}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stores.Delete(name)
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, strings.Join(m.log, "\n"))
		}
	})
	return m
}

func (m *model) say(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) process(role string) *process {
	m.t.Helper()
	m.n++
	p := &process{name: fmt.Sprintf("%s%d", role, m.n), cable: &cable{}}
	var err error
	p.client, err = feeds.New(feeds.Config{
		Client: append(m.w.Opts(), kgo.Dialer(p.cable.dial), kgo.ClientID(role)), Holder: p.name, StagingDir: m.t.TempDir(),
		PackBytes: 100, TrimGrace: -1, SegmentAge: 20 * time.Millisecond, SegmentBytes: 2000, MaxUnackedBytes: 4000,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	p.client.SetFirstPause(2 * time.Millisecond)
	m.all = append(m.all, p)
	return p
}

// kill ends a process without a word: its connections are gone, and nobody in
// it is heard of again.
func (m *model) kill(p *process) {
	p.cable.sever()
	m.settle(p)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	m.dead.Go(func() { _ = p.client.Close(gone) })
}

// killCommitting kills a process whose commit is on its way: asked for, and
// either carried out or not.
func (m *model) killCommitting(p *process) {
	f := kfaketest.Fault{Mode: kfaketest.Hang, ClientID: "writer", After: m.r.IntN(2) == 0}
	m.say("kill %s while it commits, after=%v", p.name, f.After)
	in := m.w.Fault(m.t, kmsg.EndTxn, f)
	m.append(p, false)
	ctx, cancel := m.patience(50*time.Millisecond, 500*time.Millisecond)
	defer cancel()
	select {
	case <-in.Hit():
		m.faults["killed while committing"]++
	case <-ctx.Done():
	}
	m.kill(p)
	m.drop(p)
	in.Release()
}

func (m *model) patience(least, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(m.t.Context(), least+time.Duration(m.r.Int64N(int64(most-least))))
}

func (m *model) step() {
	m.reap()
	if len(m.writers) == 0 {
		m.take()
		return
	}
	p := m.writers[m.r.IntN(len(m.writers))]
	switch n := m.r.IntN(100); {
	case n < 25:
		m.append(p, true)
	case n < 50:
		for range 1 + m.r.IntN(20) {
			m.append(p, false)
		}
	case n < 55:
		m.settle(p)
	case n < 65:
		m.seal(p)
	case n < 70:
		m.say("kill %s", p.name)
		m.kill(p)
		m.drop(p)
	case n < 72:
		m.killCommitting(p)
	case n < 74:
		m.say("close %s", p.name)
		ctx, cancel := m.patience(time.Millisecond, time.Second)
		_ = p.client.Close(ctx)
		cancel()
		m.settle(p)
		m.drop(p)
	case n < 78:
		m.take()
	case n < 80:
		m.duel(p)
	case n < 83:
		m.discard()
	case n < 86:
		m.repair()
	case n < 92:
		to := mode(m.r.IntN(int(modes)))
		m.say("bucket %s", to)
		m.store.be(to)
	case n < 97:
		m.fault()
	case n < 98:
		m.follow()
	default:
		m.latest()
	}
}

// reap forgets sessions that have ended.
func (m *model) reap() {
	for _, p := range slices.Clone(m.writers) {
		select {
		case <-p.session.Done():
			m.settle(p)
			m.drop(p)
		default:
		}
	}
}

func (m *model) drop(p *process) {
	m.writers = slices.DeleteFunc(m.writers, func(q *process) bool { return q == p })
}

// take opens or resumes in a process of its own, which fences the one before.
func (m *model) take() {
	p := m.process("writer")
	ctx, cancel := m.patience(50*time.Millisecond, 5*time.Second)
	defer cancel()
	what, open := "open", p.client.Open
	if m.r.IntN(2) == 0 {
		what, open = "resume", p.client.Resume
	}
	s, err := open(ctx, feed)
	m.say("%s by %s: %v", what, p.name, err)
	var many *feeds.StreamsError
	switch {
	case err == nil:
		p.session = s
		m.writers = append(m.writers, p)
	case errors.As(err, &many):
		m.discardStream(many.Streams[m.r.IntN(len(many.Streams))])
	case errors.Is(err, feeds.ErrNoOpenStream), errors.Is(err, flusso.ErrLost), errors.Is(err, flusso.ErrUnknownOutcome), ctx.Err() != nil:
	default:
		m.tolerate(what, err)
	}
}

// tolerate accepts the errors of a broker whose answers are lost.
func (m *model) tolerate(what string, err error) {
	if errors.Is(err, flusso.ErrFenced) || len(m.faults) > 0 {
		return
	}
	m.t.Errorf("%s: %v", what, err)
}

func (m *model) append(p *process, wait bool) {
	m.batches++
	name := fmt.Sprint("b", m.batches)
	ctx, cancel := m.patience(5*time.Millisecond, 2*time.Second)
	defer cancel()
	f, err := p.session.AppendAsync(ctx, feedtest.BatchOf(name, 0))
	if err != nil {
		m.ledger.Rejected(name)
		m.say("append %s by %s: %v", name, p.name, err)
		if errors.Is(err, flusso.ErrUnknownOutcome) {
			m.t.Errorf("what was not submitted is unknown: %v", err)
		}
		return
	}
	p.pending = append(p.pending, &submitted{name, f})
	if wait {
		_, err := f.Wait(ctx)
		m.say("append %s by %s: %v", name, p.name, err)
	}
}

// settle notes what a process was told by now of what it had submitted.
func (m *model) settle(p *process) {
	keep := p.pending[:0]
	for _, s := range p.pending {
		select {
		case <-s.future.Done():
			at, err := s.future.Wait(m.t.Context())
			m.outcome(p, s.batch, at, err)
		default:
			keep = append(keep, s)
		}
	}
	p.pending = keep
}

func (m *model) outcome(p *process, batch string, at feeds.Range, err error) {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case err == nil:
		m.ledger.Acked(m.t, batch, at, p.session.Epoch())
	case is(flusso.ErrRejected) == is(flusso.ErrUnknownOutcome):
		m.t.Errorf("an append is neither rejected nor unknown, or both: %v", err)
	case is(flusso.ErrRejected):
		m.ledger.Rejected(batch)
	default:
		m.ledger.Unknown(batch)
	}
}

func (m *model) seal(p *process) {
	ctx, cancel := m.patience(time.Millisecond, 300*time.Millisecond)
	defer cancel()
	message := fmt.Sprintf("seal %d of %s ☕ \x00<&>\u2028", m.r.IntN(1000), p.name)
	c, err := p.session.Seal(ctx, message)
	m.say("seal stream %d by %s, bucket %s: %v %v", p.session.Stream(), p.name, mode(m.store.mode.Load()), c.Number, err)
	m.settle(p)
	if err == nil {
		m.ledger.Committed(m.t, c)
		if m.r.IntN(2) == 0 {
			return // sealing again, and all else, is refused or idempotent
		}
		ctx, cancel := m.patience(time.Second, 2*time.Second)
		defer cancel()
		_ = p.client.Close(ctx)
		m.drop(p)
	}
}

// duel lets a second writer take over while the first goes on.
func (m *model) duel(p *process) {
	m.say("duel with %s", p.name)
	done := make(chan struct{})
	q := m.process("writer")
	var s *feeds.Session
	var err error
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
		defer cancel()
		s, err = q.client.Open(ctx, feed)
	}()
	for range 200 {
		m.append(p, m.r.IntN(4) == 0)
		select {
		case <-p.session.Done():
		case <-done:
		default:
			continue
		}
		break
	}
	<-done
	m.say("duel is over: %v", err)
	if err == nil {
		q.session = s
		m.writers = append(m.writers, q)
	}
}

func (m *model) discard() {
	ctx, cancel := m.patience(time.Second, 2*time.Second)
	defer cancel()
	d, err := m.process("admin").client.Describe(ctx, feed)
	if err != nil {
		m.tolerate("describe", err)
		return
	}
	if len(d.Streams) > 0 {
		m.discardStream(d.Streams[m.r.IntN(len(d.Streams))].Number)
	}
}

func (m *model) discardStream(stream uint64) {
	ctx, cancel := m.patience(100*time.Millisecond, 5*time.Second)
	defer cancel()
	err := m.process("admin").client.Discard(ctx, feed, stream, "")
	m.say("discard %d: %v", stream, err)
	var none *feeds.NoStreamError
	switch {
	case errors.As(err, &none):
	default:
		m.ledger.Discarded(stream, err == nil)
	}
}

func (m *model) repair() {
	ctx, cancel := m.patience(100*time.Millisecond, 5*time.Second)
	defer cancel()
	done, err := m.process("admin").client.Repair(ctx, feed)
	m.say("repair: %d commits, %v", len(done), err)
	for _, c := range done {
		m.ledger.Committed(m.t, c)
	}
}

// fault loses an answer of the broker, or a request, or lets it wait.
func (m *model) fault() {
	keys := []kmsg.Key{kmsg.EndTxn, kmsg.InitProducerID, kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.DeleteRecords, kmsg.Metadata}
	key := keys[m.r.IntN(len(keys))]
	f := kfaketest.Fault{Mode: kfaketest.Disconnect, After: m.r.IntN(3) > 0, Skip: m.r.IntN(3)}
	if m.r.IntN(3) == 0 {
		f.Mode = kfaketest.Hang
	}
	if m.r.IntN(4) > 0 {
		f.ClientID = "writer"
	}
	what := fmt.Sprintf("%s %s after=%v", key.Name(), f.Mode, f.After)
	m.say("fault %s skip=%d", what, f.Skip)
	m.faults[what]++
	in := m.w.Fault(m.t, key, f)
	time.AfterFunc(time.Duration(m.r.IntN(300))*time.Millisecond, in.Release)
}

func (m *model) latest() {
	ctx, cancel := m.patience(time.Second, 2*time.Second)
	defer cancel()
	_, _, err := m.process("reader").client.Latest(ctx, feed, feedtest.Key(m.r.IntN(feedtest.Keys)))
	if err != nil && ctx.Err() == nil && !errorAs(err, func(*bucket.Error) bool { return true }) {
		m.tolerate("latest", err)
	}
}

func (m *model) follow() {
	if len(m.followers) >= 4 {
		return
	}
	p := m.process("reader")
	m.say("follow by %s", p.name)
	m.followers = append(m.followers, feedtest.Follow(m.t, p.client, feed, func(err error) bool {
		return !errorAs(err, func(*feeds.HoleError) bool { return true }) // the bucket, or the broker, did not answer
	}))
}

// finish lets everything work again and compares.
func (m *model) finish() {
	m.store.be(sound)
	m.w.ReleaseFaults()
	ctx, cancel := context.WithTimeout(m.t.Context(), 30*time.Second)
	defer cancel()
	m.reap()
	for _, p := range m.writers { // what is accepted is drained
		if m.r.IntN(2) == 0 {
			_ = p.client.Close(ctx)
		} else {
			m.kill(p)
		}
		m.settle(p)
	}
	done, err := m.process("admin").client.Repair(ctx, feed)
	for _, c := range done {
		m.ledger.Committed(m.t, c)
	}
	if err != nil {
		m.t.Errorf("repair with everything in order: %v", err)
	}
	for _, p := range m.all {
		m.settle(p)
	}
	there := m.ledger.Compare(ctx, m.t, m.process("reader").client, feed)
	for _, f := range m.followers {
		f.Saw(m.t, there)
		f.End()
	}
	for _, p := range m.all {
		if err := p.client.Close(ctx); err != nil && ctx.Err() != nil {
			m.t.Errorf("close %s: %v", p.name, err)
		}
	}
	m.dead.Wait()
	m.tidied(ctx)
	m.t.Logf("%s; %d processes, %d followers, %d broker faults", m.ledger.Counts(), m.n, len(m.followers), sum(m.faults))
	var hits []string
	for i := range m.store.hits {
		hits = append(hits, fmt.Sprintf("%s %d", mode(i), m.store.hits[i].Load()))
	}
	m.t.Logf("accesses to the bucket: %s", strings.Join(hits, ", "))
}

// tidied lets a repair remove what no commit leads to, with nobody at work, and
// looks for the rest: the objects of commits and of streams without one.
func (m *model) tidied(ctx context.Context) {
	c := m.process("last").client
	if s, err := c.Resume(ctx, feed); err == nil { // a writer that was killed left its stream open
		if err := s.Close(ctx); err != nil {
			m.t.Errorf("close the last session: %v", err)
		}
	} else if !errors.Is(err, feeds.ErrNoOpenStream) {
		m.t.Errorf("resume with everything in order: %v", err)
	}
	if _, err := c.Repair(ctx, feed); err != nil {
		m.t.Errorf("repair with everything in order: %v", err)
	}
	d, err := c.Describe(ctx, feed)
	if err != nil {
		m.t.Fatal(err)
	}
	may := []string{"/feed.json"}
	for _, s := range d.Streams {
		may = append(may, fmt.Sprintf("/%012d/", s.Number))
	}
	for commit, err := range c.History(ctx, feed) {
		if err != nil {
			m.t.Fatal(err)
		}
		var manifest feeds.Manifest
		m.store.mu.Lock()
		err = json.Unmarshal(m.store.objects[commit.Manifest], &manifest)
		m.store.mu.Unlock()
		if err != nil {
			m.t.Fatal(err)
		}
		may = append(may, commit.Manifest)
		for _, o := range manifest.Packs {
			may = append(may, o.Name)
		}
		if manifest.Index != nil {
			may = append(may, manifest.Index.Name)
		}
	}
	for _, name := range m.store.names() {
		if !slices.ContainsFunc(may, func(part string) bool { return strings.Contains(name, part) }) {
			m.t.Errorf("object %s is left, which no commit leads to", name)
		}
	}
	for v, err := range c.Verify(ctx, feed) {
		if err != nil || v.Err != nil {
			m.t.Errorf("verify once it is tidy: %v, %v", v.Err, err)
		}
	}
	if err := c.Close(ctx); err != nil {
		m.t.Errorf("close the last process: %v", err)
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}
