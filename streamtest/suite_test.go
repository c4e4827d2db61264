package streamtest_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flusso/flusso-kafka/streamtest"
)

var excused = map[string]string{
	"C6_a_foreign_offset_behind_what_was_acked_counts_as_it_is": "a lane in memory cannot be rewound",
}

func hold(t *testing.T, b func() *bends) {
	streamtest.Run(t, streamtest.Harness{Name: "bent channel", Run: synctest.Test, Open: openBent(b), Excused: excused})
}

func TestTheStraightAdapterKeepsEveryClause(t *testing.T) {
	hold(t, func() *bends { return &bends{} })
}

// inside is set in the process in which tests are expected to fail.
const inside = "STREAMTEST_MUTANTS"

// The suite fails a test through testing.T alone, and a test that failed has
// failed: so the mutants run in a process of their own, whose report is read.
func TestEveryMutantFailsItsClausesAndNoOthers(t *testing.T) {
	if os.Getenv(inside) != "" {
		for _, m := range mutants {
			t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				hold(t, m.bend)
			})
		}
		return
	}
	failed, report := runInside(t, "^TestEveryMutantFailsItsClausesAndNoOthers$")
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			got := failed[strings.ReplaceAll(m.name, " ", "_")]
			var missing, extra []string
			for _, clause := range m.fails {
				if !slices.Contains(got, clause) {
					missing = append(missing, clause)
				}
			}
			for _, clause := range got {
				if !m.broad && !slices.Contains(m.fails, clause) && !slices.Contains(m.may, clause) {
					extra = append(extra, clause)
				}
			}
			if len(missing)+len(extra) > 0 {
				t.Errorf("clauses that let it pass: %v; that fail with no reason: %v\n%s", missing, extra,
					reportOf(report, strings.ReplaceAll(m.name, " ", "_")))
			}
		})
	}
}

// bare is a pipeline without anything optional.
type bare struct{ streamtest.Pipeline }

func TestTheSuiteExcusesNothingInSilence(t *testing.T) {
	straight := openBent(func() *bends { return &bends{} })
	harness := streamtest.Harness{
		Name: "bare channel",
		Run:  synctest.Test,
		Open: func(t *testing.T, sinks []string) streamtest.Pipeline { return bare{straight(t, sinks)} },
		Excused: map[string]string{
			"B7_a_stalled_sink_stalls_everybody": "no subtest has this name",
			"E9":                                 "nor is there such a clause here",
		},
	}
	if os.Getenv(inside) != "" {
		t.Run("bare", func(t *testing.T) { streamtest.Run(t, harness) })
		return
	}
	failed, report := runInside(t, "^TestTheSuiteExcusesNothingInSilence$")
	if got, want := failed["bare"], []string{"B8", "C6", "C7", "F2"}; !slices.Equal(got, want) {
		t.Errorf("clauses that fail for want of something optional: got %v, want %v", got, want)
	}
	for _, want := range []string{
		"is no streamtest.Trimmer", "is no streamtest.Recreator", "is no streamtest.GroupMover", "is no streamtest.Stopper",
		"is no streamtest.Limited", `excuses "B7_a_stalled_sink_stalls_everybody"`, `excuses "E9"`,
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report does not say %q:\n%s", want, report)
		}
	}
}

// The contract for readers names the subtests that prove each clause: no more,
// no fewer, and every clause that a stream can show has one.
func TestTheContractNamesEverySubtest(t *testing.T) {
	doc, err := os.ReadFile("../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([ABCDF][0-9]+_[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(doc), -1)
	have := streamtest.Clauses()
	in := make(map[string]bool)
	for _, m := range named {
		in[m[1]] = true
		if !slices.Contains(have, m[1]) {
			t.Errorf("docs/contract.md names %s, which is no subtest", m[1])
		}
	}
	proved := make(map[string]bool)
	for _, name := range have {
		id, _, _ := strings.Cut(name, "_")
		proved[id] = true
		if !in[name] {
			t.Errorf("docs/contract.md does not name %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\*\*([A-D][0-9]+)\*\*`).FindAllStringSubmatch(string(doc), -1) {
		if !proved[m[1]] {
			t.Errorf("no subtest for clause %s", m[1])
		}
		delete(proved, m[1])
	}
	for id := range proved {
		if !strings.Contains(string(doc), "**"+id+"**") {
			t.Errorf("docs/contract.md has no clause %s", id)
		}
	}
}

var failure = regexp.MustCompile(`^\s*--- FAIL: [^/]+/([^/]+)/([^_ ]+)_`)

// runInside runs tests of this binary that fail, and returns the clauses that
// failed for each first-level subtest.
func runInside(t *testing.T, pattern string) (map[string][]string, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", pattern, "-test.timeout", "60s")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("no mutant failed:\n%s", out)
	}
	if at := bytes.Index(out, []byte("panic: ")); at >= 0 {
		t.Fatalf("the process with the mutants died: %v\n%s", err, out[at:])
	}
	failed := make(map[string][]string)
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		if m := failure.FindStringSubmatch(lines.Text()); m != nil && !slices.Contains(failed[m[1]], m[2]) {
			failed[m[1]] = append(failed[m[1]], m[2])
		}
	}
	return failed, string(out)
}

// reportOf is what a first-level subtest printed when it failed.
func reportOf(report, name string) string {
	var out []string
	in := false
	for line := range strings.Lines(report) {
		if strings.Contains(line, "--- ") {
			in = strings.Contains(line, "FAIL") && strings.Contains(line, "/"+name+"/")
		}
		if in {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
