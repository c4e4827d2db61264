package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// checkDocumented runs a command with --format json and fails when its answer
// has a field that docs/json.md does not name in the section of the command, or
// in one that it refers to: documented COMMAND... [-- ARG...]
func checkDocumented(ts *testscript.TestScript, _ bool, args []string) {
	words := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--" })
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	err := ts.Exec(program, append(words, "--format", "json")...)
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitFailed) {
		ts.Fatalf("%v", err)
	}
	doc, err := os.ReadFile("../../docs/json.md")
	ts.Check(err)
	var answer []any // one, or one a line
	for d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout"))); ; {
		var one any
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			ts.Fatalf("%v", err)
		}
		answer = append(answer, one)
	}
	text := sectionsOf(string(doc), strings.Join(args, " "))
	if text == "" {
		ts.Fatalf("docs/json.md has no section %s", strings.Join(args, " "))
	}
	seen := false
	var missing []string
	fieldsOf(answer, func(field string) {
		seen = true
		if !regexp.MustCompile("[`.]" + regexp.QuoteMeta(field) + "(\\[\\])?[`.]").MatchString(text) {
			missing = append(missing, field)
		}
	})
	slices.Sort(missing)
	switch missing = slices.Compact(missing); {
	case !seen:
		ts.Fatalf("the answer has no field")
	case len(missing) > 0:
		ts.Fatalf("docs/json.md does not describe these fields of %s: %s", strings.Join(args, " "), strings.Join(missing, ", "))
	}
}

// lastOf sets a variable to a field of the last line of JSON of the last
// output: last VARIABLE FIELD
func lastOf(ts *testscript.TestScript, _ bool, args []string) {
	var field any
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var one map[string]any
		ts.Check(json.Unmarshal([]byte(line), &one))
		field = one[args[1]]
	}
	if field == nil {
		ts.Fatalf("the last line has no %s", args[1])
	}
	ts.Setenv(args[0], fmt.Sprint(field))
}

// fieldsOf calls do with the name of every field, however deep.
func fieldsOf(v any, do func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			do(name)
			fieldsOf(value, do)
		}
	case []any:
		for _, value := range v {
			fieldsOf(value, do)
		}
	}
}

var headingMark = regexp.MustCompile(`\n###? `)

var sectionLink = regexp.MustCompile(`\]\(#([a-z-]+)\)`)

// sectionsOf returns the section of a heading and those that it links to.
func sectionsOf(doc, heading string) string {
	sections := make(map[string]string)
	for _, part := range headingMark.Split(doc, -1) {
		name, text, _ := strings.Cut(part, "\n")
		sections[strings.ReplaceAll(strings.ToLower(name), " ", "-")] = text
	}
	var out strings.Builder
	done := make(map[string]bool)
	var add func(string)
	add = func(name string) {
		if done[name] {
			return
		}
		done[name] = true
		out.WriteString(sections[name])
		for _, m := range sectionLink.FindAllStringSubmatch(sections[name], -1) {
			add(m[1])
		}
	}
	add(strings.ReplaceAll(heading, " ", "-"))
	return out.String()
}
