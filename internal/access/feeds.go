package access

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/topics"
)

// The roles on a feed.
const (
	FeedReader   Role = "feed-reader"   // reads and looks: read, latest, feed describe, history, list and verify
	FeedWriter   Role = "feed-writer"   // appends and seals: append, feed resume, discard and repair, a gateway
	FeedOperator Role = "feed-operator" // creates and deletes feeds, and does what a writer does
)

// FeedRoles returns the roles on a feed, in the order in which they are documented.
func FeedRoles() []Role { return []Role{FeedReader, FeedWriter, FeedOperator} }

// ParseFeedRole returns the role on feeds of a name, or a
// [*flusso.InvalidError] that lists them.
func ParseFeedRole(name string) (Role, error) { return parse(name, FeedRoles()) }

// FeedPermissions returns what a role needs in Kafka on a feed, as
// [Role.Permissions] does on a pipeline. The bucket has permissions of its own.
func (r Role) FeedPermissions(f topics.Feed) ([]Permission, error) {
	// Names hold no dot: the prefix meets the two topics and the transactional
	// ids of this feed alone.
	all := f.WriterLease() + "."
	topic := func(op kmsg.ACLOperation, what string) Permission {
		return prefixed(kmsg.ACLResourceTypeTopic, all, op, what)
	}
	lease := prefixed(kmsg.ACLResourceTypeTransactionalId, all, kmsg.ACLOperationWrite, "the writer lease and its transactions")
	switch r {
	case FeedReader:
		return []Permission{topic(kmsg.ACLOperationRead, "records, and the feed's events")}, nil
	case FeedWriter:
		return []Permission{
			topic(kmsg.ACLOperationRead, "where its streams end, what is flushed, the feed's events"),
			topic(kmsg.ACLOperationDescribeConfigs, "the largest record that a topic takes"),
			topic(kmsg.ACLOperationWrite, "appending, and the feed's events"),
			literal(kmsg.ACLResourceTypeTopic, f.WALTopic(), kmsg.ACLOperationDelete, "trimming what is committed"),
			lease,
		}, nil
	case FeedOperator:
		return []Permission{
			topic(kmsg.ACLOperationRead, "what a writer reads"),
			topic(kmsg.ACLOperationWrite, "what a writer writes, and that a feed was created, or is being deleted"),
			topic(kmsg.ACLOperationCreate, "feed create"),
			topic(kmsg.ACLOperationAlterConfigs, "feed create, which sets what its topics need, and topic apply"),
			topic(kmsg.ACLOperationDelete, "trimming what is committed, and feed delete"),
			lease,
		}, nil
	case Viewer, Operator, Ingest, Sink: // on no feed
	}
	_, err := ParseFeedRole(string(r))
	return nil, err
}
