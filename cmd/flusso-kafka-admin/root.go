package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/profile"
)

// Exit codes.
const (
	exitFine   = 0
	exitFailed = 1 // something was found, or failed
	exitUsage  = 2 // the command was not understood
)

// streams is where a command reads from and writes to.
type streams struct {
	in       io.Reader // nil for nothing
	out, err io.Writer
	called   string // how the program was called; empty for by its name
	getenv   func(string) string
	windUp   *winding // nil where nobody waits
	// configDir returns the user's configuration directory; nil where there is none.
	configDir  func() (string, error)
	columns    int                        // of the terminal that out is, 0 where it is none
	errColumns int                        // likewise of err
	size       func() (columns, rows int) // of that terminal, as it is now
	client     []kgo.Opt                  // more for every Kafka client; nil outside of tests
	patience   time.Duration              // with a broker that may be starting; 0 outside of tests
}

// run is main without the process: it runs one command and returns its code.
func run(ctx context.Context, args []string, s streams) int {
	s.out = answers{s.out}
	root := newRoot(s)
	root.SetArgs(args)
	root.SetOut(s.out)
	root.SetErr(s.err)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		plainUsage(root)
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitFine
	}
	if err.Error() == context.Canceled.Error() { // and nothing more is to be said of it
		err = errors.New("interrupted")
	}
	text := program + ": " + hinted(cmd, err.Error()) + "\n"
	if command := try(cmd, err); command != "" && ctx.Err() == nil {
		text += "try: " + command + "\n"
	}
	// A stderr that cannot be written to leaves the exit code.
	_, _ = io.WriteString(s.err, text)
	if isUsage(err) {
		return exitUsage
	}
	return exitFailed
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "flusso-kafka-admin",
		Short: "Look after flusso pipelines on Kafka",
		Long: `Look after flusso pipelines on Kafka.

Standard output is the answer, standard error the rest. Exit codes: 0 all is
well, 1 something was found or failed, 2 the command was not understood.`,
		Example: `  $ export FLUSSO_KAFKA_BROKERS=kafka:9092 FLUSSO_KAFKA_PIPELINE=shop
  $ flusso-kafka-admin lag
  sink        acked      tail  batches  envelopes  bytes  changes    age
  archive  56659526  56660446        3          6  584 B        6  0.0 s
  search   56660446  56660446        0          0    0 B        0  0.0 s`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          nameOne,
	}
	root.Flags().Bool("version", false, "show which build this is, as version does")
	root.Version = thisBuild().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentPreRunE = settleFirst(s)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", maxColumns)))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w%s: see %s --help", err, meantFlag(cmd, err), cmd.CommandPath())}
	})
	root.AddCommand(
		newDemo(s),
		newAppend(s),
		newRead(s),
		newLatest(s),
		newFeed(s),
		newStatus(s),
		newLag(s),
		newWatermark(s),
		newLane(s),
		newOffset(s),
		newRequest(s),
		newServe(s),
		newTopic(s),
		newProfile(s),
		newWriter(s),
		newVersion(s),
		newCompletion(s),
	)
	completeFiles(root)
	return root
}

// usageError is an error in how the command was called.
type usageError struct{ cause error }

func (e usageError) Error() string { return e.cause.Error() }
func (e usageError) Unwrap() error { return e.cause }

// isUsage also takes the names and settings that our packages refuse.
func isUsage(err error) bool {
	var (
		usage  usageError
		option *connect.OptionError
		name   *flusso.NameError
		wrong  *profile.Error
	)
	return errors.As(err, &wrong) || errors.As(err, &usage) || errors.As(err, &option) || errors.As(err, &name) || errors.Is(err, connect.ErrNoBrokers)
}
