package kafka_test

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// modelFault is a fault of the broker that goes by.
type modelFault struct {
	in   *kfaketest.Injected
	heal int // the step after which it is over
}

// fault makes some requests fail, wherever they come from.
func (w *world) fault() {
	keys := []kmsg.Key{
		kmsg.Produce, kmsg.EndTxn, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.Fetch, kmsg.OffsetCommit, kmsg.OffsetFetch,
		kmsg.ListOffsets, kmsg.Metadata, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.FindCoordinator, kmsg.DescribeGroups,
		kfaketest.Any,
	}
	codes := map[kmsg.Key][]*kerr.Error{
		kmsg.Produce:      {kerr.NotLeaderForPartition, kerr.InvalidProducerEpoch, kerr.RequestTimedOut},
		kmsg.EndTxn:       {kerr.CoordinatorLoadInProgress, kerr.ProducerFenced, kerr.UnknownServerError},
		kmsg.OffsetCommit: {kerr.NotCoordinator, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.UnknownServerError, kerr.RebalanceInProgress},
		kmsg.OffsetFetch:  {kerr.NotCoordinator, kerr.CoordinatorLoadInProgress},
		kmsg.Heartbeat:    {kerr.RebalanceInProgress, kerr.UnknownMemberID, kerr.IllegalGeneration},
		kmsg.Fetch:        {kerr.NotLeaderForPartition},
		kmsg.ListOffsets:  {kerr.NotLeaderForPartition},
	}
	key := keys[w.rng.IntN(len(keys))]
	f := kfaketest.Fault{Mode: kfaketest.Disconnect, After: w.rng.IntN(2) == 0, Times: 1 + w.rng.IntN(3), Skip: w.rng.IntN(3)}
	heal := w.step + 1 + w.rng.IntN(3)
	what := "lose their connection"
	switch n := w.rng.IntN(10); {
	case n < 2:
		f.Mode, f.Times = kfaketest.Hang, 1
		what = "hang"
	case n < 6 && codes[key] != nil:
		code := codes[key][w.rng.IntN(len(codes[key]))]
		f.Mode, f.Code = kfaketest.Error, code
		what = "fail with " + code.Message
	}
	name := "of any kind"
	if key != kfaketest.Any {
		name = key.Name()
	}
	w.say("the broker: %d requests %s %s, after effect %t, until step %d", f.Times, name, what, f.After, heal)
	w.faults = append(w.faults, &modelFault{w.p.cluster.Fault(w.t, key, f), heal})
	w.faulted = w.step
}

// healFaults ends what has lasted long enough.
func (w *world) healFaults() {
	left := w.faults[:0]
	for _, f := range w.faults {
		if f.heal <= w.step {
			f.in.Release()
			w.faulted = w.step
			continue
		}
		left = append(left, f)
	}
	w.faults = left
}
