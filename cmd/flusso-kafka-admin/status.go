package main

import (
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
		Args: noArgs,
	}
	t := addTarget(cmd, s)
	show := &showing{}
	show.addIncarnation(cmd)
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

// foundIn returns findings as what makes the exit code 1.
func foundIn(r *status.Report, counts func(status.Finding) bool) []string {
	var what []string
	for _, f := range r.Findings {
		if counts(f) {
			what = append(what, about(f)+f.Text)
		}
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
