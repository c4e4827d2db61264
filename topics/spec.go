package topics

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	flusso "github.com/flusso/flusso-kafka"
)

// Names of topic settings in Kafka.
const (
	RetentionMs    = "retention.ms"
	RetentionBytes = "retention.bytes"
	CleanupPolicy  = "cleanup.policy"
	MinInsync      = "min.insync.replicas"
	Unclean        = "unclean.leader.election.enable"
	TimestampType  = "message.timestamp.type"
	MaxMessage     = "max.message.bytes"
)

// Names that findings use for what is not a setting.
const (
	Existence   = "topic"
	Partitions  = "partitions"
	Replication = "replication factor"
	InSync      = "in-sync replicas"
	Name        = "name"
)

// Options are what an operator chooses for the topics of a pipeline. The zero
// value takes the cluster's defaults.
type Options struct {
	ReplicationFactor int // 0: the broker's default.replication.factor
	MaxMessageBytes   int // 0: the broker's message.max.bytes; bounds a compressed record batch
}

// check returns a [*flusso.InvalidError] for options Kafka cannot take.
func (o Options) check() error {
	switch {
	case o.ReplicationFactor < 0 || o.ReplicationFactor > math.MaxInt16:
		return &flusso.InvalidError{What: "topic options", Reason: "replication factor " + strconv.Itoa(o.ReplicationFactor) + ": 1 and up, or 0 for the broker's default"}
	case o.MaxMessageBytes < 0 || o.MaxMessageBytes > math.MaxInt32:
		return &flusso.InvalidError{What: "topic options", Reason: MaxMessage + " " + strconv.Itoa(o.MaxMessageBytes) + ": 1 to 2147483647, or 0 for the broker's default"}
	}
	return nil
}

// Spec is a topic that a pipeline needs. Lanes and the request lane need the
// same settings: one partition keeps order, and nothing may delete what was
// not acked.
type Spec struct {
	Topic   string
	Options Options
}

// Specs returns what a pipeline with the given sinks needs, the requests topic
// first and the lanes sorted by sink. Errors are [*flusso.NameError] and
// [*flusso.InvalidError].
func (p Pipeline) Specs(sinks []string, o Options) ([]Spec, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	specs := []Spec{{p.RequestsTopic(), o}}
	sinks = slices.Clone(sinks)
	slices.Sort(sinks)
	for i, sink := range sinks {
		if i > 0 && sinks[i-1] == sink {
			return nil, &flusso.InvalidError{What: "sinks of pipeline " + p.name, Reason: fmt.Sprintf("%q is named twice", sink)}
		}
		lane, err := p.Lane(sink)
		if err != nil {
			return nil, err
		}
		specs = append(specs, Spec{lane.Topic(), o})
	}
	return specs, nil
}

// rule is one setting that every topic of a pipeline needs.
type rule struct {
	setting, want, why string
}

var rules = []rule{
	{CleanupPolicy, "delete", "compaction drops items that were not acked, and trimming needs delete"},
	{RetentionMs, "-1", "the broker deletes items that were not acked when they get old"},
	{RetentionBytes, "-1", "the broker deletes items that were not acked when the topic gets large"},
	{Unclean, "false", "an unclean election loses items that were acknowledged to the writer"},
	{TimestampType, "CreateTime", "the time a document was built would be replaced by the time of the append"},
}

// Fixed names the settings whose value every topic of a pipeline shares.
func Fixed() []string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.setting
	}
	return names
}

// minInsync returns what min.insync.replicas must at least be. With one
// replica there is no choice. With more, an acknowledged item must be on two
// brokers, or the loss of one takes items with it that the writer, and soon
// the source, take for safe; with exactly two replicas that costs
// availability while one of them is down.
func minInsync(replicas int) int { return min(max(replicas, 1), 2) }
