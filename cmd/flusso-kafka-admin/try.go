package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/profile"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// program is how the next command begins.
const program = "flusso-kafka-admin"

// try returns the command to try after an error of cmd, with the flags that
// say which pipeline; empty where the error names one, or there is none.
func try(cmd *cobra.Command, err error) string {
	if err == nil || cmd == nil || strings.Contains(err.Error(), program+" ") {
		return ""
	}
	command, about := tryOf(cmd, err)
	if command == "" {
		return ""
	}
	if !strings.HasSuffix(command, "--help") {
		command += given(cmd)
	}
	return program + " " + command + "   # " + about
}

// tryOf decides which command helps, and says what it does.
func tryOf(cmd *cobra.Command, err error) (command, about string) {
	var (
		dial    *connect.Error
		sink    *flusso.UnknownSinkError
		active  *offsets.GroupActiveError
		nothing *offsets.NothingWaitsError
		unsure  *offsets.OutcomeError
		old     *topics.TooOldError
		lacking *status.NoLanesError
		what    finding
		wrong   *profile.Error
	)
	switch path := pathOf(cmd); {
	case errors.As(err, &wrong):
		return "profile list", "lists the profiles"
	case isUsage(err):
		return strings.TrimSpace(path + " --help"), "shows how it is called"
	case kafkaerr.Classify(err) == kafkaerr.Auth && !errors.As(err, &dial):
		role := "viewer"
		if cmd.Flags().Lookup("yes") != nil {
			role = "operator"
		}
		return "topic check --role " + role, "names the permissions that are missing"
	case errors.As(err, &dial), kafkaerr.Classify(err) == kafkaerr.Unreachable, kafkaerr.Classify(err) == kafkaerr.Timeout:
		return "profile show", "shows what is connected to, and which setting says so"
	case errors.As(err, &lacking):
		return "topic apply --sinks SINK,… --dry-run", "shows the topics it would create"
	case errors.As(err, &sink):
		return "lane list", "lists the sinks"
	case errors.As(err, &active), errors.As(err, &nothing), errors.As(err, &unsure):
		return "lane describe " + strings.Join(cmd.Flags().Args()[:min(1, cmd.Flags().NArg())], " "), "shows where it stands, and who is attached"
	case errors.As(err, &old):
		return "topic check", "names what else is in the way"
	case errors.As(err, &what) && path != "status" && !strings.HasPrefix(path, "topic"):
		return "status", "says what helps against each finding"
	}
	return "", ""
}

// pathOf is the path of a command without the program's name.
func pathOf(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
}

// given returns the flags that say which cluster and pipeline, as they were given.
func given(cmd *cobra.Command) string {
	var words []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		which := f.Name == "profile" || slices.ContainsFunc(settings(), func(s profile.Setting) bool { return s.Flag == f.Name })
		if !which || f.Name == "format" || f.Name == "timeout" || f.Name == "sinks" {
			return
		}
		value := f.Value.String()
		switch f.Value.Type() {
		case "bool":
			words = append(words, "--"+f.Name+"="+value)
			return
		case "stringSlice":
			value = strings.Trim(value, "[]")
		}
		if strings.ContainsAny(value, " '\"$\\`*?") || value == "" {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		words = append(words, "--"+f.Name, value)
	})
	if len(words) == 0 {
		return ""
	}
	return " " + strings.Join(words, " ")
}
