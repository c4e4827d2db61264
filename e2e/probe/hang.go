package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Old are the versions of a client whose transactions keep their producer's epoch.
func Old() kgo.Opt { return kgo.MaxVersions(kversion.V3_5_0()) }

// Hang leaves a transaction of a transactional id open on a topic that its
// coordinator knows nothing of, as a broker does that goes down between the end
// of a transaction and its markers: a record in a transaction that nobody has
// begun, behind what the id's producer wrote. Brokers let that pass only for
// clients as old as this one pretends to be, and with
// transaction.partition.verification.enable=false.
func Hang(ctx context.Context, opts []kgo.Opt, id, topic string) error {
	cl, err := kgo.NewClient(append(slices.Clone(opts), Old())...)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	described, err := adm.DescribeTransactions(ctx, id)
	if err != nil {
		return err
	}
	writer, ok := described[id]
	if !ok || writer.Err != nil {
		return fmt.Errorf("describe %s: %w", id, errors.Join(writer.Err, kerr.TransactionalIDNotFound))
	}
	sequence, err := nextSequence(ctx, adm, topic, writer.ProducerID, writer.ProducerEpoch)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &id, -1, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = transactional(writer.ProducerID, writer.ProducerEpoch, sequence)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// nextSequence is what the leader of a topic expects of a producer's epoch.
func nextSequence(ctx context.Context, adm *kadm.Client, topic string, producer int64, epoch int16) (int32, error) {
	set := make(kadm.TopicsSet)
	set.Add(topic, 0)
	described, err := adm.DescribeProducers(ctx, set)
	if err != nil {
		return 0, err
	}
	for _, p := range described.SortedProducers() {
		if p.ProducerID == producer && p.ProducerEpoch == epoch {
			return p.LastSequence + 1, nil
		}
	}
	return 0, nil
}

// transactional is a batch of one empty record, the next of a producer's epoch.
func transactional(producer int64, epoch int16, sequence int32) []byte {
	record := kmsg.NewRecord()
	record.Value = []byte{}
	raw := record.AppendTo(nil)
	record.Length = int32(len(raw) - 1) // but for the length itself
	now := time.Now().UnixMilli()
	batch := kmsg.NewRecordBatch()
	batch.PartitionLeaderEpoch, batch.Magic, batch.Attributes = -1, 2, 0x10
	batch.FirstTimestamp, batch.MaxTimestamp = now, now
	batch.ProducerID, batch.ProducerEpoch, batch.FirstSequence = producer, epoch, sequence
	batch.NumRecords, batch.Records = 1, record.AppendTo(nil)
	out := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-12))
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}
