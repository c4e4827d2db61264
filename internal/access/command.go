package access

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kinds are resources as Kafka's tools and people call them.
var kinds = map[kmsg.ACLResourceType]struct{ flag, name, plural string }{
	kmsg.ACLResourceTypeTopic:           {"--topic", "topic", "topics"},
	kmsg.ACLResourceTypeGroup:           {"--group", "group", "groups"},
	kmsg.ACLResourceTypeTransactionalId: {"--transactional-id", "transactional id", "transactional ids"},
	kmsg.ACLResourceTypeCluster:         {"--cluster", "cluster", ""},
}

// operations are operations by the names that Kafka's tools and documentation
// give them.
var operations = map[kmsg.ACLOperation]string{
	kmsg.ACLOperationRead:            "Read",
	kmsg.ACLOperationWrite:           "Write",
	kmsg.ACLOperationCreate:          "Create",
	kmsg.ACLOperationDelete:          "Delete",
	kmsg.ACLOperationDescribe:        "Describe",
	kmsg.ACLOperationDescribeConfigs: "DescribeConfigs",
	kmsg.ACLOperationAlterConfigs:    "AlterConfigs",
	kmsg.ACLOperationClusterAction:   "ClusterAction",
}

// OperationName returns an operation as Kafka's tools write it: DescribeConfigs.
func OperationName(op kmsg.ACLOperation) string {
	if name, ok := operations[op]; ok {
		return name
	}
	return op.String()
}

// On returns what the permission is about: "topics shop.lane.*", "the cluster".
func (p Permission) On() string {
	k := kinds[p.Resource]
	switch {
	case p.Resource == kmsg.ACLResourceTypeCluster:
		return "the cluster"
	case p.Prefixed:
		return k.plural + " " + p.Name + "*"
	}
	return k.name + " " + p.Name
}

// String says the permission in words: "Read on topics shop.*".
func (p Permission) String() string { return OperationName(p.Operation) + " on " + p.On() }

// Commands returns the kafka-acls.sh commands that grant permissions to a user,
// one for each resource. bootstrap is how the tool reaches the brokers.
func Commands(bootstrap, user string, permissions []Permission) []string {
	type resource struct {
		kind     kmsg.ACLResourceType
		name     string
		prefixed bool
	}
	var order []resource
	granted := make(map[resource][]string)
	for _, p := range permissions {
		r := resource{p.Resource, p.Name, p.Prefixed}
		if granted[r] == nil {
			order = append(order, r)
		}
		granted[r] = append(granted[r], "--operation "+OperationName(p.Operation))
	}
	commands := make([]string, len(order))
	for i, r := range order {
		words := []string{"kafka-acls.sh", bootstrap, "--add --allow-principal User:" + user}
		words = append(words, granted[r]...)
		words = append(words, kinds[r.kind].flag)
		if r.kind != kmsg.ACLResourceTypeCluster {
			words = append(words, r.name)
		}
		if r.prefixed {
			words = append(words, "--resource-pattern-type prefixed")
		}
		commands[i] = strings.Join(words, " ")
	}
	return commands
}
