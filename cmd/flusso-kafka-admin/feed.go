package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/embedded"
	"github.com/flusso/flusso-kafka/internal/status"
)

func newFeed(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "feed",
		Short: "Create feeds, look at them, and repair them",
		Long: `Create feeds, look at them, and repair them. Records go into a feed with "append"
and come out of it with "read" and "latest". What changes a feed shows what it
would do with --dry-run and does it with --yes; while a session may be at work on
the feed it wants --takeover, too, and fences that session.`,
		Example: `  $ flusso-kafka-admin feed history hourly
  commit  stream  records  bytes  sealed                message
       1       1        2   14 B  2026-11-30T02:01:52Z  hourly poll
       2       2        1    7 B  2026-11-30T02:01:54Z  late news`,
		Args: noArgs,
		RunE: nameOne,
	}
	t := addFeedTarget(cmd, s)
	cmd.AddCommand(
		newFeedCreate(t), newFeedDelete(t), newFeedDescribe(t), newFeedDiscard(t), newFeedHistory(t), newFeedList(t),
		newFeedRepair(t), newFeedResume(t), newFeedVerify(t),
	)
	return cmd
}

// feedTarget is what every command on feeds takes: which cluster, or which
// directory of an embedded broker, and how to answer.
type feedTarget struct {
	connection

	cmd     *cobra.Command // that the flags are registered on
	dir     string         // of the embedded broker, empty for none
	given   *pflag.Flag    // --embedded
	brokers *pflag.Flag

	packBytes int64 // of what seals; 0 for the default
}

// addFeedTarget registers the flags on cmd and on the commands below it.
func addFeedTarget(cmd *cobra.Command, s streams) *feedTarget {
	t := &feedTarget{connection: connection{streams: s}, cmd: cmd}
	t.add(cmd, cmd.PersistentFlags())
	t.given, t.brokers = addEmbedded(cmd), cmd.PersistentFlags().Lookup("brokers")
	return t
}

// addPackBytes registers --pack-bytes on a command that seals.
func addPackBytes(cmd *cobra.Command, n *int64) {
	cmd.Flags().Int64Var(n, "pack-bytes", feeds.DefaultPackBytes, "`bytes` that fill a pack, an object of the bucket: keys, payloads and 64 for each record")
}

func checkPackBytes(n int64) error {
	if n < 0 {
		return usageError{fmt.Errorf("--pack-bytes %d: give at least 1, or 0 for the default", n)}
	}
	return nil
}

// checkMessage refuses a --message before anything is sent, or anybody fenced.
func checkMessage(feed, message string) error {
	if err := feeds.CheckMessage(feed, message); err != nil {
		return usageError{fmt.Errorf("--message: %w", err)}
	}
	return nil
}

// addEmbedded registers --embedded.
func addEmbedded(cmd *cobra.Command) *pflag.Flag {
	cmd.PersistentFlags().String("embedded", "", "`directory` of a broker that runs in this process, and of a bucket: for trying")
	return cmd.PersistentFlags().Lookup("embedded")
}

// settle decides between brokers and the embedded one: a flag wins over what
// environment and profile say.
func (t *feedTarget) settle() error {
	if err := checkPackBytes(t.packBytes); err != nil {
		return err
	}
	t.dir = t.given.Value.String()
	switch {
	case t.dir == "" || len(t.Brokers) == 0 || t.given.Changed && !t.brokers.Changed:
	case t.brokers.Changed && !t.given.Changed:
		t.dir = ""
	default:
		return usageError{errors.New("--brokers and --embedded are both set: give one of them as a flag (`flusso-kafka-admin profile show` tells where they come from)")}
	}
	return t.check()
}

// feedCluster is a target that answered.
type feedCluster struct {
	*feeds.Client

	target *feedTarget
	conn   *connect.Client
	broker *embedded.Broker // nil for a real cluster
	bucket string           // where commits of a new feed go, unless it is told; empty for nowhere
}

// open connects within ctx. The caller closes what it returns.
func (t *feedTarget) open(ctx context.Context) (*feedCluster, error) {
	return t.openWith(ctx, feeds.Config{Logger: t.log(), PackBytes: t.packBytes})
}

// openWith connects within ctx, for a client of feeds of that configuration,
// which lacks how the brokers are reached.
func (t *feedTarget) openWith(ctx context.Context, cfg feeds.Config) (_ *feedCluster, err error) {
	c := &feedCluster{target: t}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(ctx))
		}
	}()
	options := &t.Options
	if t.dir != "" {
		dir, err := filepath.Abs(t.dir)
		if err != nil {
			return nil, fmt.Errorf("--embedded %s: %w", t.dir, err)
		}
		if c.broker, err = embedded.Open(ctx, filepath.Join(dir, "broker"), embedded.Logger(cfg.Logger)); err != nil {
			return nil, err
		}
		c.bucket = folderURL(filepath.Join(dir, "bucket"))
		plain := t.Options
		plain.TLS, plain.TLSCA, plain.TLSCert, plain.TLSKey = false, "", "", ""
		plain.Mechanism, plain.User, plain.PasswordFile, plain.TokenFile = "", "", "", ""
		plain.Brokers = []string{c.broker.Addr()}
		options = &plain
	}
	if c.conn, err = options.Dial(ctx); err != nil {
		if errors.Is(err, connect.ErrNoBrokers) {
			err = fmt.Errorf("%w, or --embedded for a broker in this process", err)
		}
		return nil, err
	}
	cfg.Client = c.conn.Opts()
	c.Client, err = feeds.New(cfg)
	return c, err
}

// log is where the library tells what it tries again.
func (t *feedTarget) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(t.err, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// folderURL is the bucket URL of a folder.
func folderURL(dir string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path // C:/…
	}
	return u.String()
}

// close closes what is open, the last first, whatever becomes of it.
func (c *feedCluster) close(ctx context.Context) (err error) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin(ctx))
	defer cancel()
	if c.Client != nil {
		err = c.Close(closing)
	}
	if c.conn != nil {
		c.conn.Close()
	}
	if c.broker != nil {
		err = errors.Join(err, c.broker.Close())
	}
	return err
}

// explain says what to do about an error. One of the bucket says so itself: the
// brokers have nothing to do with it.
func (c *feedCluster) explain(ctx context.Context, err error) error {
	if errors.As(err, new(*feeds.BucketError)) {
		return err
	}
	return c.conn.Explain(ctx, err)
}

// run connects and has do answer within the timeout.
func (t *feedTarget) run(ctx context.Context, do func(context.Context, *feedCluster) error) (err error) {
	if err := t.settle(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	c, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	return c.explain(ctx, do(ctx, c))
}

// oneFeed takes the name of one feed.
func oneFeed(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("name one feed: see %s --help", cmd.CommandPath())}
	}
	return nil
}

// feedStream takes the name of a feed and the number of a stream.
func feedStream(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return usageError{fmt.Errorf("name a feed and one of its streams, by its number: see %s --help", cmd.CommandPath())}
	}
	if n, err := strconv.ParseUint(args[1], 10, 64); err != nil || n == 0 {
		return usageError{fmt.Errorf("stream %q: give the number of a stream, as `flusso-kafka-admin feed describe %s` shows it", args[1], args[0])}
	}
	return nil
}

// streamOf is the number that feedStream has checked.
func streamOf(args []string) uint64 {
	n, _ := strconv.ParseUint(args[1], 10, 64)
	return n
}

// completeFeeds completes the first argument with feeds, the second with the
// streams of that feed that have no commit.
func completeFeeds(t *feedTarget, withStreams bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		if len(args) > 1 || len(args) == 1 && !withStreams {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		t.completingFeeds(cmd, func(ctx context.Context, c *feedCluster) error {
			if len(args) == 1 {
				d, err := c.Describe(ctx, args[0])
				for _, s := range d.Streams {
					if text := strconv.FormatUint(s.Number, 10); strings.HasPrefix(text, typed) {
						out = append(out, cobra.CompletionWithDesc(text, fmt.Sprintf("%s, %s", s.State, status.Count(s.Last, "record"))))
					}
				}
				return err
			}
			names, err := c.List(ctx)
			for _, name := range names {
				if strings.HasPrefix(name, typed) {
					out = append(out, name)
				}
			}
			return err
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completingFeeds asks a cluster for what a shell completes: see completing.
func (t *feedTarget) completingFeeds(cmd *cobra.Command, ask func(context.Context, *feedCluster) error) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	if _, err := settle(cmd, t.streams); err != nil || t.settle() != nil {
		return
	}
	t.err = io.Discard
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	c, err := t.open(ctx)
	if err != nil {
		return
	}
	_ = ask(ctx, c) // nobody reads an error there
	_ = c.close(ctx)
}

// heldError says that a session may be at work on a feed.
type heldError struct {
	feeds.Description

	now time.Time
}

func (e *heldError) Error() string {
	return fmt.Sprintf("feed %s is held by %s: stop that session, or fence it with --takeover", e.Feed, holding(e.Description, e.now))
}

// holding tells who holds a feed, where, on which stream, and since when it
// was not heard of.
func holding(d feeds.Description, now time.Time) string {
	stream, state := uint64(0), "open"
	for _, s := range d.Streams {
		if s.State == "open" || s.State == "sealed" && stream == 0 {
			stream, state = s.Number, s.State
		}
	}
	if state == "sealed" {
		state = "being sealed"
	}
	active := d.At
	if d.Appended.After(active) {
		active = d.Appended
	}
	return fmt.Sprintf("%s at %s, with stream %d %s in writer epoch %d, active %s ago",
		d.Holder.Name, cmp.Or(d.Holder.Address, "no address"), stream, state, d.Epoch, age(now.Sub(active)))
}

// taking is what an action on a feed takes that fences whoever writes to it.
type taking struct{ over bool }

func addTakeover(cmd *cobra.Command) *taking {
	t := &taking{}
	cmd.Flags().BoolVar(&t.over, "takeover", false, "also where a session may be at work on the feed: it is fenced")
	return t
}

// check refuses a feed that somebody may write to.
func (t *taking) check(d feeds.Description) error {
	if d.Held() && !t.over {
		return &heldError{d, time.Now()}
	}
	return nil
}

// says tells what taking the lease does to whoever holds it; empty for nobody.
func (t *taking) says(d feeds.Description, dry bool) string {
	if !d.Held() {
		return ""
	}
	what := "fenced is " + holding(d, time.Now())
	if dry {
		what = "held by " + holding(d, time.Now()) + ", which would be fenced"
		if !t.over {
			what += ": needs --takeover"
		}
	}
	return what
}
