package topics_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flusso/flusso-kafka/topics"
)

const lane = "orders.lane.audit"

func safe() topics.Topic {
	return topics.Topic{
		Name: lane, ID: [16]byte{1}, Partitions: 1, Replicas: 3, InSync: 3, Leader: 1, MaxMessageBytes: 1_048_588,
		Settings: map[string]string{
			topics.RetentionMs: "-1", topics.RetentionBytes: "-1", topics.CleanupPolicy: "delete", topics.MinInsync: "2",
			topics.Unclean: "false", topics.TimestampType: "CreateTime", topics.MaxMessage: "1048588",
		},
	}
}

func with(setting, value string) func(*topics.Topic) {
	return func(t *topics.Topic) { t.Settings[setting] = value }
}

// TestF3_EveryUnsafeSettingIsFound plans for one topic with one fault each.
func TestF3_EveryUnsafeSettingIsFound(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*topics.Topic)
		options topics.Options
		want    string // setting have want, empty for none
		fix     string // part of the command
		fixable bool   // by Apply
	}{
		{"safe", func(*topics.Topic) {}, topics.Options{}, "", "", false},
		{"retention time", with(topics.RetentionMs, "604800000"), topics.Options{}, "retention.ms 604800000 -1", "kafka-configs.sh", true},
		{"retention size", with(topics.RetentionBytes, "1000000"), topics.Options{}, "retention.bytes 1000000 -1", "--add-config retention.bytes=-1", true},
		{"compaction", with(topics.CleanupPolicy, "compact"), topics.Options{}, "cleanup.policy compact delete", "--add-config cleanup.policy=delete", true},
		{"compaction too", with(topics.CleanupPolicy, "compact,delete"), topics.Options{}, "cleanup.policy compact,delete delete", "cleanup.policy=delete", true},
		{"unclean", with(topics.Unclean, "true"), topics.Options{}, "unclean.leader.election.enable true false", "unclean.leader.election.enable=false", true},
		{"append time", with(topics.TimestampType, "LogAppendTime"), topics.Options{}, "message.timestamp.type LogAppendTime CreateTime", "message.timestamp.type=CreateTime", true},
		{"too few", with(topics.MinInsync, "1"), topics.Options{}, "min.insync.replicas 1 2", "min.insync.replicas=2", true},
		{"three of three", with(topics.MinInsync, "3"), topics.Options{}, "", "", false},
		{"too many", with(topics.MinInsync, "4"), topics.Options{}, "min.insync.replicas 4 2", "min.insync.replicas=2", true},
		{"garbage", with(topics.MinInsync, "x"), topics.Options{}, "min.insync.replicas x 2", "min.insync.replicas=2", true},
		{"one replica", func(t *topics.Topic) { t.Replicas, t.InSync = 1, 1; t.Settings[topics.MinInsync] = "1" }, topics.Options{}, "", "", false},
		{"two replicas", func(t *topics.Topic) { t.Replicas, t.InSync = 2, 2; t.Settings[topics.MinInsync] = "1" }, topics.Options{}, "min.insync.replicas 1 2", "", true},
		{"out of sync", func(t *topics.Topic) { t.InSync = 1 }, topics.Options{}, "in-sync replicas 1 2 or more", "kafka-topics.sh", false},
		{"one out of sync", func(t *topics.Topic) { t.InSync = 2 }, topics.Options{}, "", "", false},
		{"partitions", func(t *topics.Topic) { t.Partitions = 3 }, topics.Options{}, "partitions 3 1", "kafka-topics.sh", false},
		{"replication", func(*topics.Topic) {}, topics.Options{ReplicationFactor: 5}, "replication factor 3 5", "kafka-reassign-partitions.sh", false},
		{"more replication", func(*topics.Topic) {}, topics.Options{ReplicationFactor: 2}, "", "", false},
		{"message size", func(*topics.Topic) {}, topics.Options{MaxMessageBytes: 8 << 20}, "max.message.bytes 1048588 8388608", "max.message.bytes=8388608", true},
		{"larger message size", func(*topics.Topic) {}, topics.Options{MaxMessageBytes: 1000}, "", "", false},
		{"untold", func(t *topics.Topic) { t.Settings = nil; t.MaxMessageBytes = 0 }, topics.Options{MaxMessageBytes: 1000}, "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			have := safe()
			have.Settings = maps.Clone(have.Settings)
			tt.change(&have)
			p := topics.Plan([]topics.Spec{{Topic: lane, Options: tt.options}},
				topics.Cluster{Names: []string{lane}, Topics: map[string]topics.Topic{lane: have}})
			var got string
			for _, f := range p.Findings {
				got += f.Setting + " " + f.Have + " " + f.Want
				if f.Topic != lane || f.Why == "" || !strings.Contains(f.Fix, tt.fix) || !strings.Contains(f.Fix, lane) {
					t.Errorf("finding %+v: want topic, reason and a command with %q", f, tt.fix)
				}
			}
			if got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if changes := len(p.Changes) > 0; changes != tt.fixable {
				t.Errorf("changes %v, want any: %v", p.Changes, tt.fixable)
			}
			for _, c := range p.Changes {
				if c.Kind != topics.Set || !strings.Contains(c.String(), " → ") {
					t.Errorf("change %v: want prior and new values", c)
				}
			}
		})
	}
}

func TestPlanCreatesInOrder(t *testing.T) {
	p, err := topics.NewPipeline("orders")
	if err != nil {
		t.Fatal(err)
	}
	want, err := p.Specs([]string{"search", "audit"}, topics.Options{ReplicationFactor: 3, MaxMessageBytes: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	got := topics.Plan(want, topics.Cluster{})
	var steps []string
	for _, c := range got.Changes {
		steps = append(steps, c.String())
	}
	const rest = " with 1 partition, replication factor 3, cleanup.policy=delete, retention.ms=-1, retention.bytes=-1," +
		" unclean.leader.election.enable=false, message.timestamp.type=CreateTime, min.insync.replicas=2, max.message.bytes=2097152"
	if d := cmp.Diff([]string{
		"create topic orders.requests" + rest,
		"create topic orders.lane.audit" + rest,
		"create topic orders.lane.search" + rest,
	}, steps); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
	if len(got.Findings) != 3 || got.Findings[1].Setting != topics.Existence || !strings.Contains(got.Findings[1].Fix, "--create --topic orders.lane.audit --partitions 1 --replication-factor 3 --config cleanup.policy=delete") {
		t.Errorf("findings %+v", got.Findings)
	}
}

// TestPlanNamesClash: Kafka takes . and _ for the same.
func TestPlanNamesClash(t *testing.T) {
	p := topics.Plan([]topics.Spec{{Topic: "a_lane_b.lane.c"}, {Topic: "a.lane.b_lane_c"}}, topics.Cluster{Names: []string{"orders_lane_audit"}})
	if len(p.Changes) != 1 || len(p.Findings) != 2 {
		t.Fatalf("got %+v", p)
	}
	f := p.Findings[1]
	if f.Setting != topics.Name || f.Topic != "a.lane.b_lane_c" || f.Have != "a_lane_b.lane.c" {
		t.Errorf("got %+v, want both names", f)
	}
	p = topics.Plan([]topics.Spec{{Topic: lane}}, topics.Cluster{Names: []string{"orders_lane_audit"}})
	if len(p.Changes) != 0 || len(p.Findings) != 1 || p.Findings[0].Topic != lane || p.Findings[0].Have != "orders_lane_audit" {
		t.Errorf("got %+v, want both names", p)
	}
}

func TestSpecsRejected(t *testing.T) {
	p, err := topics.NewPipeline("orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []topics.Options{{ReplicationFactor: -1}, {ReplicationFactor: 1 << 15}, {MaxMessageBytes: -1}, {MaxMessageBytes: 1 << 31}} {
		if _, err := p.Specs([]string{"a"}, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	for _, sinks := range [][]string{{"a", "a"}, {"A"}, {""}} {
		if _, err := p.Specs(sinks, topics.Options{}); err == nil {
			t.Errorf("%q was accepted", sinks)
		}
	}
}
