package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func newCompletion(s streams) *cobra.Command {
	write := map[string]func(*cobra.Command, io.Writer) error{
		"bash":       func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":        func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
		"fish":       func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
		"powershell": func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) },
	}
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Write a script that completes commands in a shell",
		Long: `Write a script that completes commands, flags, pipelines, sinks and waiting
requests in a shell. Names come from the cluster that flags, environment and
profile name, within a second and a half; where it doesn't answer, there is
nothing to choose from.

For good (bash wants the package bash-completion for it):
  bash   flusso-kafka-admin completion bash > /etc/bash_completion.d/flusso-kafka-admin
  zsh    flusso-kafka-admin completion zsh > "${fpath[1]}/_flusso-kafka-admin"
  fish   flusso-kafka-admin completion fish > ~/.config/fish/completions/flusso-kafka-admin.fish
  powershell
         flusso-kafka-admin completion powershell >> $PROFILE`,
		Example: `  $ flusso-kafka-admin completion bash | head -n 1
  # bash completion V2 for flusso-kafka-admin                   -*- shell-script -*-

  $ source <(flusso-kafka-admin completion bash)   # for this shell
  $ flusso-kafka-admin request send <TAB>
  archive  search`,
		ValidArgs:             shells,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || write[args[0]] == nil {
				return usageError{fmt.Errorf("name one shell of %s: see %s --help", strings.Join(shells, ", "), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return write[args[0]](cmd.Root(), s.out) },
	}
}
