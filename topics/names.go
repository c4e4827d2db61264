package topics

import (
	"errors"
	"strconv"
	"strings"

	flusso "github.com/flusso/flusso-kafka"
)

// WriterIDs is the number of transactional ids a writer takes turns over. It
// is part of the format: opening a writer fences all of them.
const WriterIDs = 4

// Pipeline derives the names in Kafka of everything a pipeline owns. The zero
// value is not valid: use [NewPipeline].
type Pipeline struct{ name string }

// NewPipeline accepts a pipeline name, or returns a [*flusso.NameError].
func NewPipeline(name string) (Pipeline, error) {
	if err := flusso.CheckName("pipeline", name); err != nil {
		return Pipeline{}, err
	}
	return Pipeline{name}, nil
}

// String returns the pipeline's name.
func (p Pipeline) String() string { return p.name }

// Lane returns the names of a sink's lane, or a [*flusso.NameError].
func (p Pipeline) Lane(sink string) (Lane, error) {
	if err := flusso.CheckName("sink", sink); err != nil {
		return Lane{}, err
	}
	return Lane{Pipeline: p, Sink: sink}, nil
}

// RequestsTopic returns the name of the request lane's topic.
func (p Pipeline) RequestsTopic() string { return p.name + ".requests" }

// IngestGroup returns the group that reads requests and mirrors lane offsets.
func (p Pipeline) IngestGroup() string { return p.name + ".ingest" }

// WriterLease returns the prefix of the writer's transactional ids.
func (p Pipeline) WriterLease() string { return p.name + ".writer" }

// WriterID returns transactional id i, 0 ≤ i < [WriterIDs].
func (p Pipeline) WriterID(i int) string { return p.WriterLease() + "." + strconv.Itoa(i) }

// Lane names a sink's lane in Kafka. It is comparable.
type Lane struct {
	Pipeline Pipeline
	Sink     string
}

// Topic returns the lane's topic; it has exactly one partition, 0.
func (l Lane) Topic() string { return l.Pipeline.name + ".lane." + l.Sink }

// Group returns the sink's consumer group.
func (l Lane) Group() string { return l.Pipeline.name + ".sink." + l.Sink }

var errNotALane = errors.New("not of the form PIPELINE.lane.SINK")

// ParseLaneTopic is the inverse of [Lane.Topic].
func ParseLaneTopic(topic string) (Lane, error) {
	pipeline, sink, ok := strings.Cut(topic, ".lane.")
	if !ok {
		return Lane{}, &flusso.NameError{Kind: "lane topic", Name: topic, Reason: errNotALane.Error()}
	}
	p, err := NewPipeline(pipeline)
	if err != nil {
		return Lane{}, err
	}
	return p.Lane(sink)
}
