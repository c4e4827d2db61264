package offsets

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Bounds of one Fetch request. The sum of the partitions' bounds stays below
// the request's, so that the latter is met only by a single batch above it.
const (
	fetchFirst   = 32 << 10 // bytes of one lane at first: room for a thousand lanes in one request
	fetchMost    = 4 << 20  // while scanning on; more only for a single larger batch
	fetchRequest = 32 << 20
	fetchCeiling = 90 << 20 // kgo refuses answers above 100 MiB
)

// piece is what a fetch from one lane brought.
type piece struct {
	records             []*kgo.Record // committed data records, aborted and control ones left out
	empty               bool          // no record batch at all
	base                flusso.Offset // first offset of the first batch, which may be below what was asked
	next                flusso.Offset // where to read on
	start, stable, high flusso.Offset
	abortedFrom         flusso.Offset // where the transaction begins that the first batch is of, if it was aborted; else NoOffset
	err                 error
}

// fetch reads committed data of several lanes from their leader, which
// answers at once with what it has. A lane that the broker left out for want
// of room comes back empty.
func (s *Store) fetch(ctx context.Context, leader int32, qs []*search) []piece {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.IsolationLevel = -1, 1
	req.SessionID, req.SessionEpoch = 0, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, fetchCeiling
	for _, q := range qs {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = q.lane.Topic(), q.id.id
		p := kmsg.NewFetchRequestTopicPartition()
		p.CurrentLeaderEpoch = q.id.epoch
		p.FetchOffset = int64(q.at)
		p.LogStartOffset = -1
		p.PartitionMaxBytes = q.bytes
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	out := make([]piece, len(qs))
	kresp, err := s.cl.Broker(int(leader)).Request(ctx, req)
	if err == nil {
		err = kerr.ErrorForCode(kresp.(*kmsg.FetchResponse).ErrorCode)
	}
	if err != nil {
		for i, q := range qs {
			out[i].err = kafkaerr.Wrap("read headers of topic "+q.lane.Topic(), err)
		}
		return out
	}
	resp := kresp.(*kmsg.FetchResponse)
	type key struct {
		topic string
		id    [16]byte
	}
	keyOf := func(topic string, id [16]byte) key {
		if resp.Version >= 13 {
			return key{id: id}
		}
		return key{topic: topic}
	}
	got := make(map[key]*kmsg.FetchResponseTopicPartition, len(qs))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			if t.Partitions[j].Partition == 0 {
				got[keyOf(t.Topic, t.TopicID)] = &t.Partitions[j]
			}
		}
	}
	for i, q := range qs {
		p := got[keyOf(q.lane.Topic(), q.id.id)]
		switch {
		case p == nil && q.bytes >= fetchRequest:
			out[i].err = kafkaerr.Wrap("read headers of topic "+q.lane.Topic(), errShort)
		case p == nil: // no room left
			out[i] = piece{empty: true, start: flusso.NoOffset, stable: math.MaxInt64, high: math.MaxInt64, abortedFrom: flusso.NoOffset}
		default:
			out[i] = decode(q, p)
		}
	}
	return out
}

func decode(q *search, p *kmsg.FetchResponseTopicPartition) piece {
	op := "read headers of topic " + q.lane.Topic()
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return piece{err: kafkaerr.Wrap(op, err, kafkaerr.OnTopic("Read", q.lane.Topic()))}
	}
	out := piece{
		start: flusso.Offset(p.LogStartOffset), stable: flusso.Offset(p.LastStableOffset), high: flusso.Offset(p.HighWatermark),
		next: q.at, abortedFrom: flusso.NoOffset,
	}
	if len(p.RecordBatches) == 0 {
		out.empty = true
		return out
	}
	first, ok := headOf(p.RecordBatches)
	if !ok {
		out.err = fmt.Errorf("%s: a record batch of %d bytes at offset %s is not in the format of Kafka 0.11 or later", op, len(p.RecordBatches), q.at)
		return out
	}
	out.base, out.abortedFrom = first.base, first.abortedFrom(p.AbortedTransactions)
	// Records below what was asked, in the same batch, are wanted too; those
	// below the log start are gone, even when their batch is still there.
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset:         max(p.LogStartOffset, 0),
		IsolationLevel: kgo.ReadCommitted(),
		Topic:          q.lane.Topic(),
	}, p, decompressor, nil)
	if fp.Err != nil {
		out.err = kafkaerr.Wrap(op, fp.Err)
		return out
	}
	out.records = fp.Records
	out.next = max(q.at, flusso.Offset(next))
	return out
}

var decompressor = kgo.DefaultDecompressor()

// batchHead is what a search needs of a record batch beyond its records.
type batchHead struct {
	base          flusso.Offset
	producer      int64
	transactional bool
	control       bool
}

// headOf reads the head of the first batch in raw, by its fixed layout.
func headOf(raw []byte) (batchHead, bool) {
	const (
		magic      = 16
		attributes = 21
		producer   = 43
		size       = 61

		isTransactional = 1 << 4
		isControl       = 1 << 5
	)
	if len(raw) < size || raw[magic] != 2 {
		return batchHead{}, false
	}
	attrs := binary.BigEndian.Uint16(raw[attributes:])
	return batchHead{
		base:          flusso.Offset(binary.BigEndian.Uint64(raw)),
		producer:      int64(binary.BigEndian.Uint64(raw[producer:])),
		transactional: attrs&isTransactional != 0,
		control:       attrs&isControl != 0,
	}, true
}

// abortedFrom returns where the aborted transaction begins whose data the
// batch is, or NoOffset. That a transaction overlaps is not enough: brokers
// write the marker of an abort late, behind data of others.
func (h batchHead) abortedFrom(aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction) flusso.Offset {
	from := flusso.NoOffset
	if !h.transactional || h.control {
		return from
	}
	for _, a := range aborted {
		if first := flusso.Offset(a.FirstOffset); a.ProducerID == h.producer && first <= h.base {
			from = max(from, first)
		}
	}
	return from
}
