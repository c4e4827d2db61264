package topics

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Admin reads and changes the topics of pipelines. Its methods may be called
// concurrently. The caller owns the client, which needs no options of its own.
type Admin struct {
	cl *kgo.Client
}

// New returns an Admin on a client. It does no I/O.
func New(cl *kgo.Client) *Admin { return &Admin{cl: cl} }

// Topic is what a cluster says of one topic.
type Topic struct {
	Name            string
	ID              [16]byte // identity: another one under the same name is another topic
	Partitions      int
	Replicas        int               // of partition 0
	InSync          int               // in-sync replicas of partition 0
	Leader          int32             // broker that leads partition 0, -1 for none
	MaxMessageBytes int               // limit of a compressed record batch; 0 when unknown
	Settings        map[string]string // those a plan looks at; what the broker doesn't tell is absent
	Inherited       map[string]bool   // settings that come from the brokers' configuration, and change with it
	Err             error             // why the rest is not known
}

// Missing reports whether the cluster says that there is no such topic.
func (t Topic) Missing() bool { return kafkaerr.Classify(t.Err) == kafkaerr.Missing }

// looked lists the settings that are asked for.
var looked = func() []string {
	names := []string{MinInsync, MaxMessage}
	for _, r := range rules {
		names = append(names, r.setting)
	}
	return names
}()

// Describe looks topics up, always at the brokers and never in the client's
// cache. Every name asked for has an entry; a topic that cannot be described
// has its Err set. The error is for everything failing.
func (a *Admin) Describe(ctx context.Context, names ...string) (map[string]Topic, error) {
	if len(names) == 0 {
		return map[string]Topic{}, nil
	}
	topics, err := a.metadata(ctx, names)
	if err != nil {
		return nil, err
	}
	if err := a.settings(ctx, topics); err != nil {
		return nil, err
	}
	return topics, nil
}

// metadata fills all but the settings, for the given topics, or for all with nil.
func (a *Admin) metadata(ctx context.Context, names []string) (map[string]Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, a.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, kafkaerr.Wrap("describe topics", err)
	}
	topics := make(map[string]Topic, len(resp.Topics))
	for i := range resp.Topics {
		if resp.Topics[i].Topic != nil {
			topics[*resp.Topics[i].Topic] = topicOf(&resp.Topics[i])
		}
	}
	for _, name := range names {
		if _, answered := topics[name]; !answered {
			topics[name] = Topic{Name: name, Leader: -1, Err: kafkaerr.Wrap("describe topic "+name, errNoAnswer)}
		}
	}
	return topics, nil
}

var errNoAnswer = errors.New("the broker left it out of its answer")

func topicOf(m *kmsg.MetadataResponseTopic) Topic {
	t := Topic{Name: *m.Topic, ID: m.TopicID, Partitions: len(m.Partitions), Leader: -1}
	if err := kerr.ErrorForCode(m.ErrorCode); err != nil {
		t.Err = kafkaerr.Wrap("describe topic "+t.Name, err, kafkaerr.OnTopic("Describe", t.Name))
		return t
	}
	for i := range m.Partitions {
		if p := &m.Partitions[i]; p.Partition == 0 {
			// A partition without a leader has its replicas all the same.
			t.Replicas, t.InSync, t.Leader = len(p.Replicas), len(p.ISR), p.Leader
		}
	}
	return t
}

// settings fills the settings of the topics that exist.
func (a *Admin) settings(ctx context.Context, topics map[string]Topic) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for name, t := range topics {
		if t.Err != nil {
			continue
		}
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType = kmsg.ConfigResourceTypeTopic
		r.ResourceName = name
		r.ConfigNames = looked
		req.Resources = append(req.Resources, r)
	}
	if len(req.Resources) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return kafkaerr.Wrap("describe topic settings", err)
	}
	answered := make(map[string]bool, len(resp.Resources))
	for i := range resp.Resources {
		r := &resp.Resources[i]
		t, asked := topics[r.ResourceName]
		if !asked {
			continue
		}
		answered[t.Name] = true
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Err = kafkaerr.Wrap("describe settings of topic "+t.Name, err, kafkaerr.OnTopic("DescribeConfigs", t.Name))
		} else {
			t.setSettings(r.Configs)
		}
		topics[t.Name] = t
	}
	for name, t := range topics {
		if t.Err == nil && !answered[name] {
			t.Err = kafkaerr.Wrap("describe settings of topic "+name, errNoAnswer)
			topics[name] = t
		}
	}
	return nil
}

func (t *Topic) setSettings(configs []kmsg.DescribeConfigsResponseResourceConfig) {
	t.Settings = make(map[string]string, len(looked))
	t.Inherited = make(map[string]bool)
	for i := range configs {
		if c := &configs[i]; c.Value != nil && slices.Contains(looked, c.Name) {
			t.Settings[c.Name] = *c.Value
			switch c.Source {
			case kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigSourceDynamicDefaultBrokerConfig, kmsg.ConfigSourceStaticBrokerConfig:
				t.Inherited[c.Name] = true
			default:
			}
		}
	}
	if n, err := strconv.Atoi(t.Settings[MaxMessage]); err == nil {
		t.MaxMessageBytes = n
	}
}

// Read looks up what [Plan] needs to know for the wanted topics.
func (a *Admin) Read(ctx context.Context, want []Spec) (Cluster, error) {
	all, err := a.metadata(ctx, nil)
	if err != nil {
		return Cluster{}, err
	}
	have := Cluster{Topics: make(map[string]Topic, len(want))}
	for name := range all {
		have.Names = append(have.Names, name)
	}
	slices.Sort(have.Names)
	// A topic that may not be described is left out of a listing of all, so
	// that the wanted ones are asked for by name.
	names := make([]string, len(want))
	for i, spec := range want {
		names[i] = spec.Topic
	}
	have.Topics, err = a.Describe(ctx, names...)
	return have, err
}

// Verify returns the wanted topics when they are there and safe, else an
// [*UnsafeError] with everything that is not, or the error of a look-up that
// failed. It changes nothing.
func (a *Admin) Verify(ctx context.Context, want []Spec) (map[string]Topic, error) {
	have, err := a.look(ctx, want)
	if err != nil {
		return nil, err
	}
	if err := have.lookups(want); err != nil {
		return nil, err
	}
	if found := Plan(want, have).Findings; len(found) > 0 {
		return nil, &UnsafeError{found}
	}
	return have.Topics, nil
}

// look is Read for those who want the names of all topics only for what must be
// created beside them.
func (a *Admin) look(ctx context.Context, want []Spec) (Cluster, error) {
	names := make([]string, len(want))
	for i, spec := range want {
		names[i] = spec.Topic
	}
	described, err := a.Describe(ctx, names...)
	if err != nil {
		return Cluster{}, err
	}
	for _, t := range described {
		if t.Missing() {
			return a.Read(ctx, want)
		}
	}
	return Cluster{Topics: described}, nil
}

// lookups joins the errors of wanted topics whose look-up failed.
func (c Cluster) lookups(want []Spec) error {
	var errs []error
	for _, spec := range want {
		if t := c.Topics[spec.Topic]; t.Err != nil && !t.Missing() {
			errs = append(errs, t.Err)
		}
	}
	return errors.Join(errs...)
}
