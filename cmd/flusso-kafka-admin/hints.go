package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// hint is a command between the backticks of a message.
var hint = regexp.MustCompile("`" + program + " ([^`]+)`")

// hinted is a message of cmd, in which each command has the flags that say
// which cluster and pipeline, as cmd was given them: so it works when it is
// pasted.
func hinted(cmd *cobra.Command, text string) string {
	if cmd == nil {
		return text
	}
	var given []*pflag.Flag
	add := func(f *pflag.Flag) {
		if f.Changed && saysWhich(f) {
			given = append(given, f)
		}
	}
	cmd.Flags().VisitAll(add)
	if len(given) == 0 {
		cmd.PersistentFlags().VisitAll(add) // of a command that stands for those below it
	}
	return hint.ReplaceAllStringFunc(text, func(whole string) string {
		call := hint.FindStringSubmatch(whole)[1]
		of, _, err := cmd.Root().Find(strings.Fields(call))
		if err != nil {
			return whole
		}
		_ = of.InheritedFlags() // which are then among its own
		for _, f := range given {
			if of.Flag(f.Name) != nil && !strings.Contains(call, "--"+f.Name) {
				call += word(f)
			}
		}
		return "`" + program + " " + call + "`"
	})
}

// hinted is a message of a command on feeds: see [hinted].
func (t *feedTarget) hinted(format string, args ...any) string {
	return hinted(t.cmd, fmt.Sprintf(format, args...))
}
