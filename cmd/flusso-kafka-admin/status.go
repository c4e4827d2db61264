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

  watermark    481423, held by archive, 237785 positions behind the first lane, its first unacked
               item is 3.3 s old
  incarnation  demo-1-3f11f80d (read from the newest header, in the lane of archive)
  writer       flusso-demo-ingest-10 at 127.0.0.1:39476 (process vm:16442) for 7.9 s; epoch 1,
               newest item 0.0 s old; no transaction is open
  requests     none waits

  lane     state      consumer         acked    tail  batches    age
  archive  behind     attached 7.9 s  481423  719208      426  3.3 s
  search   caught-up  attached 7.9 s  719208  719208        0  0.0 s

  waiting  envelopes      bytes  changes
  archive       1581  150.6 KiB     1683

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
	var what []string
	for _, f := range r.Findings {
		if counts(f) {
			what = append(what, about(f)+f.Text)
		}
	}
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
