package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/profile"
)

// settings are the flags of a target that the environment and a profile may
// set, too, as docs/configuration.md lists them.
func settings() []profile.Setting {
	return []profile.Setting{
		{Flag: "brokers"},
		{Flag: "tls"},
		{Flag: "tls-ca", File: true},
		{Flag: "tls-cert", File: true},
		{Flag: "tls-key", File: true},
		{Flag: "sasl-mechanism"},
		{Flag: "sasl-user"},
		{Flag: "sasl-password-file", File: true, Secret: connect.EnvPassword},
		{Flag: "sasl-token-file", File: true, Secret: connect.EnvToken},
		{Flag: "embedded", File: true},
		{Flag: "pipeline"},
		{Flag: "sinks"},
		{Flag: "timeout"},
		{Flag: "format"},
	}
}

// readProfiles reads the profile file that counts.
func (s streams) readProfiles() (profile.File, error) {
	path, named := profile.Find(s.getenv, s.configDir)
	return profile.Read(path, named, settings())
}

// settle gives the flags of a target their values from environment and
// profile, where the command line did not.
func settle(cmd *cobra.Command, s streams) (profile.Settled, error) {
	chosen := cmd.Flag("profile")
	if chosen == nil {
		return profile.Settled{}, nil // not a target
	}
	name := chosen.Value.String()
	if name == profile.None && chosen.Changed {
		// Whoever wants no profile is not kept by a file that is broken.
		return profile.Settle(cmd.Flags(), settings(), profile.File{}, name, s.getenv)
	}
	file, err := s.readProfiles()
	if err != nil {
		return profile.Settled{}, err
	}
	return profile.Settle(cmd.Flags(), settings(), file, name, s.getenv)
}

// settleFirst settles before every command, and passes warnings on.
func settleFirst(s streams) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		settled, err := settle(cmd, s)
		for _, w := range settled.Warnings {
			// A stderr that cannot be written to keeps nothing from working.
			_, _ = fmt.Fprintln(s.err, "flusso-kafka-admin: warning: "+w)
		}
		return err
	}
}
