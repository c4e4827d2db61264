package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// action is what every command that changes something takes: it shows prior →
// new and does nothing without one of the two.
type action struct {
	dry, yes bool
}

// addAction registers the flags of an action.
func addAction(cmd *cobra.Command) *action {
	a := &action{}
	cmd.Flags().BoolVar(&a.dry, "dry-run", false, "show what it would do, and do nothing")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do it")
	return a
}

// check refuses an action that nobody confirmed; what says what it does.
func (a *action) check(what string) error {
	switch {
	case a.dry && a.yes:
		return usageError{errors.New("--dry-run and --yes exclude each other: give one of the two")}
	case !a.dry && !a.yes:
		return usageError{&unconfirmedError{what}}
	}
	return nil
}

// unconfirmedError says that an action was called with neither of the two.
type unconfirmedError struct{ what string }

func (e *unconfirmedError) Error() string {
	return e.what + ": add --yes to do it, or --dry-run to see what it would do"
}
