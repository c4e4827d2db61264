// Package kafkatest opens pipelines on a Kafka for the conformance suite: the
// same code runs it on the embedded broker and on Apache Kafka.
//
// The type to know is [Pipeline], which implements streamtest.Pipeline and
// everything optional that does not depend on who runs the broker.
package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/streamtest"
	"github.com/flusso/flusso-kafka/topics"
)

// wait bounds what the harness itself does at the broker.
const wait = 30 * time.Second

// Pipeline is a fresh pipeline on a Kafka.
type Pipeline struct {
	name  topics.Pipeline
	sinks []string
	opts  []kgo.Opt
	admin *kgo.Client
	tune  func(*kafka.Config)

	mu    sync.Mutex
	links map[flusso.Stream]*link
}

var (
	_ streamtest.Pipeline   = (*Pipeline)(nil)
	_ streamtest.GroupMover = (*Pipeline)(nil)
	_ streamtest.Trimmer    = (*Pipeline)(nil)
	_ streamtest.Recreator  = (*Pipeline)(nil)
	_ streamtest.Limited    = (*Pipeline)(nil)
)

// Open returns a pipeline with a name of its own on the brokers that opts
// reach. tune, if given, changes the config of every stream.
func Open(t *testing.T, opts []kgo.Opt, sinks []string, tune func(*kafka.Config)) *Pipeline {
	t.Helper()
	name, err := topics.NewPipeline(fmt.Sprintf("p%08x", rand.Uint32()))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatalf("admin client: %v", err)
	}
	t.Cleanup(admin.Close)
	return &Pipeline{name: name, sinks: sinks, opts: opts, admin: admin, tune: tune, links: make(map[flusso.Stream]*link)}
}

// Name returns the pipeline's names in Kafka.
func (p *Pipeline) Name() topics.Pipeline { return p.name }

// Lane returns the names of a sink's lane.
func (p *Pipeline) Lane(t *testing.T, sink string) topics.Lane {
	t.Helper()
	l, err := p.name.Lane(sink)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Stream implements [streamtest.Pipeline].
func (p *Pipeline) Stream(t *testing.T, incarnation string) flusso.Stream {
	t.Helper()
	l := newLink(p.admin)
	cfg := kafka.Config{
		Pipeline: p.name.String(), Sinks: p.sinks, Incarnation: incarnation, CreateTopics: true,
		Client: append(append([]kgo.Opt(nil), p.opts...), kgo.Dialer(l.dial)),
		Logger: logger(t),
	}
	if p.tune != nil {
		p.tune(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	s, err := kafka.Open(ctx, cfg)
	if err != nil {
		t.Fatalf("open pipeline %s: %v", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[s] = l
	return s
}

// Crash implements [streamtest.Pipeline]: the stream's connections break, none
// is made again, and what it had not sent is never sent.
func (p *Pipeline) Crash(t *testing.T, s flusso.Stream) {
	t.Helper()
	p.mu.Lock()
	l := p.links[s]
	p.mu.Unlock()
	if l == nil {
		t.Fatal("crash of a stream that is not of this pipeline")
	}
	l.cut()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(gone); err != nil {
		t.Logf("what the crashed stream said: %v", err)
	}
	within, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	_ = s.Close(within) // only so that its goroutines are gone when the test ends
}

// MoveGroup implements [streamtest.GroupMover]: an offset without metadata, as
// any other tool commits it. It waits for the mirror, and until the group is
// empty: brokers refuse it before.
func (p *Pipeline) MoveGroup(t *testing.T, sink string, to flusso.Offset) {
	t.Helper()
	l := p.Lane(t, sink)
	p.awaitMirror(t, l)
	adm := kadm.NewClient(p.admin)
	p.eventually(t, "move group "+l.Group(), func(ctx context.Context) error {
		var o kadm.Offsets
		o.AddOffset(l.Topic(), 0, int64(to), -1)
		got, err := adm.CommitOffsets(ctx, l.Group(), o)
		return errors.Join(err, got.Error())
	})
}

// awaitMirror waits until the mirror has what the sink committed.
func (p *Pipeline) awaitMirror(t *testing.T, l topics.Lane) {
	t.Helper()
	store := offsets.New(p.admin)
	p.eventually(t, "mirror of group "+l.Group(), func(ctx context.Context) error {
		lanes := []topics.Lane{l}
		commits, err := store.Commits(ctx, lanes)
		if err != nil {
			return err
		}
		mirror, err := store.Mirror(ctx, p.name, lanes)
		if err != nil {
			return err
		}
		if c, m := commits[l], mirror[l]; c.Own() && (!m.Own() || m.Offset < c.Offset) {
			return fmt.Errorf("the mirror is at %s, the group at %s", m.Offset, c.Offset)
		}
		return nil
	})
}

// LaneEnd implements [streamtest.LaneEnder].
func (p *Pipeline) LaneEnd(t *testing.T, sink string) flusso.Offset {
	t.Helper()
	l := p.Lane(t, sink)
	var end flusso.Offset
	p.eventually(t, "end of topic "+l.Topic(), func(ctx context.Context) error {
		tails, err := offsets.New(p.admin).Tails(ctx, []topics.Lane{l})
		if err != nil {
			return err
		}
		tail := tails[l]
		switch {
		case tail.Err != nil:
			return tail.Err
		case tail.Stable < tail.High:
			return errors.New("a transaction is open")
		case tail.Found:
			end = tail.At + 1
		default:
			end = tail.Start
		}
		return nil
	})
	return end
}

// Trim implements [streamtest.Trimmer].
func (p *Pipeline) Trim(t *testing.T, sink string, upTo flusso.Offset) {
	t.Helper()
	l := p.Lane(t, sink)
	p.eventually(t, "trim topic "+l.Topic(), func(ctx context.Context) error {
		var o kadm.Offsets
		o.AddOffset(l.Topic(), 0, int64(upTo), -1)
		got, err := kadm.NewClient(p.admin).DeleteRecords(ctx, o)
		return errors.Join(err, got.Error())
	})
}

// RecreateLane implements [streamtest.Recreator]. The topic gets the settings
// that a stream would create it with.
func (p *Pipeline) RecreateLane(t *testing.T, sink string) {
	t.Helper()
	l := p.Lane(t, sink)
	adm := kadm.NewClient(p.admin)
	id := func(ctx context.Context) (kadm.TopicID, error) {
		got, err := adm.ListTopics(ctx, l.Topic())
		return got[l.Topic()].ID, errors.Join(err, got.Error())
	}
	var old kadm.TopicID
	p.eventually(t, "look up topic "+l.Topic(), func(ctx context.Context) (err error) {
		old, err = id(ctx)
		return err
	})
	p.eventually(t, "delete topic "+l.Topic(), func(ctx context.Context) error {
		got, err := adm.DeleteTopics(ctx, l.Topic())
		return errors.Join(err, got.Error())
	})
	want, err := p.name.Specs([]string{sink}, topics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// A broker goes on showing the old one for a moment: it must not be taken
	// for the new one.
	p.eventually(t, "create topic "+l.Topic()+" again", func(ctx context.Context) error {
		if _, err := topics.New(p.admin).Ensure(ctx, want); err != nil {
			return err
		}
		now, err := id(ctx)
		if err == nil && now == old {
			err = errors.New("the old one is still there")
		}
		return err
	})
}

// TooLarge implements [streamtest.Limited]: one document above the default
// limit of a topic, 1 MiB.
func (p *Pipeline) TooLarge(t *testing.T) flusso.LaneItem {
	t.Helper()
	return &flusso.Batch{Position: 1, Changes: 1, Envelopes: []flusso.Envelope{{
		Index: "orders", ID: "large", Op: flusso.Upsert, Position: 1, Document: bytes.Repeat([]byte("x"), 2<<20),
	}}}
}

// eventually repeats what may be refused for a moment.
func (p *Pipeline) eventually(t *testing.T, what string, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// link is all the connections of one stream.
type link struct {
	next func(ctx context.Context, network, host string) (net.Conn, error)

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]struct{}
}

// newLink dials as a client does.
func newLink(like *kgo.Client) *link {
	next := like.OptValue(kgo.Dialer).(func(ctx context.Context, network, host string) (net.Conn, error))
	return &link{next: next, conns: make(map[net.Conn]struct{})}
}

var errCrashed = errors.New("the process has crashed")

func (l *link) dial(ctx context.Context, network, host string) (net.Conn, error) {
	l.mu.Lock()
	down := l.down
	l.mu.Unlock()
	if down {
		return nil, errCrashed
	}
	c, err := l.next(ctx, network, host)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errors.Join(errCrashed, c.Close())
	}
	l.conns[c] = struct{}{}
	return &conn{Conn: c, link: l}, nil
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for c := range l.conns {
		_ = c.Close() // broken is what it should be
	}
}

type conn struct {
	net.Conn
	link *link
}

func (c *conn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c.Conn)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

// logger writes to the test's log when it has failed in the end.
func logger(t *testing.T) *slog.Logger {
	var buf lockedBuffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the stream:\n%s", buf.String())
		}
	})
	return slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// DropGroup deletes a sink's group with all its offsets, as an expiry does.
func (p *Pipeline) DropGroup(t *testing.T, sink string) {
	t.Helper()
	l := p.Lane(t, sink)
	p.awaitMirror(t, l)
	p.eventually(t, "delete group "+l.Group(), func(ctx context.Context) error {
		got, err := kadm.NewClient(p.admin).DeleteGroups(ctx, l.Group())
		return errors.Join(err, got.Error())
	})
}

// Records reads every record of a topic that a read_committed consumer sees,
// up to its end at the call.
func (p *Pipeline) Records(t *testing.T, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	ends, err := kadm.NewClient(p.admin).ListCommittedOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, ok := ends.Lookup(topic, 0)
	if !ok || end.Err != nil {
		t.Fatalf("end of topic %s: %v", topic, end.Err)
	}
	cl, err := kgo.NewClient(append(append([]kgo.Opt(nil), p.opts...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var out []*kgo.Record
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read topic %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
		})
	}
	return out
}
