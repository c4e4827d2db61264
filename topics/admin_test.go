package topics_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/topics"
)

// fixture is a pipeline "orders" with sinks audit and search on a cluster.
type fixture struct {
	*kfaketest.Cluster
	cl    *kgo.Client
	admin *topics.Admin
	lane  topics.Lane
	want  []topics.Spec
}

func open(t *testing.T, o topics.Options, opts ...kfake.Opt) *fixture {
	t.Helper()
	c := kfaketest.New(t, opts...)
	cl := c.Client(t)
	p, err := topics.NewPipeline("orders")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Cluster: c, cl: cl, admin: topics.New(cl)}
	if f.want, err = p.Specs([]string{"audit", "search"}, o); err != nil {
		t.Fatal(err)
	}
	if f.lane, err = p.Lane("audit"); err != nil {
		t.Fatal(err)
	}
	return f
}

// bubble runs a test with a context of one minute of fake time.
func bubble(t *testing.T, run func(ctx context.Context, t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		run(ctx, t)
	})
}

func (f *fixture) ensure(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := f.admin.Ensure(ctx, f.want); err != nil {
		t.Fatal(err)
	}
}

func TestEnsure(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{MaxMessageBytes: 2 << 20}, kfake.NumBrokers(3))
		_, err := f.admin.Verify(ctx, f.want)
		var unsafe *topics.UnsafeError
		if !errors.As(err, &unsafe) || len(unsafe.Findings) != 3 {
			t.Fatalf("Verify before: %v, want three missing topics", err)
		}
		applied, err := f.admin.Ensure(ctx, f.want)
		if err != nil {
			t.Fatal(err)
		}
		if len(applied) != 3 {
			t.Errorf("applied %v, want three topics created", applied)
		}
		if _, err := f.admin.Verify(ctx, f.want); err != nil {
			t.Errorf("Verify after: %v", err)
		}
		got, err := f.admin.Describe(ctx, lane)
		if err != nil {
			t.Fatal(err)
		}
		l := got[lane]
		if l.Err != nil || l.Partitions != 1 || l.Replicas != 3 || l.MaxMessageBytes != 2<<20 || l.ID == [16]byte{} ||
			l.Settings[topics.MinInsync] != "2" || l.Settings[topics.RetentionMs] != "-1" {
			t.Errorf("got %+v", l)
		}
		// Somebody changes a setting; it is set back and nothing else is done.
		value := "1000"
		if _, err := kadm.NewClient(f.cl).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: topics.RetentionMs, Value: &value}}, lane); err != nil {
			t.Fatal(err)
		}
		applied, err = f.admin.Ensure(ctx, f.want)
		if err != nil || len(applied) != 1 || applied[0].Change.String() != "set of topic orders.lane.audit retention.ms: 1000 → -1" {
			t.Errorf("applied %v, %v", applied, err)
		}
		applied, err = f.admin.Ensure(ctx, f.want)
		if err != nil || len(applied) != 0 {
			t.Errorf("applied %v, %v to what was safe", applied, err)
		}
	})
}

// TestF3_UnsafeTopicsAreNamed finds each setting that the test cluster knows
// on a topic that was made by hand.
func TestF3_UnsafeTopicsAreNamed(t *testing.T) {
	tests := []struct {
		setting, value string
	}{
		{topics.RetentionMs, "604800000"},
		{topics.RetentionBytes, "1000"},
		{topics.CleanupPolicy, "compact"},
		{topics.MinInsync, "1"},
		{topics.Unclean, "true"},
		{topics.TimestampType, "LogAppendTime"},
		{topics.Partitions, "3"},
		{topics.Existence, "missing"},
	}
	for _, tt := range tests {
		t.Run(tt.setting, func(t *testing.T) {
			bubble(t, func(ctx context.Context, t *testing.T) {
				f := open(t, topics.Options{}, kfake.NumBrokers(3))
				configs := map[string]string{topics.RetentionMs: "-1", topics.MinInsync: "2"}
				partitions := int32(1)
				switch tt.setting {
				case topics.Partitions:
					partitions = 3
				case topics.Existence:
				default:
					configs[tt.setting] = tt.value
				}
				if tt.setting != topics.Existence {
					if err := f.Kfake().CreateTopic(lane, partitions, configs); err != nil {
						t.Fatal(err)
					}
				}
				_, err := f.admin.Verify(ctx, []topics.Spec{{Topic: lane}})
				var unsafe *topics.UnsafeError
				if !errors.As(err, &unsafe) || len(unsafe.Findings) != 1 {
					t.Fatalf("got %v, want one finding", err)
				}
				if f := unsafe.Findings[0]; f.Topic != lane || f.Setting != tt.setting || f.Have != tt.value {
					t.Errorf("got %+v", f)
				}
				for _, part := range []string{lane, tt.setting, tt.value, "kafka-"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("error %q does not say %q", err, part)
					}
				}
			})
		})
	}
}

// TestEnsureStopsAtWhatItCannotFix: nothing is changed beside it.
func TestEnsureStopsAtWhatItCannotFix(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{})
		if err := f.Kfake().CreateTopic(lane, 2, map[string]string{topics.RetentionMs: "5"}); err != nil {
			t.Fatal(err)
		}
		applied, err := f.admin.Ensure(ctx, f.want)
		var unsafe *topics.UnsafeError
		if !errors.As(err, &unsafe) || len(applied) != 0 {
			t.Fatalf("got %v, %v, want an UnsafeError and no change", applied, err)
		}
	})
}

func TestCase49_OneMissingTopicLeavesTheOthers(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{})
		f.ensure(ctx, t)
		got, err := f.admin.Describe(ctx, lane, "orders.lane.search", "orders.lane.gone")
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 3 || got[lane].Err != nil || got["orders.lane.search"].Err != nil {
			t.Errorf("got %+v", got)
		}
		gone := got["orders.lane.gone"]
		if !gone.Missing() || !errors.Is(gone.Err, kerr.UnknownTopicOrPartition) || !strings.Contains(gone.Err.Error(), "orders.lane.gone") {
			t.Errorf("got %+v", gone)
		}
		// Deleted behind our back, it is missing at once: nothing is cached.
		if _, err := kadm.NewClient(f.cl).DeleteTopic(ctx, "orders.lane.search"); err != nil {
			t.Fatal(err)
		}
		got, err = f.admin.Describe(ctx, lane, "orders.lane.search")
		search := got["orders.lane.search"]
		if err != nil || got[lane].Err != nil || !search.Missing() {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func (f *fixture) produce(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := f.cl.ProduceSync(ctx, &kgo.Record{Topic: lane, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fixture) id(ctx context.Context, t *testing.T) [16]byte {
	t.Helper()
	got, err := f.admin.Describe(ctx, lane)
	if err != nil || got[lane].Err != nil {
		t.Fatal(err, got[lane].Err)
	}
	return got[lane].ID
}

func TestTrim(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{})
		f.ensure(ctx, t)
		f.produce(ctx, t, 10)
		id := f.id(ctx, t)
		steps := []struct {
			upTo, want flusso.Offset
		}{{4, 4}, {4, 4}, {2, 4}, {0, 4}, {10, 10}, {9, 10}}
		for _, s := range steps {
			if got, err := f.admin.Trim(ctx, f.lane, id, s.upTo); err != nil || got != s.want {
				t.Errorf("Trim up to %d = %d, %v, want %d", s.upTo, got, err, s.want)
			}
		}
		if got, err := f.admin.Trim(ctx, f.lane, id, 11); !errors.Is(err, kerr.OffsetOutOfRange) {
			t.Errorf("Trim above the end = %d, %v", got, err)
		}
		var invalid *flusso.InvalidError
		if _, err := f.admin.Trim(ctx, f.lane, id, -1); !errors.As(err, &invalid) {
			t.Errorf("Trim up to the end of what is there: got %v, want an InvalidError", err)
		}
		if _, err := f.admin.Trim(ctx, f.lane, [16]byte{}, 10); !errors.As(err, &invalid) {
			t.Errorf("Trim without a topic ID: got %v, want an InvalidError", err)
		}
		starts, err := kadm.NewClient(f.cl).ListStartOffsets(ctx, lane)
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := starts.Lookup(lane, 0); o.Offset != 10 {
			t.Errorf("log start is %d, want 10", o.Offset)
		}
	})
}

func TestTrimRefusesARecreatedTopic(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{})
		f.ensure(ctx, t)
		f.produce(ctx, t, 3)
		id := f.id(ctx, t)
		if _, err := kadm.NewClient(f.cl).DeleteTopic(ctx, lane); err != nil {
			t.Fatal(err)
		}
		if _, err := f.admin.Trim(ctx, f.lane, id, 2); kafkaerr.Classify(err) != kafkaerr.Missing {
			t.Errorf("Trim of a deleted topic: %v", err)
		}
		f.ensure(ctx, t)
		fresh := *f
		fresh.cl = f.Client(t) // the old producer holds on to the old topic's ID
		fresh.produce(ctx, t, 3)
		_, err := f.admin.Trim(ctx, f.lane, id, 2)
		var recreated *topics.RecreatedError
		if !errors.As(err, &recreated) || recreated.Want != id || recreated.Have == id || recreated.Topic != lane ||
			!strings.Contains(err.Error(), topics.IDString(id)) {
			t.Fatalf("got %v, want a RecreatedError", err)
		}
		starts, err := kadm.NewClient(f.cl).ListStartOffsets(ctx, lane)
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := starts.Lookup(lane, 0); o.Offset != 0 {
			t.Errorf("log start is %d, want 0", o.Offset)
		}
	})
}

func TestRequireBroker(t *testing.T) {
	tests := []struct {
		name    string
		version *kversion.Versions
		lacks   []string // in the error; nil: fine
	}{
		{"newest", nil, nil},
		{"minimum", kversion.V3_0_0(), nil},
		{"2.8", kversion.V2_8_0(), []string{"OffsetFetch version 8 (offers 7)"}},
		{"2.4", kversion.V2_4_0(), []string{"Metadata version 10", "topic IDs", "InitProducerID version 3 (offers 2)", "TxnOffsetCommit version 3"}},
		{"2.2", kversion.V2_2_0(), []string{"JoinGroup version 5 (offers 4), for static membership", "IncrementalAlterConfigs version 0 (offers none)", topics.MinKafka}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, t *testing.T) {
				var opts []kfake.Opt
				if tt.version != nil {
					opts = append(opts, kfake.MaxVersions(tt.version))
				}
				err := open(t, topics.Options{}, opts...).admin.RequireBroker(ctx)
				var old *topics.TooOldError
				if errors.As(err, &old) != (tt.lacks != nil) {
					t.Fatalf("got %v", err)
				}
				for _, part := range tt.lacks {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("error %q does not say %q", err, part)
					}
				}
			})
		})
	}
}

// TestFaults makes each kind of request that this package sends fail in each
// way: the call ends in time with an error that names what it was about, and
// works when the fault is over.
func TestFaults(t *testing.T) {
	retention := "1000"
	calls := map[string]func(ctx context.Context, f *fixture, id [16]byte) error{
		"describe": func(ctx context.Context, f *fixture, _ [16]byte) error {
			got, err := f.admin.Describe(ctx, lane)
			return errors.Join(err, got[lane].Err)
		},
		"verify": func(ctx context.Context, f *fixture, _ [16]byte) error {
			_, err := f.admin.Verify(ctx, f.want)
			return err
		},
		"version": func(ctx context.Context, f *fixture, _ [16]byte) error { return f.admin.RequireBroker(ctx) },
		"trim": func(ctx context.Context, f *fixture, id [16]byte) error {
			_, err := f.admin.Trim(ctx, f.lane, id, 2)
			return err
		},
		"create": func(ctx context.Context, f *fixture, _ [16]byte) error {
			_, err := f.admin.Ensure(ctx, append(f.want, topics.Spec{Topic: "orders.lane.new"}))
			return err
		},
		"alter": func(ctx context.Context, f *fixture, _ [16]byte) error {
			_, err := f.admin.Apply(ctx, []topics.Change{{Kind: topics.Set, Topic: lane, Settings: []topics.Setting{{Name: topics.RetentionMs, Want: retention}}}})
			return err
		},
	}
	kinds := []struct {
		key  kmsg.Key
		call string
		says string
	}{
		{kmsg.Metadata, "describe", "describe topic"},
		{kmsg.Metadata, "verify", "describe topic"},
		{kmsg.Metadata, "trim", "orders.lane.audit"},
		{kmsg.DescribeConfigs, "describe", "describe"},
		{kmsg.DescribeConfigs, "verify", "describe"},
		{kmsg.CreateTopics, "create", "create topic orders.lane.new"},
		{kmsg.IncrementalAlterConfigs, "alter", "alter settings of topic orders.lane.audit"},
		{kmsg.IncrementalAlterConfigs, "create", "alter settings of topic orders.lane.new"},
		{kmsg.ListOffsets, "trim", "trim topic orders.lane.audit up to offset 2"},
		{kmsg.DeleteRecords, "trim", "trim topic orders.lane.audit up to offset 2"},
		{kmsg.ApiVersions, "version", "versions"},
	}
	modes := []kfaketest.Fault{
		{Mode: kfaketest.Error, Code: kerr.ClusterAuthorizationFailed, Times: -1},
		{Mode: kfaketest.Error, Code: kerr.ClusterAuthorizationFailed, Times: -1, After: true},
		{Mode: kfaketest.Hang, Times: -1},
		{Mode: kfaketest.Disconnect, Times: -1},
	}
	for _, kind := range kinds {
		for _, fault := range modes {
			name := kind.key.Name() + "/" + kind.call + "/" + fault.Mode.String()
			if fault.After {
				name += " after"
			}
			t.Run(name, func(t *testing.T) {
				bubble(t, func(ctx context.Context, t *testing.T) {
					f := open(t, topics.Options{})
					f.ensure(ctx, t)
					f.produce(ctx, t, 3)
					id := f.id(ctx, t)
					call := calls[kind.call]

					injected := f.Fault(t, kind.key, fault)
					limited, cancel := context.WithTimeout(ctx, 10*time.Second)
					defer cancel()
					start := time.Now()
					err := call(limited, f, id)
					if err == nil {
						t.Fatal("no error")
					}
					if !strings.Contains(err.Error(), kind.says) {
						t.Errorf("error %q does not say %q", err, kind.says)
					}
					if took := time.Since(start); took > 11*time.Second {
						t.Errorf("took %v of fake time, the context ended after 10 s", took)
					}
					if injected.Hits() == 0 {
						t.Error("the fault was not hit")
					}
					injected.Release()
					if err := call(ctx, f, id); err != nil {
						t.Errorf("after the fault: %v", err)
					}
				})
			})
		}
	}
}

// A broker that does not answer must not keep the others from being used.
func TestRequireBrokerPassesOverOneThatIsDown(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{}, kfake.NumBrokers(2))
		if err := f.cl.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		hang := f.Fault(t, kmsg.ApiVersions, kfaketest.Fault{Mode: kfaketest.Hang, Times: 1})
		if err := f.admin.RequireBroker(ctx); err != nil {
			t.Error(err)
		}
		if hang.Hits() != 1 {
			t.Error("the fault was not hit")
		}
	})
}

// A cluster that starts answers before its controllers let its brokers in: it
// names none then, and is asked again.
func TestRequireBrokerWaitsForACluster(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{})
		var up atomic.Bool
		var asked atomic.Int32
		f.Kfake().ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
			f.Kfake().KeepControl()
			asked.Add(1)
			return r.ResponseKind(), nil, !up.Load()
		})
		err := f.admin.RequireBroker(ctx)
		if kafkaerr.Classify(err) != kafkaerr.Retriable || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "names no broker") {
			t.Errorf("got %v, want that it names no broker, to be tried again", err)
		}
		if n := asked.Load(); n < 5 || n > 20 {
			t.Errorf("asked %d times within the limit", n)
		}
		hurry := errors.New("the caller is in a hurry")
		hurried, cancel := context.WithTimeoutCause(ctx, time.Second, hurry)
		defer cancel()
		err = f.admin.RequireBroker(hurried)
		if !errors.Is(err, hurry) || errors.Is(err, kerr.BrokerNotAvailable) || !strings.Contains(err.Error(), "names no broker") {
			t.Errorf("got %v, want that it names no broker and the cause of the caller", err)
		}
		time.AfterFunc(time.Second, func() { up.Store(true) })
		if err := f.admin.RequireBroker(ctx); err != nil {
			t.Errorf("after it started: %v", err)
		}
	})
}

// TestEnsureRaces: two programs that start at once create each topic once, and
// neither fails.
func TestEnsureRaces(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{})
		hold := f.Fault(t, kmsg.CreateTopics, kfaketest.Fault{Mode: kfaketest.Hang, Match: func(r kmsg.Request) bool {
			return slices.ContainsFunc(r.(*kmsg.CreateTopicsRequest).Topics, func(t kmsg.CreateTopicsRequestTopic) bool { return t.Topic == lane })
		}})
		slow := make(chan error, 1)
		go func() {
			_, err := topics.New(f.Client(t)).Ensure(ctx, f.want)
			slow <- err
		}()
		<-hold.Hit()
		f.ensure(ctx, t)
		id := f.id(ctx, t)
		hold.Release()
		if err := <-slow; err != nil {
			t.Error(err)
		}
		if f.id(ctx, t) != id {
			t.Error("the topic was created again")
		}
	})
}

// TestEnsureGivesUp: a setting that never takes effect is reported
// when the context ends, and after a bounded number of rounds without that.
func TestEnsureGivesUp(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{})
		f.ensure(ctx, t)
		value := "5"
		if _, err := kadm.NewClient(f.cl).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: topics.RetentionMs, Value: &value}}, lane); err != nil {
			t.Fatal(err)
		}
		// The broker says that it did, and did not.
		f.Fault(t, kmsg.IncrementalAlterConfigs, kfaketest.Fault{Mode: kfaketest.Error, Code: &kerr.Error{Message: "NONE"}, Times: -1})
		_, err := f.admin.Ensure(ctx, f.want)
		var unsafe *topics.UnsafeError
		if !errors.As(err, &unsafe) || unsafe.Findings[0].Setting != topics.RetentionMs {
			t.Errorf("got %v, want an UnsafeError", err)
		}
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := f.admin.Ensure(limited, f.want); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}

func TestApplyRefusesUnknownChanges(t *testing.T) {
	bubble(t, func(ctx context.Context, t *testing.T) {
		f := open(t, topics.Options{})
		f.ensure(ctx, t)
		applied, err := f.admin.Apply(ctx, []topics.Change{{Kind: "delete", Topic: lane}, {Kind: topics.Create, Topic: lane}})
		if err == nil || len(applied) != 2 || applied[0].Err == nil || applied[1].Err != nil {
			t.Errorf("applied %v, %v", applied, err)
		}
	})
}

func TestIDString(t *testing.T) {
	if d := cmp.Diff("AQAAAAAAAAAAAAAAAAAA_w", topics.IDString([16]byte{0: 1, 15: 255})); d != "" {
		t.Error(d)
	}
}
