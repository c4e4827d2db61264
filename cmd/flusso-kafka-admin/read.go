package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/records"
)

// readCommand is one call of read.
type readCommand struct {
	*feedTarget
	feeds.ReadOptions

	count  uint64
	output string
}

func newRead(s streams) *cobra.Command {
	r := &readCommand{}
	cmd := &cobra.Command{
		Use:   "read FEED",
		Short: "Read the records of a feed",
		Long: `Read the records of a feed: its commits in their order, then the streams that have
no commit yet, marked as unsealed; with --follow then what is appended, until it
is interrupted. Each record comes once, also while its stream is sealed.

--output values writes payloads alone, a line each; binary writes frames, which
"append --from - --input binary" takes. JSON is one object on each line, which
"append --from - --input jsonl" takes: docs/json.md and docs/record-input.md. Its
place is how far was read: with --after a later call goes on behind it, and each
record comes once, whatever was resumed, sealed or discarded meanwhile.

--timeout is how long connecting may take, and then each record until the end;
following waits for ever. Exit code 1: a record could not be read.`,
		Example: `  $ flusso-kafka-admin read hourly
  1/1  commit 1  k1  hello
  1/2  commit 1  k2  world`,
		Args: oneFeed,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(cmd); err != nil {
				return err
			}
			return r.run(cmd.Context(), args[0])
		},
	}
	r.feedTarget = addFeedTarget(cmd, s)
	cmd.PersistentFlags().Lookup("timeout").Usage = "how `long` connecting may take, and then each record until the end"
	cmd.ValidArgsFunction = completeFeeds(r.feedTarget, false)
	flags := cmd.Flags()
	flags.BoolVar(&r.Sealed, "sealed", false, "only commits")
	flags.BoolVar(&r.Follow, "follow", false, "go on with what is appended, until interrupted or --count")
	flags.Uint64Var(&r.Stream, "from-stream", 0, "begin with the stream of that `number`")
	flags.Uint64Var(&r.Sequence, "from-sequence", 0, "begin with that `sequence` of --from-stream")
	flags.Uint64Var(&r.FromCommit, "from-commit", 0, "begin with the commit of that `number`")
	flags.StringVar((*string)(&r.After), "after", "", "go on behind the record with that `place`, of --format json")
	flags.Uint64Var(&r.count, "count", 0, "`records` to read, 0 for all")
	addOutput(cmd, &r.output)
	return cmd
}

// addOutput registers --output.
func addOutput(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVar(output, "output", "records", "`what` of each record: records, values or binary")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"records", "values", "binary"}, cobra.ShellCompDirectiveNoFileComp))
}

// checkOutput refuses an output that there is not, and JSON that is none.
func checkOutput(output, format string) error {
	switch {
	case output != "records" && output != "values" && output != "binary":
		return usageError{fmt.Errorf("--output %q: records, values or binary", output)}
	case output != "records" && format == "json":
		return usageError{fmt.Errorf("--output %s and --format json exclude each other: give one of the two", output)}
	}
	return nil
}

func (r *readCommand) check(cmd *cobra.Command) error {
	if err := exclusive(cmd, "sealed", "follow"); err != nil {
		return err
	}
	if err := exclusive(cmd, "from-commit", "from-stream", "after"); err != nil {
		return err
	}
	if cmd.Flags().Changed("from-sequence") && !cmd.Flags().Changed("from-stream") {
		return usageError{errors.New("--from-sequence is one of a stream: give --from-stream, too")}
	}
	for _, name := range []string{"from-stream", "from-sequence", "from-commit"} {
		if cmd.Flags().Changed(name) && cmd.Flags().Lookup(name).Value.String() == "0" {
			return usageError{fmt.Errorf("--%s 0: numbers start at 1", name)}
		}
	}
	if err := r.After.Check(); err != nil {
		return usageError{fmt.Errorf("--after: %w", err)}
	}
	return checkOutput(r.output, r.format)
}

func (r *readCommand) run(life context.Context, feed string) (err error) {
	if err := r.settle(); err != nil {
		return err
	}
	dialing, cancel := context.WithTimeout(life, r.timeout)
	defer cancel()
	r.waitLong()
	c, err := r.open(dialing)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close(life)) }()

	ctx, stalled := context.WithCancelCause(life)
	defer stalled(nil)
	beat := func() {}
	if !r.Follow {
		t := time.AfterFunc(r.timeout, func() {
			stalled(fmt.Errorf("no record within %s: allow more time with --timeout", r.timeout))
		})
		defer t.Stop()
		beat = func() { t.Reset(r.timeout) }
	}
	w := bufio.NewWriterSize(r.out, 64<<10)
	err = r.read(ctx, c, feed, w, beat)
	if ferr := w.Flush(); ferr != nil {
		return ferr
	}
	if r.Follow && life.Err() != nil {
		return nil // that is how following ends
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && life.Err() == nil && !errors.Is(err, cause) {
		err = cause
	}
	return c.explain(life, err)
}

func (r *readCommand) read(ctx context.Context, c *feedCluster, feed string, w *bufio.Writer, beat func()) error {
	n := uint64(0)
	for item, err := range c.Read(ctx, feed, r.ReadOptions) {
		if err != nil {
			return err
		}
		beat()
		if err := r.write(w, item); err != nil {
			return err
		}
		if r.Follow {
			// Whoever follows wants to see it now.
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if item.Discarded {
			continue // news, and no record
		}
		if n++; n == r.count {
			return nil
		}
	}
	return nil
}

// readItem is a record as JSON has it.
type readItem struct {
	Stream     uint64     `json:"stream"`
	Sequence   uint64     `json:"sequence,omitempty"`
	Commit     *uint64    `json:"commit"` // null for a record that is not sealed
	AppendedAt *time.Time `json:"appendedAt,omitempty"`
	Discarded  bool       `json:"discarded,omitempty"`
	Place      string     `json:"place,omitempty"` // behind it; left out of an answer that is no reading on
	*records.Text
}

func itemJSON(item feeds.Item) readItem {
	out := readItem{Stream: item.Stream, Sequence: item.Sequence, Discarded: item.Discarded, Place: string(item.Place())}
	if item.Discarded {
		return out
	}
	out.Text, out.AppendedAt = new(records.TextOf(&item.Record)), new(item.AppendedAt.UTC())
	if item.Commit > 0 {
		out.Commit = &item.Commit
	}
	return out
}

func (r *readCommand) write(w io.Writer, item feeds.Item) error {
	if r.format == "json" {
		return writeLine(w, itemJSON(item))
	}
	return writeItem(w, item, r.output)
}

// writeItem writes a record for people, or what --output asks for.
func writeItem(w io.Writer, item feeds.Item, output string) (err error) {
	switch {
	case item.Discarded && output != "records":
	case item.Discarded:
		_, err = fmt.Fprintf(w, "stream %d was discarded: forget its records\n", item.Stream)
	case output == "values":
		_, err = w.Write(append(item.Payload, '\n'))
	case output == "binary":
		_, err = w.Write(records.AppendFrame(nil, &item.Record))
	default:
		_, err = fmt.Fprintln(w, cut(recordText(item), maxColumns))
	}
	return err
}

// recordText is a record on one line: its position, its key and its payload.
func recordText(item feeds.Item) string {
	where := "unsealed"
	if item.Commit > 0 {
		where = fmt.Sprintf("commit %d", item.Commit)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d  %s  ", item.Stream, item.Sequence, where)
	if item.Version != nil {
		fmt.Fprintf(&b, "version %d  ", *item.Version)
	}
	if item.Key != nil {
		b.WriteString(shownText(string(item.Key)) + "  ")
	}
	if item.Tombstone {
		b.WriteString("deleted  ")
	}
	if len(item.Payload) > 0 || !item.Tombstone {
		b.WriteString(shownText(string(item.Payload[:min(len(item.Payload), 4*maxColumns)])))
	}
	return strings.TrimRight(b.String(), " ")
}

// shownText is text on one line of a terminal: what is no text is escaped, and
// the empty one is quoted.
func shownText(s string) string {
	if s == "" {
		return `""`
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(s[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
