package topics_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/topics"
)

func TestDeleteLane(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{})
		if _, err := f.admin.Ensure(ctx, f.want); err != nil {
			t.Fatal(err)
		}
		adm := kadm.NewClient(f.cl)
		id := func() [16]byte {
			t.Helper()
			found, err := f.admin.Describe(ctx, f.lane.Topic())
			if err != nil {
				t.Fatal(err)
			}
			return found[f.lane.Topic()].ID
		}
		group := func() {
			t.Helper()
			var os kadm.Offsets
			os.Add(kadm.Offset{Topic: f.lane.Topic(), LeaderEpoch: -1})
			if err := adm.CommitAllOffsets(ctx, f.lane.Group(), os); err != nil {
				t.Fatal(err)
			}
		}
		there := func() (topic, group bool) {
			t.Helper()
			fresh := kadm.NewClient(f.Client(t)) // clients remember topics for a while
			listed, err := fresh.ListTopics(ctx)
			if err != nil {
				t.Fatal(err)
			}
			groups, err := fresh.ListGroups(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_, group = groups[f.lane.Group()]
			return listed.Has(f.lane.Topic()), group
		}
		group()
		recreated := (*topics.RecreatedError)(nil)
		if err := f.admin.DeleteLane(ctx, f.lane, [16]byte{9}); !errors.As(err, &recreated) {
			t.Fatalf("another topic ID: got %v", err)
		}
		if topic, group := there(); !topic || !group {
			t.Fatal("a refused deletion deleted something")
		}
		was := id()
		f.Fault(t, kmsg.DeleteTopics, kfaketest.Fault{Code: kerr.TopicAuthorizationFailed})
		if err := f.admin.DeleteLane(ctx, f.lane, was); !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "Delete on topic") {
			t.Errorf("the topic may not be deleted: got %v", err)
		}
		if topic, group := there(); !topic || !group {
			t.Fatal("a refused deletion deleted something")
		}
		assigned := make(chan struct{})
		member := f.Client(t, kgo.ConsumerGroup(f.lane.Group()), kgo.ConsumeTopics(f.lane.Topic()), kgo.DisableAutoCommit(),
			kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(assigned) }))
		<-assigned
		err := f.admin.DeleteLane(ctx, f.lane, was)
		if !errors.Is(err, kerr.NonEmptyGroup) || !strings.Contains(err.Error(), "run the command again") {
			t.Errorf("somebody joined: got %v", err)
		}
		if topic, group := there(); topic || !group {
			t.Fatalf("half way: topic %v, group %v, want the group alone", topic, group)
		}
		if err := member.LeaveGroupContext(ctx); err != nil {
			t.Fatal(err)
		}
		for range 2 { // repeated, and once more
			if err := f.admin.DeleteLane(ctx, f.lane, was); err != nil {
				t.Fatal(err)
			}
		}
		if topic, group := there(); topic || group {
			t.Errorf("topic %v, group %v are left", topic, group)
		}
	})
}
