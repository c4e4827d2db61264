package group

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// drain receives and acks until the number want was acked durably. Whatever
// happens in between, numbers start at from, and go back only to what was not
// committed.
func (w *world) drain(c *consumer, from, want int) {
	w.t.Helper()
	next := from
	for {
		d, err := c.ReceiveMarked(ctxOf(w.t, 2*time.Minute))
		if err != nil {
			w.t.Fatalf("receive of %d: %v", next, err)
		}
		if d.Item() > next {
			w.t.Fatalf("received %d, want %d or one before it", d.Item(), next)
		}
		next = d.Item() + 1
		if err := d.Ack(context.Background()); err != nil && !errors.Is(err, flusso.ErrWithdrawn) {
			w.t.Fatalf("ack of %d: %v", d.Item(), err)
		}
		if d.Item() != want {
			continue
		}
		if err := c.Flush(ctxOf(w.t, 2*time.Minute)); err == nil {
			w.wantCommitted(int64(want + 1))
			return
		} else if !errors.Is(err, flusso.ErrWithdrawn) {
			w.t.Fatalf("flush: %v", err)
		}
	}
}

// TestFaultsPass injects each fault into each request that the consumer sends:
// it goes on by itself and loses nothing.
func TestFaultsPass(t *testing.T) {
	keys := []kmsg.Key{kmsg.OffsetCommit, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetFetch, kmsg.Fetch, kmsg.FindCoordinator}
	faults := map[string]kfaketest.Fault{
		"disconnect before":     {Mode: kfaketest.Disconnect},
		"disconnect after":      {Mode: kfaketest.Disconnect, After: true},
		"hang before":           {Mode: kfaketest.Hang},
		"hang after":            {Mode: kfaketest.Hang, After: true},
		"coordinator not there": {Mode: kfaketest.Error, Code: kerr.CoordinatorNotAvailable},
		"not coordinator":       {Mode: kfaketest.Error, Code: kerr.NotCoordinator},
		"loading":               {Mode: kfaketest.Error, Code: kerr.CoordinatorLoadInProgress},
		"unknown member":        {Mode: kfaketest.Error, Code: kerr.UnknownMemberID},
		"illegal generation":    {Mode: kfaketest.Error, Code: kerr.IllegalGeneration},
		"rebalance":             {Mode: kfaketest.Error, Code: kerr.RebalanceInProgress},
		"server error after":    {Mode: kfaketest.Error, Code: kerr.UnknownServerError, After: true},
	}
	for _, mode := range []Mode{Takeover, Standby} {
		for _, key := range keys {
			for name, fault := range faults {
				switch {
				case fault.Mode == kfaketest.Error && key == kmsg.Fetch,
					key == kmsg.FindCoordinator && (errors.Is(fault.Code, kerr.UnknownMemberID) || errors.Is(fault.Code, kerr.IllegalGeneration) || errors.Is(fault.Code, kerr.RebalanceInProgress) || errors.Is(fault.Code, kerr.UnknownServerError)),
					key == kmsg.OffsetFetch && (errors.Is(fault.Code, kerr.RebalanceInProgress) || errors.Is(fault.Code, kerr.UnknownServerError)),
					(key == kmsg.JoinGroup || key == kmsg.SyncGroup || key == kmsg.Heartbeat) && errors.Is(fault.Code, kerr.UnknownServerError):
					continue // brokers don't answer that
				}
				t.Run(mode.String()+"/"+key.Name()+"/"+name, func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world) {
						w.produce(0, 9)
						f := fault
						if key == kmsg.FindCoordinator || key == kmsg.Fetch {
							f.ClientID = "consumer" // not the lookups
						}
						i := w.k.Fault(t, key, f)
						cfg := w.config(mode)
						cfg.Opts = append(cfg.Opts, kgo.ClientID("consumer"))
						c := w.attachWith(cfg, &numbers{})
						w.drain(c, 0, 4)
						kfaketest.Pass(30 * time.Second) // heartbeats
						w.drain(c, 5, 9)
						if i.Hits() == 0 {
							t.Fatal("the fault hit nothing")
						}
						i.Release()
						synctest.Wait()
						w.wantCommitted(10) // nothing late took it back
						w.close(c)
					})
				})
			}
		}
	}
}

func TestCase16_CommitByAnUnknownMemberIsNotCommittedAndSaidSo(t *testing.T) {
	for _, code := range []error{kerr.UnknownMemberID, kerr.IllegalGeneration} {
		t.Run(code.Error()[:14], func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.produce(0, 2)
				c := w.attach(Takeover)
				a, b := w.receive(c, 0), w.receive(c, 1)
				w.k.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Error, Code: code})
				w.ack(a)
				wantErr(t, "flush", c.Flush(ctxOf(t, time.Minute)), flusso.ErrWithdrawn)
				w.wantCommitted(-1)
				wantErr(t, "ack of the attach before", b.Ack(context.Background()), flusso.ErrWithdrawn)
				w.drain(c, 0, 2) // rejoined
			})
		})
	}
}

func TestCase17_CommitRefusedBecauseTheGenerationMovedIsRedelivered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 4)
		active := w.attach(Standby)
		a := w.receive(active, 0)
		w.ack(a)
		w.flush(active)
		b := w.receive(active, 1)
		refused := w.k.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.RebalanceInProgress, Times: -1})
		w.ack(b)
		w.attach(Standby) // moves the generation
		kfaketest.Pass(20 * time.Second)
		refused.Release()
		wantErr(t, "flush", active.Flush(ctxOf(t, time.Minute)), flusso.ErrWithdrawn)
		w.drain(active, 1, 4)
	})
}

func TestFencedCommitEndsTheConsumer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 2)
		c := w.attach(Takeover)
		a, b := w.receive(c, 0), w.receive(c, 1)
		w.k.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.FencedInstanceID})
		w.ack(a)
		wantErr(t, "flush", c.Flush(ctxOf(t, time.Minute)), flusso.ErrSuperseded)
		wantErr(t, "ack", b.Ack(context.Background()), flusso.ErrSuperseded)
		_, err := c.Receive(context.Background())
		wantErr(t, "receive", err, flusso.ErrSuperseded)
		w.wantCommitted(-1)
	})
}

// TestLateCommitOfAnEndedMemberTakesNothingBack holds a commit back at the
// broker's door until the consumer has attached again and moved on.
func TestLateCommitOfAnEndedMemberTakesNothingBack(t *testing.T) {
	for _, mode := range []Mode{Takeover, Standby} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.produce(0, 9)
				c := w.attach(mode)
				hung := w.k.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Hang})
				w.ack(w.receive(c, 0))
				<-hung.Hit()
				wantErr(t, "flush", c.Flush(ctxOf(t, time.Minute)), flusso.ErrWithdrawn)
				w.drain(c, 0, 9)
				hung.Release()
				kfaketest.Pass(time.Minute)
				w.wantCommitted(10)
			})
		})
	}
}

func TestCase08_CommitStaysBeforeAFailedItem(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 3)
		c := w.attach(Takeover)
		a, k, k1 := w.receive(c, 0), w.receive(c, 1), w.receive(c, 2)
		w.ack(a, k1)
		w.flush(c)
		w.wantCommitted(1)
		if err := k.Nack(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.close(c)
		w.wantCommitted(1)
	})
}

func TestCase06_OnlyTheAckedPrefixIsCommittedWhenOwnershipIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 5)
		old := w.attach(Standby)
		var ds []delivery
		for i := range 4 {
			ds = append(ds, w.receive(old, i))
		}
		w.ack(ds[0], ds[1], ds[3])
		replica := w.attach(Standby)
		began := time.Now()
		w.close(old) // in the middle of item 2: does not wait for it
		if d := time.Since(began); d > 5*time.Second {
			t.Fatalf("giving up ownership took %s", d)
		}
		w.wantCommitted(2)
		wantErr(t, "late ack", ds[2].Ack(context.Background()), flusso.ErrClosed)
		for i := 2; i <= 5; i++ { // Case05: all that was buffered reaches the new owner
			w.ack(w.receive(replica, i))
		}
		w.flush(replica)
		w.wantCommitted(6)
	})
}

func TestCase07_NoContextOfTheSinkIsTakenForShutdown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 1)
		c := w.attach(Takeover)
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		d := w.receive(c, 0)
		if err := d.Nack(canceled); err != nil {
			t.Fatal(err)
		}
		d = w.receive(c, 0)
		if err := d.Ack(canceled); err != nil {
			t.Fatal(err)
		}
		w.ack(w.receive(c, 1))
		w.flush(c)
		w.wantCommitted(2)
	})
}

func TestSlowSinkKeepsItsMembership(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 1)
		c := w.attach(Takeover)
		d := w.receive(c, 0)
		kfaketest.Pass(30 * time.Minute)
		w.ack(d)
		w.flush(c)
		w.wantCommitted(1)
	})
}

func TestF1_CloseNeverHangsPastItsContext(t *testing.T) {
	for _, key := range []kmsg.Key{kfaketest.Any, kmsg.OffsetCommit, kmsg.LeaveGroup, kmsg.Heartbeat, kmsg.Fetch} {
		for _, mode := range []Mode{Takeover, Standby} {
			t.Run(mode.String()+"/"+keyName(key), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					w.produce(0, 1)
					c := w.attach(mode)
					d := w.receive(c, 0)
					w.k.Fault(t, key, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
					w.ack(d)
					began := time.Now()
					err := c.Close(ctxOf(t, 3*time.Second))
					if took := time.Since(began); took > 3*time.Second {
						t.Fatalf("close took %s", took)
					}
					committed := key != kfaketest.Any && key != kmsg.OffsetCommit
					if committed != (err == nil) {
						t.Fatalf("close: got %v", err)
					}
					wantErr(t, "second close", errors.Join(c.Close(ctxOf(t, time.Second)), flusso.ErrClosed), flusso.ErrClosed)
				})
			})
		}
	}
}

func keyName(k kmsg.Key) string {
	if k == kfaketest.Any {
		return "any"
	}
	return k.Name()
}

func TestAttachHonoursItsContext(t *testing.T) {
	for _, key := range []kmsg.Key{kfaketest.Any, kmsg.JoinGroup, kmsg.OffsetFetch, kmsg.DescribeGroups} {
		t.Run(keyName(key), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.k.Fault(t, key, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
				began := time.Now()
				_, err := Attach(ctxOf(t, 3*time.Second), w.config(Takeover), false, &numbers{})
				wantErr(t, "attach", err, context.DeadlineExceeded)
				if took := time.Since(began); took > 6*time.Second {
					t.Fatalf("attach took %s", took)
				}
			})
		})
	}
}

func TestB8_NothingIsDeliveredBehindAGap(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 9)
		before := w.attach(Takeover)
		w.ack(w.receive(before, 0))
		w.close(before)
		w.trim(5)
		// The attach is fine and the first fetch is not, unless that is faster.
		c, err := Attach(ctxOf(t, time.Minute), w.config(Takeover), false, &numbers{})
		if err == nil {
			_, err = c.Receive(ctxOf(t, time.Minute))
			_, again := c.Receive(ctxOf(t, time.Minute))
			wantErr(t, "receive again", again, err)
		}
		wantErr(t, "attach or receive", err, errGone)
		w.wantCommitted(1)
		kfaketest.Pass(time.Minute)
		if n := w.members(); n != 0 {
			t.Fatalf("the group has %d members: an operator can't move its offsets", n)
		}
	})
}

func (w *world) trim(to int64) {
	w.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = to
	tp := kmsg.NewDeleteRecordsRequestTopic()
	tp.Topic = testTopic
	tp.Partitions = append(tp.Partitions, p)
	req.Topics = append(req.Topics, tp)
	req.TimeoutMillis = 5000
	resp, err := req.RequestWith(context.Background(), w.lookup)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		w.t.Fatalf("trim: %v", err)
	}
}

func TestAMemberThatWasCutOffComesBackWhenNobodyTookTheLane(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 4)
		cfg := w.config(Takeover)
		cfg.Opts = append(cfg.Opts, kgo.ClientID("consumer"))
		c := w.attachWith(cfg, &numbers{})
		w.ack(w.receive(c, 0))
		w.flush(c)
		d := w.receive(c, 1)
		cut := w.k.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Disconnect, Times: -1, ClientID: "consumer"})
		kfaketest.Pass(time.Minute) // its session is over
		cut.Release()
		w.drain(c, 2, 4)
		_ = d
	})
}

func TestB4_AMemberThatWasCutOffDoesNotComeBackOverAnother(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			w.produce(0, 4)
			cfg := w.config(Takeover)
			cfg.Opts = append(cfg.Opts, kgo.ClientID("consumer"))
			old := w.attachWith(cfg, &numbers{})
			w.ack(w.receive(old, 0))
			w.flush(old)
			d := w.receive(old, 1)
			cut := w.k.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Disconnect, Times: -1, ClientID: "consumer"})
			fresh := w.attach(Takeover)
			w.ack(w.receive(fresh, 1))
			w.flush(fresh)
			kfaketest.Pass(time.Minute)
			if leaves {
				w.close(fresh)
			}
			cut.Release()
			var err error
			for err == nil {
				_, err = old.Receive(ctxOf(t, 2*time.Minute))
			}
			wantErr(t, "receive", err, flusso.ErrSuperseded)
			wantErr(t, "late ack", d.Ack(context.Background()), flusso.ErrSuperseded)
			w.wantCommitted(2)
			if !leaves {
				w.ack(w.receive(fresh, 2))
				w.flush(fresh)
				w.wantCommitted(3)
			}
		})
	}
}

// The members that a cut off consumer makes meanwhile never attach and have no
// id. That must not make it forget that it had the lane once and lost it.
func TestB4_AMemberThatWasCutOffForLongDoesNotComeBackOverAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 4)
		cfg := w.config(Takeover)
		cfg.Opts = append(cfg.Opts, kgo.ClientID("consumer"))
		old := w.attachWith(cfg, &numbers{})
		w.ack(w.receive(old, 0))
		w.flush(old)
		cut := w.k.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Disconnect, Times: -1, ClientID: "consumer"})
		kfaketest.Pass(2 * time.Minute)
		fresh := w.attach(Takeover)
		w.ack(w.receive(fresh, 1))
		w.flush(fresh)
		kfaketest.Pass(time.Minute)
		cut.Release()
		kfaketest.Pass(time.Minute)
		_, err := old.Receive(ctxOf(t, time.Minute))
		wantErr(t, "receive", err, flusso.ErrSuperseded)
		w.ack(w.receive(fresh, 2))
		w.flush(fresh)
		w.wantCommitted(3)
	})
}

// A join whose reply is lost leaves a member of ours in the group that we don't
// know by its id: it is not taken for another consumer.
func TestAJoinWhoseReplyIsLostIsNotTakenForATakeover(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 4)
		c := w.attach(Takeover)
		w.ack(w.receive(c, 0))
		w.flush(c)
		d := w.receive(c, 1)
		// Its commit has an unknown outcome, and the next members join unheard.
		w.k.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Disconnect})
		lost := w.k.Fault(t, kmsg.JoinGroup, kfaketest.Fault{Mode: kfaketest.Disconnect, After: true, Times: -1})
		w.ack(d)
		kfaketest.Pass(30 * time.Second)
		if lost.Hits() == 0 {
			t.Fatal("no join was hit")
		}
		lost.Release()
		if err := c.Flush(ctxOf(t, time.Minute)); err != nil && !errors.Is(err, flusso.ErrWithdrawn) {
			t.Fatalf("flush: %v", err)
		}
		w.drain(c, 1, 4)
	})
}
