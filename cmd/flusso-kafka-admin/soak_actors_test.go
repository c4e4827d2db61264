package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// soakLink is a slow network that a process is cut off from when it crashes.
type soakLink struct {
	next func(ctx context.Context, network, host string) (net.Conn, error)

	mu    sync.Mutex
	rng   *rand.Rand
	down  bool
	conns map[net.Conn]struct{}
}

func (w *soak) link(_ string, rng *rand.Rand) *soakLink {
	next := w.admin.OptValue(kgo.Dialer).(func(ctx context.Context, network, host string) (net.Conn, error))
	return &soakLink{next: next, rng: rng, conns: map[net.Conn]struct{}{}}
}

var errCut = errors.New("the process has crashed")

func (l *soakLink) dial(ctx context.Context, network, host string) (net.Conn, error) {
	c, err := l.next(ctx, network, host)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errors.Join(errCut, c.Close())
	}
	l.conns[c] = struct{}{}
	return &soakConn{Conn: c, link: l}, nil
}

func (l *soakLink) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for c := range l.conns {
		_ = c.Close() // broken is what it should be
	}
}

type soakConn struct {
	net.Conn
	link *soakLink
}

// Write takes its time, so that what others do comes in between.
func (c *soakConn) Write(b []byte) (int, error) {
	c.link.mu.Lock()
	d := time.Duration(c.link.rng.Int64N(int64(20 * time.Millisecond)))
	c.link.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	return c.Conn.Write(b)
}

func (c *soakConn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c.Conn)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

// grow adds a transaction to the source.
func (w *soak) grow() flusso.Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	return w.last
}

// transaction is what the source has at a position, for every sink.
func (w *soak) transaction(at flusso.Position) (c flusso.Commit) {
	for _, sink := range w.sinks {
		b := &flusso.Batch{Position: at, Changes: 1}
		for i := range at % 4 { // none at all, now and then
			b.Envelopes = append(b.Envelopes, flusso.Envelope{
				Index: "order", ID: fmt.Sprintf("%d-%d", at, i), Op: flusso.Upsert, Position: at, BuiltAt: time.Now(),
				Document: fmt.Appendf(nil, `{"at":%d,"sink":%q}`, at, sink),
			})
		}
		c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: b})
	}
	return c
}

// engine follows the source and publishes, crashes, and begins again.
func (w *soak) engine(rng *rand.Rand) {
	for w.ctx.Err() == nil {
		s, l := w.open(soakIncarnation, "engine")
		if s != nil {
			w.publishes(rng, s)
			w.end(rng, "engine", s, l)
			w.count("engines")
		}
		w.pass(upToSeconds(rng, 20))
	}
}

func (w *soak) publishes(rng *rand.Rand, s flusso.Stream) {
	life, cancel := context.WithTimeout(w.ctx, upToSeconds(rng, 60))
	defer cancel()
	p, err := s.Commits(life)
	if err != nil {
		w.say("the engine gets no producer: %v", err)
		return
	}
	asked, err := s.Requests().Consumer(life)
	if err != nil {
		w.say("the engine does not attach to the requests: %v", err)
		return
	}
	var requests sync.WaitGroup
	defer requests.Wait()
	requests.Go(func() { w.serve(life, asked, p) })
	mark, err := s.Watermark(life)
	w.judge("an engine", mark.Position)
	if err != nil {
		w.say("the engine reads no watermark: %v", err)
		return
	}
	w.say("the engine replays from %s", mark.Position)
	for at := mark.Position + 1; life.Err() == nil; at++ {
		w.mu.Lock()
		fresh := at > w.last
		w.mu.Unlock()
		if fresh {
			w.grow()
			w.pass(upToSeconds(rng, 1))
		}
		if _, err := p.Publish(life, w.transaction(at)); err != nil {
			w.say("the engine publishes %s: %v", at, err)
			return
		}
		if mark, err := s.Watermark(life); err == nil {
			w.judge("the engine", mark.Position)
		}
	}
}

// serve answers requests by a row and a marker.
func (w *soak) serve(ctx context.Context, c flusso.Consumer[flusso.Request], p flusso.Producer[flusso.Commit]) {
	for ctx.Err() == nil {
		d, err := c.Receive(ctx)
		if err != nil {
			w.say("the engine receives no request: %v", err)
			return
		}
		b := d.Item().(*flusso.Backfill)
		w.serves(b)
		commit := flusso.Commit{Acks: []flusso.Delivery[flusso.Request]{d}}
		row := flusso.Envelope{Index: b.Indexes[0], ID: "row", Op: flusso.Upsert, Document: []byte(`{}`), BuiltAt: time.Now()}
		commit.Items = append(commit.Items,
			flusso.Routed{Sink: b.Sink, Item: &flusso.Batch{Envelopes: []flusso.Envelope{row}}},
			flusso.Routed{Sink: b.Sink, Item: &flusso.SnapshotComplete{Indexes: b.Indexes}})
		if _, err := p.Publish(ctx, commit); err != nil {
			w.say("the engine serves %v: %v", b.Indexes, err)
		}
	}
}

func (w *soak) serves(r flusso.Request) {
	if b, ok := r.(*flusso.Backfill); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, index := range b.Indexes {
			w.served[index] = true
		}
	}
}

// sink consumes, crashes, stays away, and comes again.
func (w *soak) sink(sink string, rng *rand.Rand) {
	for w.ctx.Err() == nil {
		s, l := w.open("", "sink-"+sink)
		if s != nil {
			w.consumes(sink, rng, s)
			w.end(rng, "sink "+sink, s, l)
			w.count("sinks")
		}
		w.pass(upToSeconds(rng, 60))
	}
}

func (w *soak) consumes(sink string, rng *rand.Rand, s flusso.Stream) {
	life, cancel := context.WithTimeout(w.ctx, upToSeconds(rng, 30))
	defer cancel()
	lane, err := s.Lane(sink)
	if err != nil {
		w.fail("%v", err)
		return
	}
	c, err := lane.Consumer(life)
	if err != nil {
		w.say("sink %s does not attach: %v", sink, err)
		w.stopped(err)
		return
	}
	w.say("sink %s attaches", sink)
	lazy := time.Duration(rng.IntN(3)) * 300 * time.Millisecond
	for {
		d, err := c.Receive(life)
		if err != nil {
			w.say("sink %s receives: %v", sink, err)
			w.stopped(err)
			return
		}
		w.apply("sink "+sink, sink, d.Item())
		if err := d.Ack(life); err != nil {
			w.say("sink %s acks: %v", sink, err)
		}
		if lazy > 0 && !w.pass(lazy) {
			return
		}
	}
}

// stopped counts why consumers stop.
func (w *soak) stopped(err error) {
	for what, is := range map[string]func(error) bool{
		"gaps":       func(err error) bool { return errors.As(err, new(*flusso.GapError)) },
		"unverified": func(err error) bool { return errors.As(err, new(*flusso.UnverifiedError)) },
		"retired":    func(err error) bool { return errors.As(err, new(*flusso.RetiredError)) },
	} {
		if is(err) {
			w.count(what)
		}
	}
}

// apply is what a sink does with an item: whatever lies before it was applied, or
// given up.
func (w *soak) apply(who, sink string, item flusso.LaneItem) {
	b, ok := item.(*flusso.Batch)
	if !ok || !b.Live() {
		return
	}
	if len(b.Envelopes) != int(b.Position%4) {
		w.fail("%s received %d envelopes at position %s", who, len(b.Envelopes), b.Position)
	}
	for i, e := range b.Envelopes {
		if want := fmt.Sprintf("%d-%d", b.Position, i); e.ID != want || string(e.Document) != fmt.Sprintf(`{"at":%d,"sink":%q}`, b.Position, sink) {
			w.fail("%s received %q %s at position %s", who, e.ID, e.Document, b.Position)
		}
	}
	var passed *soakSuspect
	w.mu.Lock()
	for p := flusso.Position(1); p < b.Position; p++ {
		if !w.applied[sink][p] && !w.isNamed(sink, p, w.clock) {
			passed = &soakSuspect{sink, p, w.clock, fmt.Sprintf("%s received position %s", who, b.Position)}
			break
		}
	}
	w.applied[sink][b.Position] = true
	w.mu.Unlock()
	if passed != nil {
		w.suspect(*passed)
	}
}

// watch reads the watermark all the time: it never goes back for one reader.
func (w *soak) watch(rng *rand.Rand) {
	for w.ctx.Err() == nil {
		s, l := w.open(soakIncarnation, "watcher")
		if s == nil {
			w.pass(time.Second)
			continue
		}
		last := flusso.NoPosition
		for range 5 + rng.IntN(60) {
			mark, err := s.Watermark(w.ctx)
			if err == nil && mark.Position < last {
				w.fail("a watcher read the watermark %s after %s", mark.Position, last)
			}
			last = max(last, mark.Position)
			w.judge("a watcher", mark.Position)
			if !w.pass(upToSeconds(rng, 2)) {
				break
			}
		}
		w.end(rng, "a watcher", s, l)
	}
}

// weather lets requests fail.
func (w *soak) weather(rng *rand.Rand) {
	keys := []kmsg.Key{
		kmsg.Produce, kmsg.EndTxn, kmsg.InitProducerID, kmsg.Fetch, kmsg.OffsetCommit, kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.ListOffsets,
		kmsg.Metadata, kmsg.JoinGroup, kmsg.Heartbeat, kmsg.FindCoordinator, kmsg.DescribeGroups, kmsg.DeleteRecords, kmsg.DeleteTopics,
		kmsg.DeleteGroups, kfaketest.Any,
	}
	codes := map[kmsg.Key][]*kerr.Error{
		kmsg.OffsetCommit: {kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.UnknownServerError, kerr.RequestTimedOut, kerr.CoordinatorLoadInProgress},
		kmsg.OffsetFetch:  {kerr.NotCoordinator, kerr.CoordinatorLoadInProgress},
		kmsg.ListOffsets:  {kerr.NotLeaderForPartition},
		kmsg.EndTxn:       {kerr.CoordinatorLoadInProgress, kerr.UnknownServerError},
	}
	for w.pass(upToSeconds(rng, 12)) {
		key := keys[rng.IntN(len(keys))]
		f := kfaketest.Fault{Mode: kfaketest.Disconnect, After: rng.IntN(2) == 0, Times: 1 + rng.IntN(3), Skip: rng.IntN(3)}
		if rng.IntN(2) == 0 {
			f.ClientID = "flusso-kafka" // the commands alone
		}
		switch n := rng.IntN(10); {
		case n < 3:
			f.Mode, f.Times = kfaketest.Hang, 1
		case n < 6 && codes[key] != nil:
			f.Mode, f.Code = kfaketest.Error, codes[key][rng.IntN(len(codes[key]))]
		}
		name := "Any"
		if key != kfaketest.Any {
			name = key.Name()
		}
		w.say("the broker: %d of %s %s %v, after effect %t, of %q", f.Times, name, f.Mode, f.Code, f.After, f.ClientID)
		in := w.cluster.Fault(w.t, key, f)
		w.pass(upToSeconds(rng, 15))
		in.Release()
		w.count("faults")
	}
}
