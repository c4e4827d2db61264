package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/access"
	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/kafkaerr"
	"github.com/flusso/flusso-kafka/internal/profile"
	"github.com/flusso/flusso-kafka/internal/status"
	"github.com/flusso/flusso-kafka/offsets"
	"github.com/flusso/flusso-kafka/topics"
)

// program is how the next command begins.
const program = "flusso-kafka-admin"

// Commands that are suggested without the flags that say which cluster.
const (
	listProfiles   = "profile list"
	withoutProfile = "profile show --profile " + profile.None
)

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
	if !strings.HasSuffix(command, "--help") && command != listProfiles && command != withoutProfile {
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
		unsaid  *unconfirmedError
		listen  *listenError
		file    *fs.PathError
		mute    *unwrittenError
	)
	if command, about, ok := tryFeed(cmd, err); ok {
		return command, about
	}
	switch path := pathOf(cmd); {
	case errors.As(err, &mute):
		if cmd.Flags().Lookup("yes") == nil {
			return "", ""
		}
		return "status", "shows what the command has done: only its answer was lost"
	case errors.As(err, &wrong) && (strings.HasPrefix(wrong.Where, "-") || strings.HasPrefix(wrong.Where, "$")):
		return listProfiles, "lists the profiles"
	case errors.As(err, &wrong): // no command reads that file
		return withoutProfile, "shows what counts without the profile file"
	case errors.As(err, &unsaid):
		return again(cmd) + " --dry-run", "shows what it would do"
	case isUsage(err):
		return strings.TrimSpace(path + " --help"), "shows how it is called"
	case errors.As(err, &file):
		return "", "" // the error names it, and no broker was asked
	case errors.As(err, &listen):
		return path + " --listen 127.0.0.1:0", "takes a port that is free, and says which"
	case kafkaerr.Classify(err) == kafkaerr.Auth && !errors.As(err, &dial):
		role := "viewer"
		if cmd.Flags().Lookup("yes") != nil {
			role = "operator"
		}
		return "topic check --role " + role, "names the permissions that are missing"
	case errors.As(err, &dial), kafkaerr.Classify(err) == kafkaerr.Unreachable, kafkaerr.Classify(err) == kafkaerr.Timeout:
		return "profile show", "shows what is connected to, and which setting says so"
	case errors.As(err, &lacking) && len(lacking.Others) == 0:
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

// tryFeed is tryOf for the commands on feeds.
func tryFeed(cmd *cobra.Command, err error) (command, about string, ok bool) {
	if cmd.Flag("embedded") == nil || cmd.Flag("pipeline") != nil {
		return "", "", false
	}
	feed := cmd.Flags().Arg(0)
	var (
		exists *feeds.ExistsError
		stream *feeds.NoStreamError
		many   *feeds.StreamsError
		full   *feeds.FullError
		held   *heldError
		what   finding
	)
	switch {
	case errors.Is(err, feeds.ErrNoFeed):
		return "feed list", "lists the feeds", true
	case errors.As(err, &exists), errors.As(err, &stream), errors.As(err, &many), errors.As(err, &full), errors.As(err, &held), errors.Is(err, feeds.ErrNoOpenStream):
		return "feed describe " + feed, "shows its settings, its holder and its streams", true
	case errors.As(err, &what):
		return "", "", true
	case errors.As(err, new(*feeds.BucketError)) && pathOf(cmd) != "feed create":
		return "feed describe " + feed, "shows which bucket its commits are in", true
	case errors.As(err, new(*feeds.BucketError)):
		return "", "", true // the error names what is wrong with it
	case kafkaerr.Classify(err) == kafkaerr.Auth && feed != "" && !errors.As(err, new(*connect.Error)):
		return fmt.Sprintf("topic check --feed %s --role %s", feed, feedRole(pathOf(cmd))), "names the permissions that are missing", true
	case kafkaerr.Classify(err) == kafkaerr.Auth:
		return "profile show", "shows who is connected, docs/security.md who may do what", true
	}
	return "", "", false
}

// feedRole is the role that may do what a command on a feed does.
func feedRole(path string) access.Role {
	switch strings.TrimPrefix(path, "feed ") {
	case "create", "delete":
		return access.FeedOperator
	case "append", "resume", "discard", "repair":
		return access.FeedWriter
	}
	return access.FeedReader
}

// pathOf is the path of a command without the program's name.
func pathOf(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
}

// given returns the flags that say which cluster and pipeline, as they were given.
func given(cmd *cobra.Command) string { return flagsOf(cmd, saysWhich) }

// again is how cmd was called, but for the flags of [given].
func again(cmd *cobra.Command) string {
	call := []string{pathOf(cmd)}
	for _, a := range cmd.Flags().Args() {
		call = append(call, quoted(a))
	}
	return strings.Join(call, " ") + flagsOf(cmd, func(f *pflag.Flag) bool { return !saysWhich(f) })
}

// saysWhich reports whether a flag says which cluster and pipeline.
func saysWhich(f *pflag.Flag) bool {
	if f.Name == "format" || f.Name == "timeout" || f.Name == "sinks" {
		return false
	}
	return f.Name == "profile" || slices.ContainsFunc(settings(), func(s profile.Setting) bool { return s.Flag == f.Name })
}

// flagsOf returns the flags that were given and that which takes, each behind a space.
func flagsOf(cmd *cobra.Command, which func(*pflag.Flag) bool) string {
	var words strings.Builder
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if which(f) {
			words.WriteString(word(f))
		}
	})
	return words.String()
}

// word is a flag as it was given, behind a space.
func word(f *pflag.Flag) string {
	value := f.Value.String()
	switch {
	case f.Value.Type() == "bool" && value == "true":
		return " --" + f.Name
	case f.Value.Type() == "bool":
		return " --" + f.Name + "=" + value
	case f.Value.Type() == "stringSlice":
		return " --" + f.Name + " " + quoted(strings.Trim(value, "[]"))
	}
	return " --" + f.Name + " " + quoted(value)
}

// quoted is a word as a shell reads it.
func quoted(word string) string {
	if strings.ContainsAny(word, " '\"$\\`*?") || word == "" {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}
