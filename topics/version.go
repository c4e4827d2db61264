package topics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// MinKafka is the oldest Apache Kafka that has everything this module uses.
// What counts is what a broker offers, not what it calls itself.
const MinKafka = "3.0"

// need is a request this module depends on, at the version from which on it
// can do what is needed of it.
type need struct {
	key     kmsg.Key
	version int16
	what    string
}

var needs = []need{
	{kmsg.Produce, 3, "record headers"},
	{kmsg.Fetch, 5, "read_committed with the log start"},
	{kmsg.ListOffsets, 2, "the last stable offset"},
	{kmsg.Metadata, 10, "topic IDs"},
	{kmsg.OffsetCommit, 7, "commits of static members with leader epochs"},
	{kmsg.OffsetFetch, 8, "committed offsets of many groups at once"},
	{kmsg.FindCoordinator, 1, "transaction coordinators"},
	{kmsg.JoinGroup, 5, "static membership"},
	{kmsg.Heartbeat, 3, "static membership"},
	{kmsg.SyncGroup, 3, "static membership"},
	{kmsg.LeaveGroup, 3, "leaving with member and instance id"},
	{kmsg.CreateTopics, 5, "default replication factors"},
	{kmsg.DeleteRecords, 0, "trimming"},
	{kmsg.InitProducerID, 3, "transactions that recover"},
	{kmsg.AddPartitionsToTxn, 0, "transactions"},
	{kmsg.AddOffsetsToTxn, 0, "offsets in transactions"},
	{kmsg.EndTxn, 0, "transactions"},
	{kmsg.TxnOffsetCommit, 3, "offsets in transactions, fenced by group generation"},
	{kmsg.DescribeConfigs, 0, "topic settings"},
	{kmsg.IncrementalAlterConfigs, 0, "topic settings"},
}

// TooOldError names what a broker lacks.
type TooOldError struct {
	Broker  int32    // node id
	Missing []string // requests with the version needed, the version offered, and what for
}

func (e *TooOldError) Error() string {
	return fmt.Sprintf("broker %d is too old, it lacks %s: upgrade it to Apache Kafka %s or later",
		e.Broker, strings.Join(e.Missing, "; "), MinKafka)
}

// versionsTimeout bounds the wait for brokers that do not answer, and for a
// cluster that names none.
const versionsTimeout = 5 * time.Second

// errNoBrokers is how a cluster answers whose brokers run and have not yet been
// let in by its controllers.
var errNoBrokers = errors.New("the cluster answers and names no broker that is up: " +
	"it is starting, or its brokers do not reach its controllers")

// RequireBroker returns a [*TooOldError] for the first broker, by node id,
// that lacks something this module uses. Brokers that do not answer within 5
// seconds are passed over as long as one does: a broker that is down must not
// keep the others from being used. A cluster that is starting and names no
// broker yet is asked again within the same 5 seconds.
func (a *Admin) RequireBroker(ctx context.Context) error {
	const op = "ask the brokers for their versions"
	// The caller may try again: the limit is no deadline of its call.
	limited, cancel := context.WithTimeoutCause(ctx, versionsTimeout, kerr.BrokerNotAvailable)
	defer cancel()
	all, err := a.versions(limited)
	if err != nil {
		return kafkaerr.Wrap(op, err)
	}
	answered := false
	var errs []error
	for _, b := range all.Sorted() {
		if b.Err != nil {
			errs = append(errs, b.Err)
			continue
		}
		answered = true
		if missing := lacks(b.KeyMaxVersion); len(missing) > 0 {
			return &TooOldError{Broker: b.NodeID, Missing: missing}
		}
	}
	if !answered {
		return kafkaerr.Wrap(op, errors.Join(errs...))
	}
	return nil
}

// versions asks until the cluster names a broker, or with ctx's cause until it
// ends: never is the answer empty without an error.
func (a *Admin) versions(ctx context.Context) (kadm.BrokersApiVersions, error) {
	for pause := firstPause; ; pause = min(2*pause, time.Second) {
		all, err := kadm.NewClient(a.cl).ApiVersions(ctx)
		if err != nil || len(all) > 0 {
			return all, err
		}
		if err := wait(ctx, pause); err != nil {
			return nil, fmt.Errorf("%w (%w)", errNoBrokers, err)
		}
	}
}

// lacks lists what is missing of needs.
func lacks(offered func(key int16) (int16, bool)) []string {
	var missing []string
	for _, n := range needs {
		have, ok := offered(int16(n.key))
		switch {
		case !ok:
			missing = append(missing, fmt.Sprintf("%s version %d (offers none), for %s", n.key.Name(), n.version, n.what))
		case have < n.version:
			missing = append(missing, fmt.Sprintf("%s version %d (offers %d), for %s", n.key.Name(), n.version, have, n.what))
		}
	}
	return missing
}
