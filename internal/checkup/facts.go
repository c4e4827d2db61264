package checkup

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/topics"
)

// Facts are what a cluster says of what is under a pipeline, or under a feed.
type Facts struct {
	Pipeline topics.Pipeline
	Sinks    []string
	Feed     topics.Feed // the zero value for a pipeline
	Want     []topics.Spec
	Topics   topics.Cluster
	Internal []topics.Topic // Kafka's own: [OffsetsTopic], [TransactionsTopic]
	Brokers  []Broker
	Groups   []Group // of the sinks, in their order
	TooOld   error   // why a broker does not do, nil when all do

	Role    access.Role  // empty for none
	Allowed []Permission // of the role
}

// Kafka's own topics that a pipeline depends on.
const (
	OffsetsTopic      = "__consumer_offsets"
	TransactionsTopic = "__transaction_state"
)

// ofFeed reports whether it is a feed, and no pipeline.
func (f Facts) ofFeed() bool { return f.Feed != topics.Feed{} }

// writers are the transactional ids of whoever holds the lease.
func (f Facts) writers() []string {
	ids := make([]string, topics.WriterIDs)
	for i := range ids {
		if ids[i] = f.Pipeline.WriterID(i); f.ofFeed() {
			ids[i] = f.Feed.WriterID(i)
		}
	}
	return ids
}

// target is how commands name what is looked at.
func (f Facts) target() string {
	if f.ofFeed() {
		return "--feed " + f.Feed.String()
	}
	return fmt.Sprintf("--pipeline %s --sinks %s", f.Pipeline, strings.Join(f.Sinks, ","))
}

// Broker is what one broker says of its settings.
type Broker struct {
	ID       int32
	Settings map[string]string // those that [Judge] looks at; what it doesn't tell is absent
	Err      error
}

// Group is a sink's consumer group.
type Group struct {
	Sink, Name string
	Exists     bool
	Members    int
	Err        error
}

// Answer says what became of a question for a permission.
type Answer int

// The answers.
const (
	Unknown Answer = iota // it could not be asked
	Allowed
	Missing
)

// Permission is one that a role needs, and what the cluster says of it.
type Permission struct {
	access.Permission

	Answer Answer
	// Resources are those that the answer is about: the ones it is missing on,
	// or those it could not be asked for.
	Resources []string
	Why       string // it could not be asked
}

// resource is one that a permission is about, by its full name.
type resource struct {
	kind kmsg.ACLResourceType
	name string
}
