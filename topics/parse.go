package topics

import (
	"strconv"
	"strings"

	flusso "github.com/flusso/flusso-kafka"
)

// ParseSinkGroup is the inverse of [Lane.Group].
func ParseSinkGroup(group string) (Lane, error) {
	pipeline, sink, ok := strings.Cut(group, ".sink.")
	if !ok {
		return Lane{}, &flusso.NameError{Kind: "sink group", Name: group, Reason: "not of the form PIPELINE.sink.SINK"}
	}
	p, err := NewPipeline(pipeline)
	if err != nil {
		return Lane{}, err
	}
	return p.Lane(sink)
}

// ParseRequestsTopic is the inverse of [Pipeline.RequestsTopic].
func ParseRequestsTopic(topic string) (Pipeline, error) {
	return parseSuffix("requests topic", topic, ".requests")
}

// ParseIngestGroup is the inverse of [Pipeline.IngestGroup].
func ParseIngestGroup(group string) (Pipeline, error) {
	return parseSuffix("ingest group", group, ".ingest")
}

func parseSuffix(kind, name, suffix string) (Pipeline, error) {
	pipeline, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return Pipeline{}, &flusso.NameError{Kind: kind, Name: name, Reason: "not of the form PIPELINE" + suffix}
	}
	return NewPipeline(pipeline)
}

// ParseWriterID is the inverse of [Pipeline.WriterID].
func ParseWriterID(id string) (Pipeline, int, error) {
	pipeline, digits, ok := strings.Cut(id, ".writer.")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 || n >= WriterIDs || strconv.Itoa(n) != digits {
		return Pipeline{}, 0, &flusso.NameError{
			Kind: "transactional id", Name: id,
			Reason: "not of the form PIPELINE.writer.N with N from 0 to " + strconv.Itoa(WriterIDs-1),
		}
	}
	p, err := NewPipeline(pipeline)
	if err != nil {
		return Pipeline{}, 0, err
	}
	return p, n, nil
}
