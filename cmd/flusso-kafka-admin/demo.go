package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/demo"
)

func newDemo(s streams) *cobra.Command {
	var (
		length time.Duration
		data   string
		seed   uint64
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole pipeline in this process, with nothing installed",
		Long: `Run a whole pipeline in this process: an embedded broker, a synthetic source,
one fast and one slow sink. Half-way the fast sink loses an index and asks for
it again; later the slow one is killed, and a fresh one takes its lane over. At
the end each sink's state is compared with the source's, row by row; a
difference exits 1.

With --data the broker, the source and the sinks keep everything there, and the
next run over the same directory goes on from it, also after a kill -9. The
embedded broker is for trying and for tests; production is Apache Kafka.`,
		Example: `  $ flusso-kafka-admin demo --for 14s
  new source demo-1-7edc5142
  …
  00:14  source 856,879  watermark 856,879, all lanes drained
         archive  waiting   acked      856,879       0 batches       0 envelopes   0.0 s behind
         search   waiting   acked      856,879       0 batches       0 envelopes   0.0 s behind

  sink     index     source rows  documents  missing    extra different  result
  archive  customers         300        300        0        0         0  equal
  archive  orders            995        995        0        0         0  equal
  search   customers         300        300        0        0         0  equal
  search   orders            995        995        0        0         0  equal

  $ flusso-kafka-admin demo --data ./demo-data --seed 42   # goes on from there the next time`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if length < time.Second {
				return usageError{fmt.Errorf("--for %s: give at least 1s", length)}
			}
			return runDemo(cmd.Context(), s, length, data, seed)
		},
	}
	cmd.Flags().DurationVar(&length, "for", 20*time.Second, "how `long` to run, the final drain included where it fits")
	cmd.Flags().StringVar(&data, "data", "", "`directory` that keeps everything (default: a temporary one, removed at the end)")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "`number` that a new source is made from")
	return cmd
}

func runDemo(ctx context.Context, s streams, length time.Duration, data string, seed uint64) (err error) {
	kept := data != ""
	if !kept {
		data, err = os.MkdirTemp("", "flusso-demo-")
		if err != nil {
			return fmt.Errorf("make a directory for the demo: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	}
	stream, err := openDemo(ctx, data, seed)
	if err != nil {
		return err
	}
	// Closing is bounded: an interrupt has a second for all of it.
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin(ctx))
		defer cancel()
		cerr := stream.close(closing)
		// After an interrupt, that not everything was acked is no news.
		if ctx.Err() == nil {
			err = errors.Join(err, cerr)
		}
	}()

	var view demo.View = demo.NewPlain(s.out)
	if s.columns > 0 {
		view = demo.NewTerminal(s.out, s.columns)
	}
	if err := greet(s.out, stream, cmp.Or(s.called, program), data, kept, seed); err != nil {
		return err
	}
	runner, err := demo.New(demo.Config{Stream: stream, Source: stream.source, Dir: data, For: length, View: view, Lags: stream.lags()})
	if err != nil {
		return err
	}
	comparison, err := runner.Run(ctx)
	if ctx.Err() != nil {
		if kept {
			return fmt.Errorf("interrupted before the comparison: run again with --data %s to go on", data)
		}
		return errors.New("interrupted before the comparison")
	}
	if err != nil && !errors.Is(err, demo.ErrDifferent) {
		return err
	}
	if werr := conclude(s.out, comparison, runner, stream.source); werr != nil {
		return errors.Join(err, werr)
	}
	return err
}

// closeWithin is short after an interrupt.
func closeWithin(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return grace / 3
	}
	return 10 * time.Second
}

// greet says how to look at the demo, by the program as it was called.
func greet(w io.Writer, stream *demoStream, called, data string, kept bool, seed uint64) error {
	source := stream.source
	what := fmt.Sprintf("new source %s", source.Incarnation())
	if source.Resumed() {
		what = fmt.Sprintf("source %s goes on at position %s", source.Incarnation(), source.Position())
		if seed != source.Seed() {
			what += fmt.Sprintf(" (it keeps its seed %d)", source.Seed())
		}
	}
	where := data
	if !kept {
		where += ", removed at the end"
	}
	_, err := fmt.Fprintf(w, `%s
data in %s
embedded broker, for trying only; look at it from another terminal meanwhile:
  %s status --pipeline %s --brokers %s

`, what, where, called, demoPipeline, stream.broker.Addr())
	return err
}

func conclude(w io.Writer, comparison demo.Comparison, runner *demo.Runner, source *demo.Source) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if _, err := comparison.WriteTo(w); err != nil {
		return err
	}
	n := runner.Counts()
	_, err := fmt.Fprintf(w, "\nlast position %s, confirmed %s\ningest: %s published, %d replayed and dropped,\n        %s served, %s\n",
		source.Position(), source.Confirmed(), count(n.Batches, "batch", "batches"), n.Replayed,
		count(n.Snapshots, "backfill", "backfills"), count(n.Sessions, "writer session", "writer sessions"))
	return err
}

// count is a number and what it counts.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
