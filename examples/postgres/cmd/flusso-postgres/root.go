package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitFine   = 0
	exitFailed = 1 // it failed, or compare found a difference
	exitUsage  = 2 // the command was not understood
)

// streams is where a command reads from and writes to.
type streams struct {
	out, err io.Writer
	getenv   func(string) string
}

// usageError marks what the caller has to say differently.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run is main without the process.
func run(ctx context.Context, args []string, s streams) int {
	cmd := newRoot(s)
	cmd.SetArgs(args)
	cmd.SetOut(s.out)
	cmd.SetErr(s.err)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitFine
	}
	_, _ = fmt.Fprintln(s.err, "flusso-postgres: "+err.Error())
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

func newRoot(s streams) *cobra.Command {
	var level string
	cmd := &cobra.Command{
		Use:   "flusso-postgres",
		Short: "Follow a Postgres database through Kafka into other stores",
		Long: `One process runs "ingest", one "sink-postgres", one "sink-bleve". Each may be
killed at any time and started again. Logs go to stderr, answers to stdout.

Connection strings come from $FLUSSO_SOURCE_URL and $FLUSSO_TARGET_URL, from
files, or from flags; a flag must not hold a password, since every user of
the machine can read it.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q: see %s --help", args[0], cmd.CommandPath())
			}
			return nil
		},
		// A script that starts none of them is told so.
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("name a command: see %s --help", cmd.CommandPath())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.PersistentFlags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	logger := func() (*slog.Logger, error) {
		var l slog.Level
		if err := l.UnmarshalText([]byte(level)); err != nil {
			return nil, usagef("--log-level: %w", err)
		}
		return slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: l})), nil
	}
	cmd.AddCommand(newIngest(s, logger), newSinkPostgres(s, logger), newSinkBleve(s, logger), newQuery(s, logger), newCompare(s, logger))
	return cmd
}

// logging makes the logger that the flags ask for.
type logging func() (*slog.Logger, error)
