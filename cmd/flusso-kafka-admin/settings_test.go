package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/profile"
)

// Every flag of a target has a variable and a key, and docs/configuration.md
// lists them, and no others.
func TestEverySettingIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ flag, env, key string }
	var documented, want []row
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `([A-Z_]+)` \\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(doc), -1) {
		documented = append(documented, row{m[1], m[2], m[3]})
	}
	for _, s := range settings() {
		want = append(want, row{s.Flag, s.Env(), s.Key()})
	}
	if !slices.Equal(documented, want) {
		t.Errorf("docs/configuration.md lists\n%v\nand there are\n%v", documented, want)
	}

	cmd := &cobra.Command{}
	addEmbedded(cmd)
	addTarget(cmd, streams{out: io.Discard, err: io.Discard, getenv: func(string) string { return "" }})
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "profile" && !slices.ContainsFunc(settings(), func(s profile.Setting) bool { return s.Flag == f.Name }) {
			t.Errorf("--%s has no variable and no key: add it to settings", f.Name)
		}
	})
	for _, s := range settings() {
		if cmd.PersistentFlags().Lookup(s.Flag) == nil {
			t.Errorf("there is no flag --%s", s.Flag)
		}
	}
	for _, env := range []string{connect.EnvPassword, connect.EnvToken, profile.EnvConfig, profile.EnvProfile} {
		if !regexp.MustCompile("(?m)^\\| `" + env + "` \\|").Match(doc) {
			t.Errorf("docs/configuration.md does not say what %s is", env)
		}
	}
}

// The variables that other programs know are those of the settings.
func TestVariablesAreNamedAlike(t *testing.T) {
	for flag, env := range map[string]string{
		"brokers": connect.EnvBrokers, "tls": connect.EnvTLS, "tls-ca": connect.EnvTLSCA, "tls-cert": connect.EnvTLSCert,
		"tls-key": connect.EnvTLSKey, "sasl-mechanism": connect.EnvMechanism, "sasl-user": connect.EnvUser, "pipeline": envPipeline,
	} {
		if got := (profile.Setting{Flag: flag}).Env(); got != env {
			t.Errorf("--%s goes by %s, want %s", flag, got, env)
		}
	}
}

// A command with a hook of its own would go without its settings: cobra runs
// the nearest alone.
func TestNoCommandHidesTheSettings(t *testing.T) {
	for path, cmd := range tree(t) {
		if path != "" && (cmd.PersistentPreRunE != nil || cmd.PersistentPreRun != nil) {
			t.Errorf("%q has a PersistentPreRun: do that in RunE", path)
		}
	}
}
