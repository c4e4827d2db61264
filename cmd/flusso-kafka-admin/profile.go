package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flusso/flusso-kafka/internal/profile"
)

func newProfile(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Show which settings count, and where they come from",
		Long: `Show which settings count, and where they come from. Each is taken from its flag,
else from its environment variable, else from a profile, else it has a default.
Profiles are named sets of settings in a TOML file: $FLUSSO_KAFKA_CONFIG, else
flusso-kafka/config.toml in the user's configuration directory. --profile,
$FLUSSO_KAFKA_PROFILE or the file's default says which of them counts.`,
		Example: `  $ flusso-kafka-admin profile list
  name     brokers                              pipeline
  prod *   kafka-1.prod:9093,kafka-2.prod:9093  shop
  staging  kafka.staging:9092                   shop`,
		Args: noArgs,
		RunE: nameOne,
	}
	cmd.AddCommand(newProfileShow(s), newProfileList(s))
	return cmd
}

func newProfileShow(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show what each setting is, and where it comes from",
		Long: `Show what each setting is, and where it comes from: a flag, the environment, a
profile or the default. Secrets are not shown, only where they are read from. No
broker is asked. JSON: see docs/json.md.`,
		Example: `  $ flusso-kafka-admin profile show --timeout 5s
  profile  prod
  file     /home/ops/.config/flusso-kafka/config.toml

  setting             value                                          from
  brokers             kafka-1.prod:9093,kafka-2.prod:9093            profile prod
  tls                 false                                          default
  tls-ca              /home/ops/.config/flusso-kafka/prod-ca.pem     profile prod
  tls-cert            -                                              default
  tls-key             -                                              default
  sasl-mechanism      SCRAM-SHA-512                                  profile prod
  sasl-user           ops                                            profile prod
  sasl-password-file  /home/ops/.config/flusso-kafka/prod.password   profile prod
  sasl-token-file     -                                              default
  embedded            -                                              default
  pipeline            orders                                         $FLUSSO_KAFKA_PIPELINE
  sinks               -                                              default
  timeout             5s                                             --timeout
  format              text                                           default
  (password)          not shown                                      the file above
  (token)             none                                           nowhere`,
		Args: noArgs,
	}
	t := addTarget(cmd, s)
	addEmbedded(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		settled, err := settle(cmd, s)
		if err != nil {
			return err
		}
		if err := checkFormat(t.format); err != nil {
			return err
		}
		return t.profileShow(settled)
	}
	return cmd
}

// settledAnswer is what profile show answers.
type settledAnswer struct {
	Profile  *string         `json:"profile"` // null for none
	File     *string         `json:"file"`    // null for none
	Settings []settledValue  `json:"settings"`
	Secrets  []settledSecret `json:"secrets"`
	Warnings []string        `json:"warnings"`
}

type settledValue struct {
	Name   string         `json:"name"`
	Value  string         `json:"value"`
	Source profile.Source `json:"source"`
	From   string         `json:"from"`
}

// settledSecret says where a secret is read from, and never what it is.
type settledSecret struct {
	Name   string `json:"name"`
	Source string `json:"source"` // environment, file or none
	From   string `json:"from"`
}

func (t *target) profileShow(settled profile.Settled) error {
	a := settledAnswer{Settings: []settledValue{}, Secrets: []settledSecret{}, Warnings: []string{}}
	a.Warnings = append(a.Warnings, settled.Warnings...)
	if settled.Profile != "" {
		a.Profile = &settled.Profile
	}
	if settled.File.Path != "" {
		a.File = &settled.File.Path
	}
	for _, v := range settled.Values {
		a.Settings = append(a.Settings, settledValue{v.Flag, v.Value, v.Source, v.From})
		if v.Secret == "" {
			continue
		}
		secret := settledSecret{Name: strings.TrimSuffix(strings.TrimPrefix(v.Flag, "sasl-"), "-file"), Source: "none", From: "nowhere"}
		switch {
		case v.Value != "":
			secret.Source, secret.From = "file", v.Value
		case t.getenv(v.Secret) != "":
			secret.Source, secret.From = "environment", "$"+v.Secret
		}
		a.Secrets = append(a.Secrets, secret)
	}
	if t.format == "json" {
		return writeJSON(t.out, a)
	}
	return t.writeSettled(a)
}

func (t *target) writeSettled(a settledAnswer) error {
	name, file := "none", "none"
	if a.Profile != nil {
		name = *a.Profile
	}
	if a.File != nil {
		file = *a.File
	}
	if _, err := fmt.Fprintf(t.out, "profile  %s\nfile     %s\n\n", name, file); err != nil {
		return err
	}
	tab := &table{right: []bool{false, false, false}}
	tab.add("setting", "value", "from")
	for _, v := range a.Settings {
		value := v.Value
		if value == "" {
			value = "-"
		}
		tab.add(v.Name, ending(value, 50), v.From)
	}
	for _, v := range a.Secrets {
		value, from := "not shown", v.From
		switch v.Source {
		case "none":
			value = "none"
		case "file":
			from = "the file above"
		}
		tab.add("("+v.Name+")", value, from)
	}
	return tab.writeTo(t.out)
}

// ending is cut that keeps the end, where a path says most.
func ending(s string, columns int) string {
	if r := []rune(s); len(r) > columns {
		return "…" + string(r[len(r)-columns+1:])
	}
	return s
}

func newProfileList(s streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the profiles of the profile file",
		Long: `List the profiles of the profile file; * marks the one that counts where none is
named. JSON: see docs/json.md.`,
		Example: `  $ flusso-kafka-admin profile list
  name     brokers                              pipeline
  prod *   kafka-1.prod:9093,kafka-2.prod:9093  shop
  staging  kafka.staging:9092                   shop`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			return s.profileList(format)
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "text or json")
	_ = cmd.RegisterFlagCompletionFunc("format", completeFormats)
	return cmd
}

// listedProfile is a profile as profile list answers it.
type listedProfile struct {
	Name     string `json:"name"`
	Default  bool   `json:"default"`
	Brokers  string `json:"brokers"`
	Pipeline string `json:"pipeline"`
}

func (s streams) profileList(format string) error {
	path, _ := profile.Find(s.getenv, s.configDir)
	file, err := s.readProfiles()
	if err != nil {
		return err
	}
	answer := struct {
		File     *string         `json:"file"`
		Profiles []listedProfile `json:"profiles"`
	}{Profiles: []listedProfile{}}
	if file.Path != "" {
		answer.File = &file.Path
	}
	for _, name := range slices.Sorted(maps.Keys(file.Profiles)) {
		p := file.Profiles[name]
		answer.Profiles = append(answer.Profiles, listedProfile{name, name == file.Default, p["brokers"], p["pipeline"]})
	}
	if format == "json" {
		return writeJSON(s.out, answer)
	}
	if len(answer.Profiles) == 0 {
		if path == "" {
			path = "the file that $" + profile.EnvConfig + " names"
		}
		_, err := fmt.Fprintf(s.out, "no profile: %s could hold some, as docs/configuration.md describes\n", path)
		return err
	}
	tab := &table{right: []bool{false, false, false}}
	tab.add("name", "brokers", "pipeline")
	for _, p := range answer.Profiles {
		name := p.Name
		if p.Default {
			name += " *"
		}
		tab.add(name, cut(p.Brokers, 50), p.Pipeline)
	}
	return tab.writeTo(s.out)
}

// completeProfiles completes the names of the profile file.
func completeProfiles(s streams) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		file, err := s.readProfiles()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp // nobody reads an error there
		}
		var out []cobra.Completion
		for _, name := range append(slices.Sorted(maps.Keys(file.Profiles)), profile.None) {
			if strings.HasPrefix(name, typed) {
				out = append(out, cobra.CompletionWithDesc(name, file.Profiles[name]["brokers"]))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
