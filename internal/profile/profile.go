// Package profile finds out what the settings of a command are and where each
// comes from: its flag, else its environment variable, else the profile file,
// else the default.
//
// The two types to know are [Setting], which stands for one flag, and [File],
// which holds profiles.
package profile

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Setting is a flag that the environment and a profile may set, too.
type Setting struct {
	Flag   string // name without the dashes
	File   bool   // it names a file; in a profile a relative one is next to the profile file
	Secret string // variable that holds what the file holds, empty for none
}

// Env returns the environment variable of the setting.
func (s Setting) Env() string {
	return "FLUSSO_KAFKA_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// Key returns the setting's key in a profile.
func (s Setting) Key() string { return strings.ReplaceAll(s.Flag, "-", "_") }

// Source says where a value comes from.
type Source string

// The sources, the first that has a value wins.
const (
	Flag        Source = "flag"
	Environment Source = "environment"
	FromProfile Source = "profile"
	Default     Source = "default"
)

// Value is what won for a setting.
type Value struct {
	Setting

	Value  string
	Source Source
	From   string // for people: "--brokers", "$FLUSSO_KAFKA_BROKERS", "profile prod"
}

// Settled are all settings of a command.
type Settled struct {
	Profile  string // that counts, empty for none
	File     File
	Values   []Value
	Warnings []string
}

// Settle gives every setting among flags its value. chosen is the profile that
// a flag names, empty for none. Flags must have been parsed. Its errors are
// [*Error].
func Settle(flags *pflag.FlagSet, settings []Setting, file File, chosen string, getenv func(string) string) (Settled, error) {
	out := Settled{File: file}
	name, p, err := file.Choose(chosen, getenv)
	if err != nil {
		return out, err
	}
	out.Profile = name
	out.warn(exposed(file.Path, 0o022, "may be written by others, who then choose where you connect to"))
	for _, s := range settings {
		f := flags.Lookup(s.Flag)
		if f == nil {
			continue
		}
		v := Value{Setting: s, Source: Default, From: "default"}
		set := func(value string, source Source, from string) error {
			if err := setFlag(f, value); err != nil {
				return &Error{from, fmt.Sprintf("%q is no value for --%s", value, s.Flag), err}
			}
			v.Source, v.From = source, from
			return nil
		}
		inProfile, ok := p[s.Flag]
		switch env := getenv(s.Env()); {
		case f.Changed:
			v.Source, v.From = Flag, "--"+s.Flag
		case env != "":
			err = set(env, Environment, "$"+s.Env())
		case ok && s.Secret != "" && getenv(s.Secret) != "":
			// The secret itself is in the environment, which wins over the profile.
		case ok:
			err = set(inProfile, FromProfile, "profile "+name)
		}
		if err != nil {
			return out, err
		}
		if v.Value = f.Value.String(); f.Value.Type() == "stringSlice" {
			v.Value = strings.Trim(v.Value, "[]")
		}
		if s.Secret != "" {
			out.warn(exposed(v.Value, 0o004, "holds a secret that everybody on this machine may read"))
		}
		out.Values = append(out.Values, v)
	}
	return out, nil
}

func (s *Settled) warn(text string) {
	if text != "" {
		s.Warnings = append(s.Warnings, text)
	}
}

// setFlag sets a flag without marking it as given on the command line.
func setFlag(f *pflag.Flag, value string) error {
	switch v := f.Value.(type) {
	case pflag.SliceValue:
		var items []string
		for item := range strings.SplitSeq(value, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return v.Replace(items)
	default:
		if f.Value.Type() == "bool" {
			switch strings.ToLower(value) {
			case "yes", "on":
				value = "true"
			case "no", "off":
				value = "false"
			}
		}
		return f.Value.Set(value)
	}
}
