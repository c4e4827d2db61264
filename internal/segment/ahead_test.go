package segment_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/segment"
)

// noted is a compressor that compresses to nothing and notes what it is given.
type noted struct {
	mu                   sync.Mutex
	prepared, compressed []string
	topics, kept         int // of what was prepared, and not forgotten
}

func (c *noted) Compress(_ *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compressed = append(c.compressed, string(src))
	return nil, kgo.CodecError // written as it is
}

func (c *noted) Prepare(topics int, appendTo func([]byte) []byte) (forget func(), full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prepared = append(c.prepared, string(appendTo(nil)))
	c.topics += topics
	c.kept++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kept--
	}, false
}

// reset forgets what was noted.
func (c *noted) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prepared, c.compressed, c.topics = nil, nil, 0
}

// used opens a session that has used each of its clients: they know the topics.
func used(t *testing.T, w world, change ...func(*segment.Config)) (*segment.Session, *ledger) {
	t.Helper()
	s, l := w.open(t, change...), newLedger()
	for i := range segment.IDs {
		submit(t, s, entry(l, "used", "a", "b"))
		l.wait(i + 1)
	}
	return s, l
}

// held opens a session of which a segment is never acknowledged until the fault is
// released, and submits another one behind it.
func held(t *testing.T, w world, second segment.Entry, change ...func(*segment.Config)) (*segment.Session, *ledger, *kfaketest.Injected, *atomic.Int32) {
	t.Helper()
	s, l := used(t, w, append(change, func(c *segment.Config) { c.MaxBytes = 1000 })...)
	hang, produced := hold(t, w, s, l, &noted{}, second)
	return s, l, hang, produced
}

// hold submits a segment that is not acknowledged until the fault is released, and
// another one behind it, of which c notes. It returns when nothing more happens,
// and counts the Produce requests.
func hold(t *testing.T, w world, s *segment.Session, l *ledger, c *noted, second segment.Entry) (*kfaketest.Injected, *atomic.Int32) {
	t.Helper()
	var produced atomic.Int32
	see := w.Fault(t, kmsg.Produce, kfaketest.Fault{Match: func(kmsg.Request) bool { produced.Add(1); return false }})
	t.Cleanup(see.Release)
	hang := w.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang, After: true})
	submit(t, s, entry(l, "first", "a", "b"))
	<-hang.Hit()
	c.reset()
	if second.Encode == nil {
		second = entry(l, "second", "a", "b")
	}
	submit(t, s, sized(second, 1000))
	synctest.Wait()
	return hang, &produced
}

// TestNextSegmentIsPreparedAndHeldBack: while a segment is acknowledged the next
// one is compressed, once for the topics that get the same, and nothing of it is
// sent.
func TestNextSegmentIsPreparedAndHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		c := &noted{}
		s, l := used(t, w, func(cfg *segment.Config) { cfg.Shared, cfg.MaxBytes = c, 1000 })
		hang, produced := hold(t, w, s, l, c, segment.Entry{})
		if n := produced.Load(); n != 1 {
			t.Errorf("%d Produce requests while the first is not answered, want 1", n)
		}
		if n := len(c.prepared); n != 1 || c.topics != 2 {
			t.Errorf("%d record batches were prepared for %d topics, want one for two", n, c.topics)
		}
		if n := len(c.compressed); n != 0 {
			t.Errorf("%d record batches were asked for, want none", n)
		}
		hang.Release()
		l.wait(segment.IDs + 2)
		if got := l.String(); got != "used used used used first second" {
			t.Errorf("resolved %s", got)
		}
		for _, topic := range []string{"a", "b"} {
			if got := w.read(t, topic); got != "used used used used first second" {
				t.Errorf("topic %s holds %q", topic, got)
			}
		}
		if synctest.Wait(); c.kept != 0 {
			t.Errorf("%d batches are kept for segments that have ended", c.kept)
		}
	})
}

// TestWhatIsPreparedIsWhatIsSent: the batches that are prepared are those that
// the client makes of the same records, byte for byte.
func TestWhatIsPreparedIsWhatIsSent(t *testing.T) {
	for _, limit := range []int32{512, 1000, 20_000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			bubble(t, func(t *testing.T, w world) {
				c, r := &noted{}, rand.New(rand.NewPCG(1, uint64(limit)))
				s, l := used(t, w, func(cfg *segment.Config) {
					cfg.Shared, cfg.MaxBytes, cfg.BatchMaxBytes = c, 1000, func(string) int32 { return limit }
				})
				for range 3 * segment.IDs {
					e := entry(l, "second")
					e.Encode = func() ([]*kgo.Record, error) { return anyRecords(r, int(limit)/4), nil }
					hang, _ := hold(t, w, s, l, c, e)
					hang.Release()
					if err := s.Drain(t.Context()); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					slices.Sort(c.compressed)
					slices.Sort(c.prepared)
					if !slices.Equal(c.prepared, c.compressed) {
						t.Fatalf("%d batches were sent and %d prepared, not the same", len(c.compressed), len(c.prepared))
					}
					if len(c.prepared) < 4 {
						t.Fatalf("only %d batches: hardly a test", len(c.prepared))
					}
				}
			})
		})
	}
}

// anyRecords returns records for both topics that take several batches of each.
func anyRecords(r *rand.Rand, most int) []*kgo.Record {
	text := func(n int) []byte {
		if r.IntN(8) == 0 {
			return nil
		}
		return bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(n))
	}
	var rs []*kgo.Record
	for _, topic := range []string{"a", "b"} {
		for range 30 + r.IntN(300) {
			rec := &kgo.Record{Topic: topic, Key: text(20), Value: text(most / 2), Timestamp: time.UnixMilli(r.Int64N(1 << 40))}
			for range r.IntN(4) {
				rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: string(text(10)), Value: text(most / 12)})
			}
			rs = append(rs, rec)
		}
	}
	return rs
}

// TestRecordsOfOtherTopicsAreApart: topics that get something else are prepared
// each for itself.
func TestRecordsOfOtherTopicsAreApart(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		c := &noted{}
		s, l := used(t, w, func(cfg *segment.Config) { cfg.Shared, cfg.MaxBytes = c, 1000 })
		e := entry(l, "second")
		e.Encode = func() ([]*kgo.Record, error) {
			return []*kgo.Record{{Topic: "a", Value: []byte("x")}, {Topic: "b", Value: []byte("other")}}, nil
		}
		hang, _ := hold(t, w, s, l, c, e)
		hang.Release()
		l.wait(segment.IDs + 2)
		if len(c.prepared) != 2 || c.topics != 2 {
			t.Errorf("%d batches were prepared for %d topics, want two for one each", len(c.prepared), c.topics)
		}
	}, transactions2)
}

// TestHeldBackEndsWithTheSession: what is held back does not keep a session
// from ending.
func TestHeldBackEndsWithTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		c := &noted{}
		s, l, _, _ := held(t, w, segment.Entry{}, func(cfg *segment.Config) { cfg.Shared = c })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Close(ctx); err == nil {
			t.Error("Close of what is not acknowledged returned nil")
		}
		l.wait(segment.IDs + 2)
		if got := l.String(); got != "used used used used first=rejected second=rejected" {
			t.Errorf("resolved %s, want both rejected", got)
		}
		if synctest.Wait(); c.kept != 0 {
			t.Errorf("%d batches are kept for a session that has ended", c.kept)
		}
	})
}

// busy is a compressor that prepares until it is let go.
type busy struct {
	noted
	on chan struct{}
}

func (c *busy) Prepare(topics int, appendTo func([]byte) []byte) (forget func(), full bool) {
	<-c.on
	return c.noted.Prepare(topics, appendTo)
}

// TestWhatIsPreparedIsStillTheSessions: while records are prepared, also those that
// were overtaken, their entry is not resolved, and Close does not return.
func TestWhatIsPreparedIsStillTheSessions(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		c := &busy{on: make(chan struct{})}
		s, l, hang, _ := held(t, w, segment.Entry{}, func(cfg *segment.Config) { cfg.Shared = c })
		hang.Release()
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		if got := l.String(); got != "used used used used first" || len(closed) > 0 {
			t.Errorf("while a batch of the second was prepared %s were resolved, closed: %v", got, len(closed) > 0)
		}
		close(c.on)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if got := l.String(); got != "used used used used first second" {
			t.Errorf("resolved %s", got)
		}
	})
}

// TestCompressionIsTheCallers: the shared compressor is used for snappy, the
// client's default, and for nothing else.
func TestCompressionIsTheCallers(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []kgo.Opt
		want bool
	}{
		{"default", nil, true},
		{"snappy", []kgo.Opt{kgo.ProducerBatchCompression(kgo.SnappyCompression())}, true},
		{"zstd", []kgo.Opt{kgo.ProducerBatchCompression(kgo.ZstdCompression())}, false},
		{"none", []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}, false},
		{"a compressor", []kgo.Opt{kgo.WithCompressor(&noted{})}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w world) {
				c := &noted{}
				_, l, hang, _ := held(t, w, segment.Entry{}, func(cfg *segment.Config) {
					cfg.Shared, cfg.Opts = c, append(cfg.Opts, tt.opts...)
				})
				hang.Release()
				l.wait(segment.IDs + 2)
				if prepares, compresses := len(c.prepared) > 0, len(c.compressed) > 0; prepares != tt.want || compresses != tt.want {
					t.Errorf("the shared compressor prepared: %v, compressed: %v, want %v", prepares, compresses, tt.want)
				}
				if got := w.read(t, "a"); got != "used used used used first second" {
					t.Errorf("the topic holds %q", got)
				}
			})
		})
	}
}

// TestHeldBackDoesNotAge: the transaction of a segment that is held back has not
// begun, so that its time is not spent on the segment before.
func TestHeldBackDoesNotAge(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		var mu sync.Mutex
		begun := 0
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return begun
		}
		w.Fault(t, kmsg.AddPartitionsToTxn, kfaketest.Fault{Match: func(kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			begun++
			return false
		}})
		_, l, hang, _ := held(t, w, segment.Entry{})
		kfaketest.Pass(segment.DefaultTransactionTimeout - time.Second)
		if n := count(); n != segment.IDs+1 {
			t.Errorf("%d transactions have begun while the first segment is not acknowledged, want %d", n, segment.IDs+1)
		}
		hang.Release()
		l.wait(segment.IDs + 2)
		if got := l.String(); got != "used used used used first second" || count() != segment.IDs+2 {
			t.Errorf("resolved %s and %d transactions begun, want all of %d", got, count(), segment.IDs+2)
		}
	}, kafka3, transactions1)
}

// TestOffsetsHaveTheirOwnTime: group offsets that waited for the segment before
// have a whole transaction timeout, however long that took.
func TestOffsetsHaveTheirOwnTime(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		m := w.join(t)
		s, l := w.open(t), newLedger()
		hang := w.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang, After: true})
		w.Fault(t, kmsg.TxnOffsetCommit, kfaketest.Fault{Code: kerr.NotCoordinator}) // so that it takes two tries
		submit(t, s, entry(l, "1", "a"))
		<-hang.Hit()
		var encoded bool
		submit(t, s, m.marker(l, &encoded))
		go func() { _ = s.Drain(t.Context()) }() // it does not gather
		kfaketest.Pass(segment.DefaultTransactionTimeout - time.Millisecond)
		hang.Release()
		l.wait(2)
		if got := l.String(); got != "1 marker" {
			t.Errorf("resolved %s, want 1 marker", got)
		}
	})
}

// slowHandover makes a client's bookkeeping slow when it hands a record over to
// its partition that waited for the topic's metadata.
type slowHandover struct{ begun chan struct{} }

func (h slowHandover) OnProduceRecordPartitioned(r *kgo.Record, _ int32) {
	if string(r.Value) == "slow" {
		close(h.begun)
		kfaketest.Pass(time.Millisecond)
	}
}

// TestFlushTakesWhatIsHandedOver: records that were handed over to a partition
// which the client has not stored yet when it is flushed are sent as well.
func TestFlushTakesWhatIsHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		h := slowHandover{make(chan struct{})}
		s, l := w.open(t, func(cfg *segment.Config) {
			cfg.Opts = append(cfg.Opts, kgo.ProducerLinger(0), kgo.WithHooks(h))
		}), newLedger()
		hang := w.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang})
		submit(t, s, entry(l, "1", "a"))
		<-hang.Hit() // the rest gathers
		submit(t, s, entry(l, "slow", "a"))
		last := entry(l, "last")
		last.Encode = func() ([]*kgo.Record, error) { <-h.begun; return nil, nil }
		submit(t, s, last)
		hang.Release()
		l.wait(3)
		if got := l.String(); got != "1 slow last" {
			t.Errorf("resolved %s, want 1 slow last: %v", got, s.Err())
		}
	})
}
