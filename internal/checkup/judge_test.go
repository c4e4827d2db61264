package checkup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/internal/segment"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/topics"
)

// sound are facts with nothing to find in them.
func sound(t *testing.T) Facts {
	t.Helper()
	p, err := topics.NewPipeline("shop")
	if err != nil {
		t.Fatal(err)
	}
	want, err := p.Specs([]string{"search"}, topics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := Facts{
		Pipeline: p, Sinks: []string{"search"}, Want: want,
		Topics: topics.Cluster{Topics: make(map[string]topics.Topic)},
		Groups: []Group{{Sink: "search", Name: "shop.sink.search", Exists: true, Members: 1}},
	}
	topic := func(name string) topics.Topic {
		return topics.Topic{
			Name: name, Partitions: 1, Replicas: 3, InSync: 3, Leader: 1, MaxMessageBytes: 1048588,
			Settings: map[string]string{
				topics.CleanupPolicy: "delete", topics.RetentionMs: "-1", topics.RetentionBytes: "-1", topics.Unclean: "false",
				topics.TimestampType: "CreateTime", topics.MinInsync: "2", topics.MaxMessage: "1048588",
			},
			Inherited: map[string]bool{topics.MaxMessage: true},
		}
	}
	for _, spec := range want {
		f.Topics.Topics[spec.Topic] = topic(spec.Topic)
		f.Topics.Names = append(f.Topics.Names, spec.Topic)
	}
	f.Internal = []topics.Topic{topic(OffsetsTopic), topic(TransactionsTopic)}
	for id := range int32(3) {
		f.Brokers = append(f.Brokers, Broker{ID: id, Settings: map[string]string{
			retentionMinutes: "10080", "offset.metadata.max.bytes": "4096", "transactional.id.expiration.ms": "604800000",
			"transaction.max.timeout.ms": "900000", "group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000",
			"socket.request.max.bytes": "104857600", "auto.create.topics.enable": "false", "unclean.leader.election.enable": "false",
			"delete.topic.enable": "true", "log.cleaner.enable": "true", "min.insync.replicas": "2",
		}})
	}
	return f
}

func TestNothingToFind(t *testing.T) {
	f := sound(t)
	if got := Judge(f, ""); len(got) > 0 {
		t.Errorf("found %v", got)
	}
	f.Internal[0] = topics.Topic{Name: OffsetsTopic, Err: kerr.UnknownTopicOrPartition}
	if got := Judge(f, ""); len(got) > 0 {
		t.Errorf("a topic of Kafka that is created when it is first used: %v", got)
	}
}

func TestF3_Findings(t *testing.T) {
	lane := func(change func(*topics.Topic)) func(*Facts) {
		return func(f *Facts) {
			got := f.Topics.Topics["shop.lane.search"]
			change(&got)
			f.Topics.Topics["shop.lane.search"] = got
		}
	}
	setting := func(name, value string) func(*Facts) {
		return func(f *Facts) { f.Brokers[1].Settings[name] = value }
	}
	permission := func(p Permission) func(*Facts) {
		return func(f *Facts) { f.Role, f.Allowed = access.Viewer, []Permission{p} }
	}
	read := access.Permission{Resource: kmsg.ACLResourceTypeTopic, Name: "shop.", Prefixed: true, Operation: kmsg.ACLOperationRead, For: "lag"}
	optional := read
	optional.Without = "it is blind"
	tests := []struct {
		name     string
		change   func(*Facts)
		severity status.Severity
		code     Code
		says     []string // in Why and Help
	}{
		{"retention", lane(func(t *topics.Topic) { t.Settings[topics.RetentionMs] = "604800000" }), status.Failure, TopicSetting, []string{"topic apply --pipeline shop --sinks search --yes"}},
		{"compaction", lane(func(t *topics.Topic) { t.Settings[topics.CleanupPolicy] = "compact" }), status.Failure, TopicSetting, []string{"compaction"}},
		{"inherited", lane(func(t *topics.Topic) { t.Inherited[topics.RetentionMs] = true }), status.Note, InheritedSetting, []string{"retention.ms=-1"}},
		{"missing", func(f *Facts) {
			f.Topics.Topics["shop.lane.search"] = topics.Topic{Name: "shop.lane.search", Err: kerr.UnknownTopicOrPartition}
			f.Topics.Names = nil
		}, status.Failure, MissingTopic, []string{"topic apply"}},
		{"name clash", func(f *Facts) {
			f.Topics.Topics["shop.lane.search"] = topics.Topic{Name: "shop.lane.search", Err: kerr.UnknownTopicOrPartition}
			f.Topics.Names = []string{"shop_lane_search"}
		}, status.Failure, NameClash, []string{"shop_lane_search"}},
		{"partitions", lane(func(t *topics.Topic) { t.Partitions = 3 }), status.Failure, TooManyParts, []string{"kafka-topics.sh"}},
		{"few replicas", func(f *Facts) {
			f.Want[1].Options.ReplicationFactor = 5
		}, status.Failure, FewReplicas, []string{"kafka-reassign-partitions.sh"}},
		{"not in sync", lane(func(t *topics.Topic) { t.InSync = 1 }), status.Failure, NotInSync, []string{"start the brokers"}},
		{"under-replicated", lane(func(t *topics.Topic) { t.InSync = 2 }), status.Warning, UnderReplicated, []string{"missing from Isr"}},
		{"leaderless", lane(func(t *topics.Topic) { t.Leader = -1 }), status.Failure, Leaderless, []string{"for all lanes"}},
		{"small messages", lane(func(t *topics.Topic) { t.MaxMessageBytes = 1000 }), status.Warning, TopicSetting, []string{"--max-message-bytes 1048576 --yes"}},
		{"topic not looked at", lane(func(t *topics.Topic) { t.Err = kerr.TopicAuthorizationFailed }), status.Warning, LookupFailed, []string{"--role viewer"}},
		{"too old", func(f *Facts) { f.TooOld = &topics.TooOldError{Broker: 1, Missing: []string{"Metadata"}} }, status.Failure, BrokerTooOld, []string{"upgrade"}},
		{"one replica of offsets", func(f *Facts) { f.Internal[0].Replicas = 1 }, status.Warning, InternalTopic, []string{"every sink's acks"}},
		{"unclean transactions", func(f *Facts) { f.Internal[1].Settings[topics.Unclean] = "true" }, status.Warning, InternalTopic, []string{"transactions"}},
		{"internal not looked at", func(f *Facts) { f.Internal[1].Err = kerr.TopicAuthorizationFailed }, status.Note, LookupFailed, []string{"could not be asked"}},
		{"short retention of offsets", setting(retentionMinutes, "60"), status.Warning, BrokerSetting, []string{"mirror", "offsets.retention.minutes=1440"}},
		{"small metadata", setting("offset.metadata.max.bytes", "100"), status.Failure, BrokerSetting, []string{"200 bytes"}},
		{"ids expire", setting("transactional.id.expiration.ms", "3600000"), status.Warning, BrokerSetting, []string{"idle"}},
		{"short transactions", setting("transaction.max.timeout.ms", "5000"), status.Failure, BrokerSetting, []string{"cannot open"}},
		{"long sessions", setting("group.min.session.timeout.ms", "30000"), status.Failure, BrokerSetting, []string{"attach", "=10000"}},
		{"short sessions", setting("group.max.session.timeout.ms", "6000"), status.Failure, BrokerSetting, []string{"attach", "=10000"}},
		{"small requests", setting("socket.request.max.bytes", "1000"), status.Failure, BrokerSetting, []string{"2097176"}},
		{"creates topics", setting("auto.create.topics.enable", "true"), status.Note, BrokerSetting, []string{"=false"}},
		{"unclean elections", setting("unclean.leader.election.enable", "true"), status.Warning, BrokerSetting, []string{"=false"}},
		{"no deletion", setting("delete.topic.enable", "false"), status.Note, BrokerSetting, []string{"=true"}},
		{"no cleaner", setting("log.cleaner.enable", "false"), status.Warning, BrokerSetting, []string{"=true"}},
		{"one in sync", setting("min.insync.replicas", "1"), status.Note, BrokerSetting, []string{"=2"}},
		{"broker silent", func(f *Facts) { f.Brokers[2].Err = errNoAnswer }, status.Warning, LookupFailed, []string{"did not answer"}},
		{"broker not allowed", func(f *Facts) { f.Brokers[2].Err = kerr.ClusterAuthorizationFailed }, status.Note, LookupFailed, []string{"--role"}},
		{"no member", func(f *Facts) { f.Groups[0].Members = 0 }, status.Warning, OffsetsExpire, []string{"7 d after it lost", "lane retire search"}},
		{"no group", func(f *Facts) { f.Groups[0].Exists = false }, status.Note, OffsetsExpire, []string{"never attached"}},
		{"group not described", func(f *Facts) { f.Groups[0].Err = errors.New("it broke") }, status.Warning, LookupFailed, []string{"it broke"}},
		{"denied", permission(Permission{Permission: read, Answer: Missing, Resources: []string{"a", "b", "c", "d", "e"}}), status.Failure, Denied, []string{"User:ann", "--topic shop. --resource-pattern-type prefixed", "role viewer"}},
		{"denied and done without", permission(Permission{Permission: optional, Answer: Missing, Resources: []string{"a"}}), status.Note, Denied, []string{"it is blind"}},
		{"not asked", permission(Permission{Permission: read, Answer: Unknown, Resources: []string{"a"}, Why: "nobody knows"}), status.Note, NotAsked, []string{"nobody knows", "--list --topic shop."}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := sound(t)
			tt.change(&f)
			found := Judge(f, "ann")
			i := slices.IndexFunc(found, func(f Finding) bool { return f.Code == tt.code })
			if i < 0 {
				t.Fatalf("found %v, want %s", found, tt.code)
			}
			if found[i].Severity != tt.severity {
				t.Errorf("severity %s, want %s", found[i].Severity, tt.severity)
			}
			for _, says := range tt.says {
				if !strings.Contains(found[i].Why+"\n"+found[i].Help, says) {
					t.Errorf("%q says nothing of %q", fmt.Sprintf("%s | %s", found[i].Why, found[i].Help), says)
				}
			}
			if found[i].On == "" || found[i].Why == "" {
				t.Errorf("a finding that says too little: %+v", found[i])
			}
			if Sound(found) != (tt.severity == status.Note) {
				t.Errorf("sound: %v with %v", Sound(found), found)
			}
		})
	}
}

func TestTheGravestComesFirst(t *testing.T) {
	f := sound(t)
	f.Brokers[0].Settings["auto.create.topics.enable"] = "true"
	f.Groups[0].Members = 0
	f.Brokers[0].Settings["transaction.max.timeout.ms"] = "1"
	var got []status.Severity
	for _, f := range Judge(f, "") {
		got = append(got, f.Severity)
	}
	if want := []status.Severity{status.Failure, status.Warning, status.Note}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Brokers with the same value are one finding.
func TestBrokersAreNamedTogether(t *testing.T) {
	f := sound(t)
	for i := range f.Brokers {
		f.Brokers[i].Settings["log.cleaner.enable"] = "false"
	}
	if got := Judge(f, ""); len(got) != 1 || got[0].On != "brokers 0, 1, 2" {
		t.Errorf("got %v", got)
	}
}

func TestWhatBrokersMustAllowIsWhatWeAskFor(t *testing.T) {
	if transactionTimeout != segment.DefaultTransactionTimeout || writerIdle != segment.MaxIdle || commitMetadata != wire.MaxMetadata {
		t.Errorf("transactions %s, idle %s, metadata %d: not what is asked for", transactionTimeout, writerIdle, commitMetadata)
	}
}

// A feed has no lanes and no groups: nothing that is found of one speaks of
// them, and what is to be done names the feed.
func TestF3_FindingsOnAFeed(t *testing.T) {
	feed, err := topics.NewFeed("orders")
	if err != nil {
		t.Fatal(err)
	}
	want, err := feed.Specs(topics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	denied := topics.Topic{Name: feed.LogTopic(), Err: kerr.TopicAuthorizationFailed}
	f := Facts{
		Feed: feed, Want: want, Role: access.FeedReader,
		Topics: topics.Cluster{Topics: map[string]topics.Topic{
			feed.LogTopic(): denied,
			feed.WALTopic(): {Name: feed.WALTopic(), Partitions: 1, Replicas: 1, Leader: -1, Settings: map[string]string{topics.RetentionMs: "1000"}},
		}},
		Brokers:  []Broker{{ID: 1, Settings: map[string]string{retentionMinutes: "1", "group.min.session.timeout.ms": "60000", "offset.metadata.max.bytes": "1", "transaction.max.timeout.ms": "5"}}},
		Internal: []topics.Topic{{Name: TransactionsTopic, Err: kerr.UnknownTopicOrPartition}},
	}
	found := Judge(f, "")
	byCode := make(map[Code]Finding)
	for _, x := range found {
		byCode[x.Code] = x
		if text := x.Why + " " + x.Help; strings.Contains(text, "lane") || strings.Contains(text, "sink") || strings.Contains(text, "--pipeline") {
			t.Errorf("%s of a feed: %s", x.Code, text)
		}
	}
	if x := byCode[TopicSetting]; x.Help != "flusso-kafka-admin topic apply --feed orders --yes" {
		t.Errorf("an unsafe setting: %+v", x)
	}
	if x := byCode[BrokerSetting]; x.Setting != "transaction.max.timeout.ms" {
		t.Errorf("an unsafe broker: %+v", x)
	}
	if x := byCode[LookupFailed]; x.Severity != status.Note {
		t.Errorf("a reader that may not see settings, and need not: %+v", x)
	}
	f.Role = access.FeedWriter
	for _, x := range Judge(f, "") {
		if x.Code == LookupFailed && (x.Severity != status.Warning || !strings.Contains(x.Help, "topic check --feed orders --role feed-writer")) {
			t.Errorf("a writer that may not see settings: %+v", x)
		}
	}
}
