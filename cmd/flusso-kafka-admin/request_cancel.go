package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/requests"
)

// selection says which requests to cancel.
type selection struct {
	offsets []flusso.Offset
	sink    string
	all     bool
	gone    bool
}

func newRequestCancel(t *target) *cobra.Command {
	var (
		sel selection
		act *action
	)
	cmd := &cobra.Command{
		Use:   "cancel [OFFSET...]",
		Short: "Take back requests that nobody should serve any more",
		Long: `Take back requests that wait: those at the offsets (request list shows them),
those of one sink (--sink), or all of them (--all). The ingest group then counts
them as served. Records that are no request, or of a version that the engine does
not know and stops at, can be cancelled like any other.

The ingest engine must be stopped: while its group has members nothing is
committed, they are named, and the exit code is 1, with --dry-run too. One that
was killed leaves the group after its session timeout, 10 s. An engine that had
begun to serve a request when it lost its group may still publish rows of that
snapshot, but not the marker that ends it; what it published stays in the lane.

Cancelling joins the ingest group for a moment (brokers let a first member wait
for 3 s by default), so that of two operators only one commits, and an engine that
starts meanwhile wins. The watermark does not move: requests are no part of it.

--gone also gives up requests that are not in the topic any more, though they
were never served, since something deleted them: it is the way out for an engine
that stops with that gap. Send again what is still wanted.`,
		Example: `  $ flusso-kafka-admin request cancel 1 --yes
  sink   offset    age  indexes
  audit       1  3.7 s  orders
  group shop.ingest: acked nothing → below 0, and 1 (committed)
  2 requests wait on. The watermark does not move. Rows of a snapshot that began stay in the lane.`,

		ValidArgsFunction: completeRequests(t),
		Args: func(cmd *cobra.Command, args []string) error {
			for _, a := range args {
				n, err := strconv.ParseInt(a, 10, 64)
				if err != nil || n < 0 {
					return usageError{fmt.Errorf("%q is no offset: request list shows those of the requests that wait", a)}
				}
				sel.offsets = append(sel.offsets, flusso.Offset(n))
			}
			ways := 0
			for _, given := range []bool{len(args) > 0, sel.sink != "", sel.all} {
				if given {
					ways++
				}
			}
			if ways > 1 || ways == 0 && !sel.gone {
				return usageError{fmt.Errorf("say which requests: their offsets, --sink or --all, one of the three: see %s --help", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := act.check("nobody serves a request that was cancelled"); err != nil {
				return err
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error { return t.requestCancel(ctx, c, sel, act.dry) })
		},
	}
	cmd.Flags().StringVar(&sel.sink, "sink", "", "cancel all requests of a `sink`")
	cmd.Flags().BoolVar(&sel.all, "all", false, "cancel all requests")
	cmd.Flags().BoolVar(&sel.gone, "gone", false, "also give up requests that are not in the topic any more")
	if err := cmd.RegisterFlagCompletionFunc("sink", completeSinks(t)); err != nil {
		panic(err) // the flag is the one above
	}
	act = addAction(cmd)
	return cmd
}

// picks reports whether a request is meant.
func (s selection) picks(w requests.Waiting) bool {
	if s.all || slices.Contains(s.offsets, w.Offset) {
		return true
	}
	b, ok := w.Request.(*flusso.Backfill)
	return ok && w.Err == nil && s.sink != "" && b.Sink == s.sink
}

// check refuses what the plan does not hold.
func (s selection) check(plan requests.Cancellation, pipeline string) error {
	var missing []string
	for _, o := range s.offsets {
		if !slices.ContainsFunc(plan.Requests, func(w requests.Waiting) bool { return w.Offset == o }) {
			missing = append(missing, o.String())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no request waits at offset %s: see flusso-kafka-admin request list --pipeline %s", strings.Join(missing, ", "), pipeline)
	}
	if g := plan.Gone; g != nil && !s.gone {
		return fmt.Errorf("requests at offsets %s to %s of topic %s are not there any more though they were never served (%s): "+
			"add --gone to give them up, too, and send again what is still wanted", g.From, g.To, g.Topic, g.Cause)
	}
	return nil
}

// cancelled is the answer of request cancel.
type cancelled struct {
	Pipeline    string           `json:"pipeline"`
	Cancelled   []status.Request `json:"cancelled"`
	Left        int              `json:"left"`
	More        bool             `json:"more,omitempty"`
	PriorOffset offset           `json:"priorOffset"`
	Offset      offset           `json:"offset"`
	PriorAcked  []offset         `json:"priorAcked"`
	Acked       []offset         `json:"acked"`
	Gone        *goneSpan        `json:"gone,omitempty"`
	Committed   bool             `json:"committed"`
	Members     []string         `json:"members"`
}

// goneSpan is a half-open span of offsets.
type goneSpan struct {
	From offset `json:"from"`
	To   offset `json:"to"`
}

func (t *target) requestCancel(ctx context.Context, c *cluster, sel selection, dry bool) error {
	if sel.sink != "" {
		if err := flusso.CheckSink(sel.sink, sinksOf(c.lanes)); err != nil {
			return err
		}
	}
	cl := c.Client.Client
	plan, err := requests.PlanCancel(ctx, cl, c.pipeline, sel.picks)
	if err == nil {
		err = sel.check(plan, t.name)
	}
	if err != nil {
		return err
	}
	nothing := len(plan.Requests) == 0 && plan.Gone == nil
	var refused *requests.ActiveError
	switch {
	case nothing:
	case dry:
		if err = requests.Memberless(ctx, cl, c.pipeline); errors.As(err, &refused) {
			err = nil
		}
	default:
		err = requests.Cancel(ctx, requests.Config{Pipeline: c.pipeline, Client: c.Opts(), Lookup: cl}, plan)
	}
	if err != nil {
		return err
	}
	a := cancelled{
		Pipeline: c.pipeline.String(), Cancelled: status.RequestsOf(c.pipeline, plan.Requests, time.Now()), Left: len(plan.Left), More: plan.More,
		PriorOffset: offset(plan.Before.Offset), Offset: offset(plan.After.Offset),
		PriorAcked: offsetsOf(plan.Before.Above), Acked: offsetsOf(plan.After.Above),
		Committed: !dry && !nothing, Members: []string{},
	}
	if nothing {
		a.Offset, a.Acked = a.PriorOffset, a.PriorAcked
	}
	if g := plan.Gone; g != nil {
		a.Gone = &goneSpan{offset(g.From), offset(g.To)}
	}
	if refused != nil {
		for _, m := range refused.Members {
			a.Members = append(a.Members, m.String())
		}
	}
	if t.format == "json" {
		err = writeJSON(t.out, a)
	} else {
		err = t.writeCancelled(a, plan, nothing)
	}
	if err == nil && refused != nil {
		err = refused
	}
	return err
}

func (t *target) writeCancelled(a cancelled, plan requests.Cancellation, nothing bool) error {
	if nothing {
		_, err := fmt.Fprintln(t.out, "no such request waits, nothing to cancel")
		return err
	}
	if len(a.Cancelled) > 0 {
		if err := writeRequests(t, a.Cancelled); err != nil {
			return err
		}
	}
	if g := plan.Gone; g != nil {
		if err := paragraph(t.out, "", fmt.Sprintf("given up: requests at offsets %s to %s, which are not there any more (%s)", g.From, g.To, g.Cause)); err != nil {
			return err
		}
	}
	outcome := "committed"
	switch {
	case len(a.Members) > 0:
		outcome = "dry run, nothing committed; refused while the group has members: " + strings.Join(a.Members, ", ")
	case !a.Committed:
		outcome = "dry run, nothing committed"
	}
	if err := paragraph(t.out, "", fmt.Sprintf("group %s: acked %s → %s (%s)",
		plan.Group(), plan.Before, plan.After, outcome)); err != nil {
		return err
	}
	left := fmt.Sprintf("%d requests wait on.", a.Left)
	if a.Left == 1 {
		left = "1 request waits on."
	}
	if a.More {
		left += fmt.Sprintf(" More wait behind the oldest %d, which this looked at: run it again for those.", requests.MaxListed)
	}
	return paragraph(t.out, "", left+" The watermark does not move. Rows of a snapshot that began stay in the lane.")
}

func offsetsOf(list []flusso.Offset) []offset {
	out := make([]offset, len(list))
	for i, o := range list {
		out[i] = offset(o)
	}
	return out
}
