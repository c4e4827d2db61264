package segment_test

import (
	"bytes"
	"context"
	"fmt"
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

// counting is a compressor that compresses to nothing and counts.
type counting struct{ calls atomic.Int32 }

func (c *counting) Compress(*bytes.Buffer, []byte, ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	c.calls.Add(1)
	return nil, kgo.CodecError // written as it is
}

// held opens a session whose first segment is never acknowledged until the
// fault is released, and submits a second one behind it.
func held(t *testing.T, w world, change ...func(*segment.Config)) (*segment.Session, *ledger, *kfaketest.Injected, *atomic.Int32) {
	t.Helper()
	s, l := w.open(t, append(change, func(c *segment.Config) { c.MaxBytes = 1000 })...), newLedger()
	var produced atomic.Int32
	see := w.Fault(t, kmsg.Produce, kfaketest.Fault{Match: func(kmsg.Request) bool { produced.Add(1); return false }})
	t.Cleanup(see.Release)
	hang := w.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang, After: true})
	submit(t, s, entry(l, "1", "a", "b"))
	<-hang.Hit()
	submit(t, s, sized(entry(l, "2", "a", "b"), 1000))
	synctest.Wait()
	return s, l, hang, &produced
}

// TestNextSegmentIsCompressedAndHeldBack: while a segment is acknowledged the
// next one is compressed, and nothing of it is sent.
func TestNextSegmentIsCompressedAndHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		c := &counting{}
		_, l, hang, produced := held(t, w, func(cfg *segment.Config) { cfg.Shared = c })
		if n := produced.Load(); n != 1 {
			t.Errorf("%d Produce requests while the first is not answered, want 1", n)
		}
		if n := c.calls.Load(); (n > 2) != (w.version >= transactions2) {
			t.Errorf("%d record batches were compressed, want more than the 2 of the first segment where that begins no transaction", n)
		}
		hang.Release()
		l.wait(2)
		if got := l.String(); got != "1 2" {
			t.Errorf("resolved %s, want 1 2", got)
		}
		for _, topic := range []string{"a", "b"} {
			if got := w.read(t, topic); got != "1 2" {
				t.Errorf("topic %s holds %q, want 1 2", topic, got)
			}
		}
	})
}

// TestHeldBackWithoutAGate: where the caller's options compress in their own way
// the next segment waits as well.
func TestHeldBackWithoutAGate(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		c := &counting{}
		_, l, hang, produced := held(t, w, func(cfg *segment.Config) { cfg.Opts = append(cfg.Opts, kgo.WithCompressor(c)) })
		if n := produced.Load(); n != 1 {
			t.Errorf("%d Produce requests while the first is not answered, want 1", n)
		}
		hang.Release()
		l.wait(2)
		if got := l.String(); got != "1 2" {
			t.Errorf("resolved %s, want 1 2", got)
		}
		if c.calls.Load() == 0 {
			t.Error("the caller's compressor was not used")
		}
	})
}

// TestHeldBackEndsWithTheSession: what is held back does not keep a session
// from ending.
func TestHeldBackEndsWithTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, w world) {
		s, l, _, _ := held(t, w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Close(ctx); err == nil {
			t.Error("Close of what is not acknowledged returned nil")
		}
		if got := fmt.Sprint(outcome(l.wait(2)[0].err), outcome(l.wait(2)[1].err)); got != "=rejected=rejected" {
			t.Errorf("outcomes %s, want both rejected", got)
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w world) {
				c := &counting{}
				s, l := w.open(t, func(cfg *segment.Config) {
					cfg.Shared, cfg.Opts = c, append(cfg.Opts, tt.opts...)
				}), newLedger()
				submit(t, s, entry(l, "1", "a"))
				l.wait(1)
				if used := c.calls.Load() > 0; used != tt.want {
					t.Errorf("the shared compressor was used: %v, want %v", used, tt.want)
				}
				if got := w.read(t, "a"); got != "1" {
					t.Errorf("the topic holds %q, want 1", got)
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
		begun := make(map[string]bool)
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(begun)
		}
		w.Fault(t, kmsg.AddPartitionsToTxn, kfaketest.Fault{Match: func(req kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			begun[req.(*kmsg.AddPartitionsToTxnRequest).TransactionalID] = true
			return false
		}})
		_, l, hang, _ := held(t, w)
		kfaketest.Pass(segment.DefaultTransactionTimeout - time.Second)
		if n := count(); n != 1 {
			t.Errorf("%d transactions have begun while the first segment is not acknowledged, want 1", n)
		}
		hang.Release()
		l.wait(2)
		if got := l.String(); got != "1 2" || count() != 2 {
			t.Errorf("resolved %s and %d transactions begun, want 1 2 and 2", got, count())
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
