package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

const (
	testTopic = "orders.lane.audit"
	testGroup = "orders.sink.audit"
)

// numbers is a reader of records that hold a number each. Its commits carry
// the number of the floor's item.
type numbers struct {
	refuse func(Committed) error
	shift  int       // what is read differs by it from what is in the log
	before func(int) // called with what is read, before it is filed
}

type (
	consumer = Consumer[int, int]
	delivery = *Delivery[int, int]
)

func (n *numbers) Attach(_ context.Context, c Committed) (Start[int, int], error) {
	if n.refuse != nil {
		if err := n.refuse(c); err != nil {
			return Start[int, int]{}, err
		}
	}
	at := max(c.Offset, 0)
	return Start[int, int]{
		Reading: n.from(at, c.LeaderEpoch), Floor: at, Mark: -1,
		Again: func(behind int) Reading[int, int] {
			if behind < 0 {
				return n.from(at, -1)
			}
			return n.from(flusso.Offset(behind+1), -1) // tests write number n at offset n
		},
	}, nil
}

func (n *numbers) from(at flusso.Offset, leaderEpoch int32) Reading[int, int] {
	return Reading[int, int]{Offset: at, LeaderEpoch: leaderEpoch, Read: func(r *kgo.Record, add func(Item[int, int])) (int64, error) {
		defer r.Recycle() // whose fields nobody may look at then
		if r.Attrs.IsControl() {
			return 0, nil
		}
		v, err := strconv.Atoi(string(r.Value))
		if err != nil {
			return 0, err
		}
		v += n.shift
		if n.before != nil {
			n.before(v)
		}
		add(Item[int, int]{Item: v, Mark: v, End: flusso.Offset(r.Offset + 1), Size: int64(len(r.Key) + len(r.Value))})
		return 0, nil
	}}
}

func (n *numbers) Commit(floor flusso.Offset, mark int, above []int) Commit {
	return Commit{Offset: floor, LeaderEpoch: -1, Metadata: fmt.Sprint(mark, above)}
}

var errGone = errors.New("gone")

func (n *numbers) Broken(_ context.Context, next flusso.Offset, _ int, err error) error {
	return fmt.Errorf("at %s: %w: %w", next, errGone, err)
}

// world is one cluster with the topic, inside a bubble.
type world struct {
	t      testing.TB
	k      *kfaketest.Cluster
	lookup *kgo.Client
}

// bubble runs f with a fresh cluster inside a synctest bubble, where waiting
// costs nothing.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := kfaketest.New(t)
		k.CreateTopic(t, testTopic)
		f(t, &world{t, k, k.Client(t)})
	})
}

func (w *world) config(mode Mode) Config {
	cfg := Config{Group: testGroup, Topic: testTopic, Mode: mode, Opts: w.k.Opts(), Lookup: w.lookup}
	if os.Getenv("VERBOSE") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		cfg.Opts = append(cfg.Opts, kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)))
	}
	return cfg
}

func ctxOf(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) attach(mode Mode) *consumer {
	w.t.Helper()
	return w.attachWith(w.config(mode), &numbers{})
}

func (w *world) attachWith(cfg Config, r *numbers) *consumer {
	w.t.Helper()
	c, err := Attach(ctxOf(w.t, time.Minute), cfg, false, r)
	if err != nil {
		w.t.Fatalf("attach: %v", err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// produce appends numbers from..to.
func (w *world) produce(from, to int) {
	w.t.Helper()
	w.produceWith(from, to, func() []byte { return nil })
}

// produceWith appends numbers from..to, each with a key.
func (w *world) produceWith(from, to int, key func() []byte) {
	w.t.Helper()
	cl, err := kgo.NewClient(append(w.k.Opts(), kgo.ProducerLinger(0))...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	for i := from; i <= to; i++ {
		r := &kgo.Record{Topic: testTopic, Key: key(), Value: []byte(strconv.Itoa(i))}
		if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			w.t.Fatalf("produce %d: %v", i, err)
		}
	}
}

func (w *world) receive(c *consumer, want int) delivery {
	w.t.Helper()
	d, err := c.ReceiveMarked(ctxOf(w.t, time.Minute))
	if err != nil {
		w.t.Fatalf("receive: %v, want %d", err, want)
	}
	if d.Item() != want {
		w.t.Fatalf("received %d, want %d", d.Item(), want)
	}
	return d
}

func (w *world) ack(ds ...delivery) {
	w.t.Helper()
	for _, d := range ds {
		if err := d.Ack(context.Background()); err != nil {
			w.t.Fatalf("ack %d: %v", d.Item(), err)
		}
	}
}

func (w *world) flush(c *consumer) {
	w.t.Helper()
	if err := c.Flush(ctxOf(w.t, time.Minute)); err != nil {
		w.t.Fatalf("flush: %v", err)
	}
}

func (w *world) close(c *consumer) {
	w.t.Helper()
	if err := c.Close(ctxOf(w.t, time.Minute)); err != nil {
		w.t.Fatalf("close: %v", err)
	}
}

// committed returns the offset on record, -1 for none.
func (w *world) committed() int64 {
	w.t.Helper()
	resp, err := kadm.NewClient(w.lookup).FetchOffsets(context.Background(), testGroup)
	if err != nil {
		return -1
	}
	o, ok := resp.Lookup(testTopic, 0)
	if !ok {
		return -1
	}
	return o.At
}

func (w *world) wantCommitted(want int64) {
	w.t.Helper()
	if got := w.committed(); got != want {
		w.t.Fatalf("committed offset: got %d, want %d", got, want)
	}
}

func (w *world) members() int {
	w.t.Helper()
	gs, err := kadm.NewClient(w.lookup).DescribeGroups(context.Background(), testGroup)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(gs[testGroup].Members)
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

func errorAs[E error](err error) (e E, ok bool) {
	ok = errors.As(err, &e)
	return e, ok
}
