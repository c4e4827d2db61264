package group

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ownerFirst gives the partition to the member that owns it. The range
// balancer gives it to whichever member id sorts first, and kgo's sticky one
// forgets the owner in an eager rebalance: a replica that joins would take the
// lane from an owner that is well.
type ownerFirst struct {
	owner *atomic.Bool // this member owns the partition, or did until this rebalance
}

const ownerProtocol = "flusso-owner-first"

// ProtocolName implements [kgo.GroupBalancer].
func (*ownerFirst) ProtocolName() string { return ownerProtocol }

// IsCooperative implements [kgo.GroupBalancer].
func (*ownerFirst) IsCooperative() bool { return false }

// JoinGroupMetadata implements [kgo.GroupBalancer].
func (b *ownerFirst) JoinGroupMetadata(topics []string, _ map[string][]int32, generation int32) []byte {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version = 3
	meta.Topics = topics
	meta.Generation = generation
	if b.owner.Load() {
		meta.UserData = []byte{1}
	}
	return meta.AppendTo(nil)
}

// ParseSyncAssignment implements [kgo.GroupBalancer].
func (*ownerFirst) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	return kgo.ParseConsumerSyncAssignment(assignment)
}

// MemberBalancer implements [kgo.GroupBalancer].
func (b *ownerFirst) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	cb, err := kgo.NewConsumerBalancer(b, members)
	return cb, cb.MemberTopics(), err
}

// Balance implements [kgo.ConsumerBalancerBalance]. Of two that claim to own a
// partition the one with the newer generation does: the other was away.
func (*ownerFirst) Balance(cb *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	plan := cb.NewPlan()
	var (
		best       *kmsg.JoinGroupResponseMember
		owns       bool
		generation int32
	)
	cb.EachMember(func(m *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		claims := len(meta.UserData) == 1 && meta.UserData[0] == 1
		better := best == nil || claims && !owns ||
			claims == owns && (claims && meta.Generation > generation || (!claims || meta.Generation == generation) && m.MemberID < best.MemberID)
		if better {
			best, owns, generation = m, claims, meta.Generation
		}
	})
	if best == nil {
		return plan
	}
	for topic, partitions := range topics {
		for p := range partitions {
			plan.AddPartition(best, topic, p)
		}
	}
	return plan
}
