package checkup

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/topics"
)

// ClientOpt is what a client needs so that [Collect] can ask for permissions
// on groups that do not exist yet: from version 6 on DescribeGroups says only
// that there is none.
func ClientOpt() kgo.Opt {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.DescribeGroups), 5)
	return kgo.MaxVersions(v)
}

// Collect asks a cluster. Its error is for everything failing; what fails for
// one topic, group or broker is in its entry.
func Collect(ctx context.Context, cl *kgo.Client, p topics.Pipeline, sinks []string, o topics.Options, role access.Role) (Facts, error) {
	want, err := p.Specs(sinks, o)
	if err != nil {
		return Facts{}, err
	}
	return collect(ctx, cl, Facts{Pipeline: p, Sinks: sinks, Want: want, Role: role})
}

// CollectFeed asks a cluster about a feed; it is Collect otherwise.
func CollectFeed(ctx context.Context, cl *kgo.Client, feed topics.Feed, o topics.Options, role access.Role) (Facts, error) {
	want, err := feed.Specs(o)
	if err != nil {
		return Facts{}, err
	}
	return collect(ctx, cl, Facts{Feed: feed, Want: want, Role: role})
}

// collect fills facts of which it is known what they are about.
func collect(ctx context.Context, cl *kgo.Client, f Facts) (_ Facts, err error) {
	admin := topics.New(cl)
	if f.TooOld = admin.RequireBroker(ctx); f.TooOld != nil {
		if old := (*topics.TooOldError)(nil); !errors.As(f.TooOld, &old) {
			return f, f.TooOld
		}
	}
	if f.Topics, err = admin.Read(ctx, f.Want); err != nil {
		return f, err
	}
	own := []string{TransactionsTopic}
	if !f.ofFeed() {
		own = []string{OffsetsTopic, TransactionsTopic}
	}
	internal, err := admin.Describe(ctx, own...)
	if err != nil {
		return f, err
	}
	for _, name := range own {
		f.Internal = append(f.Internal, internal[name])
	}
	if f.Brokers, err = brokers(ctx, cl); err != nil {
		return f, err
	}
	described := describedGroups{told: make(map[resource]told)}
	if !f.ofFeed() { // it has no groups
		if described, err = describeGroups(ctx, cl, f.Pipeline, f.Sinks); err != nil {
			return f, err
		}
	}
	f.Groups = described.groups
	if f.Role != "" {
		f.Allowed, err = ask(ctx, cl, f, described.told)
	}
	return f, err
}

// brokers asks every broker for its settings.
func brokers(ctx context.Context, cl *kgo.Client) ([]Broker, error) {
	list := kmsg.NewPtrMetadataRequest()
	list.Topics = []kmsg.MetadataRequestTopic{} // none, and not all
	got, err := list.RequestWith(ctx, cl)
	if err != nil {
		return nil, kafkaerr.Wrap("list the brokers", err)
	}
	out := make([]Broker, len(got.Brokers))
	req := kmsg.NewPtrDescribeConfigsRequest()
	for i, b := range got.Brokers {
		out[i] = Broker{ID: b.NodeID, Settings: make(map[string]string), Err: errNoAnswer}
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(b.NodeID))
		r.ConfigNames = settings()
		req.Resources = append(req.Resources, r)
	}
	slices.SortFunc(out, func(a, b Broker) int { return cmp.Compare(a.ID, b.ID) })
	answered := func(name string, err error, configs []kmsg.DescribeConfigsResponseResourceConfig) {
		i := slices.IndexFunc(out, func(b Broker) bool { return strconv.Itoa(int(b.ID)) == name })
		if i < 0 {
			return
		}
		out[i].Err = kafkaerr.Wrap("describe the settings of broker "+name, err, kafkaerr.OnCluster("DescribeConfigs"))
		for _, c := range configs {
			if c.Value != nil {
				out[i].Settings[c.Name] = *c.Value
			}
		}
	}
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, r := range shard.Req.(*kmsg.DescribeConfigsRequest).Resources {
				answered(r.ResourceName, shard.Err, nil)
			}
			continue
		}
		for _, r := range shard.Resp.(*kmsg.DescribeConfigsResponse).Resources {
			answered(r.ResourceName, kerr.ErrorForCode(r.ErrorCode), r.Configs)
		}
	}
	return out, ctx.Err()
}

var errNoAnswer = errors.New("it did not answer")
