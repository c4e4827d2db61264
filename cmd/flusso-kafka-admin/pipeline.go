package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// envPipeline is the default of --pipeline.
const envPipeline = "FLUSSO_KAFKA_PIPELINE"

// target is what every command on a pipeline takes: which cluster, which
// pipeline, and how to answer.
type target struct {
	connection

	name  string // of the pipeline
	sinks []string
}

// addTarget registers the flags on cmd and on the commands below it.
func addTarget(cmd *cobra.Command, s streams) *target {
	return addTargetTo(cmd, cmd.PersistentFlags(), s)
}

// addTargetTo registers them on flags of cmd.
func addTargetTo(cmd *cobra.Command, flags *pflag.FlagSet, s streams) *target {
	t := &target{connection: connection{streams: s}}
	t.add(cmd, flags)
	flags.StringVar(&t.name, "pipeline", s.getenv(envPipeline), "`name` of the pipeline ($"+envPipeline+")")
	flags.StringSliceVar(&t.sinks, "sinks", nil, "sinks of the pipeline (default: those with a topic PIPELINE.lane.SINK)")
	// Each fails for a flag that is not there: TestCompletion would miss it.
	_ = cmd.RegisterFlagCompletionFunc("pipeline", completePipelines(t))
	_ = cmd.RegisterFlagCompletionFunc("sinks", completeSinkList(t))
	return t
}

// cluster is a target that answered.
type cluster struct {
	*connect.Client

	admin    *kadm.Client
	store    *offsets.Store
	pipeline topics.Pipeline
	lanes    []topics.Lane // sorted by sink
}

// run connects, finds the lanes, and has do answer within the timeout.
// extra goes to its client.
func (t *target) run(ctx context.Context, do func(context.Context, *cluster) error, extra ...kgo.Opt) error {
	p, err := t.check()
	if err != nil {
		return err
	}
	return t.connected(ctx, func(ctx context.Context, client *connect.Client) error {
		c := &cluster{Client: client, admin: kadm.NewClient(client.Client), store: offsets.New(client.Client), pipeline: p}
		if c.lanes, err = t.lanes(ctx, c); err != nil {
			return err
		}
		return do(ctx, c)
	}, extra...)
}

// connected connects and has do answer, within the timeout.
func (t *target) connected(ctx context.Context, do func(context.Context, *connect.Client) error, extra ...kgo.Opt) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	client, err := t.Dial(ctx, extra...)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Explain(ctx, do(ctx, client))
}

// check refuses what no cluster needs to be asked about.
func (t *target) check() (topics.Pipeline, error) {
	if t.name == "" {
		return topics.Pipeline{}, usageError{fmt.Errorf("no pipeline named: give --pipeline or set %s, or choose a profile that names one with --profile (profile list)", envPipeline)}
	}
	if err := t.connection.check(); err != nil {
		return topics.Pipeline{}, err
	}
	return topics.NewPipeline(t.name)
}

// lanes returns the lanes that --sinks names, else those that have a topic.
func (t *target) lanes(ctx context.Context, c *cluster) ([]topics.Lane, error) {
	if len(t.sinks) > 0 {
		var lanes []topics.Lane
		for _, sink := range t.sinks {
			l, err := c.pipeline.Lane(sink)
			if err != nil {
				return nil, err
			}
			lanes = append(lanes, l)
		}
		return sorted(lanes), nil
	}
	all, err := laneTopics(ctx, c.Client)
	if err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", t.name, err)
	}
	lanes := slices.DeleteFunc(slices.Clone(all), func(l topics.Lane) bool { return l.Pipeline != c.pipeline })
	if len(lanes) == 0 {
		return nil, status.NewNoLanesError(c.pipeline, all)
	}
	return sorted(lanes), nil
}

// laneTopics returns the lanes of all pipelines that a cluster shows topics of.
func laneTopics(ctx context.Context, client *connect.Client) ([]topics.Lane, error) {
	all, err := topics.New(client.Client).Read(ctx, nil)
	if err != nil {
		return nil, err
	}
	var lanes []topics.Lane
	for _, name := range all.Names {
		if l, err := topics.ParseLaneTopic(name); err == nil {
			lanes = append(lanes, l)
		}
	}
	return lanes, nil
}

func sorted(lanes []topics.Lane) []topics.Lane {
	slices.SortFunc(lanes, func(a, b topics.Lane) int { return strings.Compare(a.Sink, b.Sink) })
	return slices.Compact(lanes)
}

// sinksOf names the sinks of lanes.
func sinksOf(lanes []topics.Lane) []string {
	names := make([]string, len(lanes))
	for i, l := range lanes {
		names[i] = l.Sink
	}
	return names
}
