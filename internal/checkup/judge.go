package checkup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/topics"
)

// Judge decides what in the facts is a finding, the gravest first. It does no
// I/O. user is named in commands that grant permissions.
func Judge(f Facts, user string) []Finding {
	j := &judge{facts: f}
	if f.TooOld != nil {
		j.add(Finding{
			Severity: status.Failure, Code: BrokerTooOld, On: "brokers", Want: "Apache Kafka " + topics.MinKafka + " or later",
			Why: f.TooOld.Error(), Help: "# upgrade the broker",
		})
	}
	j.topics()
	j.internal()
	j.brokers()
	j.groups()
	j.permissions(user)
	return sorted(j.found)
}

type judge struct {
	facts Facts
	found []Finding
}

func (j *judge) add(f Finding) { j.found = append(j.found, f) }

// apply is the command that carries a plan out.
func (f Facts) apply() string {
	return "flusso-kafka-admin topic apply " + f.target() + " --yes"
}

// allowed reports whether all that the role needs is there.
func (f Facts) allowed() bool {
	return !slices.ContainsFunc(f.Allowed, func(p Permission) bool { return p.Answer != Allowed })
}

func (j *judge) topics() {
	plan := topics.Plan(j.facts.Want, j.facts.Topics)
	unfixed := plan.Unfixed()
	for _, p := range plan.Findings {
		f := Finding{Severity: status.Failure, Code: codeOf(p), On: "topic " + p.Topic, Setting: p.Setting, Have: p.Have, Want: p.Want, Why: p.Why, Help: p.Fix}
		if !slices.Contains(unfixed, p) {
			f.Help = j.facts.apply()
		}
		j.add(f)
	}
	for _, spec := range j.facts.Want {
		switch t := j.facts.Topics.Topics[spec.Topic]; {
		case t.Err == nil && t.Name != "":
			j.topic(t)
		case t.Err != nil && !t.Missing():
			f := j.facts.failed("topic "+spec.Topic, t.Err)
			if j.facts.Role == access.FeedReader && kafkaerr.Classify(t.Err) == kafkaerr.Auth && j.facts.allowed() {
				f.Severity, f.Help = status.Note, "" // settings are no business of a reader's
			}
			j.add(f)
		}
	}
}

func codeOf(f topics.Finding) Code {
	switch f.Setting {
	case topics.Existence:
		return MissingTopic
	case topics.Name:
		return NameClash
	case topics.Partitions:
		return TooManyParts
	case topics.Replication:
		return FewReplicas
	case topics.InSync:
		return NotInSync
	}
	return TopicSetting
}

// failed is the finding that something could not be looked at.
func (f Facts) failed(on string, err error) Finding {
	out := Finding{
		Severity: status.Warning, Code: LookupFailed, On: on, Why: "it could not be looked at: " + err.Error(),
		Help: "# look again when the brokers answer",
	}
	if kafkaerr.Classify(err) == kafkaerr.Auth {
		out.Help = "flusso-kafka-admin topic check --role viewer # names the permissions that are missing"
		if f.ofFeed() {
			out.Help = "flusso-kafka-admin topic check " + f.target() + " --role feed-writer # names the permissions that are missing"
		}
	}
	return out
}

// leastMessage is Kafka's default of what a topic takes in one record batch.
const leastMessage = 1 << 20

// topic judges what a plan does not look at.
func (j *judge) topic(t topics.Topic) {
	on, forLanes := "topic "+t.Name, " for all lanes"
	if j.facts.ofFeed() {
		forLanes = ""
	}
	if t.Leader < 0 && t.Partitions > 0 {
		j.add(Finding{
			Severity: status.Failure, Code: Leaderless, On: on, Have: "no leader", Want: "a leader of partition 0",
			Why:  "nothing can be read or published, and the writer stops" + forLanes + ": the brokers that hold it are down",
			Help: describeTopic(t.Name) + " # names them: start one",
		})
	} else if t.InSync < t.Replicas {
		j.add(Finding{
			Severity: status.Warning, Code: UnderReplicated, On: on, Have: fmt.Sprintf("%d of %d replicas in sync", t.InSync, t.Replicas), Want: "all of them",
			Why:  "a broker is down or behind; one more, and it stops or loses what was acknowledged",
			Help: describeTopic(t.Name) + " # names the brokers that are missing from Isr",
		})
	}
	if n := t.MaxMessageBytes; n > 0 && n < leastMessage {
		j.add(Finding{
			Severity: status.Warning, Code: TopicSetting, On: on, Setting: topics.MaxMessage, Have: fmt.Sprint(n), Want: fmt.Sprint(leastMessage) + " or more",
			Why:  "larger records are refused: documents, requests, what is appended to a feed",
			Help: strings.Replace(j.facts.apply(), " --yes", fmt.Sprintf(" --max-message-bytes %d --yes", leastMessage), 1),
		})
	}
	for _, name := range topics.Fixed() {
		if t.Inherited[name] {
			j.add(Finding{
				Severity: status.Note, Code: InheritedSetting, On: on, Setting: name, Have: t.Settings[name] + ", from the broker", Want: "set on the topic",
				Why: "it is right by the broker's setting alone, and changes with it",
				Help: fmt.Sprintf(`kafka-configs.sh --bootstrap-server "$BOOTSTRAP" --alter --entity-type topics --entity-name %s --add-config %s=%s`,
					t.Name, name, t.Settings[name]),
			})
		}
	}
}

func describeTopic(name string) string {
	return `kafka-topics.sh --bootstrap-server "$BOOTSTRAP" --describe --topic ` + name
}

// internal judges Kafka's own topics, where acks and transactions live.
func (j *judge) internal() {
	holds := map[string]string{
		OffsetsTopic:      "every sink's acks, and their mirror",
		TransactionsTopic: "the state of the writer's transactions",
	}
	for _, t := range j.facts.Internal {
		on := "topic " + t.Name
		switch {
		case t.Missing():
			continue // created when it is first used
		case t.Err != nil:
			why := t.Err.Error()
			if kafkaerr.Classify(t.Err) == kafkaerr.Auth {
				why = "the user may not describe it, and no role needs to"
			}
			j.add(Finding{Severity: status.Note, Code: LookupFailed, On: on, Why: "how well Kafka keeps " + holds[t.Name] + " could not be asked: " + why})
			continue
		}
		if t.Replicas == 1 && len(j.facts.Brokers) > 1 {
			j.add(Finding{
				Severity: status.Warning, Code: InternalTopic, On: on, Setting: "replication factor", Have: "1", Want: fmt.Sprint(min(3, len(j.facts.Brokers))),
				Why:  "one broker alone keeps " + holds[t.Name] + ": while it is down everything stands, and with its disk they are gone",
				Help: fmt.Sprintf(`kafka-reassign-partitions.sh --bootstrap-server "$BOOTSTRAP" --execute --reassignment-json-file %s.json`, t.Name),
			})
		}
		if t.Settings[topics.Unclean] == "true" {
			j.add(Finding{
				Severity: status.Warning, Code: InternalTopic, On: on, Setting: topics.Unclean, Have: "true", Want: "false",
				Why: "an election of a replica that is behind loses " + holds[t.Name],
				Help: fmt.Sprintf(`kafka-configs.sh --bootstrap-server "$BOOTSTRAP" --alter --entity-type topics --entity-name %s --add-config %s=false`,
					t.Name, topics.Unclean),
			})
		}
	}
}

func (j *judge) groups() {
	keep := j.facts.retention()
	for _, g := range j.facts.Groups {
		switch {
		case g.Err != nil:
			j.add(j.facts.failed("group "+g.Name, g.Err))
		case !g.Exists:
			j.add(Finding{
				Severity: status.Note, Code: OffsetsExpire, On: "group " + g.Name, Have: "no group", Why: "sink " + g.Sink + " never attached, or its offsets have expired",
				Help: "flusso-kafka-admin watermark --pipeline " + j.facts.Pipeline.String() + " # says whether it holds the watermark",
			})
		case g.Members == 0:
			j.add(Finding{
				Severity: status.Warning, Code: OffsetsExpire, On: "group " + g.Name, Have: "no member", Want: "a member",
				Why: fmt.Sprintf("brokers drop its offsets %s after it lost its last member; the ingest engine's mirror keeps a copy as long as one runs", keep),
				Help: fmt.Sprintf("flusso-kafka-admin lane retire %s --pipeline %s --dry-run # if the sink is gone for good; else start its engine within that time",
					g.Sink, j.facts.Pipeline),
			})
		}
	}
}

func (j *judge) permissions(user string) {
	if user == "" {
		user = `"$PRINCIPAL"`
	}
	for _, p := range j.facts.Allowed {
		names := listed(p.Resources)
		switch p.Answer {
		case Missing:
			f := Finding{
				Severity: status.Failure, Code: Denied, On: p.String(), Have: "denied on " + names,
				Why:  fmt.Sprintf("role %s needs it for %s", j.facts.Role, p.For),
				Help: strings.Join(access.Commands(`--bootstrap-server "$BOOTSTRAP"`, user, []access.Permission{p.Permission}), "; "),
			}
			if p.Without != "" {
				f.Severity, f.Why = status.Note, f.Why+"; without it "+p.Without
			}
			j.add(f)
		case Unknown:
			j.add(Finding{
				Severity: status.Note, Code: NotAsked, On: p.String(), Have: "not known for " + names,
				Why:  fmt.Sprintf("role %s needs it for %s, and it could not be asked: %s", j.facts.Role, p.For, p.Why),
				Help: fmt.Sprintf(`kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --list%s # as an administrator`, listFlag(p.Permission)),
			})
		case Allowed:
		}
	}
}

func listFlag(p access.Permission) string {
	flag := map[kmsg.ACLResourceType]string{
		kmsg.ACLResourceTypeTopic: " --topic ", kmsg.ACLResourceTypeGroup: " --group ", kmsg.ACLResourceTypeTransactionalId: " --transactional-id ",
	}[p.Resource]
	if flag == "" {
		return " --cluster"
	}
	pattern := ""
	if p.Prefixed {
		pattern = " --resource-pattern-type prefixed"
	}
	return flag + p.Name + pattern
}

// listed names the first few of many.
func listed(names []string) string {
	const few = 3
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}

// values groups the brokers that told a setting by its value.
func (f Facts) values(name string) map[string][]int32 {
	out := make(map[string][]int32)
	for _, b := range f.Brokers {
		if v, ok := b.Settings[name]; ok && b.Err == nil {
			out[v] = append(out[v], b.ID)
		}
	}
	return out
}

func brokersNamed(ids []int32) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = fmt.Sprint(id)
	}
	if len(names) == 1 {
		return "broker " + names[0]
	}
	return "brokers " + listed(names)
}

func sortedValues(m map[string][]int32) []string { return slices.Sorted(maps.Keys(m)) }
