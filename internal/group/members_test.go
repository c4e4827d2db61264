package group

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/members"
)

// described returns the group's members as anybody sees them.
func (w *world) described() (protocol string, all []members.Member) {
	w.t.Helper()
	groups, err := kadm.NewClient(w.lookup).DescribeGroups(context.Background(), testGroup)
	if err == nil {
		err = groups.Error()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return groups[testGroup].Protocol, members.Of(groups[testGroup])
}

func TestMembers_TellSinceWhenTheyAreThere(t *testing.T) {
	for _, mode := range []Mode{Takeover, Standby} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.produce(0, 0)
				first := time.Now()
				w.receive(w.attach(mode), 0)
				kfaketest.Pass(time.Hour)
				_, all := w.described()
				if len(all) != 1 || all[0].Since.Before(first) || all[0].Since.Sub(first) > time.Second || !all[0].Owner || all[0].Process == "" {
					t.Fatalf("got %+v, want one since %s", all, first)
				}
				second := time.Now()
				next := w.attach(mode)
				kfaketest.Pass(time.Minute) // a replica joins in the background
				_, all = w.described()
				switch mode {
				case Takeover:
					w.receive(next, 0)
					if len(all) != 1 || all[0].Instance != testGroup || all[0].Since.Before(second) || !all[0].Owner {
						t.Errorf("got %+v, want the newest, since %s", all, second)
					}
				case Standby:
					if len(all) != 2 {
						t.Fatalf("got %+v, want two", all)
					}
					for _, m := range all {
						if m.Owner != m.Since.Before(second) || m.Since.Before(first) || m.Instance != "" {
							t.Errorf("got %+v, want the owner since %s and a replica since %s", m, first, second)
						}
					}
				}
			})
		})
	}
}

// old is a member of a build that tells nothing but whether it owns the
// partition.
func (w *world) old() (cl *kgo.Client, owner *atomic.Bool) {
	owner = new(atomic.Bool)
	return w.k.Client(w.t,
		kgo.ConsumerGroup(testGroup), kgo.ConsumeTopics(testTopic), kgo.Balancers(&ownerFirst{owner: owner, plain: true}),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(heartbeatEvery), kgo.SessionTimeout(sessionTimeout), kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) { owner.Store(len(assigned) > 0) }),
	), owner
}

func TestStandby_AnOlderBuildAndTheOwnerLeaveEachOtherTheLane(t *testing.T) {
	t.Run("the older one comes second", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.produce(0, 1)
			active := w.attach(Standby)
			w.ack(w.receive(active, 0))
			if protocol, _ := w.described(); protocol != ownerProtocol {
				t.Errorf("got protocol %s", protocol)
			}
			for range 4 { // whichever of them leads
				cl, owner := w.old()
				kfaketest.Pass(time.Minute)
				if protocol, all := w.described(); protocol != plainOwnerProtocol || len(all) != 2 || owner.Load() {
					t.Errorf("got protocol %s, members %+v, taken %t", protocol, all, owner.Load())
				}
				cl.Close()
				kfaketest.Pass(time.Minute)
			}
			w.ack(w.receive(active, 1))
			if protocol, all := w.described(); protocol != ownerProtocol || len(all) != 1 || all[0].Since.IsZero() {
				t.Errorf("alone again: got protocol %s, members %+v", protocol, all)
			}
		})
	})
	t.Run("the older one comes first", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.produce(0, 0)
			cl, owner := w.old()
			kfaketest.Pass(time.Minute)
			replica := w.attach(Standby)
			kfaketest.Pass(time.Minute)
			if protocol, all := w.described(); protocol != plainOwnerProtocol || len(all) != 2 || !owner.Load() {
				t.Errorf("got protocol %s, members %+v, still owner %t", protocol, all, owner.Load())
			}
			cl.Close()
			w.receive(replica, 0)
		})
	})
}
