package main

import (
	"context"
	"errors"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/offsets"
)

func newLaneRetire(t *target) *cobra.Command {
	var (
		r   offsets.Retirement
		act *action
	)
	cmd := &cobra.Command{
		Use:   "retire SINK --why TEXT",
		Short: "Take a lane out of the watermark, and record who did and why",
		Long: `Take the lane of a sink that is gone out of the watermark: the source may forget
what the sink has not acked. Who retired it, when and why is committed with its
group's offset, and shown by status.

The sink must be stopped, and none attaches until "lane restore" takes the lane
back. Its data stays: it is trimmed no further than the sink had acked, and the
engine goes on publishing to it for as long as its stream is built with the sink.
So it grows: "lane delete" ends that.

Exit code 1: nothing was committed, since the group has members (also with
--dry-run), was moved meanwhile, or the lane is retired already.`,
		Example: `  $ flusso-kafka-admin lane retire search --why 'moved to a new cluster' --yes
  group shop.sink.search: offset 8 → 8, acked through 40 → 40 (committed)
  lane of search: acked → retired by root@vm at 2026-11-30T01:03:45Z: moved to a new cluster
  watermark: 40 → 50, held by audit`,
		Args:              oneSink,
		ValidArgsFunction: completeSinks(t),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Why = strings.TrimSpace(r.Why)
			if r.Why == "" {
				return usageError{errors.New("--why is missing: say why the lane is retired, for whoever looks at it later")}
			}
			if r.By == "" {
				r.By = operator()
			}
			r.At = time.Now().UTC().Truncate(time.Millisecond)
			if err := r.Check(); err != nil {
				return usageError{err}
			}
			if err := act.check("the watermark no longer waits for the lane"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				lane, err := laneOf(c, args[0])
				if err != nil {
					return err
				}
				plan, err := c.store.PlanRetire(ctx, lane, r)
				if err != nil {
					return err
				}
				return t.move(ctx, c, plan, act.dry, nil)
			})
		},
	}
	cmd.Flags().StringVar(&r.Why, "why", "", "`reason`, at most 200 bytes")
	cmd.Flags().StringVar(&r.By, "by", "", "`name` of who retires it, at most 64 bytes (default: user@host)")
	act = addAction(cmd)
	return cmd
}

// operator is who runs the program: user@host, cut to what a retirement holds.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return strings.ToValidUTF8(name[:min(len(name), offsets.MaxRetiredBy)], "")
}
