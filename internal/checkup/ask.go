package checkup

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/topics"
)

// ask finds out what the user of the client may do of what the role needs:
// brokers tell it with the description of topics, groups and the cluster
// (KIP-430). Nothing is tried. groups is what they told of groups.
func ask(ctx context.Context, cl *kgo.Client, f Facts, groups map[resource]told) ([]Permission, error) {
	needs, err := needed(f)
	if err != nil {
		return nil, err
	}
	if err := askTopics(ctx, cl, f.Want, groups); err != nil {
		return nil, err
	}
	askWriter(ctx, cl, f.writers(), groups)
	askCluster(ctx, cl, groups)
	return answer(f, needs, groups), ctx.Err()
}

// needed are the permissions of the role, of a sink's for each sink.
func needed(f Facts) ([]access.Permission, error) {
	if f.ofFeed() {
		return f.Role.FeedPermissions(f.Feed)
	}
	sinks := f.Sinks
	if f.Role != access.Sink {
		sinks = []string{""}
	}
	var out []access.Permission
	for _, sink := range sinks {
		needs, err := f.Role.Permissions(f.Pipeline, sink)
		if err != nil {
			return nil, err
		}
		for _, n := range needs {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

func askTopics(ctx context.Context, cl *kgo.Client, want []topics.Spec, into map[resource]told) error {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, spec := range want {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(spec.Topic)
		req.Topics = append(req.Topics, t)
		into[resource{kmsg.ACLResourceTypeTopic, spec.Topic}] = told{untold, errNoAnswer}
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return kafkaerr.Wrap("ask for permissions on topics", err)
	}
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil {
			into[resource{kmsg.ACLResourceTypeTopic, *t.Topic}] = told{t.AuthorizedOperations, kerr.ErrorForCode(t.ErrorCode)}
		}
	}
	return nil
}

// askWriter can only learn whether transactional ids may be described.
func askWriter(ctx context.Context, cl *kgo.Client, ids []string, into map[resource]told) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	for _, id := range ids {
		req.TransactionalIDs = append(req.TransactionalIDs, id)
		into[resource{kmsg.ACLResourceTypeTransactionalId, id}] = told{untold, errNoAnswer}
	}
	const describe = 1 << kmsg.ACLOperationDescribe
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, id := range shard.Req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
				into[resource{kmsg.ACLResourceTypeTransactionalId, id}] = told{untold, shard.Err}
			}
			continue
		}
		for _, s := range shard.Resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
			t := told{describe, kerr.ErrorForCode(s.ErrorCode)}
			if errors.Is(t.err, kerr.TransactionalIDNotFound) {
				t.err = nil
			}
			into[resource{kmsg.ACLResourceTypeTransactionalId, s.TransactionalID}] = t
		}
	}
}

func askCluster(ctx context.Context, cl *kgo.Client, into map[resource]told) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	t := told{operations: untold}
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if t.err = err; err == nil && resp.ClusterAuthorizedOperations != 0 {
		t.operations = resp.ClusterAuthorizedOperations // 0 is for who may not describe it
	}
	into[resource{kmsg.ACLResourceTypeCluster, access.ClusterName}] = t
}

// answer decides what becomes of each permission. It does no I/O.
func answer(f Facts, needs []access.Permission, told map[resource]told) []Permission {
	cluster := told[resource{kmsg.ACLResourceTypeCluster, access.ClusterName}]
	out := make([]Permission, 0, len(needs))
	for _, need := range needs {
		p := Permission{Permission: need, Answer: Allowed}
		for _, r := range resources(f, need) {
			a, why := told[r].may(need)
			switch {
			case a == Missing && need.Operation == kmsg.ACLOperationCreate:
				if c, _ := cluster.may(need); c == Allowed { // who may create any topic may create this one
					a = Allowed
				}
			case a == Unknown && need.Resource == kmsg.ACLResourceTypeCluster && need.Operation == kmsg.ACLOperationDescribeConfigs:
				a, why = brokersTold(f.Brokers)
			}
			// Missing on one is missing, whatever the others are.
			switch {
			case a == Allowed || a == Unknown && p.Answer == Missing:
				continue
			case a == Missing && p.Answer == Unknown:
				p.Resources = nil
			}
			p.Answer, p.Why = a, why
			p.Resources = append(p.Resources, r.name)
		}
		out = append(out, p)
	}
	return out
}

// resources are those that a permission is about.
func resources(f Facts, need access.Permission) []resource {
	var names []string
	switch need.Resource {
	case kmsg.ACLResourceTypeTopic:
		for _, spec := range f.Want {
			names = append(names, spec.Topic)
		}
	case kmsg.ACLResourceTypeGroup:
		for _, g := range f.Groups {
			names = append(names, g.Name)
		}
		names = append(names, f.Pipeline.IngestGroup())
	case kmsg.ACLResourceTypeTransactionalId:
		names = f.writers()
	default:
		names = []string{access.ClusterName}
	}
	var out []resource
	for _, name := range names {
		if name == need.Name || need.Prefixed && strings.HasPrefix(name, need.Name) {
			out = append(out, resource{need.Resource, name})
		}
	}
	return out
}

// implying are operations that include Describe.
var implying = []kmsg.ACLOperation{
	kmsg.ACLOperationDescribe, kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDelete, kmsg.ACLOperationAlter,
}

func (t told) may(need access.Permission) (Answer, string) {
	switch {
	case kafkaerr.Classify(t.err) == kafkaerr.Auth:
		// It may not be described, so that nothing is allowed that includes that.
		if slices.Contains(implying, need.Operation) {
			return Missing, ""
		}
		return Unknown, "it takes Describe on it to ask"
	case t.operations != untold && t.operations&(1<<need.Operation) != 0:
		return Allowed, ""
	case need.Resource == kmsg.ACLResourceTypeTransactionalId && t.err == nil:
		return Unknown, "brokers do not tell it, and trying it would fence the writer"
	case t.operations == untold && need.Resource == kmsg.ACLResourceTypeCluster && t.err == nil:
		return Unknown, "it takes Describe on the cluster to ask"
	case t.operations == untold && t.err != nil:
		return Unknown, t.err.Error()
	case t.operations == untold:
		return Unknown, "the broker does not tell it"
	}
	return Missing, ""
}

// brokersTold says whether broker settings could be read, which is itself the
// answer for DescribeConfigs on the cluster.
func brokersTold(brokers []Broker) (Answer, string) {
	for _, b := range brokers {
		switch {
		case b.Err == nil:
			return Allowed, ""
		case kafkaerr.Classify(b.Err) == kafkaerr.Auth:
			return Missing, ""
		}
	}
	return Unknown, "no broker told its settings"
}
