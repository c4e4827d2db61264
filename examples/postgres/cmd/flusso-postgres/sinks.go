package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/examples/postgres/blevesink"
	"github.com/flusso/flusso-kafka/examples/postgres/pgsink"
	"github.com/flusso/flusso-kafka/examples/postgres/sink"
)

// Names of the two sinks where nothing else is said.
const (
	postgresSink = "postgres"
	bleveSink    = "bleve"
)

const defaultSchema = "flusso"

// lane is what both sinks say of their lane.
type lane struct {
	pipeline
	sink    string
	indexes []string
}

func (l *lane) addFlags(cmd *cobra.Command, s streams, name string) {
	l.pipeline.addFlags(cmd.Flags(), s.getenv)
	cmd.Flags().StringVar(&l.sink, "sink", name, "`name` of this sink, one of --sinks")
	cmd.Flags().StringSliceVar(&l.indexes, "indexes", []string{sink.Every}, "what a fresh store asks for: schema.table,… or * for all")
}

func (l *lane) run(ctx context.Context, store sink.Store, log *slog.Logger) error {
	stream, err := l.open(ctx, "", log)
	if err != nil {
		return err
	}
	defer shut(ctx, stream, log)
	if err := sink.Run(ctx, sink.Config{Stream: stream, Sink: l.sink, Store: store, Indexes: l.indexes, Logger: log}); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

func newSinkPostgres(s streams, logger logging) *cobra.Command {
	var l lane
	var target database
	var schema string
	cmd := &cobra.Command{
		Use:   "sink-postgres",
		Short: "Apply a lane to tables of another database",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger()
			if err != nil {
				return err
			}
			url, err := target.url()
			if err != nil {
				return err
			}
			return l.run(cmd.Context(), pgsink.New(url, schema, log), log)
		},
	}
	l.addFlags(cmd, s, postgresSink)
	target.addFlags(cmd.Flags(), "target", s.getenv)
	cmd.Flags().StringVar(&schema, "schema", defaultSchema, "schema of the target that the tables are created in")
	return cmd
}

func newSinkBleve(s streams, logger logging) *cobra.Command {
	var l lane
	var dir, listen string
	cmd := &cobra.Command{
		Use:   "sink-bleve",
		Short: "Apply a lane to a search index on disk",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger()
			if err != nil {
				return err
			}
			if dir == "" {
				return usagef("no directory for the search index: give --dir")
			}
			store := blevesink.New(dir, log)
			if listen != "" {
				stop, err := serve(cmd.Context(), listen, store, log)
				if err != nil {
					return err
				}
				defer stop()
			}
			return l.run(cmd.Context(), store, log)
		},
	}
	l.addFlags(cmd, s, bleveSink)
	cmd.Flags().StringVar(&dir, "dir", "", "`directory` of the search index")
	cmd.Flags().StringVar(&listen, "listen", "", "`host:port` to answer query and compare on while the sink runs; none by default")
	return cmd
}
