package checkup

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/topics"
)

// describedGroups are groups, and what the user may do with them.
type describedGroups struct {
	groups []Group // of the sinks
	told   map[resource]told
}

// told is what the cluster said of a user's rights on one resource.
type told struct {
	operations int32 // bit n is operation n; [untold] where it was left out
	err        error
}

// untold is what brokers answer where they do not tell operations.
const untold = -1 << 31

// describeGroups asks each coordinator once, for the groups of the sinks and
// that of the ingest engine.
func describeGroups(ctx context.Context, cl *kgo.Client, p topics.Pipeline, sinks []string) (describedGroups, error) {
	out := describedGroups{told: make(map[resource]told)}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.IncludeAuthorizedOperations = true
	for _, sink := range sinks {
		l, err := p.Lane(sink)
		if err != nil {
			return out, err
		}
		out.groups = append(out.groups, Group{Sink: sink, Name: l.Group()})
		req.Groups = append(req.Groups, l.Group())
	}
	req.Groups = append(req.Groups, p.IngestGroup())

	answers := make(map[string]*kmsg.DescribeGroupsResponseGroup, len(req.Groups))
	failed := make(map[string]error)
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, name := range shard.Req.(*kmsg.DescribeGroupsRequest).Groups {
				failed[name] = shard.Err
			}
			continue
		}
		resp := shard.Resp.(*kmsg.DescribeGroupsResponse)
		for i := range resp.Groups {
			answers[resp.Groups[i].Group] = &resp.Groups[i]
		}
	}
	for _, name := range req.Groups {
		t := told{operations: untold, err: errNoAnswer}
		switch g := answers[name]; {
		case g != nil:
			t = told{g.AuthorizedOperations, kerr.ErrorForCode(g.ErrorCode)}
		case failed[name] != nil:
			t.err = failed[name]
		}
		out.told[resource{kmsg.ACLResourceTypeGroup, name}] = t
	}
	for i := range out.groups {
		g := &out.groups[i]
		err := out.told[resource{kmsg.ACLResourceTypeGroup, g.Name}].err
		if answer := answers[g.Name]; answer != nil && err == nil {
			g.Exists, g.Members = answer.State != "Dead", len(answer.Members)
		}
		if !errors.Is(err, kerr.GroupIDNotFound) {
			g.Err = kafkaerr.Wrap("describe group "+g.Name, err, kafkaerr.OnGroup("Describe", g.Name))
		}
	}
	if ctx.Err() != nil {
		return out, kafkaerr.Wrap("describe the groups of pipeline "+p.String(), context.Cause(ctx))
	}
	return out, nil
}
