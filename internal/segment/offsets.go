package segment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// GroupOffsets is an offset that becomes committed for a consumer group
// together with the records of its entry, or not at all. It is sent before the
// records are produced: when the group refuses it, the entry alone is rejected
// and its Encode is not called. When its answer is lost, or Encode fails after
// it, the whole segment is rejected and the session ends, because the offset
// can then be kept out only together with everything else.
//
// One owner serializes the commits of a group: nothing else may commit while
// the entry is not resolved.
type GroupOffsets struct {
	Group string
	// Member returns the identity of the group's member at the moment of the
	// commit; its error rejects the entry.
	Member func() (memberID string, generation int32, instance *string, err error)

	Topic       string
	TopicID     [16]byte // of the topic the offset is from; zero: not compared
	Partition   int32
	Offset      int64 // next offset to read
	LeaderEpoch int32 // -1: unknown
	Metadata    string
}

// groups remembers what the committing of group offsets needs to know. Only
// the former uses it.
type groups struct {
	coordinator map[string]int32 // by group
}

// refusals are the answers to TxnOffsetCommit that leave no doubt that the
// offset is not in the transaction, and say nothing about the transaction.
var refusals = []*kerr.Error{
	kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch,
	kerr.RebalanceInProgress, kerr.GroupIDNotFound, kerr.InvalidGroupID, kerr.GroupAuthorizationFailed,
	kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID,
	kerr.OffsetMetadataTooLarge, kerr.InvalidCommitOffsetSize,
}

// elsewhere are the answers of a broker that did not even look.
var elsewhere = []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.ConcurrentTransactions}

func isOneOf(err error, codes []*kerr.Error) bool {
	for _, c := range codes {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}

// The pause before the next try of a request that its broker did not look at:
// it doubles from the first to the second.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// commitOffsets puts o into the segment's transaction. refused says that the
// offset is certainly not in it, err that it may be, or that the transaction
// itself is lost.
func (s *Session) commitOffsets(ctx context.Context, g *segment, o *GroupOffsets) (refused, err error) {
	op := fmt.Sprintf("commit offset %d of topic %s partition %d for group %s within transaction %s",
		o.Offset, o.Topic, o.Partition, o.Group, s.cfg.id(g.turn))
	if refused, err := checkTopic(ctx, g.client, o); err != nil && ctx.Err() != nil {
		return nil, s.late(ctx, g)
	} else if refused != nil || err != nil {
		return kafkaerr.Wrap(op, errors.Join(refused, err)), nil // nothing is sent yet
	}
	for wait := firstPause; ; {
		member, generation, instance, err := o.Member()
		if err != nil {
			return fmt.Errorf("%s: %w", op, err), nil
		}
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.MemberID, req.Generation, req.InstanceID = member, generation, instance
		code, err := s.tryOffsets(ctx, g, o, req)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, s.late(ctx, g)
		case err != nil:
			return nil, kafkaerr.Wrap(op, err)
		case code == nil:
			return nil, nil
		case isOneOf(code, refusals):
			return kafkaerr.Wrap(op, code, kafkaerr.OnGroup("Read", o.Group), kafkaerr.OnTopic("Read", o.Topic)), nil
		case !isOneOf(code, elsewhere):
			return nil, kafkaerr.Wrap(op, code)
		}
		delete(s.groups.coordinator, o.Group)
		if !pause(ctx, &wait) {
			return nil, s.late(ctx, g)
		}
	}
}

// checkTopic refuses the offset of a topic that was deleted and created again.
// Up to version 5 of TxnOffsetCommit (Kafka 4.3) the broker goes by the name;
// from 6 on it compares as well, at the moment of the commit.
func checkTopic(ctx context.Context, cl *kgo.Client, o *GroupOffsets) (refused, err error) {
	if o.TopicID == [16]byte{} {
		return nil, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &o.Topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	switch {
	case err != nil:
		return nil, err
	case len(resp.Topics) != 1:
		return nil, fmt.Errorf("metadata answered for %d topics, asked for one", len(resp.Topics))
	}
	if code := kerr.ErrorForCode(resp.Topics[0].ErrorCode); code != nil {
		return code, nil
	}
	if id := resp.Topics[0].TopicID; id != o.TopicID && id != [16]byte{} { // brokers before 2.8 have none
		return kerr.UnknownTopicID, nil
	}
	return nil, nil
}

// tryOffsets returns the broker's code for the offset, or err when there is
// none. No request here is repeated by the client: a commit that arrives twice
// could be refused the second time and be in the transaction all the same.
func (s *Session) tryOffsets(ctx context.Context, g *segment, o *GroupOffsets, req *kmsg.TxnOffsetCommitRequest) (code, err error) {
	g.touched = true
	implicit := s.version >= 2
	if !implicit {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = s.cfg.id(g.turn), g.producer, g.epoch, o.Group
		// Adding twice is harmless: the client may repeat it.
		resp, err := add.RequestWith(ctx, g.client)
		if err != nil {
			return nil, err
		}
		if code := kerr.ErrorForCode(resp.ErrorCode); code != nil {
			return code, nil
		}
	}
	node, code, err := s.coordinator(ctx, g.client, o.Group)
	if code != nil || err != nil {
		return code, err
	}
	req.TransactionalID, req.Group = s.cfg.id(g.turn), o.Group
	req.ProducerID, req.ProducerEpoch = g.producer, g.epoch
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = o.Topic, o.TopicID
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset, part.LeaderEpoch, part.Metadata = o.Partition, o.Offset, o.LeaderEpoch, &o.Metadata
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)

	limit := int16(math.MaxInt16)
	switch {
	case !implicit:
		limit = 4 // from 5 on the broker adds the group by itself, by the rules of transaction version 2
	case o.TopicID == [16]byte{}:
		limit = 5 // from 6 on there is no topic name
	}
	kresp, err := g.client.Broker(int(node)).Request(ctx, &cappedOffsetCommit{req, limit})
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.TxnOffsetCommitResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("broker %d answered for %d topics, asked for one", node, len(resp.Topics))
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode), nil
}

// cappedOffsetCommit is a TxnOffsetCommit of a limited version.
type cappedOffsetCommit struct {
	*kmsg.TxnOffsetCommitRequest
	limit int16
}

func (c *cappedOffsetCommit) MaxVersion() int16 {
	return min(c.limit, c.TxnOffsetCommitRequest.MaxVersion())
}

// coordinator looks up which broker keeps the group's offsets.
func (s *Session) coordinator(ctx context.Context, cl *kgo.Client, group string) (node int32, code, err error) {
	if node, known := s.groups.coordinator[group]; known {
		return node, nil, nil
	}
	node, code, err = findCoordinator(ctx, cl, groupCoordinator, group)
	if code == nil && err == nil {
		if s.groups.coordinator == nil {
			s.groups.coordinator = make(map[string]int32)
		}
		s.groups.coordinator[group] = node
	}
	return node, code, err
}

// The types of FindCoordinator.
const (
	groupCoordinator       int8 = 0
	transactionCoordinator int8 = 1
)

func findCoordinator(ctx context.Context, cl *kgo.Client, kind int8, key string) (node int32, code, err error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, key, []string{key}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, nil, err
	}
	node, code = resp.NodeID, kerr.ErrorForCode(resp.ErrorCode)
	if len(resp.Coordinators) == 1 {
		node, code = resp.Coordinators[0].NodeID, kerr.ErrorForCode(resp.Coordinators[0].ErrorCode)
	}
	if errors.Is(code, kerr.CoordinatorNotAvailable) {
		code = kerr.NotCoordinator // a look-up that found nobody changed nothing
	}
	return node, code, nil
}

// learnVersion finds out which rules of transactions the cluster has: kgo
// goes by the same feature. An upgrade in the middle of the session is not
// noticed here, and need not be: brokers serve the older rules as well.
func (s *Session) learnVersion(ctx context.Context, cl *kgo.Client) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "flusso-kafka", "1"
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	s.version = 1
	if pinned, _ := cl.OptValue(kgo.MaxVersions).(*kversion.Versions); pinned != nil {
		for key, need := range map[kmsg.Key]int16{kmsg.Produce: 12, kmsg.EndTxn: 5, kmsg.TxnOffsetCommit: 5} {
			if v, ok := pinned.LookupMaxKeyVersion(int16(key)); !ok || v < need {
				return nil // so does kgo follow the older rules
			}
		}
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" && f.MaxVersionLevel >= 2 {
			s.version = 2
		}
	}
	return nil
}

// leave ends a transaction without records: its entries were rejected one by
// one. Where group offsets were tried, the broker may have begun a transaction
// that kgo knows nothing of, and that would time out in a later segment.
func (s *Session) leave(g *segment) error {
	op := "leave transaction " + s.cfg.id(g.turn)
	ctx, cancel := context.WithTimeout(s.base, s.cfg.TransactionTimeout)
	defer cancel()
	if g.touched {
		// By the rules of version 2 the end of a transaction changes the
		// producer epoch, so kgo must be the one to ask for it. It does so once
		// a record was tried.
		tried := make(chan struct{})
		r := &kgo.Record{Topic: g.offsetsTopic(), Partition: nowhere}
		g.client.Produce(context.Background(), r, func(*kgo.Record, error) { close(tried) })
		select {
		case <-tried:
		case <-ctx.Done():
			return kafkaerr.Wrap(op, context.Cause(ctx))
		}
	}
	late := time.AfterFunc(CommitTimeout, s.kill)
	defer late.Stop()
	if err := g.client.EndTransaction(context.Background(), kgo.TryAbort); err != nil {
		return kafkaerr.Wrap(op, err)
	}
	if !g.touched {
		return nil
	}
	if _, epoch, err := g.client.ProducerID(ctx); err != nil || epoch != g.epoch {
		return kafkaerr.Wrap(op, err) // kgo has ended it
	}
	wait := firstPause
	code, err := s.endUnseen(ctx, g)
	for err == nil && isOneOf(code, elsewhere) && pause(ctx, &wait) {
		code, err = s.endUnseen(ctx, g)
	}
	if errors.Is(code, kerr.InvalidTxnState) {
		return nil // nothing had begun
	}
	return kafkaerr.Wrap(op, errors.Join(err, code))
}

// endUnseen aborts a transaction that kgo has not seen begin, by the rules of
// version 1: from EndTxn 5 on the producer epoch would change, behind kgo's back.
func (s *Session) endUnseen(ctx context.Context, g *segment) (code, err error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = s.cfg.id(g.turn), g.producer, g.epoch
	node, code, err := findCoordinator(ctx, g.client, transactionCoordinator, req.TransactionalID)
	if code != nil || err != nil {
		return code, err
	}
	kresp, err := g.client.Broker(int(node)).RetriableRequest(ctx, &cappedEndTxn{req})
	if err != nil {
		return nil, err
	}
	return kerr.ErrorForCode(kresp.(*kmsg.EndTxnResponse).ErrorCode), nil
}

// cappedEndTxn is an EndTxn by the rules of transaction version 1.
type cappedEndTxn struct{ *kmsg.EndTxnRequest }

func (c *cappedEndTxn) MaxVersion() int16 { return 4 }

// pause waits before the next try, longer each time; false when ctx has ended.
func pause(ctx context.Context, wait *time.Duration) bool {
	select {
	case <-time.After(*wait):
		*wait = min(2**wait, lastPause)
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *segment) offsetsTopic() string {
	for _, e := range g.entries {
		if e.Offsets != nil {
			return e.Offsets.Topic
		}
	}
	return ""
}
