package markers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Outcome is how a coordinator decided a transaction.
type Outcome int

const (
	// Unknown says that the coordinators' log tells of no decision, or no more.
	Unknown Outcome = iota
	// Committed says that whoever wrote it may have been told that it is durable.
	Committed
	// Aborted says that nobody was told so.
	Aborted
)

// LogTopic is where coordinators write down what they decide: a state for each
// step of each transactional id. Its format is Kafka's own
// (TransactionLogKey.json and TransactionLogValue.json), and so is where an id
// is in it: TransactionStateManager.partitionFor.
const LogTopic = "__transaction_state"

// skew is how far the clocks of clients and brokers may be apart until the
// whole of the log is read.
const skew = 10 * time.Minute

// Decided reads from the coordinators' log how the transaction of a
// transactional id was decided: once its coordinator is done with it, and until
// compaction takes it away, it is found nowhere else. It takes Read on
// [LogTopic]. Options reach the brokers.
func Decided(ctx context.Context, opts []kgo.Opt, id string, t Transaction) (Outcome, error) {
	op := fmt.Sprintf("look up in %s how the transaction of %s was decided", LogTopic, id)
	needs := kafkaerr.OnTopic("Read", LogTopic)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return Unknown, kafkaerr.Wrap(op, err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	described, err := adm.ListTopicsWithInternal(ctx, LogTopic)
	if err == nil {
		err = described[LogTopic].Err
	}
	if err != nil {
		return Unknown, kafkaerr.Wrap(op, err, needs)
	}
	partition := partitionOf(id, len(described[LogTopic].Partitions))
	likely, err1 := offsetAt(ctx, cl, partition, t.Last.Add(-skew).UnixMilli())
	start, err2 := offsetAt(ctx, cl, partition, earliest)
	end, err3 := offsetAt(ctx, cl, partition, latest)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Unknown, kafkaerr.Wrap(op, err, needs)
	}
	if likely < start {
		likely = start // nothing is as young, or the clock of the client is ahead
	}
	for _, from := range slices.Compact([]int64{likely, start}) {
		outcome, err := read(ctx, opts, partition, from, end, id, t)
		if err != nil || outcome != Unknown {
			return outcome, kafkaerr.Wrap(op, err, needs)
		}
	}
	return Unknown, nil
}

// The timestamps that stand for an end of the log.
const (
	latest   = -1
	earliest = -2
)

// offsetAt returns the offset of a time in a partition of the log, -1 where
// nothing is as young. kadm passes over internal topics.
func offsetAt(ctx context.Context, cl *kgo.Client, partition int32, ms int64) (int64, error) {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, ms
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = LogTopic, append(t.Partitions, p)
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.Topics = -1, append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Topic == LogTopic && p.Partition == partition {
				return p.Offset, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return 0, errLeftOut
}

// partitionOf is the partition of a transactional id.
func partitionOf(id string, partitions int) int32 {
	hash := int32(0)
	for _, c := range []byte(id) { // names of ours are ASCII, as UTF-16 is then
		hash = 31*hash + int32(c)
	}
	if hash == -1<<31 || partitions <= 0 {
		return 0
	}
	return max(hash, -hash) % int32(partitions)
}

func read(ctx context.Context, opts []kgo.Opt, partition int32, from, end int64, id string, t Transaction) (Outcome, error) {
	if from >= end {
		return Unknown, nil
	}
	cl, err := kgo.NewClient(append(slices.Clone(opts),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{LogTopic: {partition: kgo.NewOffset().At(from)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepControlRecords())...)
	if err != nil {
		return Unknown, err
	}
	defer cl.Close()
	d := decision{id: id, t: t}
	for next := from; next < end; {
		fetches := cl.PollFetches(ctx)
		for _, r := range fetches.Records() {
			if next = r.Offset + 1; r.Offset < end && !r.Attrs.IsControl() {
				if err := d.see(r); err != nil {
					return Unknown, fmt.Errorf("offset %d of partition %d: %w", r.Offset, partition, err)
				}
			}
		}
		if err := fetches.Err(); err != nil {
			return Unknown, err
		}
	}
	return d.outcome, nil
}

// decision is what the states of a transactional id tell, in their order, of
// the newest transaction of a producer in a topic: a newer one of the same
// producer would have ended the one before with its markers.
type decision struct {
	id      string
	t       Transaction
	outcome Outcome
}

func (d *decision) see(r *kgo.Record) error {
	var key kmsg.TxnMetadataKey
	if err := key.ReadFrom(r.Key); err != nil {
		return fmt.Errorf("its key: %w", err)
	}
	if key.TransactionalID != d.id || len(r.Value) == 0 {
		return nil
	}
	var v kmsg.TxnMetadataValue
	if err := v.ReadFrom(r.Value); err != nil {
		return fmt.Errorf("its value: %w", err)
	}
	if v.ProducerID != d.t.ProducerID || !slices.ContainsFunc(v.Topics, func(in kmsg.TxnMetadataValueTopic) bool {
		return in.Topic == d.t.Topic && slices.Contains(in.Partitions, 0)
	}) {
		return nil
	}
	// The end of a transaction takes the next epoch, from version 2 of
	// transactions on (KIP-890), and so do, in any, a fence and a timeout.
	later := v.ProducerEpoch - d.t.ProducerEpoch
	same := later == 0 && v.ClientTransactionVersion < 2
	switch v.State {
	case kmsg.TransactionStateOngoing:
		d.outcome = Unknown
	case kmsg.TransactionStatePrepareCommit:
		if same || later == 1 {
			d.outcome = Committed
		}
	case kmsg.TransactionStatePrepareAbort:
		if same || later == 1 || later == 2 {
			d.outcome = Aborted
		}
	default: // carries a decision out, or is of what the id does next
	}
	return nil
}

// UndecidedError says that a transaction hangs, and that how it was decided is
// not known: it may hold what somebody was told is durable.
type UndecidedError struct {
	ID string // transactional id
	Transaction
	Cause error // why its coordinator's log could not be read; nil where that tells nothing
}

func (e *UndecidedError) Error() string {
	text := fmt.Sprintf("topic %s: a broker left the transaction of %s (producer %d, epoch %d) open at offset %s, and readers wait behind it; what is in it may have been acknowledged",
		e.Topic, e.ID, e.ProducerID, e.ProducerEpoch, e.Offset)
	giveUp := fmt.Sprintf("`kafka-transactions.sh abort --topic %s --partition 0 --start-offset %s` gives up what is in it", e.Topic, e.Offset)
	if e.Cause != nil {
		return fmt.Sprintf("%s. How it was decided could not be read, so it was left alone: mend that and repeat; %s: %v", text, giveUp, e.Cause)
	}
	return fmt.Sprintf("%s. The log of its coordinator (%s) does not tell any more how it was decided, so it was left alone; %s", text, LogTopic, giveUp)
}

// Unwrap returns the cause.
func (e *UndecidedError) Unwrap() error { return e.Cause }

// End ends those of the open transactions of topics that belong to producers
// whose transactional ids the caller holds, and so has fenced: what was decided
// and lost its markers gets them, as it was decided. ids are by producer id.
// It returns what it ended, also beside an error: an [*UndecidedError] for what
// has to stay.
func End(ctx context.Context, cl *kgo.Client, opts []kgo.Opt, ids map[int64]string, topics ...string) (ended []Ended, err error) {
	open, failed := Open(ctx, cl, topics...)
	for _, err := range failed {
		return nil, err
	}
	for _, t := range open {
		id, ours := ids[t.ProducerID]
		if !ours {
			continue
		}
		outcome, err := Decided(ctx, opts, id, t)
		if err != nil || outcome == Unknown {
			return ended, &UndecidedError{ID: id, Transaction: t, Cause: err}
		}
		if err := Write(ctx, cl, t, outcome == Committed); err != nil && !errors.Is(err, kerr.InvalidTxnState) {
			return ended, err
		}
		ended = append(ended, Ended{t, outcome == Committed})
	}
	return ended, nil
}

// Ended is a transaction that was ended.
type Ended struct {
	Transaction
	Committed bool
}
