package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newLane(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lane",
		Short: "Look at a lane, and repair it",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError{errors.New("name a command: " + cmd.CommandPath() + " --help lists them")}
		},
	}
	t := addTarget(cmd, s)
	cmd.AddCommand(newLaneAccept(t), newLanePeek(t), newLaneSkip(t))
	return cmd
}
