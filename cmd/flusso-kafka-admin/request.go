package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/wire"
)

func newRequest(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "request",
		Short: "Look at the request lane, and ask for backfills",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError{errors.New("name a command: " + cmd.CommandPath() + " --help lists them")}
		},
	}
	t := addTarget(cmd, s)
	cmd.AddCommand(newRequestList(t), newRequestSend(t))
	return cmd
}

func newRequestList(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the requests that the ingest engine has not completed",
		Long: `List the requests that the ingest engine has not completed, oldest first. No
engine needs to run.

JSON: {"pipeline", "requests": [{"offset", "sink", "indexes", "sentAt",
"seconds", "error"}]}. "error" is there instead of sink and indexes for a record
that is no request of ours; it makes the exit code 1.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.run(cmd.Context(), t.requestList)
		},
	}
}

func newRequestSend(t *target) *cobra.Command {
	var dry, yes bool
	cmd := &cobra.Command{
		Use:   "send SINK INDEX...",
		Short: "Ask the ingest engine for a backfill of a sink's indexes",
		Long: `Ask the ingest engine for a backfill: a snapshot of the indexes, published to the
lane of the sink and ended there by a marker. The request waits until an ingest
engine runs. The sink's engine keeps what it has: drop its index first where it
should be built anew.

JSON: {"pipeline", "sink", "indexes", "waitingBefore", "sent", "offset"}.`,
		Example: "  flusso-kafka-admin request send search orders customers --pipeline shop --yes",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("name a sink and at least one index: see %s --help", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !dry && !yes {
				return usageError{errors.New("a backfill publishes every row of an index to a lane: add --yes to ask for it, or --dry-run to see what would be sent")}
			}
			b := &flusso.Backfill{Sink: args[0], Indexes: args[1:]}
			if err := flusso.CheckRequest(b, []string{b.Sink}); err != nil {
				return usageError{err}
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error { return t.requestSend(ctx, c, b, dry) })
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be sent")
	cmd.Flags().BoolVar(&yes, "yes", false, "send it")
	return cmd
}

func (t *target) requestList(ctx context.Context, c *cluster) error {
	requests, err := c.pending(ctx)
	if err != nil {
		return err
	}
	if t.format == "json" {
		err = writeJSON(t.out, struct {
			Pipeline string    `json:"pipeline"`
			Requests []waiting `json:"requests"`
		}{c.pipeline.String(), requests})
	} else {
		err = writeRequests(t, requests)
	}
	if err != nil {
		return err
	}
	var what []string
	for _, r := range requests {
		if r.Error != "" {
			what = append(what, r.Error)
		}
	}
	return found(what)
}

func writeRequests(t *target, requests []waiting) error {
	if len(requests) == 0 {
		_, err := fmt.Fprintln(t.out, "no request waits")
		return err
	}
	tab := &table{right: []bool{false, true, true, false}}
	tab.add("sink", "offset", "age", "indexes")
	for _, r := range requests {
		what := strings.Join(r.Indexes, ", ")
		if r.Error != "" {
			what = r.Error
		}
		tab.add(r.Sink, flusso.Offset(r.Offset).String(), age(time.Duration(r.Seconds*float64(time.Second))), what)
	}
	return tab.writeTo(t.out)
}

func (t *target) requestSend(ctx context.Context, c *cluster, b *flusso.Backfill, dry bool) error {
	known := sinksOf(c.lanes)
	if err := flusso.CheckSink(b.Sink, known); err != nil {
		return err
	}
	before, err := c.pending(ctx)
	if err != nil {
		return err
	}
	mine := func(r waiting) bool { return r.Sink == b.Sink }
	waits := 0
	for _, r := range before {
		if mine(r) {
			waits++
		}
	}
	answer := struct {
		Pipeline string   `json:"pipeline"`
		Sink     string   `json:"sink"`
		Indexes  []string `json:"indexes"`
		Before   int      `json:"waitingBefore"`
		Sent     bool     `json:"sent"`
		Offset   offset   `json:"offset"`
	}{c.pipeline.String(), b.Sink, b.Indexes, waits, false, offset(flusso.NoOffset)}
	if !dry {
		record := wire.EncodeRequest(c.pipeline.RequestsTopic(), b, time.Now())
		sent, err := c.ProduceSync(ctx, record).First()
		if err != nil {
			return kafkaerr.Wrap("send the request to topic "+record.Topic, err)
		}
		answer.Sent, answer.Offset = true, offset(sent.Offset)
	}
	if t.format == "json" {
		return writeJSON(t.out, answer)
	}
	outcome := fmt.Sprintf("sent, offset %d", int64(answer.Offset))
	if dry {
		outcome = "dry run, nothing sent"
	}
	return paragraph(t.out, "", fmt.Sprintf("backfill of %s for %s: its requests waiting %d → %d (%s)",
		strings.Join(b.Indexes, ", "), b.Sink, waits, waits+1, outcome))
}

// waiting is a request that was not completed, as it is answered.
type waiting struct {
	Offset  offset    `json:"offset"`
	Sink    string    `json:"sink,omitempty"`
	Indexes []string  `json:"indexes,omitempty"`
	SentAt  time.Time `json:"sentAt"`
	Seconds float64   `json:"seconds"` // since it was sent
	Error   string    `json:"error,omitempty"`
}

func (w waiting) String() string {
	if w.Error != "" {
		return w.Error
	}
	return fmt.Sprintf("%s asks for %s since %s", w.Sink, strings.Join(w.Indexes, ", "), tied(age(time.Duration(w.Seconds*float64(time.Second)))))
}

// pending reads the requests that the ingest group has not acked.
func (c *cluster) pending(ctx context.Context) ([]waiting, error) {
	topic, group := c.pipeline.RequestsTopic(), c.pipeline.IngestGroup()
	starts, err := c.admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, kafkaerr.Wrap("look up the start of topic "+topic, err)
	}
	ends, err := c.admin.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, kafkaerr.Wrap("look up the end of topic "+topic, err)
	}
	start, _ := starts.Lookup(topic, 0)
	end, ok := ends.Lookup(topic, 0)
	if !ok {
		return nil, fmt.Errorf("topic %s has no partition 0: open the pipeline once with its topics created", topic)
	}
	from, acked, err := c.requestFloor(ctx, group, topic)
	if err != nil {
		return nil, err
	}
	out := []waiting{}
	err = c.read(ctx, topic, max(from, start.Offset), end.Offset, func(r *kgo.Record) {
		if slices.Contains(acked, flusso.Offset(r.Offset)) {
			return
		}
		w := waiting{Offset: offset(r.Offset), SentAt: r.Timestamp.UTC(), Seconds: max(0, time.Since(r.Timestamp).Seconds())}
		request, err := wire.DecodeRequest(r)
		if b, ok := request.(*flusso.Backfill); ok && err == nil {
			w.Sink, w.Indexes = b.Sink, b.Indexes
		} else {
			w.Error = fmt.Sprintf("record at offset %d of topic %s is no request: %v", r.Offset, topic, err)
		}
		out = append(out, w)
	})
	if err != nil {
		return nil, kafkaerr.Wrap("read the requests of topic "+topic, err)
	}
	return out, nil
}

// requestFloor returns what the ingest group acked of the request lane: all
// below an offset, and some above it.
func (c *cluster) requestFloor(ctx context.Context, group, topic string) (int64, []flusso.Offset, error) {
	got, err := c.admin.FetchOffsetsForTopics(ctx, group, topic)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return 0, nil, nil // some brokers say so of a group that never committed
	}
	if err != nil {
		return 0, nil, kafkaerr.Wrap("fetch the offset of group "+group, err)
	}
	commit, ok := got.Lookup(topic, 0)
	if !ok || commit.At < 0 && commit.Err == nil {
		return 0, nil, nil
	}
	if commit.Err != nil {
		return 0, nil, kafkaerr.Wrap("fetch the offset of group "+group+" in topic "+topic, commit.Err)
	}
	meta, err := wire.ParseRequestMetadata(commit.Metadata)
	if err != nil || meta.Offset != flusso.Offset(commit.At) {
		return commit.At, nil, nil //nolint:nilerr // another tool's commit: its offset counts, its metadata does not
	}
	return commit.At, meta.Acked, nil
}

// read hands the committed records of a topic from one offset to another, not
// included, to each.
func (c *cluster) read(ctx context.Context, topic string, from, to int64, each func(*kgo.Record)) error {
	if from >= to {
		return nil
	}
	c.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}})
	defer c.RemoveConsumePartitions(map[string][]int32{topic: {0}})
	for from < to {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset >= to {
				return
			}
			from = r.Offset + 1
			if !r.Attrs.IsControl() {
				each(r)
			}
		})
	}
	return nil
}
