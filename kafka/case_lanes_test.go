package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// One lane's records are refused: no lane gets the commit, no later one is
// published behind it, and the watermark does not pass it, across a crash.
func TestCase01_AProduceThatFailsHoldsTheWatermark(t *testing.T) {
	story(t, []string{"audit", "search"}, nil, func(t *testing.T, w *caseWorld) {
		s, sinks := w.process("db:slot"), w.process("")
		p := w.commits(s)
		w.publish(s, p, 1)
		a, b := w.attach(sinks, "audit"), w.attach(sinks, "search")
		w.applies(a, 1)
		w.applies(b, 1)
		f := w.cluster.Fault(t, kmsg.Produce, kfaketest.Fault{Code: kerr.MessageTooLarge, Times: -1})
		var futures []*flusso.Future
		for at := flusso.Position(2); at <= 4; at++ {
			future, err := p.Submit(w.ctx(), toSinks(at, "audit", "search"))
			if err == nil {
				futures = append(futures, future)
			}
		}
		for _, future := range futures {
			if _, err := future.Wait(w.ctx()); !isAny(err, flusso.ErrRejected, flusso.ErrUnknownOutcome) {
				t.Errorf("got %v", err)
			}
		}
		f.Release()
		w.nothing(a)
		w.mark(s, 1)
		w.Crash(t, s)
		s = w.process("db:slot")
		w.mark(s, 1)
		p = w.commits(s)
		w.publish(s, p, 2, 3, 4)
		w.applies(a, 2, 3, 4)
		w.mark(s, 1)
		w.applies(b, 2, 3, 4)
		w.mark(s, 4)
	})
}

func TestCase02_ALaneThatIsAheadConfirmsNothingForItsSibling(t *testing.T) {
	story(t, []string{"audit", "search"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		w.publish(s, w.commits(s), 40, 100)
		w.applies(w.attach(s, "audit"), 40, 100)
		w.mark(s, flusso.NoPosition)
		w.applies(w.attach(s, "search"), 40)
		if m := w.mark(s, 40); fmt.Sprint(m.Holders) != "[search]" || m.Behind != 60 {
			t.Errorf("got %+v, want it held by search, 60 behind", m)
		}
	})
}

func TestCase04_05_LateAcksCommitNothingAndTheBufferedReachTheNewOwner(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s, one, two := w.process("db:slot"), w.process(""), w.process("")
		w.publish(s, w.commits(s), 1, 2, 3, 4, 5, 6, 7, 8)
		old := w.attach(one, "audit")
		ds := w.receive(old, 1, 2, 3) // five more are buffered
		w.ack(ds[0])
		w.do("flush", old.Flush(w.ctx()))
		fresh := w.attach(two, "audit")
		w.sleep(3 * time.Second) // a heartbeat
		before := w.committed("audit")
		for _, d := range ds[1:] {
			if err := d.Ack(context.Background()); !errors.Is(err, flusso.ErrSuperseded) {
				t.Errorf("a late ack: got %v", err)
			}
		}
		w.sleep(time.Second)
		if after := w.committed("audit"); after.Offset != before.Offset {
			t.Errorf("late acks moved the offset from %s to %s", before.Offset, after.Offset)
		}
		w.applies(fresh, 2, 3, 4, 5, 6, 7, 8)
		w.mark(s, 8)
	})
}

func (w *caseWorld) committed(sink string) offsets.Commit {
	w.t.Helper()
	l := w.Lane(w.t, sink)
	got, err := offsets.New(w.cluster.Client(w.t)).Commits(w.ctx(), []topics.Lane{l})
	w.do("committed offset", err)
	return got[l]
}

// A sink that goes on behind an item that failed, and one whose context was
// cancelled for a reason of its own.
func TestCase07_08_WhatFailsIsNotPassed(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		w.publish(s, w.commits(s), 1, 2, 3)
		c := w.attach(s, "audit")
		ds := w.receive(c, 1, 2, 3)
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		w.ack(ds[0], ds[2])
		w.do("nack", ds[1].Nack(cancelled)) // the sink's own context says nothing about ours
		w.do("flush", c.Flush(w.ctx()))
		w.mark(s, 1)
		w.applies(c, 2, 3) // 3 again: an older state is never applied over a newer one
		w.mark(s, 3)
	})
}

// Ownership is lost while the broker does not answer: giving up waits for its
// limit and no longer, and only the acked prefix is committed.
func TestCase06_GivingUpOwnershipNeverWaitsBeyondItsLimit(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		w.publish(s, w.commits(s), 1, 2, 3)
		c := w.attach(s, "audit")
		ds := w.receive(c, 1, 2, 3)
		w.ack(ds[0])
		w.do("flush", c.Flush(w.ctx()))
		f := w.cluster.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		w.ack(ds[1])
		began := time.Now()
		next := w.attach(s, "audit")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a takeover in one process took %s", took)
		}
		f.Release()
		w.applies(next, 2, 3)
		w.mark(s, 3)
	})
}

func TestCase10_11_AGapIsSaidAfterEveryRestartAndHoldsTheWatermark(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1, 2)
		c := w.attach(s, "audit")
		w.applies(c, 1)
		w.do("close", c.Close(w.ctx()))
		to := w.LaneEnd(t, "audit")
		w.publish(s, p, 3)
		w.Trim(t, "audit", to)
		for range 2 {
			fresh := w.process("db:slot")
			l, err := fresh.Lane("audit")
			w.do("lane", err)
			_, err = l.Consumer(w.ctx())
			gap := fails[*flusso.GapError](t, err, "audit", "seed the sink again", "accept")
			if gap.Acked != 1 || gap.Next != 3 || gap.To != to {
				t.Errorf("got %+v, want acked 1, next 3, to %s", gap, to)
			}
			w.mark(fresh, 1)
		}
	})
}

func TestCase13_MovingOffsetsLeavesTheGroupAsItWas(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		w.publish(s, w.commits(s), 1, 2)
		c := w.attach(s, "audit")
		w.applies(c, 1, 2)
		group := w.Lane(t, "audit").Group()
		if before := w.protocol(group); before != "consumer" {
			t.Fatalf("the group is of type %q", before)
		}
		w.do("close", c.Close(w.ctx()))
		w.MoveGroup(t, "audit", 0)
		c = w.attach(s, "audit")
		if after := w.protocol(group); after != "consumer" {
			t.Errorf("after its offsets were moved the group is of type %q", after)
		}
		w.applies(c, 1, 2)
	})
}

func (w *caseWorld) protocol(group string) string {
	w.t.Helper()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(w.ctx(), w.cluster.Client(w.t))
	w.do("describe group", err)
	return resp.Groups[0].ProtocolType
}

func TestCase15_TwoReplicasComeToRest(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s, one, two := w.process("db:slot"), w.process(""), w.process("")
		p := w.commits(s)
		w.publish(s, p, 1)
		old, fresh := w.attach(one, "audit"), w.attach(two, "audit")
		w.sleep(3 * time.Second) // a heartbeat
		_, err := old.Receive(w.ctx())
		if !errors.Is(err, flusso.ErrSuperseded) {
			t.Fatalf("the old one is told %v", err)
		}
		f := w.cluster.Fault(t, kmsg.JoinGroup, kfaketest.Fault{Mode: kfaketest.Disconnect, Times: -1})
		w.sleep(10 * time.Minute)
		if f.Hits() > 0 {
			t.Errorf("%d joins in ten minutes of rest", f.Hits())
		}
		w.applies(fresh, 1)
	})
}

func TestCase16_17_ARefusedCommitIsNotTakenForOne(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration} {
		t.Run(code.Message, func(t *testing.T) {
			story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
				s := w.process("db:slot")
				w.publish(s, w.commits(s), 1, 2)
				c := w.attach(s, "audit")
				ds := w.receive(c, 1, 2)
				f := w.cluster.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Code: code})
				w.ack(ds[1], ds[0]) // the floor moves over both at once, so there is one commit
				err := c.Flush(w.ctx())
				if !errors.Is(err, flusso.ErrWithdrawn) || !strings.Contains(err.Error(), code.Message) {
					t.Errorf("flush: got %v, want it to say that nothing was committed, and why", err)
				}
				w.mark(s, flusso.NoPosition)
				if f.Hits() != 1 {
					t.Errorf("%d commits were refused", f.Hits())
				}
				w.applies(c, 1, 2) // it joined again, and they come again
				w.mark(s, 2)
			})
		})
	}
}

func TestCase18_GarbageInTheMetadataIsNotBelieved(t *testing.T) {
	for _, raw := range []string{"", "garbage", "flusso 9 through=99999999", strings.Repeat("x", 4000)} {
		t.Run(fmt.Sprintf("%.20q", raw), func(t *testing.T) {
			story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
				s := w.process("db:slot")
				w.publish(s, w.commits(s), 1, 2, 3)
				c := w.attach(s, "audit")
				w.applies(c, 1, 2, 3)
				w.do("close", c.Close(w.ctx()))
				w.MoveGroup(t, "audit", 3) // behind position 1 and its marker
				w.rawCommit("audit", 3, raw)
				fresh := w.process("db:slot")
				w.mark(fresh, 1)
				w.applies(w.attach(s, "audit"), 2, 3)
				w.mark(fresh, 3)
			})
		})
	}
}

// rawCommit commits with any metadata.
func (w *caseWorld) rawCommit(sink string, at int64, metadata string) {
	w.t.Helper()
	l := w.Lane(w.t, sink)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = l.Group(), -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.Metadata = at, &metadata
	rt := kmsg.NewOffsetCommitRequestTopic()
	ends, err := offsets.New(w.cluster.Client(w.t)).Ends(w.ctx(), []topics.Lane{l})
	w.do("topic ID", err)
	rt.Topic, rt.TopicID, rt.Partitions = l.Topic(), ends[l].TopicID, append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(w.ctx(), w.cluster.Client(w.t))
	w.do("commit", err)
	w.do("commit", kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

// A writer dies with a transaction open: the next writer's look at the lanes
// must not miss what is behind it.
func TestCase23_42_ADeadWriterHoldsNeitherTheNextNorItsReaders(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1, 2)
		c := w.attach(w.process(""), "audit")
		w.applies(c, 1, 2)
		f := w.cluster.Fault(t, kmsg.EndTxn, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		if _, err := p.Submit(w.ctx(), toSinks(3, "audit")); err != nil {
			t.Fatal(err)
		}
		<-f.Hit()
		w.Crash(t, s)
		f.Release()
		began := time.Now()
		next := w.process("db:slot")
		np := w.commits(next)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the next writer waited %s", took)
		}
		w.publish(next, np, 3, 4)
		w.applies(c, 3, 4)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("readers waited %s", took)
		}
		w.mark(next, 4)
	})
	// A transaction of somebody else stays open: it is waited for, and named.
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		w.publish(s, w.commits(s), 1)
		w.do("close", s.Close(w.ctx()))
		alien := w.cluster.Client(t, kgo.TransactionalID("alien"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(10*time.Minute))
		w.do("begin", alien.BeginTransaction())
		w.do("produce", alien.ProduceSync(w.ctx(), &kgo.Record{Topic: w.Lane(t, "audit").Topic(), Key: []byte("x")}).FirstErr())
		s = w.process("db:slot")
		err := within(t, 40*time.Second, func(ctx context.Context) error { _, err := s.Commits(ctx); return err })
		if err == nil || !strings.Contains(err.Error(), "transaction open since offset") || !strings.Contains(err.Error(), "writer describe") {
			t.Errorf("got %v, want the producer that hangs", err)
		}
	})
}

// A quiet database moves on by empty batches, and the slot follows; a batch
// on its way is not confirmed by one behind it.
func TestCase25_26_EmptyBatchesMoveTheWatermarkAndPassNothing(t *testing.T) {
	story(t, []string{"audit", "search"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		a, b := w.attach(s, "audit"), w.attach(s, "search")
		keepalive := func(at flusso.Position) {
			var c flusso.Commit
			for _, sink := range s.Sinks() {
				c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: &flusso.Batch{Position: at}})
			}
			_, err := p.Publish(w.ctx(), c)
			w.do("publish a keepalive", err)
		}
		for at := flusso.Position(1); at <= 3; at++ {
			keepalive(at)
			w.applies(a, at)
			w.applies(b, at)
			w.mark(s, at)
		}
		w.publish(s, p, 10)
		keepalive(11)
		late := w.receive(a, 10, 11)
		w.applies(b, 10, 11)
		w.ack(late[1])
		w.do("flush", a.Flush(w.ctx()))
		w.mark(s, 3)
		w.ack(late[0])
		w.do("flush", a.Flush(w.ctx()))
		w.mark(s, 11)
	})
}

// Documents around the limit of 1 MiB, compressible and not: published whole,
// or refused by name with nothing sent; the producer goes on.
func TestCase32_DocumentsAroundTheLimit(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		c := w.attach(s, "audit")
		at := flusso.Position(0)
		for _, size := range []int{900 << 10, 1<<20 - 2048, 1<<20 - 1, 1<<20 + 1, 6 << 20} {
			for _, noise := range []bool{false, true} {
				at++
				doc := make([]byte, size)
				if noise {
					r := rand.New(rand.NewPCG(1, uint64(size)))
					for i := range doc {
						doc[i] = byte(r.Uint32())
					}
				}
				id := fmt.Sprintf("%d-%t", size, noise)
				_, err := p.Publish(w.ctx(), flusso.Commit{Items: []flusso.Routed{{Sink: "audit", Item: &flusso.Batch{Position: at, Envelopes: []flusso.Envelope{
					{Index: "order", ID: id, Op: flusso.Upsert, Document: doc, Position: at},
				}}}}})
				if size < 1<<20-1024 {
					w.do("publish "+id, err)
				}
				if err != nil {
					_ = fails[*flusso.LimitError](t, err, "order/"+id, "max.message.bytes of topic")
					continue
				}
				d := w.receive(c, at)[0]
				if got := d.Item().(*flusso.Batch).Envelopes[0].Document; string(got) != string(doc) {
					t.Errorf("%s came as %d bytes", id, len(got))
				}
				w.ack(d)
			}
		}
		w.publish(s, p, at+1)
	})
}

// What was acknowledged is readable, whatever contexts end meanwhile.
func TestCase33_EveryAcknowledgedBatchIsReadable(t *testing.T) {
	story(t, []string{"audit"}, nil, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		acknowledged := map[flusso.Position]bool{}
		for at := flusso.Position(1); at <= 40; at++ {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(at%3)*time.Microsecond)
			f := w.cluster.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang, Match: func(kmsg.Request) bool { return at%5 == 0 }})
			time.AfterFunc(10*time.Millisecond, f.Release)
			_, err := p.Publish(ctx, toSinks(at, "audit"))
			cancel()
			if err == nil {
				acknowledged[at] = true
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("position %s: %v", at, err)
			}
		}
		w.publish(s, p, 99) // resolves behind all that were accepted
		c := w.attach(s, "audit")
		for {
			d, err := c.Receive(w.ctx())
			w.do("receive", err)
			at := d.Item().(*flusso.Batch).Position
			delete(acknowledged, at)
			if at == 99 {
				break
			}
		}
		if len(acknowledged) > 0 {
			t.Errorf("acknowledged and not there: %v", acknowledged)
		}
	})
}

// After one failed write every later one fails with its cause, closing does
// not hang, and a new producer works.
func TestCase37_NothingIsPublishedBehindAFailedWrite(t *testing.T) {
	story(t, []string{"audit"}, func(c *kafka.Config) { c.MaxUnackedBytes = 500 }, func(t *testing.T, w *caseWorld) {
		s := w.process("db:slot")
		p := w.commits(s)
		w.publish(s, p, 1)
		f := w.cluster.Fault(t, kmsg.Produce, kfaketest.Fault{Code: kerr.InvalidRecord})
		var first error
		for at := flusso.Position(2); at <= 20; at++ { // many times the window
			_, err := p.Publish(w.ctx(), toSinks(at, "audit"))
			if err == nil {
				t.Fatalf("position %s was published behind a failed one", at)
			}
			if first == nil {
				first = err
			}
			if !errors.Is(err, kerr.InvalidRecord) {
				t.Fatalf("position %s: got %v, want the cause %v", at, err, first)
			}
		}
		f.Release()
		w.do("close the producer", p.Close(w.ctx()))
		p = w.commits(s)
		w.publish(s, p, 2, 3)
		c := w.attach(s, "audit")
		w.applies(c, 1, 2, 3)
	})
}
