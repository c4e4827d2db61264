package admin_test

import (
	"errors"
	"strings"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

// says checks that an answer says all of parts.
func says(t *testing.T, got probe.Answer, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got.Out+got.Stderr, part) {
			t.Errorf("it does not say %q:\n%s", part, got)
		}
	}
}

// in checks that positions come in order without a hole.
func in(t *testing.T, all []flusso.Position) {
	t.Helper()
	for i := 1; i < len(all); i++ {
		if all[i] != all[i-1]+1 {
			t.Fatalf("position %s comes behind %s", all[i], all[i-1])
		}
	}
}

// A lane is trimmed under an engine and a sink that go on, to what was acked and
// no further, and two operators may do it at once.
func TestTrim_while_an_engine_runs(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	search, audit := p.attaches("search"), p.attaches("audit")
	search.reaches(20)
	for _, got := range twice(p, func(int) []string { return []string{"lane", "trim", "search", "--yes"} }) {
		if got.Code != 0 {
			t.Errorf("one of two trims at once failed:\n%s", got)
		}
		t.Logf("%s", got)
	}
	says(t, p.runs(1, "lane", "rewind", "search", "--to-position", "5", "--dry-run"), "search")
	at := e.at() + 20
	e.passes(at)
	search.reaches(at)
	audit.reaches(at)
	in(t, search.all())
	if errs := e.failures(); len(errs) > 0 {
		t.Errorf("the engine was disturbed: %v", errors.Join(errs...))
	}
}
