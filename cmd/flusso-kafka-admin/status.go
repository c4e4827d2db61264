package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/status"
)

func newStatus(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether a pipeline is healthy and, if not, who holds it",
		Long: `Show whether a pipeline is healthy and, if not, who holds it: the verdict; what
was found, the worst first, each with the command that helps; the watermark and
who holds it; who writes; requests; the lanes, and what waits in them. No engine
needs to run. Exit code 1 says that something was found that is graver than a
note. docs/operating.md explains every finding.

States of a lane: caught-up, behind, seeding (behind, and the next item is a
part of a snapshot), gap, retired, error, or the state of a floor that does not
count. With --watch there are rates: what the sink acked and what was published
in a second, since the report before.

JSON: docs/json.md; one line for each report with --watch.`,
		Example: `  $ flusso-kafka-admin status --pipeline demo
  pipeline demo, 2 lanes: healthy

  watermark    35332401, held by archive, 58218 positions behind the first lane, its first unacked
               item is 2.1 s old
  incarnation  demo-1-e7e463b0 (read from the newest header, in the lane of archive)
  writer       flusso-demo-ingest-10 at 127.0.0.1:41460 (process vm:3301) for 10.6 min; epoch 1,
               newest item 0.0 s old; transactional ids: 4 Empty; no transaction is open
  requests     none waits

  lane     state      consumer              acked      tail  batches    age
  archive  behind     attached 10.6 min  35332401  35390619      160  2.1 s
  search   caught-up  attached 10.6 min  35390619  35390619        0  0.0 s

  waiting  envelopes     bytes  changes
  archive        379  38.2 KiB      379

  $ flusso-kafka-admin status --pipeline demo --watch   # redraws every 2 s until Ctrl-C`,
		Args: noArgs,
	}
	t := addTarget(cmd, s)
	show := &showing{incarnation: incarnationFlag(cmd)}
	show.addWatch(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.show(cmd.Context(), show, answer{
			json: func(v view) any {
				return struct {
					*status.Report
					Rates map[string]status.Rate `json:"rates,omitempty"`
				}{v.Report, v.rates}
			},
			text: writeStatus,
			found: func(v view) []string {
				return foundIn(v.Report, func(f status.Finding) bool { return f.Severity != status.Note })
			},
		})
	}
	return cmd
}

// foundIn returns findings as what makes the exit code 1: the worst, and how
// many more there are. The answer has them all.
func foundIn(r *status.Report, counts func(status.Finding) bool) []string {
	return worst(saidIn(r, counts))
}

// saidIn returns what findings say.
func saidIn(r *status.Report, counts func(status.Finding) bool) []string {
	var what []string
	for _, f := range r.Findings {
		if counts(f) {
			what = append(what, about(f)+f.Text)
		}
	}
	return what
}

// worst keeps the first of what was found, and how many more there are.
func worst(what []string) []string {
	if len(what) > 1 {
		what = []string{what[0], fmt.Sprintf("and %d more", len(what)-1)}
	}
	return what
}

// about says which lane a finding is about.
func about(f status.Finding) string {
	if f.Sink == "" {
		return ""
	}
	return "lane of " + f.Sink + ": "
}
