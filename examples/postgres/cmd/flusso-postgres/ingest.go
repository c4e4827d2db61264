package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/examples/postgres/ingest"
)

func newIngest(s streams, logger logging) *cobra.Command {
	var p pipeline
	var source database
	var cfg ingest.Config
	cmd := &cobra.Command{
		Use:   "ingest",
		Short: "Follow a database and publish its changes to every sink's lane",
		Long: `Follows every table that has a primary key. The publication and the slot are
created when they are missing, after the brokers have answered; the database needs wal_level = logical, and the
user REPLICATION and the ownership of the tables. The slot is confirmed at the
watermark, never beyond: what not every sink has acked is kept by the database.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger()
			if err != nil {
				return err
			}
			if cfg.Source, err = source.url(); err != nil {
				return err
			}
			cfg.Logger = log
			if err := errors.Join(p.usable(), cfg.Check()); err != nil {
				return err
			}
			// The brokers first: without them nothing is to be left in the
			// source, where a slot that nobody reads fills the disk.
			if err := p.prepare(cmd.Context(), log); err != nil {
				return err
			}
			for {
				err := follow(cmd.Context(), cfg, &p, log)
				if !errors.Is(err, ingest.ErrNewFeed) || cmd.Context().Err() != nil {
					return err
				}
				log.Warn("starting over with the new change feed", "error", err)
				select {
				case <-time.After(time.Second):
				case <-cmd.Context().Done():
					return nil
				}
			}
		},
	}
	p.addFlags(cmd.Flags(), s.getenv)
	source.addFlags(cmd.Flags(), "source", s.getenv)
	cmd.Flags().StringVar(&cfg.Slot, "slot", "flusso", "the replication slot's `name`; a random suffix is added when it is created")
	cmd.Flags().StringVar(&cfg.Publication, "publication", "", "the publication's `name` (default: the slot's)")
	cmd.Flags().BoolVar(&cfg.TrustSlot, "trust-slot", false, "go on although the slot is ahead of what sinks have acked, and do not seed them again")
	cmd.Flags().DurationVar(&cfg.IdleEvery, "idle-every", 5*time.Second, "how often the position of a quiet database is published, at most")
	cmd.Flags().DurationVar(&cfg.TablesEvery, "tables-every", 10*time.Second, "how often to look for new and altered tables")
	return cmd
}

// follow runs one change feed.
func follow(ctx context.Context, cfg ingest.Config, p *pipeline, log *slog.Logger) error {
	source, err := ingest.Open(ctx, cfg)
	if err != nil {
		return err
	}
	log.Info("source opened", "slot", source.Slot(), "incarnation", source.Incarnation(), "pipeline", p.name, "sinks", p.sinks)
	stream, err := p.open(ctx, source.Incarnation(), log)
	if err != nil {
		return err
	}
	defer shut(ctx, stream, log)
	if err := source.Run(ctx, stream); err != nil {
		return p.tooLarge(err)
	}
	log.Info("stopped")
	return nil
}

func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}
