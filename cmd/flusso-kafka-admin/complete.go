package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/topics"
)

// completeWithin bounds how long a shell waits for a cluster.
const completeWithin = 1500 * time.Millisecond

// completeNothing is for arguments that nobody can list.
func completeNothing(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeFormats completes how to answer.
var completeFormats = cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp)

// completeSinks completes the first argument with the pipeline's sinks, and
// nothing behind it: SINK, SINK INDEX….
func completeSinks(t *target) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return t.sinkNames(cmd, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeSinkList completes a list of sinks, the last of them: --sinks a,b.
func completeSinkList(t *target) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before, last := "", typed
		if i := strings.LastIndexByte(typed, ','); i >= 0 {
			before, last = typed[:i+1], typed[i+1:]
		}
		named := strings.Split(before, ",")
		var out []cobra.Completion
		for _, sink := range t.sinkNames(cmd, last) {
			if !slices.Contains(named, sink) {
				out = append(out, before+sink)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// completeFeedFlag completes --feed with the feeds that have a log.
func completeFeedFlag(t *topicTarget) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		t.completing(cmd, func(ctx context.Context, client *connect.Client) error {
			all, err := topics.New(client.Client).Read(ctx, nil)
			for _, name := range all.Names {
				if f, err := topics.ParseFeedLogTopic(name); err == nil && strings.HasPrefix(f.String(), typed) {
					out = append(out, f.String())
				}
			}
			return err
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeRequests completes the offsets of requests that wait, and says what
// each of them asks for: OFFSET….
func completeRequests(t *target) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		t.completing(cmd, func(ctx context.Context, client *connect.Client) error {
			p, err := topics.NewPipeline(t.name)
			if err != nil {
				return err
			}
			waits, _, err := (&cluster{Client: client, pipeline: p}).pending(ctx)
			for _, r := range waits {
				text := fmt.Sprint(int64(r.Offset))
				if strings.HasPrefix(text, typed) && !slices.Contains(args, text) {
					out = append(out, cobra.CompletionWithDesc(text, strings.ReplaceAll(requestText(r), noBreak, " ")))
				}
			}
			return err
		})
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completePipelines completes the pipelines that a cluster shows topics of.
func completePipelines(t *target) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		sinks := make(map[string][]string)
		t.completing(cmd, func(ctx context.Context, client *connect.Client) error {
			lanes, err := laneTopics(ctx, client)
			for _, l := range lanes {
				if name := l.Pipeline.String(); strings.HasPrefix(name, typed) {
					sinks[name] = append(sinks[name], l.Sink)
				}
			}
			return err
		})
		var out []cobra.Completion
		for _, name := range slices.Sorted(maps.Keys(sinks)) {
			out = append(out, cobra.CompletionWithDesc(name, "sinks "+strings.Join(slices.Sorted(slices.Values(sinks[name])), ", ")))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// sinkNames are the sinks of the pipeline that begin with typed, sorted.
func (t *target) sinkNames(cmd *cobra.Command, typed string) []string {
	var out []string
	t.completing(cmd, func(ctx context.Context, client *connect.Client) error {
		lanes, err := laneTopics(ctx, client)
		for _, l := range lanes {
			if l.Pipeline.String() == t.name && strings.HasPrefix(l.Sink, typed) {
				out = append(out, l.Sink)
			}
		}
		slices.Sort(out)
		return err
	})
	return out
}

// completing asks a cluster for what a shell completes. Nobody reads an error
// there: what could not be asked is not completed.
func (t *connection) completing(cmd *cobra.Command, ask func(context.Context, *connect.Client) error) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	if _, err := settle(cmd, t.streams); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, completeWithin)
	defer cancel()
	t.Patience = connect.Once // nobody waits at a prompt
	client, err := t.Dial(ctx)
	if err != nil {
		return
	}
	defer client.Close()
	_ = ask(ctx, client) // see above
}

// addCompletions registers how the flags of a connection are completed.
func (t *connection) addCompletions(cmd *cobra.Command) {
	for flag, complete := range map[string]cobra.CompletionFunc{
		"format":         completeFormats,
		"profile":        completeProfiles(t.streams),
		"sasl-mechanism": cobra.FixedCompletions(connect.Mechanisms(), cobra.ShellCompDirectiveNoFileComp),
		"brokers":        completeNothing,
		"sasl-user":      completeNothing,
		"timeout":        completeNothing,
	} {
		// It fails for a flag that is not there: TestCompletion would miss it.
		_ = cmd.RegisterFlagCompletionFunc(flag, complete)
	}
}

// completeFile completes the first argument with files, and nothing behind it:
// FILE.
func completeFile(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// plainUsage takes the quotes out of what flags say of themselves, which name
// their value in help and are nothing to a shell.
func plainUsage(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, sub := range cmd.Commands() {
		plainUsage(sub)
	}
}

// completeFiles lets flags that take a file or a directory be completed with
// those, by what their usage says, and no other flag or argument.
func completeFiles(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	with := map[string]cobra.ShellCompDirective{"file": cobra.ShellCompDirectiveDefault, "directory": cobra.ShellCompDirectiveFilterDirs}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			what, _ := pflag.UnquoteUsage(f)
			if directive, ok := with[what]; ok {
				// It fails for a flag that has its own completion already.
				_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(nil, directive))
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}
