// Package access says which permissions each kind of Kafka user needs on a
// pipeline or a feed, and no more than these: one table, which the check of a user's
// permissions, the end-to-end tests and docs/security.md share.
//
// The two types to know are [Role] and [Permission].
package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// Role is a kind of user: what it does with a pipeline, or with a feed.
type Role string

// The roles on a pipeline.
const (
	Viewer   Role = "viewer"   // looks: every command that changes nothing, and the server
	Operator Role = "operator" // acts: every command
	Ingest   Role = "ingest"   // an ingest engine
	Sink     Role = "sink"     // the engine of one sink
)

// Roles returns the roles on a pipeline, in the order in which they are documented.
func Roles() []Role { return []Role{Viewer, Operator, Ingest, Sink} }

// ParseRole returns the role of a name, or a [*flusso.InvalidError] that lists them.
func ParseRole(name string) (Role, error) { return parse(name, Roles()) }

func parse(name string, roles []Role) (Role, error) {
	if slices.Contains(roles, Role(name)) {
		return Role(name), nil
	}
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return "", &flusso.InvalidError{What: fmt.Sprintf("role %q", name), Reason: "use one of " + strings.Join(names, ", ")}
}

// Permission is one operation on one resource, as an ACL of Kafka grants it.
type Permission struct {
	Resource  kmsg.ACLResourceType // topic, group, transactional id or cluster
	Name      string               // of the resource, or the prefix of its name
	Prefixed  bool                 // whether Name is a prefix
	Operation kmsg.ACLOperation
	For       string // what it is needed for
	// Without says what becomes of a role that goes without; empty where it does not work then.
	Without string
}

// ClusterName is the name of the one cluster resource.
const ClusterName = "kafka-cluster"

// Permissions returns what a role needs on a pipeline, the needed ones before
// those that it can do without. sink is that of [Sink], and ignored for the others.
//
// An operation that another one implies is left out: Kafka grants Describe to
// whoever may read, write, delete or alter, and DescribeConfigs with AlterConfigs.
func (r Role) Permissions(p topics.Pipeline, sink string) ([]Permission, error) {
	n := names{all: p.String() + ".", lanes: p.String() + ".lane.", sinks: p.String() + ".sink.", writers: p.WriterLease() + ".", pipeline: p}
	switch r {
	case Viewer:
		return n.viewer(), nil
	case Operator:
		return n.operator(), nil
	case Ingest:
		return n.ingest(), nil
	case Sink:
		l, err := p.Lane(sink)
		if err != nil {
			return nil, err
		}
		return n.sink(l), nil
	case FeedReader, FeedWriter, FeedOperator: // on no pipeline
	}
	_, err := ParseRole(string(r))
	return nil, err
}

// names are the names that permissions are about. A pipeline's name holds no
// dot, so that no other pipeline's names begin with these prefixes.
type names struct {
	all      string // prefix of every topic and group
	lanes    string // prefix of the lanes' topics
	sinks    string // prefix of the sinks' groups
	writers  string // prefix of the writer's transactional ids
	pipeline topics.Pipeline
}

func (n names) viewer() []Permission {
	return []Permission{
		prefixed(kmsg.ACLResourceTypeTopic, n.all, kmsg.ACLOperationRead, "headers of the lanes, waiting requests, who writes"),
		prefixed(kmsg.ACLResourceTypeTopic, n.all, kmsg.ACLOperationDescribeConfigs, "retention and the other topic settings"),
		prefixed(kmsg.ACLResourceTypeGroup, n.all, kmsg.ACLOperationDescribe, "acked offsets and members of the groups"),
		prefixed(kmsg.ACLResourceTypeTransactionalId, n.writers, kmsg.ACLOperationDescribe, "state of the writer's transactional ids"),
		cluster(kmsg.ACLOperationDescribeConfigs, "broker settings, for how long offsets are kept among them"),
	}
}

func (n names) operator() []Permission {
	return []Permission{
		prefixed(kmsg.ACLResourceTypeTopic, n.all, kmsg.ACLOperationRead, "what a viewer reads, and commits to groups"),
		prefixed(kmsg.ACLResourceTypeTopic, n.all, kmsg.ACLOperationWrite, "request send, lane replay"),
		prefixed(kmsg.ACLResourceTypeTopic, n.all, kmsg.ACLOperationCreate, "topic apply, where a topic is missing"),
		prefixed(kmsg.ACLResourceTypeTopic, n.all, kmsg.ACLOperationAlterConfigs, "topic settings: looking at them, and topic apply where one is unsafe"),
		prefixed(kmsg.ACLResourceTypeTopic, n.all, kmsg.ACLOperationDelete, "lane trim, lane delete"),
		prefixed(kmsg.ACLResourceTypeGroup, n.all, kmsg.ACLOperationRead, "lane accept, rewind, skip, retire and restore, request cancel"),
		prefixed(kmsg.ACLResourceTypeGroup, n.all, kmsg.ACLOperationDelete, "lane delete"),
		prefixed(kmsg.ACLResourceTypeTransactionalId, n.writers, kmsg.ACLOperationWrite, "writer fence, lane replay"),
		cluster(kmsg.ACLOperationDescribeConfigs, "broker settings, for how long offsets are kept among them"),
		optional(cluster(kmsg.ACLOperationClusterAction, "writer fence --abort-hanging"),
			"a transaction that a broker left behind is ended by kafka-transactions.sh abort, as another user"),
	}
}

func (n names) ingest() []Permission {
	return []Permission{
		prefixed(kmsg.ACLResourceTypeTopic, n.all, kmsg.ACLOperationRead, "headers of the lanes, requests, the offsets committed for both"),
		prefixed(kmsg.ACLResourceTypeTopic, n.all, kmsg.ACLOperationDescribeConfigs, "the check of the topics at open"),
		prefixed(kmsg.ACLResourceTypeTopic, n.lanes, kmsg.ACLOperationWrite, "publishing"),
		prefixed(kmsg.ACLResourceTypeTopic, n.lanes, kmsg.ACLOperationDelete, "trimming what every sink has acked"),
		prefixed(kmsg.ACLResourceTypeGroup, n.sinks, kmsg.ACLOperationDescribe, "the sinks' acked offsets: the watermark"),
		literal(kmsg.ACLResourceTypeGroup, n.pipeline.IngestGroup(), kmsg.ACLOperationRead, "requests, and the mirror of the sinks' offsets"),
		prefixed(kmsg.ACLResourceTypeTransactionalId, n.writers, kmsg.ACLOperationWrite, "the writer's lease and its transactions"),
		optional(cluster(kmsg.ACLOperationClusterAction, "aborting transactions that a broker left behind when it went down"),
			"opening fails while there is such a transaction, until kafka-transactions.sh abort ends it"),
		optional(cluster(kmsg.ACLOperationDescribeConfigs, "for how long brokers keep offsets of groups that are empty"),
			"the mirror goes by Kafka's default, seven days"),
	}
}

func (n names) sink(l topics.Lane) []Permission {
	return []Permission{
		literal(kmsg.ACLResourceTypeTopic, l.Topic(), kmsg.ACLOperationRead, "the items of its lane"),
		literal(kmsg.ACLResourceTypeTopic, l.Topic(), kmsg.ACLOperationDescribeConfigs, "the check of the topics at open"),
		literal(kmsg.ACLResourceTypeGroup, l.Group(), kmsg.ACLOperationRead, "membership, and what it acked"),
		literal(kmsg.ACLResourceTypeGroup, n.pipeline.IngestGroup(), kmsg.ACLOperationDescribe, "the mirror of its offsets, where its group expired"),
		literal(kmsg.ACLResourceTypeTopic, n.pipeline.RequestsTopic(), kmsg.ACLOperationWrite, "asking for backfills"),
		literal(kmsg.ACLResourceTypeTopic, n.pipeline.RequestsTopic(), kmsg.ACLOperationDescribeConfigs, "the check of the topics at open"),
	}
}

func prefixed(resource kmsg.ACLResourceType, prefix string, op kmsg.ACLOperation, what string) Permission {
	return Permission{Resource: resource, Name: prefix, Prefixed: true, Operation: op, For: what}
}

func literal(resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation, what string) Permission {
	return Permission{Resource: resource, Name: name, Operation: op, For: what}
}

func cluster(op kmsg.ACLOperation, what string) Permission {
	return Permission{Resource: kmsg.ACLResourceTypeCluster, Name: ClusterName, Operation: op, For: what}
}

func optional(p Permission, without string) Permission {
	p.Without = without
	return p
}
