package security_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/lease"
	"github.com/flusso/flusso-kafka/topics"
)

// hang leaves a transaction open on a lane that its coordinator knows nothing of.
func (b *secured) hang(ctx context.Context, lane topics.Lane) error {
	return probe.Hang(ctx, append(b.super(), kgo.SeedBrokers(b.Addr())), lane.Pipeline.WriterID(3), lane.Topic())
}

// abortHanging leaves a hanging transaction behind, finds it and aborts it as a
// user, in the way that writers and the command line do.
func (b *secured) abortHanging(ctx context.Context, user []kgo.Opt, lane topics.Lane) error {
	cl, err := kgo.NewClient(user...)
	if err != nil {
		return err
	}
	defer cl.Close()
	state := lease.Describe(ctx, cl, lane.Pipeline, []topics.Lane{lane})
	if err := state.Err(); err != nil {
		return err
	}
	if len(state.Open) == 0 {
		if err := b.hang(ctx, lane); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
		state = lease.Describe(ctx, cl, lane.Pipeline, []topics.Lane{lane})
	}
	if err := state.Err(); err != nil {
		return err
	}
	if len(state.Open) != 1 || !state.Open[0].Hanging {
		return fmt.Errorf("set up: no transaction hangs: %+v", state.Open)
	}
	return lease.Abort(ctx, cl, state.Open[0])
}
