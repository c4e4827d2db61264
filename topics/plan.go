package topics

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Cluster is what was read of a cluster, as far as a plan needs it.
type Cluster struct {
	Names  []string         // every topic there is, as far as the client may see
	Topics map[string]Topic // the topics that were asked for, by name
}

// ChangeKind says what a change does.
type ChangeKind string

// The kinds of change. There is none that deletes or shrinks anything.
const (
	Create ChangeKind = "create"
	Set    ChangeKind = "set"
)

// Setting is a topic setting and what becomes of it.
type Setting struct {
	Name string
	Have string // empty when the topic is created
	Want string
}

// Change is one step of a plan.
type Change struct {
	Kind              ChangeKind
	Topic             string
	ReplicationFactor int // of a topic that is created; 0 is the broker's default
	Settings          []Setting
}

// String says what the change does, with prior values where there are any.
func (c Change) String() string {
	var b strings.Builder
	switch c.Kind {
	case Create:
		fmt.Fprintf(&b, "create topic %s with 1 partition, replication factor ", c.Topic)
		if c.ReplicationFactor == 0 {
			b.WriteString("by default")
		} else {
			b.WriteString(strconv.Itoa(c.ReplicationFactor))
		}
		for _, s := range c.Settings {
			fmt.Fprintf(&b, ", %s=%s", s.Name, s.Want)
		}
	case Set:
		fmt.Fprintf(&b, "set of topic %s", c.Topic)
		for i, s := range c.Settings {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, " %s: %s → %s", s.Name, s.Have, s.Want)
		}
	}
	return b.String()
}

// Planned is what must change in a cluster, in order, and what was found to
// be unsafe. A finding that no change removes needs a person.
type Planned struct {
	Changes  []Change
	Findings []Finding
}

// Plan compares what a pipeline needs with what a cluster has. It does no
// I/O; the result follows the order of want. A topic whose look-up failed is
// left alone: its error is the caller's to report.
func Plan(want []Spec, have Cluster) Planned {
	var p Planned
	taken := make(map[string]string, len(have.Names)) // by the name Kafka compares
	for _, name := range have.Names {
		taken[collisionName(name)] = name
	}
	for _, spec := range want {
		t, known := have.Topics[spec.Topic]
		switch {
		case known && t.Err == nil:
			p.compare(spec, t)
		case known && !t.Missing():
		default:
			p.create(spec, taken)
		}
	}
	return p
}

// collisionName replaces what Kafka takes for the same in topic names, because
// its metrics can't tell them apart.
func collisionName(topic string) string { return strings.ReplaceAll(topic, ".", "_") }

func (p *Planned) create(spec Spec, taken map[string]string) {
	key := collisionName(spec.Topic)
	if other, clash := taken[key]; clash && other != spec.Topic {
		p.Findings = append(p.Findings, Finding{
			Topic: spec.Topic, Setting: Name, Have: other, Want: "no topic of that name in Kafka's eyes",
			Why: "Kafka takes . and _ for the same in topic names and refuses to create the second",
			Fix: fmt.Sprintf("# choose another pipeline or sink name; topic %s stays as it is", other),
		})
		return
	}
	taken[key] = spec.Topic
	c := Change{Kind: Create, Topic: spec.Topic, ReplicationFactor: spec.Options.ReplicationFactor}
	for _, r := range rules {
		c.Settings = append(c.Settings, Setting{Name: r.setting, Want: r.want})
	}
	if rf := spec.Options.ReplicationFactor; rf > 0 {
		c.Settings = append(c.Settings, Setting{Name: MinInsync, Want: strconv.Itoa(minInsync(rf))})
	}
	if n := spec.Options.MaxMessageBytes; n > 0 {
		c.Settings = append(c.Settings, Setting{Name: MaxMessage, Want: strconv.Itoa(n)})
	}
	p.Changes = append(p.Changes, c)
	p.Findings = append(p.Findings, Finding{
		Topic: spec.Topic, Setting: Existence, Have: "missing", Want: "there",
		Why: "nothing can be published to it", Fix: createCommand(c),
	})
}

func (p *Planned) compare(spec Spec, t Topic) {
	set := Change{Kind: Set, Topic: t.Name}
	// fix records a finding that a setting removes.
	fix := func(setting, have, want, why string) {
		set.Settings = append(set.Settings, Setting{setting, have, want})
		p.Findings = append(p.Findings, Finding{
			Topic: t.Name, Setting: setting, Have: have, Want: want, Why: why, Fix: setCommand(t.Name, setting, want),
		})
	}
	if t.Partitions != 1 {
		p.Findings = append(p.Findings, Finding{
			Topic: t.Name, Setting: Partitions, Have: strconv.Itoa(t.Partitions), Want: "1",
			Why: "items would lose their order, and Kafka can't take partitions away",
			Fix: command("kafka-topics.sh", "--delete --topic "+t.Name) + " # once every sink has acked it, then create it again",
		})
	}
	if rf := spec.Options.ReplicationFactor; rf > 0 && t.Replicas > 0 && t.Replicas < rf {
		p.Findings = append(p.Findings, Finding{
			Topic: t.Name, Setting: Replication, Have: strconv.Itoa(t.Replicas), Want: strconv.Itoa(rf),
			Why: "it survives fewer broker failures than was asked for",
			Fix: command("kafka-reassign-partitions.sh", "--execute --reassignment-json-file "+t.Name+".json") +
				fmt.Sprintf(` # with {"version":1,"partitions":[{"topic":%q,"partition":0,"replicas":[%d broker ids]}]}`, t.Name, rf),
		})
	}
	for _, r := range rules {
		if have, known := t.Settings[r.setting]; known && have != r.want {
			fix(r.setting, have, r.want, r.why)
		}
	}
	p.compareInsync(t, fix)
	if n := spec.Options.MaxMessageBytes; n > 0 && t.MaxMessageBytes > 0 && t.MaxMessageBytes < n {
		fix(MaxMessage, strconv.Itoa(t.MaxMessageBytes), strconv.Itoa(n), "documents up to the size asked for would be refused")
	}
	if len(set.Settings) > 0 {
		p.Changes = append(p.Changes, set)
	}
}

func (p *Planned) compareInsync(t Topic, fix func(setting, have, want, why string)) {
	text, known := t.Settings[MinInsync]
	if !known || t.Replicas == 0 {
		return
	}
	want := minInsync(t.Replicas)
	have, err := strconv.Atoi(text)
	switch {
	case err != nil || have < want:
		fix(MinInsync, text, strconv.Itoa(want), "an acknowledged item would be on one broker only")
		have = want
	case have > t.Replicas:
		fix(MinInsync, text, strconv.Itoa(want), fmt.Sprintf("with %d replicas nothing can ever be published", t.Replicas))
		have = want
	}
	if t.InSync < have {
		p.Findings = append(p.Findings, Finding{
			Topic: t.Name, Setting: InSync, Have: strconv.Itoa(t.InSync), Want: strconv.Itoa(have) + " or more",
			Why: "nothing can be published until more replicas are in sync: start the brokers that are down",
			Fix: command("kafka-topics.sh", "--describe --topic "+t.Name) + " # names the brokers that are missing from Isr",
		})
	}
}

// Finding is something unsafe about a topic, and the command that fixes it.
type Finding struct {
	Topic   string
	Setting string // a topic setting, or one of [Existence], [Partitions], [Replication], [InSync], [Name]
	Have    string
	Want    string
	Why     string // what goes wrong if it stays
	Fix     string // a shell command; $BOOTSTRAP stands for the brokers
}

// String returns one line without the command.
func (f Finding) String() string {
	return fmt.Sprintf("topic %s: %s is %s, must be %s: %s", f.Topic, f.Setting, f.Have, f.Want, f.Why)
}

// UnsafeError lists every unsafe setting that was found.
type UnsafeError struct {
	Findings []Finding // at least one
}

func (e *UnsafeError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d unsafe topic settings", len(e.Findings))
	if len(e.Findings) == 1 {
		b.Reset()
		b.WriteString("unsafe topic setting")
	}
	for _, f := range e.Findings {
		fmt.Fprintf(&b, "; %s; fix: %s", f, f.Fix)
	}
	return b.String()
}

func command(tool, args string) string {
	return tool + ` --bootstrap-server "$BOOTSTRAP" ` + args
}

func setCommand(topic, setting, want string) string {
	return command("kafka-configs.sh", "--alter --entity-type topics --entity-name "+topic+" --add-config "+setting+"="+want)
}

func createCommand(c Change) string {
	args := []string{"--create --topic " + c.Topic + " --partitions 1"}
	if c.ReplicationFactor > 0 {
		args = append(args, "--replication-factor "+strconv.Itoa(c.ReplicationFactor))
	}
	for _, s := range c.Settings {
		args = append(args, "--config "+s.Name+"="+s.Want)
	}
	return command("kafka-topics.sh", strings.Join(args, " "))
}

// Unfixed returns the findings that no change of the plan removes: they need a
// person.
func (p Planned) Unfixed() []Finding {
	fixed := func(f Finding) bool {
		return slices.ContainsFunc(p.Changes, func(c Change) bool {
			if c.Topic != f.Topic {
				return false
			}
			return c.Kind == Create && f.Setting == Existence ||
				slices.ContainsFunc(c.Settings, func(s Setting) bool { return s.Name == f.Setting })
		})
	}
	return slices.DeleteFunc(slices.Clone(p.Findings), fixed)
}
