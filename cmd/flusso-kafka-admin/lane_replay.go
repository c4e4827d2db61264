package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/lanefile"
	"github.com/flusso/flusso-kafka/internal/members"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

func newLaneReplay(t *target) *cobra.Command {
	var (
		force bool
		act   *action
	)
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Publish an item that was skipped back to its lane",
		Long: `Publish the item that "lane skip" saved back to the end of its lane. Its
envelopes come as a snapshot batch, which has no position: acking it confirms
nothing, and the watermark stays as it is. The sink need not be stopped.

An older state never overwrites a newer one: the lane is read from the item to
its end, and documents that have a later envelope there, or whose index a later
snapshot began anew, are left out. So a file that was replayed already leaves
nothing to publish. A marker is published again for the indexes that no later
marker completed.

Where that cannot be known it refuses, and says why: what followed the item was
trimmed, the lane is in another source incarnation, a later snapshot of the
marker's index is under way, or the item was never skipped. --force says that
you know better. The way that needs no such knowledge is a new snapshot, by
"request send".

Publishing takes the writer's lease, and fences whoever has it. It refuses
while an ingest engine is attached: stop that first, and start it again
afterwards. An engine that publishes without reading requests is not seen, and
would be fenced; it opens a new session by itself, or stops.`,
		Example: `  $ flusso-kafka-admin lane replay item.jsonl --pipeline shop --dry-run
  item of the lane of search, sequence 2: a live batch at position 20, saved 1.2 min ago
    upsert  orders/1     to be published
    delete  orders/gone  left out: it has a later state in the lane, at offset 7
  lane of search: sequence 4 → 5 (dry run, nothing published)
  1 envelope comes as a snapshot batch, without a position: the watermark stays as it is.`,
		ValidArgsFunction: completeFile,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("name one file: see %s --help", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := act.check("this publishes to the lane, and fences whoever writes"); err != nil {
				return err
			}
			saved, err := lanefile.Read(args[0])
			if err != nil {
				return err
			}
			if t.name == "" {
				t.name = saved.Pipeline
			}
			if t.name != saved.Pipeline {
				return fmt.Errorf("%s holds an item of pipeline %s, not of %s", args[0], saved.Pipeline, t.name)
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				return (&replay{target: t, saved: saved, file: args[0], force: force, dry: act.dry}).answer(ctx, c)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "publish although it cannot be known that nothing newer is overwritten")
	act = addAction(cmd)
	return cmd
}

// replay publishes a saved item back.
type replay struct {
	*target
	saved *lanefile.Saved
	file  string
	force bool
	dry   bool

	lane   topics.Lane
	item   flusso.LaneItem
	header offsets.Header
}

func (r *replay) answer(ctx context.Context, c *cluster) error {
	var err error
	if r.lane, err = laneOf(c, r.saved.Sink); err != nil {
		return err
	}
	if r.item, r.header, err = r.saved.Item(); err != nil {
		return fmt.Errorf("%s: the item was malformed in its lane and cannot be replayed: seed the sink again with `flusso-kafka-admin request send %s INDEX... --yes`: %w",
			r.file, r.saved.Sink, err)
	}
	found, err := r.scan(ctx, c)
	if err != nil {
		return err
	}
	before := found.tail.Header.Sequence
	refusal := found.refusal(r)
	writers, err := writersOf(ctx, c)
	if err != nil {
		return err
	}
	done := false
	switch {
	case r.dry:
		if refusal == nil && len(writers) > 0 {
			refusal = &writersError{pipeline: r.name, members: writers}
		}
	case refusal != nil && !r.force:
		return refusal
	case found.publish == nil: // nothing to do takes no lease
	case len(writers) > 0:
		return &writersError{pipeline: r.name, members: writers}
	default:
		if found, before, err = r.publish(ctx, c, found); err != nil {
			return err
		}
		done = found.publish != nil
	}
	if r.format == "json" {
		err = r.json(found, before, done, writers)
	} else {
		err = r.text(found, before, done)
	}
	if err == nil && r.dry && refusal != nil && !r.force {
		err = refusal
	}
	return err
}

// publish takes the writer's lease, looks again at what the lane holds now that
// nobody else can add to it, and publishes.
func (r *replay) publish(ctx context.Context, c *cluster, found *scanned) (*scanned, uint64, error) {
	opts, err := r.Opts()
	if err != nil {
		return nil, 0, err
	}
	incarnation := r.header.Incarnation
	if found.tail.Found {
		incarnation = found.tail.Header.Incarnation
	}
	stream, err := kafka.Open(ctx, kafka.Config{
		Pipeline: r.name, Sinks: sinksOf(c.lanes), Incarnation: incarnation, Client: opts,
		MaxBatchBytes: lanefile.Largest, MaxUnackedBytes: lanefile.Largest,
		TrimAfter: -1, // that is the ingest engine's
	})
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayClose)
		defer cancel()
		_ = stream.Close(closing) // what was published is durable, or was said not to be
	}()
	lane, err := stream.Lane(r.saved.Sink)
	if err != nil {
		return nil, 0, err
	}
	producer, err := lane.Producer(ctx)
	if err != nil {
		return nil, 0, err
	}
	again, err := r.scan(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	if refusal := again.refusal(r); refusal != nil && !r.force {
		return nil, 0, refusal
	}
	if again.tail.Found && again.tail.Header.Incarnation != incarnation {
		return nil, 0, fmt.Errorf("the lane of %s was taken to source incarnation %s meanwhile: run the command again", r.saved.Sink, again.tail.Header.Incarnation)
	}
	if again.publish == nil {
		return again, again.tail.Header.Sequence, nil
	}
	if _, err := producer.Publish(ctx, again.publish); err != nil {
		if errors.Is(err, flusso.ErrUnknownOutcome) || ctx.Err() != nil {
			err = fmt.Errorf("%w: whether it was published, the same command tells: what is in the lane by then is left out", err)
		}
		return nil, 0, err
	}
	return again, again.tail.Header.Sequence, nil
}

// replayClose bounds the end of the writer session.
const replayClose = 700 * time.Millisecond

// writersOf names the members of the ingest group.
func writersOf(ctx context.Context, c *cluster) ([]string, error) {
	group := c.pipeline.IngestGroup()
	described, err := c.admin.DescribeGroups(ctx, group)
	if err == nil {
		err = described[group].Err
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, kafkaerr.Wrap("look for an ingest engine in group "+group, err)
	}
	names := []string{}
	for _, m := range members.Of(described[group]) {
		names = append(names, m.String())
	}
	return names, nil
}

// writersError says that an ingest engine is attached.
type writersError struct {
	pipeline string
	members  []string
}

func (e *writersError) Error() string {
	return fmt.Sprintf("an ingest engine of pipeline %s is attached (%s): publishing takes the writer's lease and would fence it: stop it first, and start it again afterwards; one that was killed leaves its group after its session timeout (10 s)",
		e.pipeline, strings.Join(e.members, ", "))
}

// shownDocuments is how many documents of a replay are shown.
const shownDocuments = 50

func (r *replay) text(found *scanned, before uint64, done bool) error {
	what := kinds[r.header.Kind]
	if r.header.Position != flusso.NoPosition {
		what += " at position " + r.header.Position.String()
	}
	if err := paragraph(r.out, "", fmt.Sprintf("item of the lane of %s, sequence %d: a %s, saved %s ago",
		r.saved.Sink, r.header.Sequence, what, tied(age(max(0, time.Since(r.saved.SavedAt)))))); err != nil {
		return err
	}
	tab := &table{right: []bool{false, false, false}}
	for i, d := range found.documents {
		if i == shownDocuments {
			tab.add("  …", fmt.Sprintf("and %d more", len(found.documents)-i), "")
			break
		}
		tab.add("  "+d.Op, d.name(), d.outcome(r.dry, done))
	}
	if err := tab.writeTo(r.out); err != nil {
		return err
	}
	for _, risk := range found.risks {
		if err := paragraph(r.out, "", risk); err != nil {
			return err
		}
	}
	outcome, after := "published", before+1
	switch {
	case found.publish == nil:
		return paragraph(r.out, "", found.nothing())
	case !done:
		outcome = "dry run, nothing published"
	}
	return errors.Join(
		paragraph(r.out, "", fmt.Sprintf("lane of %s: sequence %d → %d (%s)", r.saved.Sink, before, after, outcome)),
		paragraph(r.out, "", found.comes()))
}

func (r *replay) json(found *scanned, before uint64, done bool, writers []string) error {
	answer := struct {
		Pipeline      string           `json:"pipeline"`
		Sink          string           `json:"sink"`
		File          string           `json:"file"`
		Kind          string           `json:"kind"`
		Sequence      uint64           `json:"sequence"`
		Position      position         `json:"position"`
		SavedAt       time.Time        `json:"savedAt"`
		Documents     []replayDocument `json:"documents"`
		Risks         []string         `json:"risks"`
		PriorSequence uint64           `json:"priorSequence"`
		NewSequence   uint64           `json:"newSequence"`
		Published     bool             `json:"published"`
		Members       []string         `json:"members"`
	}{
		r.name, r.saved.Sink, r.file, r.header.Kind.String(), r.header.Sequence, position(r.header.Position), r.saved.SavedAt,
		found.documents, found.risks, before, before, done, writers,
	}
	if found.publish != nil {
		answer.NewSequence++
	}
	return writeJSON(r.out, answer)
}
