package feeds_test

import (
	"context"
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

// fate is what a writer was told of a record.
type fate int

const (
	unknown  fate = iota
	rejected      // certainly not there
	acked         // certainly there
)

// told is what is known of one record.
type told struct {
	fate             fate
	stream, sequence uint64 // where it was acked
	batch            int
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
	followers []*follower

	records   map[string]*told // by payload
	batches   int
	at        map[string]string       // stream/sequence → payload that was acked
	commits   map[uint64]feeds.Commit // that a writer was told of, by number
	discarded map[uint64]fate         // acked: by an administrator; unknown: perhaps
	faults    map[string]int
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
	payloads []string
	future   *feeds.Future
}

func newModel(t *testing.T, seed uint64) *model {
	name := fmt.Sprintf("model-%d-%s", seed, strings.ReplaceAll(time.Now().Format("150405.000000"), ".", ""))
	m := &model{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), w: kfaketest.NewTCP(t),
		records: make(map[string]*told), at: make(map[string]string), commits: make(map[uint64]feeds.Commit),
		discarded: make(map[uint64]fate), faults: make(map[string]int),
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

func (m *model) batch() (feeds.Batch, []string) {
	m.batches++
	var b feeds.Batch
	var payloads []string
	for i := range 1 + m.r.IntN(4) {
		payload := fmt.Sprintf("b%d-%d", m.batches, i)
		r := feeds.Record{Payload: []byte(payload)}
		if m.r.IntN(3) > 0 {
			r.Key = fmt.Appendf(nil, "k%d", m.r.IntN(6))
			r.Tombstone = m.r.IntN(10) == 0
		}
		b.Records = append(b.Records, r)
		payloads = append(payloads, payload)
		m.records[payload] = &told{batch: m.batches}
	}
	return b, payloads
}

func (m *model) append(p *process, wait bool) {
	b, payloads := m.batch()
	ctx, cancel := m.patience(5*time.Millisecond, 2*time.Second)
	defer cancel()
	f, err := p.session.AppendAsync(ctx, b)
	if err != nil {
		m.tell(payloads, feeds.Range{}, rejected, p)
		m.say("append %s by %s: %v", payloads[0], p.name, err)
		if errors.Is(err, flusso.ErrUnknownOutcome) {
			m.t.Errorf("what was not submitted is unknown: %v", err)
		}
		return
	}
	p.pending = append(p.pending, &submitted{payloads, f})
	if wait {
		_, err := f.Wait(ctx)
		m.say("append %s by %s: %v", payloads[0], p.name, err)
	}
}

// settle notes what a process was told by now of what it had submitted.
func (m *model) settle(p *process) {
	keep := p.pending[:0]
	for _, s := range p.pending {
		select {
		case <-s.future.Done():
			at, err := s.future.Wait(m.t.Context())
			m.outcome(p, s.payloads, at, err)
		default:
			keep = append(keep, s)
		}
	}
	p.pending = keep
}

func (m *model) outcome(p *process, payloads []string, at feeds.Range, err error) {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case err == nil:
		m.tell(payloads, at, acked, p)
	case is(flusso.ErrRejected) == is(flusso.ErrUnknownOutcome):
		m.t.Errorf("an append is neither rejected nor unknown, or both: %v", err)
	case is(flusso.ErrRejected):
		m.tell(payloads, at, rejected, p)
	}
}

func (m *model) tell(payloads []string, at feeds.Range, f fate, p *process) {
	for i, payload := range payloads {
		r := m.records[payload]
		r.fate = f
		if f != acked {
			continue
		}
		r.stream, r.sequence = at.Stream, at.First+uint64(i)
		place := fmt.Sprintf("%d/%d", r.stream, r.sequence)
		if other, taken := m.at[place]; taken && other != payload {
			m.t.Errorf("%s was acked for %s and, by %s, for %s", place, other, p.name, payload)
		}
		m.at[place] = payload
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
		m.committed(c)
		if m.r.IntN(2) == 0 {
			return // sealing again, and all else, is refused or idempotent
		}
		ctx, cancel := m.patience(time.Second, 2*time.Second)
		defer cancel()
		_ = p.client.Close(ctx)
		m.drop(p)
	}
}

func (m *model) committed(c feeds.Commit) {
	c.Warning = nil
	if have, ok := m.commits[c.Number]; ok && (have.Stream != c.Stream || have.ManifestHash != c.ManifestHash) {
		m.t.Errorf("commit %d is stream %d and stream %d", c.Number, have.Stream, c.Stream)
	}
	m.commits[c.Number] = c
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
	case err == nil:
		m.discarded[stream] = acked
	case errors.As(err, &none):
	default:
		if m.discarded[stream] != acked {
			m.discarded[stream] = unknown
		}
	}
}

func (m *model) repair() {
	ctx, cancel := m.patience(100*time.Millisecond, 5*time.Second)
	defer cancel()
	done, err := m.process("admin").client.Repair(ctx, feed)
	m.say("repair: %d commits, %v", len(done), err)
	for _, c := range done {
		m.committed(c)
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
	_, _, err := m.process("reader").client.Latest(ctx, feed, fmt.Appendf(nil, "k%d", m.r.IntN(6)))
	if err != nil && ctx.Err() == nil && !errorAs(err, func(*bucket.Error) bool { return true }) {
		m.tolerate("latest", err)
	}
}

// follower is a reader that follows.
type follower struct {
	name string
	end  context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	seen  map[string]string // place → payload
	order map[uint64]uint64 // last sequence of each stream
	err   error
}

func (m *model) follow() {
	if len(m.followers) >= 4 {
		return
	}
	p := m.process("reader")
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{name: p.name, end: cancel, done: make(chan struct{}), seen: make(map[string]string), order: make(map[uint64]uint64)}
	m.say("follow by %s", p.name)
	m.followers = append(m.followers, f)
	m.t.Cleanup(func() {
		cancel()
		<-f.done
	})
	go func() {
		defer close(f.done)
		for item, err := range p.client.Read(ctx, feed, feeds.ReadOptions{Follow: true}) {
			f.take(item, err)
		}
	}()
}

var errOrder = errors.New("out of order")

func (f *follower) take(item feeds.Item, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	if err != nil {
		f.err = err
		return
	}
	if item.Discarded {
		for place := range f.seen {
			if strings.HasPrefix(place, fmt.Sprint(item.Stream, "/")) {
				delete(f.seen, place)
			}
		}
		return
	}
	if item.Sequence != f.order[item.Stream]+1 {
		f.err = fmt.Errorf("%w: stream %d: sequence %d follows %d", errOrder, item.Stream, item.Sequence, f.order[item.Stream])
	}
	f.order[item.Stream] = item.Sequence
	f.seen[fmt.Sprintf("%d/%d", item.Stream, item.Sequence)] = string(item.Payload)
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
		m.committed(c)
	}
	if err != nil {
		m.t.Errorf("repair with everything in order: %v", err)
	}
	for _, p := range m.all {
		m.settle(p)
	}
	m.compare(ctx)
	for _, f := range m.followers {
		f.end()
		<-f.done
	}
	for _, p := range m.all {
		if err := p.client.Close(ctx); err != nil && ctx.Err() != nil {
			m.t.Errorf("close %s: %v", p.name, err)
		}
	}
	m.dead.Wait()
	counts := make(map[fate]int)
	for _, r := range m.records {
		counts[r.fate]++
	}
	m.t.Logf("%d records acked, %d rejected, %d unknown; %d processes, %d commits, %d discards, %d followers, %d broker faults",
		counts[acked], counts[rejected], counts[unknown], m.n, len(m.commits), len(m.discarded), len(m.followers), sum(m.faults))
	var hits []string
	for i := range m.store.hits {
		hits = append(hits, fmt.Sprintf("%s %d", mode(i), m.store.hits[i].Load()))
	}
	m.t.Logf("accesses to the bucket: %s", strings.Join(hits, ", "))
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func (m *model) compare(ctx context.Context) {
	t, reader := m.t, m.process("reader").client
	next := uint64(1)
	committed := make(map[uint64]feeds.Commit)
	for c, err := range reader.History(ctx, feed) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Number != next {
			t.Errorf("commit %d follows %d", c.Number, next-1)
		}
		next = c.Number + 1
		if other, twice := committed[c.Stream]; twice {
			t.Errorf("stream %d is commit %d and commit %d", c.Stream, other.Number, c.Number)
		}
		committed[c.Stream] = c
		if told, ok := m.commits[c.Number]; ok && (told.Stream != c.Stream || told.Message != c.Message || told.Records != c.Records || told.ManifestHash != c.ManifestHash) {
			t.Errorf("commit %d is %+v, a writer was told %+v", c.Number, c, told)
		}
	}
	for number, c := range m.commits {
		if number >= next {
			t.Errorf("commit %d of stream %d, of which a writer was told, is not in the history", number, c.Stream)
		}
	}
	for stream, f := range m.discarded {
		if _, ok := committed[stream]; ok && f == acked {
			t.Errorf("stream %d was discarded and is committed", stream)
		}
	}
	final := m.read(ctx, reader, committed)
	m.whole(final)
	for place, payload := range m.at {
		if got := final[place]; got != payload && !m.gone(place) {
			t.Errorf("%s was acked for %s, and %q is there", place, payload, got)
		}
	}
	for _, f := range m.followers {
		m.caughtUp(ctx, f, final)
	}
	for v, err := range reader.Verify(ctx, feed) {
		if err != nil || v.Err != nil {
			t.Errorf("verify: %v, %v", v.Err, err)
		}
	}
}

// gone tells whether a stream may have been discarded.
func (m *model) gone(place string) bool {
	var stream, sequence uint64
	_, _ = fmt.Sscanf(place, "%d/%d", &stream, &sequence)
	_, ok := m.discarded[stream]
	return ok
}

// read returns what can be read, by place, and compares it with the history
// and with Latest.
func (m *model) read(ctx context.Context, reader *feeds.Client, committed map[uint64]feeds.Commit) map[string]string {
	t := m.t
	final, last, newest := make(map[string]string), make(map[uint64]uint64), make(map[string]feeds.Item)
	for item, err := range reader.Read(ctx, feed, feeds.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Sequence != last[item.Stream]+1 {
			t.Errorf("stream %d: sequence %d follows %d", item.Stream, item.Sequence, last[item.Stream])
		}
		last[item.Stream] = item.Sequence
		if item.Commit != committed[item.Stream].Number {
			t.Errorf("%d/%d is read from commit %d, the history says %d", item.Stream, item.Sequence, item.Commit, committed[item.Stream].Number)
		}
		place := fmt.Sprintf("%d/%d", item.Stream, item.Sequence)
		final[place] = string(item.Payload)
		if r := m.records[string(item.Payload)]; r == nil || r.fate == rejected {
			t.Errorf("%s holds %q, which was rejected or never appended", place, item.Payload)
		}
		if item.Key != nil {
			item.Payload = slices.Clone(item.Payload)
			newest[string(item.Key)] = item
		}
	}
	for stream, c := range committed {
		if last[stream] != c.Records || c.Last != c.Records {
			t.Errorf("commit %d has %d records, up to %d; %d are read", c.Number, c.Records, c.Last, last[stream])
		}
	}
	for i := range 6 {
		key := fmt.Sprint("k", i)
		want, has := newest[key]
		got, found, err := reader.Latest(ctx, feed, []byte(key))
		if err != nil || found != has || string(got.Payload) != string(want.Payload) || got.Tombstone != want.Tombstone || got.Stream != want.Stream || got.Sequence != want.Sequence {
			t.Errorf("latest of %s: %s at %d/%d, %v, %v; want %s at %d/%d", key, got.Payload, got.Stream, got.Sequence, found, err, want.Payload, want.Stream, want.Sequence)
		}
	}
	return final
}

// whole checks that each record is there once, and each batch whole.
func (m *model) whole(final map[string]string) {
	place, parts, sizes := make(map[string]string), make(map[int]int), make(map[int]int)
	for at, payload := range final {
		if other, twice := place[payload]; twice {
			m.t.Errorf("%s is at %s and at %s", payload, other, at)
		}
		place[payload] = at
		parts[m.records[payload].batch]++
	}
	for _, r := range m.records {
		sizes[r.batch]++
	}
	for batch, n := range parts {
		if n != sizes[batch] {
			m.t.Errorf("%d of %d records of batch %d are there", n, sizes[batch], batch)
		}
	}
}

// caughtUp waits until a follower has seen what there is.
func (m *model) caughtUp(ctx context.Context, f *follower, final map[string]string) {
	for {
		f.mu.Lock()
		n, err := len(f.seen), f.err
		same := n == len(final)
		for place, payload := range final {
			same = same && f.seen[place] == payload
		}
		f.mu.Unlock()
		if same {
			return
		}
		if err != nil && !errors.Is(err, errOrder) && !errorAs(err, func(*feeds.HoleError) bool { return true }) {
			return // it ended when the bucket or the broker did not answer
		}
		if err != nil || ctx.Err() != nil {
			m.t.Errorf("%s followed %d of %d records: %v", f.name, n, len(final), err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}
