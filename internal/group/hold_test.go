package group

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

func (w *world) hold() *Held {
	w.t.Helper()
	h, err := Hold(ctxOf(w.t, time.Minute), w.config(Takeover))
	if err != nil {
		w.t.Fatalf("hold: %v", err)
	}
	return h
}

func TestHold_ChangesWhatIsCommittedAndLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 4)
		h := w.hold()
		if at := h.Committed(); at.Found || at.TopicID == [16]byte{} {
			t.Errorf("got %+v, want nothing committed", at)
		}
		if err := h.Commit(ctxOf(t, time.Minute), Commit{Offset: 3, LeaderEpoch: -1, Metadata: "by hand"}); err != nil {
			t.Fatal(err)
		}
		h.Close(ctxOf(t, time.Minute))
		if n := w.members(); n != 0 {
			t.Errorf("%d members are left", n)
		}
		h = w.hold()
		if at := h.Committed(); !at.Found || at.Offset != 3 || at.Metadata != "by hand" {
			t.Errorf("got %+v", at)
		}
		h.Close(ctxOf(t, time.Minute))
		w.receive(w.attach(Takeover), 3)
	})
}

func TestHold_LeavesMembersAlone(t *testing.T) {
	for _, mode := range []Mode{Takeover, Standby} {
		bubble(t, func(t *testing.T, w *world) {
			w.produce(0, 1)
			c := w.attach(mode)
			w.ack(w.receive(c, 0))
			_, err := Hold(ctxOf(t, time.Minute), w.config(Takeover))
			if active, ok := errorAs[*ActiveError](err); !ok || active.Group != testGroup || len(active.Members) != 1 || active.Members[0].Since.IsZero() {
				t.Errorf("%s: got %v", mode, err)
			}
			w.ack(w.receive(c, 1)) // undisturbed
			w.flush(c)
		})
	}
}

// Whoever joins later wins: it has seen what was committed before, and nothing
// is committed behind it.
func TestHold_ALaterOneFencesIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.produce(0, 4)
		h := w.hold()
		c := w.attach(Takeover)
		w.ack(w.receive(c, 0))
		w.flush(c)
		err := h.Commit(ctxOf(t, time.Minute), Commit{Offset: 4, LeaderEpoch: -1})
		if _, refused := errorAs[*RefusedError](err); !refused {
			t.Errorf("got %v, want a refusal", err)
		}
		h.Close(ctxOf(t, time.Minute))
		w.wantCommitted(1)
		w.ack(w.receive(c, 1)) // its membership was left alone
		w.flush(c)
		w.wantCommitted(2)
	})
}

func TestHold_SaysWhenTheOutcomeIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := w.hold()
		w.k.Fault(t, kmsg.OffsetCommit, kfaketest.Fault{Mode: kfaketest.Disconnect, After: true})
		err := h.Commit(ctxOf(t, time.Minute), Commit{Offset: 0, LeaderEpoch: -1})
		if _, unknown := errorAs[*UnknownCommitError](err); !unknown {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		h.Close(ctxOf(t, time.Minute))
	})
}

func TestHold_EndsWithItsContext(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.DescribeGroups, kmsg.JoinGroup, kmsg.OffsetFetch} {
		bubble(t, func(t *testing.T, w *world) {
			f := w.k.Fault(t, key, kfaketest.Fault{Mode: kfaketest.Hang, Times: -1})
			_, err := Hold(ctxOf(t, 2*time.Second), w.config(Takeover))
			f.Release()
			wantErr(t, key.Name(), err, context.DeadlineExceeded)
		})
	}
	bubble(t, func(t *testing.T, w *world) {
		w.k.Fault(t, kmsg.JoinGroup, kfaketest.Fault{Mode: kfaketest.Error, Code: kerr.GroupAuthorizationFailed, Times: -1})
		_, err := Hold(ctxOf(t, time.Minute), w.config(Takeover))
		if !errors.Is(err, kerr.GroupAuthorizationFailed) {
			t.Errorf("got %v", err)
		}
	})
}
