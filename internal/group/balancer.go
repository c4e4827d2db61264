package group

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/members"
)

// balancers returns what a member joins with: what it says of itself never
// changes while it lives but for the owner's claim, since a broker that sees
// other metadata rebalances.
func balancers(mode Mode, owner *atomic.Bool) []kgo.GroupBalancer {
	host, _ := os.Hostname() // without one the process id alone is told
	self := members.Data{Since: time.Now(), Process: members.Process(host, os.Getpid())}
	if mode == Standby {
		return []kgo.GroupBalancer{&ownerFirst{owner: owner, self: self}, &ownerFirst{owner: owner, plain: true}}
	}
	return []kgo.GroupBalancer{&attached{kgo.RangeBalancer(), self}}
}

// attached is a balancer whose members tell since when they are there.
type attached struct {
	kgo.GroupBalancer
	self members.Data
}

// JoinGroupMetadata implements [kgo.GroupBalancer].
func (b *attached) JoinGroupMetadata(topics []string, _ map[string][]int32, generation int32) []byte {
	return subscription(topics, generation, b.self.Encode())
}

func subscription(topics []string, generation int32, userData []byte) []byte {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version = 3
	meta.Topics = topics
	meta.Generation = generation
	meta.UserData = userData
	return meta.AppendTo(nil)
}

// ownerFirst gives the partition to the member that owns it. The range
// balancer gives it to whichever member id sorts first, and kgo's sticky one
// forgets the owner in an eager rebalance: a replica that joins would take the
// lane from an owner that is well.
//
// It goes by two names. Under the plain one members tell whether they own the
// partition and nothing else, in the one byte that the leader looks for which
// knows no other; a group comes to it while such a member is in it.
type ownerFirst struct {
	owner *atomic.Bool // this member owns the partition, or did until this rebalance
	self  members.Data
	plain bool
}

const (
	ownerProtocol      = "flusso-owner-first-2"
	plainOwnerProtocol = "flusso-owner-first"
)

// ProtocolName implements [kgo.GroupBalancer].
func (b *ownerFirst) ProtocolName() string {
	if b.plain {
		return plainOwnerProtocol
	}
	return ownerProtocol
}

// IsCooperative implements [kgo.GroupBalancer].
func (*ownerFirst) IsCooperative() bool { return false }

// JoinGroupMetadata implements [kgo.GroupBalancer].
func (b *ownerFirst) JoinGroupMetadata(topics []string, _ map[string][]int32, generation int32) []byte {
	self := b.self
	self.Owner = b.owner.Load()
	if b.plain {
		return subscription(topics, generation, self.Plain())
	}
	return subscription(topics, generation, self.Encode())
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
		claims := members.Decode(meta.UserData).Owner
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
