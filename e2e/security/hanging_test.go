package security_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/flusso/flusso-kafka/internal/lease"
	"github.com/flusso/flusso-kafka/topics"
)

// hang leaves a transaction open on a lane that its coordinator knows nothing
// of, as a broker does that goes down between the end of a transaction and its
// markers: a record of the writer's, in a transaction that nobody has begun.
// Brokers let that pass only for clients as old as this one pretends to be, and
// not even then by default.
func (b *secured) hang(ctx context.Context, lane topics.Lane) error {
	cl, err := kgo.NewClient(append(b.super(), kgo.SeedBrokers(b.Addr()), kgo.MaxVersions(kversion.V3_5_0()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	id := lane.Pipeline.WriterID(3)
	described, err := kadm.NewClient(cl).DescribeTransactions(ctx, id)
	if err != nil {
		return err
	}
	writer, ok := described[id]
	if !ok || writer.Err != nil {
		return fmt.Errorf("describe %s: %w", id, errors.Join(writer.Err, kerr.TransactionalIDNotFound))
	}
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &id, -1, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = lane.Topic()
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = transactional(writer.ProducerID, writer.ProducerEpoch)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// transactional is a batch of one empty record, the first of a producer's epoch.
func transactional(producer int64, epoch int16) []byte {
	record := kmsg.NewRecord()
	record.Value = []byte{}
	raw := record.AppendTo(nil)
	record.Length = int32(len(raw) - 1) // but for the length itself
	now := time.Now().UnixMilli()
	batch := kmsg.NewRecordBatch()
	batch.PartitionLeaderEpoch, batch.Magic, batch.Attributes = -1, 2, 0x10
	batch.FirstTimestamp, batch.MaxTimestamp = now, now
	batch.ProducerID, batch.ProducerEpoch, batch.FirstSequence = producer, epoch, 0
	batch.NumRecords, batch.Records = 1, record.AppendTo(nil)
	out := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-12))
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// abortHanging leaves a hanging transaction behind, finds it and aborts it as a
// user, in the way that writers and the command line do.
func (b *secured) abortHanging(ctx context.Context, user []kgo.Opt, lane topics.Lane) error {
	cl, err := kgo.NewClient(user...)
	if err != nil {
		return err
	}
	defer cl.Close()
	state := lease.Describe(ctx, cl, lane.Pipeline, []topics.Lane{lane})
	if err := state.Err(); err != nil {
		return err
	}
	if len(state.Open) == 0 {
		if err := b.hang(ctx, lane); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
		state = lease.Describe(ctx, cl, lane.Pipeline, []topics.Lane{lane})
	}
	if err := state.Err(); err != nil {
		return err
	}
	if len(state.Open) != 1 || !state.Open[0].Hanging {
		return fmt.Errorf("set up: no transaction hangs: %+v", state.Open)
	}
	return lease.Abort(ctx, cl, state.Open[0])
}
