package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tree returns every command of the program, by its path without the
// program's name; that of the program itself is empty.
func tree(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	root := newRoot(streams{out: io.Discard, err: io.Discard, getenv: func(string) string { return "" }})
	found := make(map[string]*cobra.Command)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		found[pathOf(cmd)] = cmd
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				walk(sub)
			}
		}
	}
	walk(root)
	return found
}

// The help of every command is whole: Short and Long; an Example with at least
// one line `  $ flusso-kafka-admin …` and beneath it what it really printed;
// flags whose usage begins in lower case (names and acronyms may not); no line
// above 100 columns.
func TestHelp(t *testing.T) {
	for path, cmd := range tree(t) {
		t.Run(path, func(t *testing.T) {
			for _, wrong := range helpProblems(cmd) {
				t.Error(wrong)
			}
		})
	}
}

// Whatever argument a command takes, a shell completes it: with sinks, waiting
// requests, files.
func TestArgumentsAreCompleted(t *testing.T) {
	for path, cmd := range tree(t) {
		_, arguments, _ := strings.Cut(cmd.Use, " ")
		if arguments != "" && cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			t.Errorf("%s %s: set ValidArgsFunction, to completeNothing where nobody can list them", path, arguments)
		}
	}
}

func helpProblems(cmd *cobra.Command) []string {
	var wrong []string
	if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
		wrong = append(wrong, fmt.Sprintf("Short %q: one line without a full stop", cmd.Short))
	}
	if cmd.Long == "" {
		wrong = append(wrong, "Long is empty: say what it does, and what exit code 1 means")
	}
	if !shownWithOutput(cmd.Example) {
		wrong = append(wrong, "Example has no line `  $ flusso-kafka-admin …` with real output beneath it")
	}
	var help bytes.Buffer
	cmd.SetOut(&help)
	if err := cmd.Help(); err != nil {
		wrong = append(wrong, err.Error())
	}
	for line := range strings.Lines(help.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > maxColumns {
			wrong = append(wrong, fmt.Sprintf("a line of %d columns: %s", n, line))
		}
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if !lowerCase(f.Usage) {
			wrong = append(wrong, fmt.Sprintf("usage of --%s: %q: a few words that begin in lower case", f.Name, f.Usage))
		}
	})
	return wrong
}

// shownWithOutput reports whether an example shows a call and what it printed.
func shownWithOutput(example string) bool {
	const call = "  $ flusso-kafka-admin"
	lines := strings.Split(example, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, call) {
			continue
		}
		for strings.HasSuffix(lines[i], `\`) && i+1 < len(lines) {
			i++ // the call goes on
		}
		if i+1 < len(lines) && strings.TrimSpace(lines[i+1]) != "" && !strings.HasPrefix(lines[i+1], "  $ ") {
			return true
		}
	}
	return false
}

// lowerCase reports whether the first word is one in lower case, or all in
// capitals: PEM, SCRAM-SHA-256.
func lowerCase(usage string) bool {
	word, _, _ := strings.Cut(strings.Trim(usage, "`"), " ")
	first, _ := utf8.DecodeRuneInString(word)
	return word != "" && (!unicode.IsUpper(first) || word == strings.ToUpper(word))
}

// Every command that answers in JSON has a section in docs/json.md and a row in
// the table at its top, and nothing else has.
func TestJSONIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := headings(string(doc))
	rows := tableRows(string(doc))
	all := tree(t)
	script, err := os.ReadFile("testdata/json.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for path, cmd := range all {
		if group(cmd) || cmd.Flag("format") == nil {
			continue
		}
		// serve and what is below it go on until they are interrupted.
		if !strings.HasPrefix(path, "serve") && !regexp.MustCompile("(?m)^documented "+path+"( --|$)").Match(script) {
			t.Errorf("testdata/json.txtar does not compare the answer of %q with docs/json.md", path)
		}
		if !slices.Contains(sections, path) {
			t.Errorf("docs/json.md has no section `## %s`", path)
		}
		if !slices.Contains(rows, path) {
			t.Errorf("the table of docs/json.md has no row for `%s`", path)
		}
	}
	for _, path := range append(sections, rows...) {
		if all[path] == nil {
			t.Errorf("docs/json.md describes %q, which is no command", path)
		}
	}
}

// group reports whether a command only holds others: it has no answer.
func group(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && !strings.Contains(cmd.Long, "JSON")
}

var (
	commandHeading = regexp.MustCompile(`(?m)^## ([a-z -]+)$`)
	commandRow     = regexp.MustCompile("(?m)^\\| \\[`([a-z -]+)`")
)

func headings(doc string) []string { return submatches(commandHeading, doc) }

func tableRows(doc string) []string { return submatches(commandRow, doc) }

func submatches(re *regexp.Regexp, doc string) []string {
	var out []string
	for _, m := range re.FindAllStringSubmatch(doc, -1) {
		out = append(out, m[1])
	}
	return out
}
