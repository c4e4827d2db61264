package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/status"
)

func newWriterDescribe(t *target) *cobra.Command {
	return &cobra.Command{
		Use:   "describe",
		Short: "Show who writes, its transactional ids, and what is open on the lanes",
		Long: `Show who writes to the lanes: the ingest engine as its group sees it and since
when it is attached, when it last wrote, the state of its four transactional ids,
and every transaction that is open on a lane, with how long readers have waited
for it and what ends it. No engine needs to run.

A transaction hangs when its coordinator knows nothing of it, as a broker that
went down may leave it: it never ends by itself. A producer that is none of the
pipeline's has no business on a lane.

Exit code 1 says that something was found: no engine although items are old, a
transaction that is open for long, hangs or is foreign, or a look-up that failed.`,
		Example: `  $ flusso-kafka-admin writer describe
  writer of pipeline shop
  held by  flusso-shop-ingest-7 at 172.17.0.1 (process vm:7946) for 5.1 s
  wrote    newest item 8.9 s ago, epoch 1, incarnation pg-7301:flusso

  transactional id  state           producer  epoch  coordinator  timeout  open for
  shop.writer.0     CompleteCommit         0      1            1   10.0 s         -
  shop.writer.1     CompleteCommit         1      1            1   10.0 s         -
  shop.writer.2     CompleteCommit         2      1            1   10.0 s         -
  shop.writer.3     CompleteCommit         3      1            1   10.0 s         -

  open on  offset  producer  epoch  transactional id  readers wait  ends
  audit         4         6      0  nightly-import           5.1 s  by its producer
  producer 6: stop the program that writes with transactional id nightly-import: it is none of this
              pipeline's`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.run(cmd.Context(), t.writerDescribe)
		},
	}
}

// writerCodes are the findings that are about the writer.
var writerCodes = []status.Code{
	status.CodeWriterAbsent, status.CodeWriterQuiet, status.CodeHanging, status.CodeOpen, status.CodeForeign,
}

func (t *target) writerDescribe(ctx context.Context, c *cluster) error {
	collector, err := status.New(c.Client.Client, c.pipeline, status.Options{Sinks: sinksOf(c.lanes)})
	if err != nil {
		return err
	}
	report, err := collector.Collect(ctx)
	if err != nil {
		return err
	}
	w := report.Writer
	findings := slices.DeleteFunc(slices.Clone(report.Findings), func(f status.Finding) bool { return !slices.Contains(writerCodes, f.Code) })
	if t.format == "json" {
		err = writeJSON(t.out, struct {
			Pipeline string           `json:"pipeline"`
			At       time.Time        `json:"at"`
			Writer   status.Writer    `json:"writer"`
			Findings []status.Finding `json:"findings"`
		}{report.Pipeline, report.At, w, append([]status.Finding{}, findings...)})
	} else {
		err = t.writeWriter(c, report)
	}
	if err != nil {
		return err
	}
	var what []string
	for _, f := range findings {
		if f.Severity != status.Note {
			what = append(what, f.Text)
		}
	}
	for _, failed := range []string{w.Error, w.OpenError} {
		if failed != "" {
			what = append(what, failed)
		}
	}
	if i := slices.IndexFunc(w.IDs, func(id status.WriterID) bool { return id.Error != "" }); i >= 0 {
		what = append(what, w.IDs[i].Error)
	}
	return found(what)
}

func (t *target) writeWriter(c *cluster, report *status.Report) error {
	w := report.Writer
	if _, err := fmt.Fprintf(t.out, "writer of pipeline %s\n", report.Pipeline); err != nil {
		return err
	}
	holder := "nobody: no ingest engine is attached to group " + c.pipeline.IngestGroup()
	switch {
	case w.Error != "":
		holder = "not known: " + w.Error
	case w.Holder != nil:
		holder = memberLine(*w.Holder, report.At)
	}
	wrote := "nothing yet"
	if w.WroteAt != nil {
		wrote = fmt.Sprintf("newest item %s ago, epoch %d, incarnation %s", tied(age(max(0, report.At.Sub(*w.WroteAt)))), w.Epoch, w.Incarnation)
	}
	for _, line := range [][2]string{{"held by  ", holder}, {"wrote    ", wrote}} {
		if err := paragraph(t.out, line[0], line[1]); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(t.out); err != nil {
		return err
	}
	tab := &table{right: []bool{false, false, true, true, true, true, true}}
	tab.add("transactional id", "state", "producer", "epoch", "coordinator", "timeout", "open for")
	for _, id := range w.IDs {
		state, since := id.State, "-"
		if id.Error != "" {
			state = "unknown"
		}
		if id.StartedAt != nil {
			since = age(max(0, report.At.Sub(*id.StartedAt)))
		}
		tab.add(id.ID, state, orDash(id.ProducerID), orDash(int64(id.ProducerEpoch)), orDash(int64(id.Coordinator)), dashZero(id.TimeoutSeconds), since)
	}
	if err := tab.writeTo(t.out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(t.out); err != nil {
		return err
	}
	switch {
	case len(w.Open) > 0:
		if err := t.writeTransactions(w.Open); err != nil {
			return err
		}
		return t.writeHelp(w.Open)
	case w.OpenError != "":
		return paragraph(t.out, "", "what is open on the lanes is not known")
	}
	return paragraph(t.out, "", "no transaction is open on the lanes")
}

// writeHelp says once for each producer what helps.
func (t *target) writeHelp(open []status.Transaction) error {
	told := make(map[int64]bool)
	for _, o := range open {
		if told[o.ProducerID] {
			continue
		}
		told[o.ProducerID] = true
		if err := paragraph(t.out, fmt.Sprintf("producer %d: ", o.ProducerID), t.helpFor(o)); err != nil {
			return err
		}
	}
	return nil
}

func orDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func dashZero(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return ageOf(seconds)
}
