package kafkaerr

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Need is a permission that a request takes, in the words of Kafka's ACLs:
// what a broker refuses to say when it refuses the request.
type Need struct {
	Operation string // Read, Write, Describe, …
	flag      string // of kafka-acls.sh
	kind      string // of resource
	name      string // of the resource, empty for the cluster
	codes     []*kerr.Error
}

// OnTopic is a permission on a topic.
func OnTopic(operation, topic string) Need {
	codes := []*kerr.Error{kerr.TopicAuthorizationFailed}
	if operation == "Write" {
		// Who may write to no topic at all is refused a producer id, in the name
		// of the cluster.
		codes = append(codes, kerr.ClusterAuthorizationFailed)
	}
	return Need{operation, "--topic", "topic", topic, codes}
}

// OnGroup is a permission on a consumer group.
func OnGroup(operation, group string) Need {
	return Need{operation, "--group", "group", group, []*kerr.Error{kerr.GroupAuthorizationFailed}}
}

// OnTransactionalID is a permission on a transactional id.
func OnTransactionalID(operation, id string) Need {
	return Need{operation, "--transactional-id", "transactional id", id, []*kerr.Error{kerr.TransactionalIDAuthorizationFailed}}
}

// OnCluster is a permission on the cluster.
func OnCluster(operation string) Need {
	return Need{operation, "--cluster", "the cluster", "", []*kerr.Error{kerr.ClusterAuthorizationFailed}}
}

// String says the permission in words: "Read on topic shop.lane.search".
func (n Need) String() string {
	if n.name == "" {
		return n.Operation + " on " + n.kind
	}
	return n.Operation + " on " + n.kind + " " + n.name
}

// advice says how to get the permission.
func (n Need) advice() string {
	resource := n.flag
	if n.name != "" {
		resource += " " + n.name
	}
	return fmt.Sprintf("the user lacks %s: grant it by kafka-acls.sh --add --operation %s %s, or all that its role needs, see docs/security.md",
		n, n.Operation, resource)
}

// lacking returns the first of needs that err is about.
func lacking(err error, needs []Need) (Need, bool) {
	for _, n := range needs {
		for _, code := range n.codes {
			if errors.Is(err, code) {
				return n, true
			}
		}
	}
	return Need{}, false
}
