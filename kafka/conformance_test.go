package kafka_test

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/kafkatest"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/streamtest"
)

// pipeline is a pipeline on an in-process cluster.
type pipeline struct {
	*kafkatest.Pipeline
	cluster *kfaketest.Cluster
}

var _ streamtest.Stopper = pipeline{}

// Stop implements [streamtest.Stopper]: every connection breaks as soon as
// something is asked on it.
func (p pipeline) Stop(t *testing.T) (restart func()) {
	t.Helper()
	return p.cluster.Fault(t, kfaketest.Any, kfaketest.Fault{Mode: kfaketest.Disconnect, Times: -1}).Release
}

// open starts a cluster of its own for every pipeline.
func open(t *testing.T, sinks []string, tune func(*kafka.Config)) pipeline {
	t.Helper()
	c := kfaketest.New(t)
	return pipeline{kafkatest.Open(t, append(c.Opts(), kgo.DisableClientMetrics()), sinks, tune), c}
}

// TestConformance holds the adapter on the in-process broker against the
// contract. What only Apache Kafka can show runs in e2e as well.
func TestConformance(t *testing.T) {
	streamtest.Run(t, streamtest.Harness{
		Name: "kafka on the in-process broker",
		Run:  synctest.Test,
		Open: func(t *testing.T, sinks []string) streamtest.Pipeline { return open(t, sinks, nil) },
	})
}
