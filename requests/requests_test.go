package requests

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/wire"
)

func TestD1_Case28_ARequestIsRedeliveredUntilAcked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a", "b", "c") // while no engine is up
		c := w.attach()
		w.receive(c, "a")
		w.close(c) // as a crash between taking and completing
		c = w.attach()
		a, b := w.receive(c, "a"), w.receive(c, "b")
		w.ack(b)
		w.flush(c)
		w.wantWaiting("a", "c")
		w.close(c)
		wantIs(t, "late ack", a.Ack(context.Background()), flusso.ErrClosed)
		c = w.attach()
		// b is above the floor and acked: it does not come again.
		w.ack(w.receive(c, "a"), w.receive(c, "c"))
		w.flush(c)
		w.wantWaiting()
		if o := w.committed(w.pipeline.RequestsTopic()); o.At != 3 {
			t.Fatalf("committed %+v", o)
		}
	})
}

func TestD3_WaitingRequestsAreTakenTogether(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a", "b", "a")
		c := w.attach()
		var taken []flusso.Request
		for {
			d, err := c.Receive(ctxOf(t))
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, d.Item())
			synctest.Wait()
			if up, err := c.CaughtUp(ctxOf(t)); err != nil {
				t.Fatal(err)
			} else if up {
				break
			}
		}
		if got := flusso.Coalesce(taken); len(taken) != 3 || len(got) != 2 {
			t.Fatalf("took %d requests, %d snapshots", len(taken), len(got))
		}
	})
}

func TestNackOfARequestLeavesLaterAckedOnesAcked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a", "b")
		c := w.attach()
		a, b := w.receive(c, "a"), w.receive(c, "b")
		w.ack(b)
		if err := a.Nack(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.ack(w.receive(c, "a"))
		w.flush(c)
		w.wantWaiting()
	})
}

// commitInTransaction commits what a pending ack needs, as a segment does.
func (w *world) commitInTransaction(p *Pending, commit bool) error {
	w.t.Helper()
	cl, err := kgo.NewClient(append(w.k.Opts(), kgo.TransactionalID("writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	// A record, so that the transaction is known to the client.
	w.k.Kfake() // the marker goes to some lane
	if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: w.pipeline.RequestsTopic() + ".other", Value: []byte("marker")}).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	id, epoch, err := cl.ProducerID(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = "writer", id, epoch, p.Offsets.Group
	if resp, err := add.RequestWith(context.Background(), cl); err != nil || resp.ErrorCode != 0 {
		w.t.Fatalf("add offsets: %v, %v", err, kerr.ErrorForCode(resp.ErrorCode))
	}
	memberID, generation, instance, err := p.Offsets.Member()
	if err != nil {
		w.t.Fatal(err)
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = "writer", id, epoch, p.Offsets.Group
	req.MemberID, req.Generation, req.InstanceID = memberID, generation, instance
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Offset, part.LeaderEpoch, part.Metadata = p.Offsets.Offset, p.Offsets.LeaderEpoch, new(p.Offsets.Metadata)
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = p.Offsets.Topic, p.Offsets.TopicID
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(context.Background(), cl)
	if err != nil {
		return err
	}
	refused := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	if err := kfaketest.EndTransaction(context.Background(), cl, commit && refused == nil, w.pipeline.RequestsTopic()+".other"); err != nil {
		w.t.Fatal(err)
	}
	return refused
}

func TestD2_AckInATransaction(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.k.CreateTopic(t, w.pipeline.RequestsTopic()+".other")
		w.send("a", "b", "c")
		c := w.attach()
		a, b, cc := w.receive(c, "a"), w.receive(c, "b"), w.receive(c, "c")
		p, err := c.Prepare(ctxOf(t), []received{b})
		if err != nil {
			t.Fatal(err)
		}
		w.ack(a) // recorded while the transaction is pending: no plain commit
		synctest.Wait()
		if o := w.committed(w.pipeline.RequestsTopic()); o.At > 0 {
			t.Fatalf("a plain commit was sent: %+v", o)
		}
		if err := w.commitInTransaction(p, true); err != nil {
			t.Fatal(err)
		}
		p.Resolve(nil)
		w.ack(b) // acking again is nil
		w.flush(c)
		w.wantWaiting("c")
		w.close(c)
		wantIs(t, "late ack", cc.Ack(context.Background()), flusso.ErrClosed)
		c = w.attach()
		w.receive(c, "c")
	})
}

func TestD2_AnAckThatIsNotCommittedLeavesTheRequestOutstanding(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.k.CreateTopic(t, w.pipeline.RequestsTopic()+".other")
		w.send("a", "b")
		c := w.attach()
		a, b := w.receive(c, "a"), w.receive(c, "b")
		p, err := c.Prepare(ctxOf(t), []received{a})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.commitInTransaction(p, false); err != nil {
			t.Fatal(err)
		}
		p.Resolve(flusso.ErrRejected)
		p.Abandon() // a second end is nothing
		w.wantWaiting("a", "b")
		w.ack(a, b)
		w.flush(c)
		w.wantWaiting()
	})
}

func TestD2_AnAckOfUnknownOutcomeIsReadBack(t *testing.T) {
	for _, committed := range []bool{true, false} {
		bubble(t, func(t *testing.T, w *world) {
			w.k.CreateTopic(t, w.pipeline.RequestsTopic()+".other")
			w.send("a", "b")
			c := w.attach()
			a := w.receive(c, "a")
			p, err := c.Prepare(ctxOf(t), []received{a})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.commitInTransaction(p, committed); err != nil {
				t.Fatal(err)
			}
			p.Resolve(flusso.ErrUnknownOutcome)
			wantIs(t, "ack", a.Ack(context.Background()), flusso.ErrWithdrawn)
			if !committed {
				w.receive(c, "a")
			}
			w.receive(c, "b")
		})
	}
}

func TestPrepareRefusesForeignAndWithdrawnDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a")
		c := w.attach()
		a := w.receive(c, "a")
		if err := a.Nack(context.Background()); err != nil {
			t.Fatal(err)
		}
		_, err := c.Prepare(ctxOf(t), []received{a})
		wantIs(t, "withdrawn", err, flusso.ErrWithdrawn)
		_, err = c.Prepare(ctxOf(t), []received{struct{ received }{a}})
		if invalid := (*flusso.InvalidError)(nil); !errors.As(err, &invalid) {
			t.Fatalf("foreign: got %v", err)
		}
		w.ack(w.receive(c, "a")) // the refused ones hold nothing back
		w.flush(c)
		w.wantWaiting()
	})
}

func TestMirrorIsCommittedInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		lane := "orders.lane.audit"
		w.k.CreateTopic(t, lane)
		md, err := kadm.NewClient(w.lookup).ListTopics(ctxOf(t), lane)
		if err != nil {
			t.Fatal(err)
		}
		mirror := map[string]Mirrored{lane: {TopicID: md[lane].ID, Offset: 7, LeaderEpoch: -1, Metadata: "v=1 off=7"}}
		if err := CommitMirror(ctxOf(t), w.lookup, w.pipeline, mirror); err != nil {
			t.Fatalf("nobody attached: %v", err)
		}
		w.send("a")
		c := w.attach()
		a := w.receive(c, "a")
		if err := CommitMirror(ctxOf(t), w.lookup, w.pipeline, mirror); err == nil {
			t.Fatal("a process that is not attached mirrored beside the one that is")
		}
		p, err := c.Prepare(ctxOf(t), []received{a})
		if err != nil {
			t.Fatal(err)
		}
		m := mirror[lane]
		m.Offset, m.Metadata = 9, "v=1 off=9"
		mirror[lane] = m
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		wantIs(t, "mirror while a transaction is pending", c.CommitMirror(short, mirror), context.DeadlineExceeded)
		p.Abandon()
		if err := c.CommitMirror(ctxOf(t), mirror); err != nil {
			t.Fatal(err)
		}
		if o := w.committed(lane); o.At != 9 || o.Metadata != "v=1 off=9" {
			t.Fatalf("got %+v", o)
		}
	})
}

func TestRequestsThatCannotBeReadDoNotStopTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a")
		cl := w.k.Client(t)
		if err := cl.ProduceSync(ctxOf(t), &kgo.Record{Topic: w.pipeline.RequestsTopic(), Value: []byte("garbage")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		w.send("b")
		w.wantWaiting("a", "unreadable", "b")
		c := w.attach()
		w.ack(w.receive(c, "a"), w.receive(c, "b"))
		w.flush(c)
		w.wantWaiting()
	})
}

func TestRequestsOfANewerVersionStopTheLane(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		cl := w.k.Client(t)
		if err := cl.ProduceSync(ctxOf(t), &kgo.Record{Topic: w.pipeline.RequestsTopic(), Key: []byte("audit"), Value: []byte(`{"v":2}`)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		_, err := w.attach().Receive(ctxOf(t))
		if newer := (*wire.VersionError)(nil); !errors.As(err, &newer) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestB8_RequestsThatAreGoneAreAGap(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send("a", "b", "c")
		c := w.attach()
		w.ack(w.receive(c, "a"))
		w.close(c)
		var os kadm.Offsets
		os.Add(kadm.Offset{Topic: w.pipeline.RequestsTopic(), At: 2})
		if _, err := kadm.NewClient(w.lookup).DeleteRecords(ctxOf(t), os); err != nil {
			t.Fatal(err)
		}
		_, err := Attach(ctxOf(t), Config{Pipeline: w.pipeline, Client: w.k.Opts(), Lookup: w.lookup})
		gap := (*flusso.GapError)(nil)
		if !errors.As(err, &gap) || gap.From != 1 || gap.To != 2 {
			t.Fatalf("got %v", err)
		}
	})
}

func TestProducerChecksRequests(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.producer()
		_, err := p.Publish(ctxOf(t), &flusso.Backfill{Sink: "nobody", Indexes: []string{"a"}})
		if unknown := (*flusso.UnknownSinkError)(nil); !errors.As(err, &unknown) {
			t.Fatalf("got %v", err)
		}
		_, err = p.Publish(ctxOf(t), &flusso.Backfill{Sink: "audit"})
		if invalid := (*flusso.InvalidError)(nil); !errors.As(err, &invalid) {
			t.Fatalf("got %v", err)
		}
		if err := p.Close(ctxOf(t)); err != nil {
			t.Fatal(err)
		}
		_, err = p.Publish(ctxOf(t), &flusso.Backfill{Sink: "audit", Indexes: []string{"a"}})
		wantIs(t, "publish after close", err, flusso.ErrClosed)
	})
}

func TestF1_ProducerClosesInTimeWithAHungBroker(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		p := w.producer()
		hung := w.k.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
		f, err := p.Submit(ctxOf(t), &flusso.Backfill{Sink: "audit", Indexes: []string{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		<-hung.Hit()
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		wantIs(t, "close", p.Close(short), context.DeadlineExceeded)
		if d := time.Since(began); d > 2*time.Second {
			t.Fatalf("close took %s", d)
		}
		if _, err := f.Wait(ctxOf(t)); err == nil {
			t.Fatal("a request that was never answered counts as sent")
		}
	})
}

func TestCase33_LostRepliesAreSettledByTheClient(t *testing.T) {
	for _, mode := range []kfaketest.Mode{kfaketest.Disconnect, kfaketest.Hang} {
		bubble(t, func(t *testing.T, w *world) {
			w.k.Fault(t, kmsg.Produce, kfaketest.Fault{Mode: mode, After: true})
			w.send("a")
			w.wantWaiting("a") // once: the producer is idempotent
		})
	}
}
