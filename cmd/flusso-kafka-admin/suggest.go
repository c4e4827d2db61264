package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// farthest is by how many letters a name may differ that was meant.
const farthest = 2

// meant says which of the commands below cmd may have been meant; empty for none.
func meant(cmd *cobra.Command, typed string) string {
	cmd.SuggestionsMinimumDistance = farthest
	names := cmd.SuggestionsFor(typed)
	for _, top := range cmd.Root().Commands() {
		if cmd.HasParent() && top.Name() == typed {
			names = append(names, top.CommandPath()) // it is not below a noun
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(names, " or ") + "?)"
}

// meantFlag says which flag of cmd may have been meant. Other programs call
// --format otherwise.
func meantFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	typed := unknown.GetSpecifiedName()
	if slices.Contains([]string{"json", "output", "o"}, typed) && cmd.Flags().Lookup("format") != nil {
		return " (did you mean --format json?)"
	}
	flags := &cobra.Command{} // what compares names compares those of commands
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return meant(flags, "--"+typed)
}

// nameOne refuses a command that only stands for those below it.
func nameOne(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return usageError{fmt.Errorf("name a command, one of %s: see %s --help", strings.Join(names, ", "), cmd.CommandPath())}
}

// noArgs refuses arguments, an unknown command among them.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.Flags().Changed("watch") {
		if _, err := time.ParseDuration(args[0]); err == nil {
			return usageError{fmt.Errorf("--watch %s: an interval goes with it by an equals sign, as in --watch=%[1]s", args[0])}
		}
	}
	what, instead := "argument", ""
	if cmd.HasSubCommands() {
		what, instead = "command", meant(cmd, args[0])
	}
	return usageError{fmt.Errorf("unknown %s %q%s: see %s --help", what, args[0], instead, cmd.CommandPath())}
}
