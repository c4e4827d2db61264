package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/profile"
)

// connection is what every command takes that asks brokers: which cluster, how
// long, and how to answer.
type connection struct {
	streams
	connect.Options

	timeout time.Duration
	format  string
}

// add registers the flags on flags of cmd.
func (t *connection) add(cmd *cobra.Command, flags *pflag.FlagSet) {
	t.Extra, t.Patience = t.client, t.patience
	t.Waiting = func(text string) {
		// A stderr that cannot be written to keeps nothing from working.
		_, _ = fmt.Fprintln(t.err, program+": "+text)
	}
	t.AddFlags(flags, t.getenv)
	flags.DurationVar(&t.timeout, "timeout", 10*time.Second, "how `long` all of it may take")
	flags.StringVar(&t.format, "format", "text", "text or json")
	flags.String("profile", "", "`name` of a profile for what is not given, or none ($"+profile.EnvProfile+")")
	t.addCompletions(cmd)
}

// waitLong has all of --timeout pass before a broker that is starting is given
// up: for commands that run long, and those whose timeout is for connecting.
func (t *connection) waitLong() {
	if t.patience == 0 {
		t.Patience = t.timeout
	}
}

// check refuses what no cluster needs to be asked about.
func (t *connection) check() error {
	if t.timeout <= 0 {
		return usageError{fmt.Errorf("--timeout %s: give a positive one", t.timeout)}
	}
	return checkFormat(t.format)
}

// checkFormat refuses a format that there is not.
func checkFormat(format string) error {
	if format != "text" && format != "json" {
		return usageError{fmt.Errorf("--format %q: text or json", format)}
	}
	return nil
}
