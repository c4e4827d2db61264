package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func newStatus(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the lanes, the watermark and the waiting requests of a pipeline",
		Long: `Show each lane's state with acked and tail positions and exact lag, the watermark
with who holds it and why, and the requests that wait. No engine needs to run.
Exit code 1 says that something is not healthy: a look-up that failed, a lane
that does not count towards the watermark, a gap, or a backlog that no consumer
is attached to.

JSON: {"pipeline", "healthy", "lanes": [{"state", "consumer", "problem", and the
fields of lag}], "watermark": {the fields of watermark}, "requests": [{the fields
of request list}], "requestsError"}. States: caught-up, behind, seeding (behind,
and the next item is a part of a snapshot: a batch, or the marker that ends it;
its request is answered and waits no more), gap, error, or a floor's state.
Consumer: attached, detached or unknown.`,
		Args: noArgs,
	}
	t := addTarget(cmd, s)
	named := incarnationFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error { return t.status(ctx, c, *named) })
	}
	return cmd
}

// laneStatus is a lane as status answers it.
type laneStatus struct {
	laneLag
	State    string `json:"state"`
	Consumer string `json:"consumer"`
	Problem  string `json:"problem,omitempty"`

	lag offsets.Lag
}

// Whether a sink's group has a member.
const (
	attached       = "attached"
	detached       = "detached"
	unknownMembers = "unknown"
)

func (t *target) status(ctx context.Context, c *cluster, named string) error {
	mark, lags, err := c.readLanes(ctx, named)
	if err != nil {
		return err
	}
	consumers, cerr := c.consumers(ctx)
	waits, rerr := c.pending(ctx)

	var what []string
	var lanes []laneStatus
	for i, l := range c.lanes {
		s := judge(l, lags[l], mark.mark.Floors[i], consumers[l])
		if s.Problem != "" {
			what = append(what, "lane of "+l.Sink+": "+s.Problem)
		}
		lanes = append(lanes, s)
	}
	if cerr != nil {
		what = append(what, cerr.Error())
	}
	if rerr != nil {
		what = append(what, rerr.Error())
	}
	if t.format == "json" {
		answer := struct {
			Pipeline      string       `json:"pipeline"`
			Healthy       bool         `json:"healthy"`
			Lanes         []laneStatus `json:"lanes"`
			Watermark     markAnswer   `json:"watermark"`
			Requests      []waiting    `json:"requests"`
			RequestsError string       `json:"requestsError,omitempty"`
		}{c.pipeline.String(), len(what) == 0, lanes, mark, waits, errorText(rerr)}
		err = writeJSON(t.out, answer)
	} else {
		err = t.writeStatus(lanes, mark, waits, rerr)
	}
	if err != nil {
		return err
	}
	return found(what)
}

// judge decides what a lane's state is called, and what is wrong with it.
func judge(l topics.Lane, lag offsets.Lag, f flusso.LaneFloor, consumer string) laneStatus {
	if consumer == "" {
		consumer = unknownMembers
	}
	s := laneStatus{laneLag: newLaneLag(l.Sink, lag), Consumer: consumer, lag: lag}
	s.Problem = problem(l, lag)
	switch {
	case lag.Err != nil:
		s.State = "error"
	case f.State == flusso.FloorUnknown:
		s.State, s.Problem = "error", f.Detail
	case f.State != flusso.FloorAcked && f.State != flusso.FloorNothing:
		s.State = string(f.State)
		if s.Problem == "" {
			s.Problem = s.State + ": " + f.Detail
		}
	case s.Problem != "":
		s.State = "gap"
	case lag.Batches == 0:
		s.State = "caught-up"
	default:
		s.State = "behind"
		if lag.Seeding {
			s.State = "seeding"
		}
		if consumer == detached {
			s.Problem = fmt.Sprintf("no consumer is attached to group %s: start the sink", l.Group())
		}
	}
	return s
}

// consumers tells for each lane whether its group has a member.
func (c *cluster) consumers(ctx context.Context) (map[topics.Lane]string, error) {
	groups := make([]string, len(c.lanes))
	for i, l := range c.lanes {
		groups[i] = l.Group()
	}
	got, err := c.admin.DescribeGroups(ctx, groups...)
	if err != nil && len(got) == 0 {
		return nil, kafkaerr.Wrap("describe the groups of pipeline "+c.pipeline.String(), err)
	}
	out := make(map[topics.Lane]string, len(c.lanes))
	var failed []string
	for _, l := range c.lanes {
		switch g, ok := got[l.Group()]; {
		case !ok:
			failed = append(failed, fmt.Sprintf("describe group %s: no answer", l.Group()))
		case gone(g):
			out[l] = detached
		case g.Err != nil:
			failed = append(failed, kafkaerr.Wrap("describe group "+l.Group(), g.Err, kafkaerr.OnGroup("Describe", l.Group())).Error())
		case len(g.Members) > 0:
			out[l] = attached
		default:
			out[l] = detached
		}
	}
	return out, found(failed)
}

// gone reports whether a group does not exist, which brokers say in two ways.
func gone(g kadm.DescribedGroup) bool {
	return g.State == "Dead" || errors.Is(g.Err, kerr.GroupIDNotFound)
}

func (t *target) writeStatus(lanes []laneStatus, mark markAnswer, requests []waiting, rerr error) error {
	tab := &table{right: []bool{false, false, false, true, true, true, true, true}}
	tab.add("sink", "state", "consumer", "acked", "tail", "batches", "envelopes", "age")
	var details [][2]string
	for _, l := range lanes {
		cells := lagCells(l.lag)
		tab.add(l.Sink, l.State, l.Consumer, cells[0], cells[1], cells[2], cells[3], cells[6])
		if l.Problem != "" {
			details = append(details, [2]string{l.Sink, l.Problem})
		}
	}
	if err := writeTable(t, tab, details); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(t.out); err != nil {
		return err
	}
	if err := paragraph(t.out, "watermark    ", mark.line()); err != nil {
		return err
	}
	if err := writeIncarnation(t, incarnation{mark.Incarnation, mark.From}); err != nil {
		return err
	}
	text := "none waits"
	if rerr != nil {
		text = "unknown: " + rerr.Error()
	} else if len(requests) > 0 {
		each := make([]string, len(requests))
		for i, r := range requests {
			each[i] = r.String()
		}
		text = strings.Join(each, "; ")
	}
	return paragraph(t.out, "requests     ", text)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
