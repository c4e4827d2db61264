package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/examples/postgres/compare"
	"github.com/flusso/flusso-kafka/examples/postgres/ingest"
	"github.com/flusso/flusso-kafka/examples/postgres/pgsink"
)

// errDiffers: compare found a difference.
var errDiffers = errors.New("source and sink differ")

func newCompare(s streams, logger logging) *cobra.Command {
	var source, target database
	var i index
	var schema, format string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Compare the source with a sink, row by row",
		Long: `Compares every row of every table that ingest can follow with the documents of
one sink: the search index when --dir or --address is given, else the target
database. Exits 1 when they differ. While the source is written to they do:
--wait gives the sink time to catch up.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger()
			if err != nil {
				return err
			}
			if format != "text" && format != "json" {
				return usagef("--format %q: text or json", format)
			}
			from, err := source.url()
			if err != nil {
				return err
			}
			read := func(ctx context.Context, f func(string, string, []byte) error) error { return i.each(ctx, log, f) }
			if i.dir == "" && i.address == "" {
				to, err := target.url()
				if err != nil {
					return err
				}
				read = func(ctx context.Context, f func(string, string, []byte) error) error {
					return pgsink.Read(ctx, to, schema, f)
				}
			}
			result, err := compareUntil(cmd.Context(), wait, from, read, log)
			if err != nil {
				return err
			}
			if format == "json" {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(result)
			} else {
				err = result.Print(cmd.OutOrStdout())
			}
			if err == nil && !result.Same() {
				err = errDiffers
			}
			return err
		},
	}
	source.addFlags(cmd.Flags(), "source", s.getenv)
	target.addFlags(cmd.Flags(), "target", s.getenv)
	i.addFlags(cmd)
	cmd.Flags().StringVar(&schema, "schema", defaultSchema, "schema of the target")
	cmd.Flags().DurationVar(&wait, "wait", 0, "compare again until nothing differs, at most this long")
	cmd.Flags().StringVar(&format, "format", "text", "text or json")
	return cmd
}

func compareUntil(ctx context.Context, wait time.Duration, source string, read func(context.Context, func(string, string, []byte) error) error, log *slog.Logger) (compare.Result, error) {
	const every = 500 * time.Millisecond
	deadline := time.Now().Add(wait)
	for {
		a, err := compare.Read(func(f func(string, string, []byte) error) error { return ingest.Read(ctx, source, f) })
		if err != nil {
			return nil, fmt.Errorf("read the source: %w", err)
		}
		b, err := compare.Read(func(f func(string, string, []byte) error) error { return read(ctx, f) })
		if err != nil && time.Now().After(deadline) {
			return nil, fmt.Errorf("read the sink: %w", err)
		}
		result := compare.Diff(a, b)
		if err == nil && result.Same() || time.Now().After(deadline) {
			return result, nil
		}
		log.Debug("they differ still", "equal", result.Equal(), "error", err)
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
