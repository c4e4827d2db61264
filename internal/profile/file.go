package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Environment variables that say which file and profile count.
const (
	EnvConfig  = "FLUSSO_KAFKA_CONFIG"
	EnvProfile = "FLUSSO_KAFKA_PROFILE"
)

// None is the name that stands for no profile, also where the file has a default.
const None = "none"

// File is a profile file that was read. Its zero value has no profiles.
type File struct {
	Path     string // empty where there is none
	Default  string // name of the profile that counts where none is named
	Profiles map[string]Profile
}

// Profile is what a file sets under one name: values as on a command line, by
// the name of the flag.
type Profile map[string]string

// Error says what is wrong with a profile file or with what it sets.
type Error struct {
	Where  string // file, or flag or variable
	Reason string // what is wrong, and what to do
	Cause  error  // may be nil
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Where, e.Reason, e.Cause)
	}
	return e.Where + ": " + e.Reason
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Find returns the path of the profile file: what $FLUSSO_KAFKA_CONFIG names,
// else flusso-kafka/config.toml in the user's configuration directory, which
// home supplies ([os.UserConfigDir]; nil where there is none). named reports
// whether somebody asked for it, so that it must exist.
func Find(getenv func(string) string, home func() (string, error)) (path string, named bool) {
	if path := getenv(EnvConfig); path != "" {
		return path, true
	}
	if home == nil {
		return "", false
	}
	dir, err := home()
	if err != nil {
		return "", false // without a home there is no file in it
	}
	return filepath.Join(dir, "flusso-kafka", "config.toml"), false
}

// Read reads a profile file for settings. A file that nobody named may be
// missing. Its errors are [*Error].
func Read(path string, named bool, settings []Setting) (File, error) {
	if path == "" {
		return File{}, nil
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return File{}, nil
	case err != nil:
		return File{}, &Error{path, "the profile file cannot be read: check $" + EnvConfig, err}
	}
	// Before anything else, so that no message of a parser can hold a secret.
	for number, line := range strings.Split(string(text), "\n") {
		if key := secretIn(line); key != "" {
			return File{}, secretError(path, key, number+1)
		}
	}
	var doc struct {
		Default string                    `toml:"default"`
		Profile map[string]map[string]any `toml:"profile"`
	}
	meta, err := toml.Decode(string(text), &doc)
	if err != nil {
		where := path
		if parse := (toml.ParseError{}); errors.As(err, &parse) {
			where = fmt.Sprintf("%s:%d", path, parse.Position.Line)
		}
		return File{}, &Error{where, "not TOML as docs/configuration.md describes it", err}
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return File{}, &Error{path, fmt.Sprintf("unknown key %s: there are default and [profile.NAME]", unknown[0]), nil}
	}
	f := File{Path: path, Default: doc.Default, Profiles: make(map[string]Profile, len(doc.Profile))}
	for _, name := range slices.Sorted(maps.Keys(doc.Profile)) {
		if f.Profiles[name], err = profileOf(path, name, doc.Profile[name], settings); err != nil {
			return File{}, err
		}
	}
	if _, ok := f.Profiles[f.Default]; f.Default != "" && !ok {
		return File{}, &Error{path, fmt.Sprintf("default %q is not a profile in it: %s", f.Default, f.names()), nil}
	}
	return f, nil
}

func profileOf(path, name string, keys map[string]any, settings []Setting) (Profile, error) {
	in := fmt.Sprintf("%s: profile %s", path, name)
	if name == None {
		return nil, &Error{in, "this name stands for no profile: choose another", nil}
	}
	p := make(Profile, len(keys))
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key() == key })
		if i < 0 {
			known := make([]string, len(settings))
			for i, s := range settings {
				known[i] = s.Key()
			}
			return nil, &Error{in, fmt.Sprintf("unknown key %q: there are %s", key, strings.Join(known, ", ")), nil}
		}
		value, ok := text(keys[key])
		if !ok {
			return nil, &Error{in, fmt.Sprintf("key %q: give a string, a boolean or a list of strings", key), nil}
		}
		if settings[i].File && value != "" && !filepath.IsAbs(value) {
			value = filepath.Join(filepath.Dir(path), value)
		}
		p[settings[i].Flag] = value
	}
	return p, nil
}

// text returns a value as it would stand on a command line.
func text(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return fmt.Sprint(v), true
	case []any:
		words := make([]string, len(v))
		for i := range v {
			word, ok := v[i].(string)
			if !ok {
				return "", false
			}
			words[i] = word
		}
		return strings.Join(words, ","), true
	}
	return "", false
}

var secretKey = regexp.MustCompile(`(?i)(?:^|[\s{,])["']?([\w.-]*(?:password|passwd|token|secret)[\w-]*)["']?\s*=`)

// secretIn returns the key of a line that would hold a secret, empty for none.
func secretIn(line string) string {
	if strings.HasPrefix(strings.TrimSpace(line), "#") {
		return ""
	}
	for _, m := range secretKey.FindAllStringSubmatch(line, -1) {
		// With a hyphen, as the flag has it, it is an unknown key.
		if key := strings.ReplaceAll(strings.ToLower(m[1]), "-", "_"); !strings.HasSuffix(key, "_file") {
			return m[1]
		}
	}
	return ""
}

func secretError(path, key string, line int) error {
	return &Error{
		fmt.Sprintf("%s:%d", path, line),
		fmt.Sprintf("%s is a secret, and does not belong into this file: name a file that holds it (sasl_password_file, sasl_token_file), or set FLUSSO_KAFKA_SASL_PASSWORD or FLUSSO_KAFKA_SASL_TOKEN", key),
		nil,
	}
}

// names lists the profiles for people.
func (f File) names() string {
	if len(f.Profiles) == 0 {
		return "there is none"
	}
	return "there are " + strings.Join(slices.Sorted(maps.Keys(f.Profiles)), ", ")
}

// Choose returns the profile that counts: the one that flag names, else that of
// the environment, else the file's default. No name is no profile.
func (f File) Choose(flag string, getenv func(string) string) (string, Profile, error) {
	name, by := flag, "--profile"
	if name == "" {
		name, by = getenv(EnvProfile), "$"+EnvProfile
	}
	if name == "" {
		name = f.Default
	}
	if name == "" || name == None {
		return "", nil, nil
	}
	p, ok := f.Profiles[name]
	switch {
	case ok:
		return name, p, nil
	case f.Path == "":
		return "", nil, &Error{by, fmt.Sprintf("profile %q: there is no profile file: name one in $%s; docs/configuration.md describes it", name, EnvConfig), nil}
	}
	return "", nil, &Error{by, fmt.Sprintf("no profile %q in %s: %s", name, f.Path, f.names()), nil}
}

// exposed warns of a file that others may read or write.
func exposed(path string, bits fs.FileMode, what string) string {
	if runtime.GOOS == "windows" || path == "" {
		return "" // the bits say nothing there
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&bits == 0 {
		return "" // whoever uses the file says that it cannot be read
	}
	return fmt.Sprintf("%s %s: chmod %o %s", path, what, info.Mode().Perm()&^0o077, path)
}
