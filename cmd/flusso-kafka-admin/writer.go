package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/status"
)

func newWriter(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "writer",
		Short: "Look at who writes to the lanes, and end it",
		Long: `Look at who writes to the lanes of a pipeline: the ingest engine, its
transactional ids, and the transactions that are open and hold up readers; and
end whoever writes. Exit code 2 without a command.`,
		Example: `  $ flusso-kafka-admin writer describe
  writer of pipeline shop
  held by  flusso-shop-ingest-18 at 172.17.0.1 (process vm:30620) for 0.1 s
  wrote    newest item 0.2 s ago, epoch 1, incarnation pg-7001.slot_a

  transactional id  state           producer  epoch  coordinator  timeout  open for
  shop.writer.0     CompleteCommit         8      1            1   10.0 s         -
  shop.writer.1     CompleteCommit         9      1            1   10.0 s         -
  shop.writer.2     CompleteCommit        10      1            1   10.0 s         -
  shop.writer.3     CompleteCommit        12      1            1   10.0 s         -

  no transaction is open on the lanes`,
		Args: noArgs,
		RunE: nameOne,
	}
	t := addTarget(cmd, s)
	cmd.AddCommand(newWriterDescribe(t), newWriterFence(t))
	return cmd
}

// writeTransactions shows what is open on the lanes, and what ends it.
func (t *target) writeTransactions(open []status.Transaction) error {
	tab := &table{right: []bool{false, true, true, true, false, true, false}}
	tab.add("open on", "offset", "producer", "epoch", "transactional id", "readers wait", "ends")
	for _, o := range open {
		owner := o.Owner
		if owner == "" {
			owner = "unknown"
		}
		tab.add(o.Sink, fmt.Sprint(o.Offset), fmt.Sprint(o.ProducerID), fmt.Sprint(o.ProducerEpoch), owner, ageOf(o.BlockedSeconds), ends(o))
	}
	return tab.writeTo(t.out)
}

// ends says in a word how an open transaction ends.
func ends(o status.Transaction) string {
	switch {
	case o.Hanging:
		return "never: it hangs"
	case o.WriterID != "":
		return "by itself"
	}
	return "by its producer"
}

// helpFor says what a person can do about an open transaction.
func (t *target) helpFor(o status.Transaction) string {
	fence := "flusso-kafka-admin writer fence --pipeline " + t.name
	switch {
	case o.Hanging && o.WriterID != "":
		return fence + " --abort-hanging --dry-run"
	case o.Hanging:
		return fmt.Sprintf("%s --abort-hanging --producer %d --dry-run", fence, o.ProducerID)
	case o.WriterID != "":
		return "wait: its timeout ends it; or, where its engine is gone: " + fence + " --dry-run"
	case o.Owner != "":
		return fmt.Sprintf("stop the program that writes with transactional id %s: it is none of this pipeline's", o.Owner)
	}
	return "stop the program that writes with that producer id: it is none of this pipeline's, and its transactional id is not shown to this user"
}

func ageOf(seconds float64) string { return age(time.Duration(seconds * float64(time.Second))) }
