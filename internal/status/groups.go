package status

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	ours "github.com/flusso/flusso-kafka/internal/members"
)

// group is a consumer group as its coordinator describes it.
type group struct {
	members []member
	err     error
}

type member struct {
	Member
	id string // the coordinator's name of it: another one for each attach
}

var errLeftOut = errors.New("the broker left it out of its answer")

// describeGroups describes the groups of all lanes and the ingest group, with
// one request for each coordinator. A group that may not be described has its
// own error.
func (p *parts) describeGroups(ctx context.Context) map[string]group {
	req := kmsg.NewPtrDescribeGroupsRequest()
	assigned := map[string]string{p.pipeline.IngestGroup(): p.pipeline.RequestsTopic()}
	for _, l := range p.lanes {
		assigned[l.Group()] = l.Topic()
	}
	for name := range assigned {
		req.Groups = append(req.Groups, name)
	}
	out := make(map[string]group, len(assigned))
	fail := func(name string, err error) {
		out[name] = group{err: kafkaerr.Wrap("describe group "+name, err, kafkaerr.OnGroup("Describe", name))}
	}
	for _, shard := range p.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, name := range shard.Req.(*kmsg.DescribeGroupsRequest).Groups {
				fail(name, shard.Err)
			}
			continue
		}
		resp := shard.Resp.(*kmsg.DescribeGroupsResponse)
		for i := range resp.Groups {
			g := &resp.Groups[i]
			err := kerr.ErrorForCode(g.ErrorCode)
			switch {
			case g.State == "Dead", errors.Is(err, kerr.GroupIDNotFound):
				out[g.Group] = group{}
			case err != nil:
				fail(g.Group, err)
			default:
				out[g.Group] = group{members: membersOf(g, assigned[g.Group])}
			}
		}
	}
	for name := range assigned {
		if _, ok := out[name]; !ok {
			fail(name, errLeftOut)
		}
	}
	return out
}

func membersOf(g *kmsg.DescribeGroupsResponseGroup, topic string) []member {
	members := make([]member, len(g.Members))
	for i := range g.Members {
		m := &g.Members[i]
		members[i] = member{id: m.MemberID, Member: Member{ClientID: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/")}}
		if m.InstanceID != nil {
			members[i].Instance = *m.InstanceID
		}
		var join kmsg.ConsumerMemberMetadata
		if join.ReadFrom(m.ProtocolMetadata) == nil {
			data := ours.Decode(join.UserData)
			members[i].Process = data.Process
			if !data.Since.IsZero() {
				members[i].Since = new(data.Since.UTC())
			}
		}
		var a kmsg.ConsumerMemberAssignment
		if a.ReadFrom(m.MemberAssignment) == nil {
			members[i].Owner = slices.ContainsFunc(a.Topics, func(t kmsg.ConsumerMemberAssignmentTopic) bool { return t.Topic == topic })
		}
	}
	slices.SortFunc(members, func(a, b member) int {
		if a.Owner != b.Owner {
			if a.Owner {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.id, b.id)
	})
	return members
}
