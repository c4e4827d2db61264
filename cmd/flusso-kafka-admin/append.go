package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/records"
	"github.com/flusso/flusso-kafka/internal/status"
)

// appending is one call of append.
type appending struct {
	*feedTarget

	feed string
	cmd  *cobra.Command

	// Flags.
	records      []string
	from         string
	input        string
	separator    string
	message      string
	resume       bool
	noSeal       bool
	create       bool
	creation     *creation
	onInterrupt  string
	take         *taking
	batchRecords int
	batchBytes   int
	match        uint64
	sealWithin   time.Duration
}

func newAppend(s streams) *cobra.Command {
	a := &appending{}
	cmd := &cobra.Command{
		Use:   "append FEED",
		Short: "Append records to a feed, and seal them into a commit",
		Long: `Append records to a feed: take its writer lease, open a stream (or go on with the one
that was left open by --resume), append, seal the stream into a commit with
--message, and print that. Records are those of --record, KEY=VALUE, or a value
without "=" for one without a key; or come from a file or a pipe by --from, as
--input says: lines, jsonl or binary (docs/record-input.md).

What is acknowledged is durable. Where the input ends at something that is no
record, the error names its line; what came before it stays in the open stream,
unsealed, and the error says how to go on with it or to drop it. So it is after
an interrupt (Ctrl-C), unless --on-interrupt seal: what was read by then is
appended, and the stream is left, since nobody knows whether it is whole. A pipe
whose writer ends is at its end, however that came about: where it matters, use
--no-seal, and "feed resume" when it is known to be whole.

A feed that a session may be at work on is not taken from it without --takeover.
--timeout is how long connecting and opening may take, and then each wait for an
acknowledgement; --seal-timeout is for the seal.

Exit code 1: not all was appended and sealed; standard output tells what was.
JSON: docs/json.md.`,
		Example: `  $ flusso-kafka-admin append hourly --record k1=hello --record k2=world --message 'hourly poll'
  feed hourly: 2 records, 14 B as sequences 1 to 2 appended to stream 1, sealed as commit 1
  message: hourly poll

  $ tail -f access.log | flusso-kafka-admin append access --from - --on-interrupt seal`,
		Args: oneFeed,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.cmd, a.feed = cmd, args[0]
			if err := a.check(); err != nil {
				return err
			}
			return a.run(cmd.Context())
		},
	}
	a.feedTarget = addFeedTarget(cmd, s)
	cmd.PersistentFlags().Lookup("timeout").Usage = "how `long` connecting and opening may take, and then each acknowledgement"
	cmd.ValidArgsFunction = completeFeeds(a.feedTarget, false)
	flags := cmd.Flags()
	flags.StringArrayVar(&a.records, "record", nil, "a `record`, KEY=VALUE or VALUE; may be given again")
	flags.StringVar(&a.from, "from", "", "`file` to read records from, - for standard input")
	flags.StringVar(&a.input, "input", "lines", "`format` of --from: lines, jsonl or binary")
	flags.StringVar(&a.separator, "key-separator", "", "`text` between key and value (default: = for --record, none for lines)")
	flags.StringVar(&a.message, "message", "", "`text` of the commit")
	flags.BoolVar(&a.resume, "resume", false, "go on with the newest stream that is not sealed, instead of a new one")
	flags.BoolVar(&a.noSeal, "no-seal", false, "leave the stream open")
	flags.BoolVar(&a.create, "create", false, "create the feed where it is not there")
	a.creation = addCreation(cmd)
	flags.StringVar(&a.onInterrupt, "on-interrupt", "leave", "`what` becomes of the stream when it is interrupted: leave or seal")
	flags.IntVar(&a.batchRecords, "batch-records", 1000, "most `records` of a batch, which is appended whole or not at all")
	flags.IntVar(&a.batchBytes, "batch-bytes", 1<<20, "most `bytes` of a batch of more than one record")
	flags.Uint64Var(&a.match, "match-sequence", 0, "append only if this is the stream's last `sequence`, 0 for an empty one")
	flags.DurationVar(&a.sealWithin, "seal-timeout", 10*time.Minute, "how `long` sealing may take")
	addPackBytes(cmd, &a.packBytes)
	a.take = addTakeover(cmd)
	for flag, words := range map[string][]string{"input": {"lines", "jsonl", "binary"}, "on-interrupt": {"leave", "seal"}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// check refuses what no broker needs to be asked about.
func (a *appending) check() error {
	flags := a.cmd.Flags()
	if err := exclusive(a.cmd, "record", "from"); err != nil {
		return err
	}
	if err := exclusive(a.cmd, "resume", "create"); err != nil {
		return err
	}
	if err := exclusive(a.cmd, "no-seal", "message"); err != nil {
		return err
	}
	if flags.Changed("input") && a.from == "" {
		return usageError{errors.New("--input is the format of --from: give that, too")}
	}
	switch {
	case len(a.records) == 0 && a.from == "" && (!a.resume || a.noSeal):
		return usageError{errors.New("nothing to append: give --record or --from (--from /dev/null seals an empty stream)")}
	case a.input != "lines" && a.input != "jsonl" && a.input != "binary":
		return usageError{fmt.Errorf("--input %q: lines, jsonl or binary", a.input)}
	case a.input != "lines" && flags.Changed("key-separator"):
		return usageError{errors.New("--key-separator is for lines and --record")}
	case a.onInterrupt != "leave" && a.onInterrupt != "seal":
		return usageError{fmt.Errorf("--on-interrupt %q: leave or seal", a.onInterrupt)}
	case a.onInterrupt == "seal" && a.noSeal:
		return usageError{errors.New("--on-interrupt seal and --no-seal exclude each other")}
	case a.batchRecords < 1:
		return usageError{fmt.Errorf("--batch-records %d: give at least 1", a.batchRecords)}
	case a.batchBytes < 1 || a.batchBytes > feeds.MaxBatchBytes:
		return usageError{fmt.Errorf("--batch-bytes %d: give 1 to %d", a.batchBytes, feeds.MaxBatchBytes)}
	case a.sealWithin <= 0:
		return usageError{fmt.Errorf("--seal-timeout %s: give a positive one", a.sealWithin)}
	}
	if err := checkMessage(a.feed, a.message); err != nil {
		return err
	}
	if err := a.settle(); err != nil {
		return err
	}
	if a.create {
		return a.creation.check(a.feedTarget)
	}
	for _, name := range []string{"keyed", "latest", "bucket", "max-unsealed-bytes"} {
		if flags.Changed(name) {
			return usageError{fmt.Errorf("--%s is for a new feed: add --create", name)}
		}
	}
	return nil
}

// source opens what is appended.
func (a *appending) source() (*inflow, error) {
	if a.from == "" {
		separator := "="
		if a.cmd.Flags().Changed("key-separator") {
			separator = a.separator
		}
		s := &inflow{}
		for i, text := range a.records {
			s.given = append(s.given, sourced{record: records.ParsePair([]byte(text), separator), place: fmt.Sprintf("--record %d", i+1)})
		}
		return s, nil
	}
	in := a.in
	s := &inflow{}
	if a.from != "-" {
		f, err := os.Open(a.from)
		if err != nil {
			return nil, fmt.Errorf("--from: %w", err)
		}
		in, s.file = f, f
	}
	if in == nil {
		return s, nil
	}
	s.reader = records.NewReader(in, records.Format(a.input), a.separator)
	return s, nil
}

func (a *appending) run(life context.Context) (err error) {
	in, err := a.source()
	if err != nil {
		return err
	}
	defer in.close()
	opening, cancel := context.WithTimeout(life, a.timeout)
	defer cancel()
	a.waitLong()
	c, err := a.open(opening)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close(life)) }()
	settings, err := a.prepare(opening, c)
	if err != nil {
		return c.explain(opening, err)
	}
	// What is no record at the very beginning touches nothing.
	in.start(settings)
	if err := in.first(life); err != nil {
		return a.bad(err)
	}
	opening, cancel = context.WithTimeout(life, a.timeout)
	defer cancel()
	if in.reader != nil { // the first record may have been waited for, and somebody have come meanwhile
		if err := a.free(opening, c); err != nil {
			return c.conn.Explain(opening, err)
		}
	}
	open := c.Open
	if a.resume {
		open = c.Resume
	}
	session, err := open(opening, a.feed)
	if errors.Is(err, feeds.ErrNoOpenStream) {
		return fmt.Errorf("%w: leave --resume out", err)
	}
	if err != nil {
		return c.explain(opening, err)
	}
	return a.session(life, c, session, in)
}

// bad says which input is no record.
func (a *appending) bad(err error) error {
	where := a.from
	if where == "-" {
		where = "standard input"
	}
	if where == "" {
		return err
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("--from %s: %w", a.from, file.Err) // it cannot be read, whatever is in it
	}
	return fmt.Errorf("%s, %w", where, err)
}

// prepare finds the feed, creates it where that is wanted, and refuses to take
// it from somebody at work.
func (a *appending) prepare(ctx context.Context, c *feedCluster) (feeds.Settings, error) {
	d, err := c.Describe(ctx, a.feed)
	switch {
	case errors.Is(err, feeds.ErrNoFeed) && a.create:
		settings, err := c.Create(ctx, a.feed, a.creation.options(c))
		if err != nil {
			return settings, err
		}
		_, err = fmt.Fprintln(a.err, createdText(a.feed, settings, false))
		return settings, err
	case errors.Is(err, feeds.ErrNoFeed):
		return feeds.Settings{}, fmt.Errorf("%w: `flusso-kafka-admin feed create %s --bucket URL --yes`, or append with --create", err, a.feed)
	case err != nil:
		return d.Settings, err
	}
	if err := a.take.check(d); err != nil {
		return d.Settings, err
	}
	return d.Settings, nil
}

// free refuses a feed that somebody is at work on.
func (a *appending) free(ctx context.Context, c *feedCluster) error {
	d, err := c.Describe(ctx, a.feed)
	if err != nil {
		return err
	}
	return a.take.check(d)
}

// session appends, then seals or leaves the stream.
func (a *appending) session(life context.Context, c *feedCluster, s *feeds.Session, in *inflow) error {
	a.windUp.need(leaveWithin)
	if a.onInterrupt == "seal" {
		a.windUp.need(a.sealWithin + leaveWithin)
	}
	if err := a.warnLeft(s); err != nil {
		return err
	}
	p := newPump(a, s)
	failed := p.run(life, in)
	interrupted := life.Err() != nil && !errors.Is(failed, errNotDurable)
	done := p.durable()
	answer := appended{Feed: a.feed, Stream: s.Stream(), Epoch: s.Epoch(), Records: done.Records, Bytes: done.bytes, Interrupted: interrupted}
	if done.Records > 0 {
		answer.First, answer.Last = &done.First, &done.Last
	}
	ending := context.WithoutCancel(life)
	if failed == nil && (!a.noSeal && !interrupted || interrupted && a.onInterrupt == "seal") {
		sealing := life
		if a.onInterrupt == "seal" {
			sealing = ending
		}
		sealing, cancel := context.WithTimeoutCause(sealing, a.sealWithin, fmt.Errorf("no commit within %s (--seal-timeout)", a.sealWithin))
		defer cancel()
		commit, err := s.Seal(sealing, a.message)
		if err == nil {
			answer.Commit, answer.Sealed = commitJSON(commit), true
		} else {
			failed = c.explain(life, err)
			answer.Sealed = errors.As(err, new(*feeds.SealError))
		}
	}
	closing, cancel := context.WithTimeout(ending, leaveWithin)
	defer cancel()
	if err := s.Close(closing); err != nil && failed == nil {
		failed = err
	}
	if failed != nil && !answer.Sealed && !a.resume && done.Records == 0 && !errors.Is(failed, errNotDurable) {
		// Nothing half done: a stream that holds nothing is in nobody's way.
		if err := c.Discard(closing, a.feed, s.Stream(), "nothing was appended"); err == nil {
			return failed
		}
	}
	if err := a.write(answer); err != nil {
		return errors.Join(failed, err)
	}
	switch {
	case answer.Sealed:
		return failed // its message names what helps
	case failed != nil:
		return fmt.Errorf("%w\n%s", failed, a.goOn(answer))
	case interrupted:
		return fmt.Errorf("interrupted: %s", a.goOn(answer))
	}
	return nil
}

// leaveWithin is how long a stream that is left has to drain.
const leaveWithin = 5 * time.Second

// goOn says what was left, and what can be done with it.
func (a *appending) goOn(answer appended) string {
	held := "nothing"
	if answer.Records > 0 {
		held = sequenceRange(*answer.First, *answer.Last)
	}
	return fmt.Sprintf("durable in stream %d of feed %s, which is not sealed: %s. Go on: `flusso-kafka-admin append %s --resume`; seal it: `flusso-kafka-admin feed resume %s %d --yes`; drop it: `flusso-kafka-admin feed discard %s %d --yes`",
		answer.Stream, a.feed, held, a.feed, a.feed, answer.Stream, a.feed, answer.Stream)
}

// sequenceRange names a range of them.
func sequenceRange(first, last uint64) string {
	if first == last {
		return fmt.Sprintf("sequence %d", first)
	}
	return fmt.Sprintf("sequences %d to %d", first, last)
}

// warnLeft names streams that others left.
func (a *appending) warnLeft(s *feeds.Session) error {
	for _, left := range s.Left() {
		text := a.hinted("stream %d, with %s, was left open: seal it by `flusso-kafka-admin feed resume %s %d --yes`, or drop it by `flusso-kafka-admin feed discard %s %d --yes`",
			left.Stream, status.Count(left.Last, "record"), a.feed, left.Stream, a.feed, left.Stream)
		if left.Sealed {
			text = fmt.Sprintf("stream %d, with %s, is sealed without a commit: it gets one now", left.Stream, status.Count(left.Last, "record"))
		}
		if _, err := fmt.Fprintln(a.err, "flusso-kafka-admin: warning: "+text); err != nil {
			return err
		}
	}
	return nil
}

// appended is what append answers.
type appended struct {
	Feed        string      `json:"feed"`
	Stream      uint64      `json:"stream"`
	Epoch       uint64      `json:"epoch"`
	First       *uint64     `json:"first"` // sequences that are durable; null for none
	Last        *uint64     `json:"last"`
	Records     uint64      `json:"records"`
	Bytes       uint64      `json:"bytes"`
	Sealed      bool        `json:"sealed"`
	Commit      *feedCommit `json:"commit"` // null for none
	Interrupted bool        `json:"interrupted"`
}

func (a *appending) write(answer appended) error {
	if a.format == "json" {
		return writeJSON(a.out, answer)
	}
	what := "nothing"
	if answer.Records > 0 {
		what = fmt.Sprintf("%s, %s as %s", status.Count(answer.Records, "record"), tied(size(answer.Bytes)), sequenceRange(*answer.First, *answer.Last))
	}
	state := "which is not sealed"
	switch {
	case answer.Commit != nil:
		state = fmt.Sprintf("sealed as commit %d", answer.Commit.Commit)
		if answer.Commit.Records != answer.Records {
			state += fmt.Sprintf(" of %s", status.Count(answer.Commit.Records, "record"))
		}
	case answer.Sealed:
		state = "which is sealed and has no commit yet"
	}
	if err := paragraph(a.out, "", fmt.Sprintf("feed %s: %s appended to stream %d, %s", a.feed, what, answer.Stream, state)); err != nil {
		return err
	}
	if answer.Commit != nil && answer.Commit.Message != "" {
		if err := paragraph(a.out, "message: ", shownText(answer.Commit.Message)); err != nil {
			return err
		}
	}
	if answer.Commit != nil && answer.Commit.Warning != "" {
		_, err := fmt.Fprintln(a.err, "flusso-kafka-admin: warning: "+answer.Commit.Warning)
		return err
	}
	return nil
}

// refused reports whether an append was refused for what a record is, so that
// others of its batch are fine.
func refused(err error) bool {
	var (
		invalid     *flusso.InvalidError
		limit       *flusso.LimitError
		key         *feeds.KeyError
		fingerprint *feeds.FingerprintError
	)
	return errors.As(err, &invalid) || errors.As(err, &limit) || errors.As(err, &key) || errors.As(err, &fingerprint)
}

// inflow is where records come from.
type inflow struct {
	given  []sourced       // those of --record
	reader *records.Reader // nil for none
	file   io.Closer       // nil for none

	settings feeds.Settings
	out      chan sourced
	stop     chan struct{}
	head     sourced // the first one
	none     bool    // there is none
}

// sourced is a record and where it was, or why there is none any more.
type sourced struct {
	record feeds.Record
	place  string
	err    error
}

// ahead is how many records are read before they are taken.
const ahead = 64

// start reads in the background: what it reads may block for ever, so nobody
// waits for its end.
func (s *inflow) start(settings feeds.Settings) {
	s.settings, s.out, s.stop = settings, make(chan sourced, ahead), make(chan struct{})
	go func() {
		defer close(s.out)
		for {
			next := s.read()
			if errors.Is(next.err, io.EOF) {
				return
			}
			select {
			case s.out <- next:
			case <-s.stop:
				return
			}
			if next.err != nil {
				return
			}
		}
	}()
}

func (s *inflow) read() (next sourced) {
	switch {
	case len(s.given) > 0:
		next, s.given = s.given[0], s.given[1:]
	case s.reader == nil:
		return sourced{err: io.EOF}
	default:
		if next.record, next.err = s.reader.Next(); next.err != nil {
			return next
		}
		next.place = s.reader.Place()
	}
	r := &next.record
	reason := ""
	switch {
	case r.Key != nil && !s.settings.Keyed:
		reason = "it has a key, and the feed takes none: leave it out, or create a feed with --keyed"
		if s.reader == nil {
			reason += "; --key-separator '' takes what has a = in it for a value"
		}
	case r.Tombstone && r.Key == nil:
		reason = "a tombstone without a key says that nothing is gone"
	case s.settings.Latest == feeds.LatestVersion && r.Key != nil && r.Version == nil:
		reason = "it has a key and no version: the feed's latest record of a key is the one with the highest"
	}
	if reason != "" {
		next.err = &records.Error{Place: next.place, Reason: reason}
	}
	return next
}

// first waits for the first record, and returns why it is none. That there is
// none at all is fine.
func (s *inflow) first(ctx context.Context) error {
	select {
	case next, ok := <-s.out:
		s.head, s.none = next, !ok
		return next.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *inflow) close() {
	if s.stop != nil {
		close(s.stop)
	}
	if s.file != nil {
		_ = s.file.Close() // it was only read
	}
}
