package markers

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Where Apache Kafka 4.3.1 put these ids, with four partitions.
func TestPartitionOf(t *testing.T) {
	for id, want := range map[string]int32{
		"ha1.feed.0": 2, "ha1.feed.1": 1, "ha1.feed.2": 0, "ha1.feed.3": 3, "ha2.feed.0": 3, "ha3.feed.0": 0,
		"polygenelubricants": 0, // Integer.MIN_VALUE, which has no absolute value
	} {
		if got := partitionOf(id, 4); got != want {
			t.Errorf("%s is in partition %d, want %d", id, got, want)
		}
	}
}

type state struct {
	id       string
	producer int64
	epoch    int16
	state    kmsg.TransactionState
	topic    string
	version  int16 // of transactions
}

func (s state) record() *kgo.Record {
	key := kmsg.NewTxnMetadataKey()
	key.TransactionalID = s.id
	v := kmsg.NewTxnMetadataValue()
	v.Version, v.ProducerID, v.ProducerEpoch, v.State, v.ClientTransactionVersion = 1, s.producer, s.epoch, s.state, s.version
	if s.topic != "" {
		in := kmsg.NewTxnMetadataValueTopic()
		in.Topic, in.Partitions = s.topic, []int32{0}
		v.Topics = append(v.Topics, in)
	}
	return &kgo.Record{Key: key.AppendTo(nil), Value: v.AppendTo(nil)}
}

// The states are as Apache Kafka 4.3.1 (version 2 of transactions) and 3.9.1
// write them.
func TestDecision(t *testing.T) {
	const ongoing, commit, abort, committed, empty = kmsg.TransactionStateOngoing, kmsg.TransactionStatePrepareCommit, kmsg.TransactionStatePrepareAbort, kmsg.TransactionStateCompleteCommit, kmsg.TransactionStateEmpty
	of := func(epoch int16, s kmsg.TransactionState, version int16) state {
		return state{"w.1", 7, epoch, s, "wal", version}
	}
	done := func(epoch int16, s kmsg.TransactionState) state { return state{"w.1", 7, epoch, s, "", 2} }
	for name, test := range map[string]struct {
		states []state
		want   Outcome
	}{
		"nothing":                                {nil, Unknown},
		"committed, version 2":                   {[]state{of(16, ongoing, 2), of(17, commit, 2), done(17, committed), done(18, empty)}, Committed},
		"timed out, version 2":                   {[]state{of(16, ongoing, 2), of(17, abort, 2), done(17, kmsg.TransactionStateCompleteAbort)}, Aborted},
		"fenced":                                 {[]state{of(16, ongoing, 2), of(18, abort, 2)}, Aborted},
		"the one before, version 2":              {[]state{of(15, ongoing, 2), of(16, commit, 2), done(16, committed)}, Unknown},
		"begun behind the one before, version 2": {[]state{of(16, commit, 2), of(16, ongoing, 2)}, Unknown},
		"committed, version 1":                   {[]state{of(16, ongoing, 1), of(16, commit, 1)}, Committed},
		"aborted behind others, version 1":       {[]state{of(16, ongoing, 1), of(16, commit, 1), of(16, ongoing, 1), of(16, abort, 1)}, Aborted},
		"timed out, version 1":                   {[]state{of(16, ongoing, 1), of(17, abort, 1)}, Aborted},
		"begun, version 1":                       {[]state{of(16, commit, 1), of(16, ongoing, 1)}, Unknown},
		"of another id":                          {[]state{{"w.2", 7, 17, commit, "wal", 2}}, Unknown},
		"of another producer":                    {[]state{{"w.1", 8, 17, commit, "wal", 2}}, Unknown},
		"of another topic":                       {[]state{{"w.1", 7, 17, commit, "log", 2}}, Unknown},
		"a later one of another topic":           {[]state{of(17, commit, 2), {"w.1", 7, 17, ongoing, "log", 2}, {"w.1", 7, 18, abort, "log", 2}}, Committed},
	} {
		d := decision{id: "w.1", t: Transaction{Topic: "wal", ProducerID: 7, ProducerEpoch: 16}}
		for _, s := range test.states {
			if err := d.see(s.record()); err != nil {
				t.Fatal(err)
			}
		}
		if d.outcome != test.want {
			t.Errorf("%s: got %d, want %d", name, d.outcome, test.want)
		}
	}
	d := decision{id: "w.1"}
	if err := d.see(&kgo.Record{Key: []byte("no key")}); err == nil {
		t.Error("a key that is none was read")
	}
	broken := of(17, commit, 2).record()
	broken.Value = broken.Value[:5]
	if err := d.see(broken); err == nil {
		t.Error("a value that is cut off was read")
	}
}
