package segment_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lease = "orders.writer"

// world is a cluster with the topics a and b.
type world struct {
	*kfaketest.Cluster
	version int // of transactions
}

// The worlds. Up to version 1 of transactions a client adds partitions and
// groups to a transaction by requests of their own; a broker of Kafka 4 that
// was upgraded from older ones may still be there.
const (
	kafka3        = 0 // Kafka 3.9
	transactions1 = 1 // Kafka 4 with transaction version 1
	transactions2 = 2
)

func newWorld(t *testing.T, version int) world {
	t.Helper()
	var opts []kfake.Opt
	if version == kafka3 {
		opts = append(opts, kfake.MaxVersions(kversion.V3_9_0()))
	}
	c := kfaketest.New(t, opts...)
	if version == transactions1 {
		world{c, version}.setVersion(t, 1)
	}
	c.CreateTopic(t, "a")
	c.CreateTopic(t, "b")
	return world{c, version}
}

// setVersion changes the cluster's version of transactions.
func (w world) setVersion(t *testing.T, version int16) {
	t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel, f.UpgradeType, f.AllowDowngrade = "transaction.version", version, 2, true
	if version > 1 {
		f.UpgradeType, f.AllowDowngrade = 1, false
	}
	req.FeatureUpdates = append(req.FeatureUpdates, f)
	resp, err := req.RequestWith(t.Context(), w.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatalf("change transaction.version to %d: %v", version, err)
	}
}

// bubble runs a test inside bubbles, for both versions of transactions, or for
// the given ones.
func bubble(t *testing.T, test func(t *testing.T, w world), versions ...int) {
	t.Helper()
	if len(versions) == 0 {
		versions = []int{transactions1, transactions2}
	}
	for _, version := range versions {
		t.Run(fmt.Sprint("transactions", version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, version)) })
		})
	}
}

func (w world) open(t *testing.T, change ...func(*segment.Config)) *segment.Session {
	t.Helper()
	s, err := w.tryOpen(t, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

func (w world) tryOpen(t *testing.T, change ...func(*segment.Config)) (*segment.Session, error) {
	cfg := segment.Config{Lease: lease, Opts: append(w.Opts(), kgo.ClientID("writer"))}
	for _, c := range change {
		c(&cfg)
	}
	return segment.Open(t.Context(), cfg)
}

// result is how one entry was resolved.
type result struct {
	name string
	err  error
}

// ledger collects results in the order of their resolution.
type ledger struct {
	mu      sync.Mutex
	results []result
	changed chan struct{}
}

func newLedger() *ledger { return &ledger{changed: make(chan struct{}, 1)} }

func (l *ledger) add(name string) func(error) {
	return func(err error) {
		l.mu.Lock()
		l.results = append(l.results, result{name, err})
		l.mu.Unlock()
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
}

func (l *ledger) all() []result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]result(nil), l.results...)
}

// wait returns the results once there are n.
func (l *ledger) wait(n int) []result {
	for {
		if all := l.all(); len(all) >= n {
			return all
		}
		<-l.changed
	}
}

// String shows the results: "1 2 3=rejected".
func (l *ledger) String() string {
	var out []string
	for _, r := range l.all() {
		out = append(out, r.name+outcome(r.err))
	}
	return strings.Join(out, " ")
}

func outcome(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, flusso.ErrUnknownOutcome) && !errors.Is(err, flusso.ErrRejected):
		return "=unknown"
	case errors.Is(err, flusso.ErrRejected) && !errors.Is(err, flusso.ErrUnknownOutcome):
		return "=rejected"
	}
	return fmt.Sprintf("=%v", err)
}

// entry writes its name, as one record, to each topic.
func entry(l *ledger, name string, topics ...string) segment.Entry {
	return segment.Entry{
		Bytes: len(name),
		Encode: func() ([]*kgo.Record, error) {
			var rs []*kgo.Record
			for _, topic := range topics {
				rs = append(rs, &kgo.Record{Topic: topic, Value: []byte(name)})
			}
			return rs, nil
		},
		Resolve: l.add(name),
	}
}

func submit(t *testing.T, s *segment.Session, e segment.Entry) {
	t.Helper()
	if err := s.Submit(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// read returns the values a read_committed reader finds in topic up to the
// high watermark, which must be reached: no transaction may be left open.
func (w world) read(t *testing.T, topic string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	adm := w.Client(t)
	ends, err := kadm.NewClient(adm).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	cl := w.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer cl.Close()
	var values []string
	for at := int64(0); at < end.Offset; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read topic %s at offset %d of %d: %v", topic, at, end.Offset, err)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				at = r.Offset + 1
				if !r.Attrs.IsControl() {
					values = append(values, string(r.Value))
				}
			}
		})
	}
	return strings.Join(values, " ")
}
