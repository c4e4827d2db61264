package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func newVersion(s streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Long: `Show which build this is: its version, the commit it was built from where that is
known, and the Go release. The version of a build that was not asked to look at its
checkout is (devel).

JSON: {"version", "revision", "time", "modified", "go"}. Revision and time are
empty where the build does not know them; modified says that files differed from
the revision.`,
		Example: `  $ flusso-kafka-admin version
  flusso-kafka-admin (devel) go1.26.8`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if err := checkFormat(format); err != nil {
				return err
			}
			if format == "json" {
				return writeJSON(s.out, b)
			}
			_, err := fmt.Fprintln(s.out, b)
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "text or json")
	_ = cmd.RegisterFlagCompletionFunc("format", completeFormats)
	return cmd
}

// build is what is known of this program's build.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Time     string `json:"time"` // of the revision
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return newBuild(info)
}

func newBuild(info *debug.BuildInfo) build {
	b := build{Version: info.Main.Version, Go: info.GoVersion}
	if b.Version == "" {
		b.Version = "unknown"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	words := []string{"flusso-kafka-admin", b.Version}
	if b.Revision != "" {
		revision := "revision " + b.Revision
		if b.Modified {
			revision += " with changes"
		}
		if b.Time != "" {
			revision += " of " + b.Time
		}
		words = append(words, "("+revision+")")
	}
	if b.Go != "" {
		words = append(words, b.Go)
	}
	return strings.Join(words, " ")
}
