package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/lease"
	"github.com/flusso/flusso-kafka/internal/status"
)

const (
	fenceEach = 5 * time.Second        // for one transactional id
	openPoll  = 200 * time.Millisecond // while what was open is being aborted
)

func newWriterFence(t *target) *cobra.Command {
	var (
		hanging  bool
		producer int64
		act      *action
	)
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "End whoever writes, and abort what was left open on the lanes",
		Long: `End whoever writes: take the pipeline's four transactional ids over, in their
order, as an ingest engine does that starts. What was open under them is aborted,
so that readers go on, and nothing that the writer before still sends can be
committed.

A running ingest engine learns of it at its next publish, and not before: that
publish fails with ErrLost (ErrUnknownOutcome for a commit that was on its way),
the session ends, and the engine opens the next one by itself after a pause of 1
to 2 seconds, longer each time that it gets nothing through, 1 minute at most.
There it publishes again what was aborted. An engine that shall not come back has
to be stopped.

The watermark does not move and nothing is lost: what was open was read by nobody.

--abort-hanging also ends transactions that hang on the lanes: their coordinator
knows nothing of them, so that fencing does not end them. Those of the pipeline's
own producer ids, and that of a foreign one if --producer names it. It takes up to
4 seconds more, and the permission ClusterAction on the cluster.

Exit code 1 says that not all of it could be done; what was done is shown.`,
		Example: `  $ flusso-kafka-admin writer fence --yes
  transactional id  state  producer/epoch     now
  shop.writer.0     Empty             0/2  →  0/3
  shop.writer.1     Empty             1/2  →  1/3
  shop.writer.2     Empty             2/2  →  2/3
  shop.writer.3     Empty             3/2  →  3/3
  What was open under these ids is aborted. A running ingest engine is told when it publishes next:
  that publish fails, its session ends, and it opens the next one by itself after 1 to 2 s and
  publishes that again. Stop an engine that shall not come back. The watermark does not move.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := act.check("this ends the session of whoever writes"); err != nil {
				return err
			}
			named := cmd.Flags().Changed("producer")
			switch {
			case named && !hanging:
				return usageError{errors.New("--producer names whose hanging transaction to abort: give --abort-hanging too")}
			case named && producer < 0:
				return usageError{fmt.Errorf("--producer %d: give a producer id, as `writer describe` shows it", producer)}
			case !named:
				producer = -1
			}
			return t.run(cmd.Context(), func(ctx context.Context, c *cluster) error {
				f := &fencing{target: t, c: c, hanging: hanging, producer: producer, dry: act.dry}
				return f.run(ctx)
			})
		},
	}
	cmd.Flags().BoolVar(&hanging, "abort-hanging", false, "also end transactions that hang on the lanes")
	cmd.Flags().Int64Var(&producer, "producer", -1, "`id` of a foreign producer whose hanging transaction to end, too")
	act = addAction(cmd)
	return cmd
}

// fencing is one call of writer fence.
type fencing struct {
	*target
	c        *cluster
	hanging  bool  // abort what hangs, too
	producer int64 // foreign one that is meant, too; -1 for none
	dry      bool

	ids     []fencedID
	aborted []status.Transaction // hanging ones that were ended, or would be
	open    []status.Transaction // what is open on the lanes, before in a dry run and after it else
}

// fencedID is what fencing does to one transactional id.
type fencedID struct {
	ID                 string `json:"id"`
	State              string `json:"state"` // before
	PriorProducerID    *int64 `json:"priorProducerId"`
	PriorProducerEpoch *int16 `json:"priorProducerEpoch"`
	ProducerID         *int64 `json:"producerId"`
	ProducerEpoch      *int16 `json:"producerEpoch"`
	Fenced             bool   `json:"fenced"`
	Error              string `json:"error,omitempty"` // why it is not known what it was before
}

func fencedIDOf(f lease.Fenced) fencedID {
	id := fencedID{ID: f.Prior.Name, State: f.Prior.State, Fenced: f.Done}
	if f.Prior.Err != nil {
		id.Error = f.Prior.Err.Error()
	} else if f.Prior.ProducerID >= 0 {
		id.PriorProducerID, id.PriorProducerEpoch = new(f.Prior.ProducerID), new(f.Prior.ProducerEpoch)
	}
	if f.Done {
		id.ProducerID, id.ProducerEpoch = new(f.ProducerID), new(f.ProducerEpoch)
	}
	return id
}

func (f *fencing) run(ctx context.Context) error {
	cl := f.c.Client.Client
	before := lease.Describe(ctx, cl, f.c.pipeline, f.c.lanes)
	if err := f.checkProducer(before); err != nil {
		return err
	}
	if f.dry {
		for _, id := range before.IDs {
			f.ids = append(f.ids, fencedIDOf(lease.Fenced{Prior: id}))
		}
		f.saw(before)
		for _, o := range before.Open {
			if f.meant(o) && o.Hanging {
				f.aborted = append(f.aborted, status.TransactionOf(o))
			}
		}
		return errors.Join(f.answer(), before.Err())
	}
	fenced, err := lease.Fence(ctx, cl, f.c.pipeline, fenceEach)
	for _, id := range fenced {
		f.ids = append(f.ids, fencedIDOf(id))
	}
	if err == nil && f.hanging {
		err = f.abort(ctx, cl)
	}
	if err == nil {
		after := lease.Describe(ctx, cl, f.c.pipeline, f.c.lanes)
		f.saw(after)
		err = after.Err()
	}
	return errors.Join(f.answer(), err)
}

// saw notes what is open, but for what was ended.
func (f *fencing) saw(s lease.State) {
	f.open = nil
	for _, o := range s.Open {
		shown := status.TransactionOf(o)
		if !slices.ContainsFunc(f.aborted, func(a status.Transaction) bool {
			return a.Topic == shown.Topic && a.ProducerID == shown.ProducerID && a.Offset == shown.Offset
		}) {
			f.open = append(f.open, shown)
		}
	}
}

// checkProducer refuses a named producer that nothing of hangs, before anything
// is done.
func (f *fencing) checkProducer(s lease.State) error {
	if f.producer < 0 {
		return nil
	}
	look := "flusso-kafka-admin writer describe --pipeline " + f.name
	i := slices.IndexFunc(s.Open, func(o lease.Transaction) bool { return o.ProducerID == f.producer })
	switch {
	case i < 0 && s.Err() != nil:
		return fmt.Errorf("what producer %d has open on the lanes is not known: %w", f.producer, s.Err())
	case i < 0:
		return fmt.Errorf("producer %d has no transaction open on a lane of pipeline %s: see %s", f.producer, f.name, look)
	case s.Open[i].Hanging:
		return nil
	case s.Open[i].ID != "":
		return fmt.Errorf("the transaction of producer %d does not hang: the coordinator of transactional id %s has it under way: "+
			"stop the program that writes with it, or wait for its timeout: see %s", f.producer, s.Open[i].ID, look)
	}
	return fmt.Errorf("whether the transaction of producer %d hangs is not known yet: no transactional id that this user may see has it: "+
		"stop the program that writes with it, or try again when its readers have waited for 15 minutes: see %s", f.producer, look)
}

// meant reports whether a transaction is one that --abort-hanging is for.
func (f *fencing) meant(o lease.Transaction) bool {
	return f.hanging && (o.Ours || o.ProducerID == f.producer)
}

// abort ends what hangs, once what fencing aborted had the time to end.
func (f *fencing) abort(ctx context.Context, cl *kgo.Client) error {
	settled := time.NewTimer(lease.Settle)
	defer settled.Stop()
	for {
		s := lease.Describe(ctx, cl, f.c.pipeline, f.c.lanes)
		open := slices.DeleteFunc(s.Open, func(o lease.Transaction) bool { return !f.meant(o) })
		if len(open) == 0 {
			return s.Err()
		}
		poll := time.NewTimer(openPoll)
		select {
		case <-poll.C:
			continue
		case <-ctx.Done():
			return fmt.Errorf("wait for what was open to be aborted: %w", context.Cause(ctx))
		case <-settled.C:
		}
		poll.Stop()
		for _, o := range open {
			if !o.Hanging {
				continue
			}
			if err := lease.Abort(ctx, cl, o); err != nil {
				return err
			}
			f.aborted = append(f.aborted, status.TransactionOf(o))
		}
		return s.Err()
	}
}

func (f *fencing) answer() error {
	if f.format == "json" {
		return writeJSON(f.out, struct {
			Pipeline string               `json:"pipeline"`
			IDs      []fencedID           `json:"ids"`
			Aborted  []status.Transaction `json:"aborted"`
			Open     []status.Transaction `json:"open"`
			Fenced   bool                 `json:"fenced"`
		}{
			f.c.pipeline.String(), f.ids, append([]status.Transaction{}, f.aborted...), append([]status.Transaction{}, f.open...),
			len(f.ids) > 0 && !slices.ContainsFunc(f.ids, func(id fencedID) bool { return !id.Fenced }),
		})
	}
	tab := &table{right: []bool{false, false, true, false, true}}
	tab.add("transactional id", "state", "producer/epoch", "", "now")
	for _, id := range f.ids {
		state, now := id.State, "not fenced"
		switch {
		case id.Error != "":
			state = "unknown"
		case f.dry:
			now = "its next epoch"
		}
		if id.Fenced {
			now = fmt.Sprintf("%d/%d", *id.ProducerID, *id.ProducerEpoch)
		}
		prior := "none"
		switch {
		case id.Error != "":
			prior = "unknown"
		case id.PriorProducerID != nil:
			prior = fmt.Sprintf("%d/%d", *id.PriorProducerID, *id.PriorProducerEpoch)
		}
		tab.add(id.ID, state, prior, "→", now)
	}
	if err := tab.writeTo(f.out); err != nil {
		return err
	}
	for _, line := range f.says() {
		if err := paragraph(f.out, "", line); err != nil {
			return err
		}
	}
	if len(f.open) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(f.out); err != nil {
		return err
	}
	if err := f.writeTransactions(f.open); err != nil || f.dry {
		return err
	}
	return f.writeHelp(f.open)
}

// says tells what was done, and what happens next.
func (f *fencing) says() (lines []string) {
	verb, what := "aborted", "What was open under these ids is aborted."
	if f.dry {
		verb, what = "would abort", "What is open under these ids would be aborted."
		lines = append(lines, "dry run, nobody fenced")
	}
	for _, o := range f.aborted {
		lines = append(lines, fmt.Sprintf("%s the hanging transaction of producer %d on topic %s from offset %d", verb, o.ProducerID, o.Topic, o.Offset))
	}
	next := []string{
		what,
		"A running ingest engine is told when it publishes next: that publish fails, its session ends, and it opens the next one by itself after 1 to 2 s and publishes that again.",
		"Stop an engine that shall not come back. The watermark does not move.",
	}
	if f.dry || slices.ContainsFunc(f.ids, func(id fencedID) bool { return id.Fenced }) {
		lines = append(lines, strings.Join(next, " "))
	}
	return lines
}
