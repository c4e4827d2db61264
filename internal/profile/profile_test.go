package profile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/flusso/flusso-kafka/internal/profile"
)

func settings() []profile.Setting {
	return []profile.Setting{
		{Flag: "brokers"}, {Flag: "tls"}, {Flag: "timeout"}, {Flag: "sasl-password-file", File: true, Secret: "SECRET"},
	}
}

// write writes a profile file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// settle returns what won, by flag: value and source.
func settle(t *testing.T, text string, env map[string]string, args ...string) (map[string]profile.Value, error) {
	t.Helper()
	file, err := profile.Read(write(t, text), true, settings())
	if err != nil {
		return nil, err
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.StringSlice("brokers", nil, "")
	flags.Bool("tls", false, "")
	flags.Duration("timeout", 10*time.Second, "")
	flags.String("sasl-password-file", "", "")
	flags.String("profile", "", "")
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	settled, err := profile.Settle(flags, settings(), file, flags.Lookup("profile").Value.String(), func(name string) string { return env[name] })
	out := make(map[string]profile.Value)
	for _, v := range settled.Values {
		out[v.Flag] = v
	}
	return out, err
}

const two = `
default = "a"
[profile.a]
brokers = ["p1", "p2"]
tls = true
sasl_password_file = "pw"
[profile.b]
timeout = "3s"
`

func TestTheFirstSourceWithAValueWins(t *testing.T) {
	tests := []struct {
		name   string
		env    map[string]string
		args   []string
		flag   string
		value  string
		source profile.Source
	}{
		{"default", nil, nil, "timeout", "10s", profile.Default},
		{"the file's default profile", nil, nil, "brokers", "p1,p2", profile.FromProfile},
		{"a boolean", nil, nil, "tls", "true", profile.FromProfile},
		{"environment over profile", map[string]string{"FLUSSO_KAFKA_BROKERS": "e1, e2"}, nil, "brokers", "e1,e2", profile.Environment},
		{"a boolean in words", map[string]string{"FLUSSO_KAFKA_TLS": "Off"}, nil, "tls", "false", profile.Environment},
		{"flag over environment", map[string]string{"FLUSSO_KAFKA_BROKERS": "e"}, []string{"--brokers=f"}, "brokers", "f", profile.Flag},
		{"a flag that is given as its default", nil, []string{"--tls=false"}, "tls", "false", profile.Flag},
		{"profile of the environment", map[string]string{"FLUSSO_KAFKA_PROFILE": "b"}, nil, "timeout", "3s", profile.FromProfile},
		{"profile of the flag", map[string]string{"FLUSSO_KAFKA_PROFILE": "a"}, []string{"--profile=b"}, "timeout", "3s", profile.FromProfile},
		{"no profile", nil, []string{"--profile=none"}, "brokers", "", profile.Default},
		{"a secret of the environment over the profile's file", map[string]string{"SECRET": "s"}, nil, "sasl-password-file", "", profile.Default},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := settle(t, two, tt.env, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			if v := got[tt.flag]; v.Value != tt.value || v.Source != tt.source {
				t.Errorf("got %q from %s, want %q from %s", v.Value, v.Source, tt.value, tt.source)
			}
		})
	}
	got, err := settle(t, two, nil)
	if path := got["sasl-password-file"].Value; err != nil || !filepath.IsAbs(path) || filepath.Base(path) != "pw" {
		t.Errorf("a file next to the profile file: %q, %v", path, err)
	}
}

func TestF4_NoSecretInAProfile(t *testing.T) {
	for _, line := range []string{
		`password = "hunter2"`,
		`sasl_password="hunter2"`,
		`"sasl_password" = "hunter2"`,
		`  Token = 'hunter2'`,
		`password = hunter2`,
		`sasl_token = """hunter2"""`,
		`client-secret = "hunter2"`,
	} {
		_, err := settle(t, "[profile.a]\n"+line+"\n", nil)
		var wrong *profile.Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "config.toml:2") || !strings.Contains(err.Error(), "is a secret") {
			t.Errorf("%s: got %v", line, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error tells the secret: %v", line, err)
		}
	}
	// The name of a file is no secret, also where the key is written as the flag is.
	if _, err := settle(t, "[profile.a]\nsasl-password-file = \"pw\"\n", nil); err == nil || !strings.Contains(err.Error(), `unknown key "sasl-password-file"`) {
		t.Errorf("a file by its flag's name: got %v", err)
	}
	_, err := settle(t, `profile.a = { brokers = ["b"], sasl_password = "hunter2" }`, nil)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("in a table on one line: %v", err)
	}
	if _, err := settle(t, "# password = \"none\"\n[profile.a]\nsasl_password_file = \"x\"\n", nil); err != nil {
		t.Errorf("a comment, and the name of a file: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	tests := []struct{ name, text, says string }{
		{"unknown key", "[profile.a]\nbroker = \"b\"\n", `unknown key "broker": there are brokers, tls`},
		{"unknown table", "[profiles.a]\n", "unknown key profiles"},
		{"a number", "[profile.a]\ntimeout = 3\n", `key "timeout": give a string`},
		{"a list of numbers", "[profile.a]\nbrokers = [1]\n", `key "brokers"`},
		{"a default that is not there", "default = \"b\"\n[profile.a]\n", `default "b" is not a profile in it: there are a`},
		{"the name of none", "[profile.none]\n", "choose another"},
		{"not TOML", "[profile.a\n", ": not TOML as docs/configuration.md describes it"},
		{"a value that is none", "default = \"a\"\n[profile.a]\ntls = \"perhaps\"\n", `"perhaps" is no value for --tls`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := settle(t, tt.text, nil)
			var wrong *profile.Error
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
}

func TestAFileThatNobodyNamedMayBeMissing(t *testing.T) {
	home := func() (string, error) { return t.TempDir(), nil }
	path, named := profile.Find(func(string) string { return "" }, home)
	if named || filepath.Base(path) != "config.toml" {
		t.Errorf("got %q, named %v", path, named)
	}
	if f, err := profile.Read(path, named, settings()); err != nil || f.Path != "" {
		t.Errorf("got %+v, %v", f, err)
	}
	if _, err := profile.Read(path, true, settings()); err == nil {
		t.Error("a file that was named is missing, and nobody says so")
	}
	if path, _ := profile.Find(func(string) string { return "" }, nil); path != "" {
		t.Errorf("without a home there is %q", path)
	}
}
