package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/requests"
)

func newRequest(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "request",
		Short: "Look at the request lane, ask for backfills, and take requests back",
		Long: `Look at the request lane, ask for backfills, and take requests back. A request
waits there until the ingest engine has completed it, also while no engine runs.`,
		Example: `  $ flusso-kafka-admin request list
  sink     offset    age  indexes
  archive       3  0.0 s  orders, customers`,
		Args: noArgs,
		RunE: nameOne,
	}
	t := addTarget(cmd, s)
	cmd.AddCommand(newRequestList(t), newRequestSend(t), newRequestCancel(t))
	return cmd
}

func newRequestList(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the requests that the ingest engine has not completed",
		Long: `List the requests that the ingest engine has not completed, oldest first. No
engine needs to run. 10,000 are listed at most.

Exit code 1 says that a record is no request of ours, or of a version that this
program does not know. Of the first kind an engine passes over, at the second it
stops: request cancel takes either back.`,
		Example: `  $ flusso-kafka-admin request list
  sink     offset    age  indexes
  archive       3  0.0 s  orders, customers`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.run(cmd.Context(), t.requestList)
		},
	}
}

func newRequestSend(t *target) *cobra.Command {
	var act *action
	cmd := &cobra.Command{
		Use:   "send SINK INDEX...",
		Short: "Ask the ingest engine for a backfill of a sink's indexes",
		Long: `Ask the ingest engine for a backfill: a snapshot of the indexes, published to the
lane of the sink and ended there by a marker. The request waits until an ingest
engine runs. The sink's engine keeps what it has: drop its index first where it
should be built anew.

Index names are not checked: only the ingest engine knows the source's, and it
refuses or ignores others. Mind the spelling.`,
		Example: `  $ flusso-kafka-admin request send archive orders customers --yes
  backfill of orders, customers for archive: its requests waiting 0 → 1 (sent)`,

		ValidArgsFunction: completeSinks(t),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("name a sink and at least one index: see %s --help", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := act.check("a backfill publishes every row of an index to a lane"); err != nil {
				return err
			}
			b := &flusso.Backfill{Sink: args[0], Indexes: args[1:]}
			if err := flusso.CheckRequest(b, []string{b.Sink}); err != nil {
				return usageError{err}
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error { return t.requestSend(ctx, c, b, act.dry) })
		},
	}
	act = addAction(cmd)
	return cmd
}

func (t *target) requestList(ctx context.Context, c *cluster) error {
	list, more, err := c.pending(ctx)
	if err != nil {
		return err
	}
	if t.format == "json" {
		err = writeJSON(t.out, struct {
			Pipeline string           `json:"pipeline"`
			Requests []status.Request `json:"requests"`
			More     bool             `json:"more,omitempty"`
		}{c.pipeline.String(), list, more})
	} else if err = writeRequests(t, list); err == nil && more {
		_, err = fmt.Fprintln(t.out, "more wait behind these, which are the oldest")
	}
	if err != nil {
		return err
	}
	var what []string
	for _, r := range list {
		if r.Error != "" {
			what = append(what, r.Error)
		}
	}
	return found(what)
}

func writeRequests(t *target, list []status.Request) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(t.out, "no request waits")
		return err
	}
	tab := &table{right: []bool{false, true, true, false}}
	tab.add("sink", "offset", "age", "indexes")
	for _, r := range list {
		what := strings.Join(r.Indexes, ", ")
		if r.Error != "" {
			what = r.Error
		}
		tab.add(r.Sink, flusso.Offset(r.Offset).String(), status.Age(r.Seconds), what)
	}
	return tab.writeTo(t.out)
}

func (t *target) requestSend(ctx context.Context, c *cluster, b *flusso.Backfill, dry bool) error {
	known := sinksOf(c.lanes)
	if err := flusso.CheckSink(b.Sink, known); err != nil {
		return err
	}
	before, _, err := c.pending(ctx)
	if err != nil {
		return err
	}
	mine := func(r status.Request) bool { return r.Sink == b.Sink }
	waits := 0
	for _, r := range before {
		if mine(r) {
			waits++
		}
	}
	answer := struct {
		Pipeline string   `json:"pipeline"`
		Sink     string   `json:"sink"`
		Indexes  []string `json:"indexes"`
		Before   int      `json:"waitingBefore"`
		Sent     bool     `json:"sent"`
	}{c.pipeline.String(), b.Sink, b.Indexes, waits, false}
	if !dry {
		if err := c.send(ctx, b); err != nil {
			return err
		}
		answer.Sent = true
	}
	if t.format == "json" {
		return writeJSON(t.out, answer)
	}
	outcome := "sent"
	if dry {
		outcome = "dry run, nothing sent"
	}
	return paragraph(t.out, "", fmt.Sprintf("backfill of %s for %s: its requests waiting %d → %d (%s)",
		strings.Join(b.Indexes, ", "), b.Sink, waits, waits+1, outcome))
}

// send publishes a request and waits until it is durable.
func (c *cluster) send(ctx context.Context, b *flusso.Backfill) error {
	producer, err := requests.NewProducer(c.pipeline, sinksOf(c.lanes), c.Opts())
	if err != nil {
		return err
	}
	_, err = producer.Publish(ctx, b)
	return errors.Join(err, producer.Close(ctx))
}

// pending returns the requests that the ingest group has not acked; more says
// that others wait behind them.
func (c *cluster) pending(ctx context.Context) (list []status.Request, more bool, err error) {
	got, more, err := requests.List(ctx, c.Client.Client, c.pipeline)
	return status.RequestsOf(c.pipeline, got, time.Now()), more, err
}
