package security_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/kafka"
)

// run returns the action of a command that ends with exit code 0 for a user that
// may do what it takes. What it says otherwise shows no secret.
func (b *secured) run(t *testing.T, a *probe.Admin, args ...string) action {
	t.Helper()
	name := args[0]
	for _, arg := range args[1:] {
		name += " " + arg
	}
	return action{name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, shortly)
		defer cancel()
		got, err := a.Run(ctx, args...)
		if err != nil {
			return err
		}
		b.discreet(t, got)
		return got.Err()
	}}
}

// looks returns the action of a command that looks: it may find what it likes,
// as long as it was allowed to look.
func (b *secured) looks(t *testing.T, a *probe.Admin, args ...string) action {
	t.Helper()
	act := b.run(t, a, args...)
	act.do = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, shortly)
		defer cancel()
		got, err := a.Run(ctx, args...)
		if err != nil {
			return err
		}
		b.discreet(t, got)
		if got.Code > 1 || got.Out == "" || strings.Contains(got.Out+got.Stderr, "lacks") || strings.Contains(got.Out+got.Stderr, "AUTHORIZATION") {
			return errors.New(got.String())
		}
		return nil
	}
	return act
}

// applied publishes a batch and acks all there is in lanes, as the super user.
func (b *secured) applied(ctx context.Context, of ...string) error {
	source := kafka.Config{Sinks: sinks, Incarnation: incarnation, Client: append(b.super(), kgo.SeedBrokers(b.Addr()))}
	if err := stream(ctx, source, publish); err != nil {
		return err
	}
	for _, sink := range of {
		if err := b.ackAll(ctx, sink); err != nil {
			return err
		}
	}
	return nil
}

func (b *secured) idle(t *testing.T) {
	t.Helper()
	if err := b.applied(t.Context(), sinks...); err != nil {
		t.Fatal(err)
	}
}

func TestF4_what_a_viewer_needs(t *testing.T) {
	b := broker(t)
	b.prepare(t)
	b.idle(t)
	a := b.command(t, "viewer")
	actions := []action{
		b.looks(t, a, "status"),
		b.looks(t, a, "lag"),
		b.looks(t, a, "watermark"),
		b.looks(t, a, "watermark", "explain"),
		b.looks(t, a, "lane", "list"),
		b.looks(t, a, "lane", "describe", "search"),
		b.looks(t, a, "lane", "peek", "search"),
		b.looks(t, a, "offset", "translate", "search", "--position", fmt.Sprint(position.Load())),
		b.looks(t, a, "request", "list"),
		b.looks(t, a, "topic", "plan"),
	}
	b.prove(t, "viewer", access.Viewer, "audit,search", actions, map[string]lack{
		"Read on topics shop.*":                       {"lag", []string{"Read on topic shop.lane."}},
		"DescribeConfigs on topics shop.*":            {"status", []string{"DescribeConfigs on topic shop."}},
		"Describe on groups shop.*":                   {"status", []string{"Describe on group shop."}},
		"Describe on transactional ids shop.writer.*": {"status", []string{"Describe on transactional id shop.writer"}},
		"DescribeConfigs on the cluster":              {"status", []string{"DescribeConfigs on the cluster"}},
	})
}

func TestF4_what_an_operator_needs(t *testing.T) {
	b := broker(t)
	b.prepare(t)
	b.idle(t)
	super := b.admin(t)
	a, root := b.command(t, "operator"), b.root(t)
	// What another operator did before, who may do anything.
	did := func(args ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := root.Run(ctx, args...)
			if err == nil {
				err = got.Err()
			}
			return err
		}
	}
	// extra is a lane that nobody publishes to and that is retired.
	extra := func(ctx context.Context) error {
		if err := did("topic", "apply", "--sinks", "audit,extra,search", "--yes")(ctx); err != nil {
			return err
		}
		got, err := root.Run(ctx, "lane", "retire", "extra", "--why", "to be deleted", "--yes")
		if err == nil && !strings.Contains(got.Out+got.Stderr, "retired") {
			err = got.Err()
		}
		return err
	}
	gone := func(ctx context.Context) error { return deleteTopic(ctx, super, "shop.lane.extra") }
	t.Cleanup(func() {
		if err := gone(context.Background()); err != nil {
			t.Error(err)
		}
	})
	actions := []action{
		b.looks(t, a, "status"),
		b.looks(t, a, "writer", "describe"),
		before(b.run(t, a, "topic", "apply", "--sinks", "audit,extra,search", "--yes"), gone),
		before(b.run(t, a, "topic", "apply", "--yes"), func(ctx context.Context) error {
			got, err := super.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: new("86400000")}}, "shop.requests")
			if err != nil {
				return err
			}
			return got[0].Err
		}),
		before(b.run(t, a, "lane", "delete", "extra", "--yes"), extra),
		b.run(t, a, "request", "send", "search", "orders", "--yes"),
		before(b.run(t, a, "request", "cancel", "--all", "--yes"), did("request", "send", "search", "orders", "--yes")),
		b.run(t, a, "lane", "rewind", "search", "--to-earliest", "--yes"),
		b.run(t, a, "lane", "accept", "search", "--yes"),
		before(b.run(t, a, "lane", "trim", "audit", "--yes"), func(ctx context.Context) error { return b.applied(ctx, "audit") }),
		b.run(t, a, "writer", "fence", "--yes"),
		{"abort a transaction that hangs", func(ctx context.Context) error { return b.abortHanging(ctx, b.as("operator"), lane(t, "audit")) }},
	}
	const apply = "topic apply --sinks audit,extra,search --yes"
	b.prove(t, "operator", access.Operator, "audit,search", actions, map[string]lack{
		"Read on topics shop.*":                    {"status", []string{"Read on topic shop.lane."}},
		"Write on topics shop.*":                   {"request send search orders --yes", []string{"Write on topic shop.requests"}},
		"Create on topics shop.*":                  {apply, []string{"Create on topic shop.lane.extra"}},
		"AlterConfigs on topics shop.*":            {"topic apply --yes", []string{"AlterConfigs on topic shop.requests"}},
		"Delete on topics shop.*":                  {"lane trim audit --yes", []string{"Delete on topic shop.lane.audit"}},
		"Read on groups shop.*":                    {"lane rewind search --to-earliest --yes", []string{"Read on group shop.sink.search"}},
		"Delete on groups shop.*":                  {"lane delete extra --yes", []string{"Delete on group shop.sink.extra"}},
		"Write on transactional ids shop.writer.*": {"writer fence --yes", []string{"Write on transactional id shop.writer.0"}},
		"DescribeConfigs on the cluster":           {"status", []string{"DescribeConfigs on the cluster"}},
		"ClusterAction on the cluster":             {"abort a transaction that hangs", []string{"ClusterAction on the cluster"}},
	})
}

// root returns the command line of the user that may do anything.
func (b *secured) root(t *testing.T) *probe.Admin {
	t.Helper()
	return b.command(t, superUser).With("FLUSSO_KAFKA_SASL_MECHANISM=PLAIN", "FLUSSO_KAFKA_SASL_PASSWORD="+b.secrets.super)
}

// before returns the action with what has to be so before it, made by the super
// user.
func before(act action, set func(context.Context) error) action {
	return action{act.name, func(ctx context.Context) error {
		if err := set(ctx); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
		return act.do(ctx)
	}}
}

// deleteTopic deletes a topic, if it is there, and waits until it is gone.
func deleteTopic(ctx context.Context, super *kadm.Client, topic string) error {
	for {
		got, err := super.DeleteTopics(ctx, topic)
		if err != nil {
			return err
		}
		if err := got[topic].Err; errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
