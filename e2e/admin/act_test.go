package admin_test

import (
	"context"
	"errors"
	"fmt"
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

// moved is what commands answer that move a group.
type moved struct {
	PriorOffset, Offset   *int64
	PriorThrough, Through *string
	Committed             bool
	Members               []string
}

// A rewind is refused while the sink runs, and names it. When it is stopped,
// what it had acked comes again from exactly the position that was named, while
// the engine and the other sink go on.
func TestRewind_while_an_engine_runs(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	search, audit := p.attaches("search"), p.attaches("audit")
	search.reaches(30)

	refused := p.runs(1, "lane", "rewind", "search", "--to-position", "10", "--yes")
	says(t, refused, p.lane("search").Group(), "stop the sink first")
	t.Logf("while the sink runs:\n%s", refused)
	acked := len(search.all())
	search.reaches(search.all()[acked-1] + 5) // it was not disturbed
	search.ends()

	t.Logf("%s", p.runs(0, "lane", "rewind", "search", "--to-position", "10", "--dry-run"))
	got := reads[moved](p, 0, "lane", "rewind", "search", "--to-position", "10", "--yes")
	if !got.Committed || got.Through == nil || *got.Through != "10" {
		t.Errorf("got %+v", got)
	}
	again := p.attaches("search")
	again.reaches(11)
	if first := again.all()[0]; first != 11 {
		t.Errorf("the first that came again is position %s, want 11", first)
	}
	audit.reaches(e.at())
	again.reaches(e.at())
	if errs := e.failures(); len(errs) > 0 {
		t.Errorf("the engine was disturbed: %v", errors.Join(errs...))
	}
	in(t, again.all())
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

// Two operators who rewind to different places at once do not mix: the lane
// stands where one of them wanted it, and one is told of success.
func TestRewind_by_two_operators(t *testing.T) {
	t.Parallel()
	p := fresh(t, "search")
	e := p.starts(0)
	search := p.attaches("search")
	search.reaches(30)
	p.settles(e, search)
	both := twice(p, func(n int) []string {
		return []string{"lane", "rewind", "search", "--to-position", fmt.Sprint(10 + 5*n), "--yes"}
	})
	told := 0
	for _, got := range both {
		switch {
		case got.Code == 0:
			told++
		case got.Code != 1 || !strings.Contains(got.Stderr, "moved"):
			t.Errorf("the other is not told why:\n%s", got)
		}
	}
	if told == 0 {
		t.Errorf("neither rewind is there:\n%s\n%s", both[0], both[1])
	}
	s := p.attaches("search")
	s.reaches(e.at())
	if first := s.all()[0]; first != 16 && first != 21 {
		t.Errorf("the lane begins again at position %s, which nobody asked for", first)
	}
	in(t, s.all())
}

// The watermark does not wait for a retired lane, and no sink attaches to it;
// restored, it goes on where its sink had been, without a hole.
func TestRetire_and_restore(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	search, audit := p.attaches("search"), p.attaches("audit")
	search.reaches(20)
	says(t, p.runs(1, "lane", "retire", "search", "--why", "moved", "--yes"), p.lane("search").Group())
	search.ends()
	stood := search.all()[len(search.all())-1]

	both := twice(p, func(n int) []string {
		return []string{"lane", "retire", "search", "--by", fmt.Sprintf("operator-%d", n), "--why", "moved to a new cluster", "--yes"}
	})
	// One retires what the other has retired, and is told; or both at the very
	// same moment, and the later one stands.
	for _, got := range both {
		if got.Code != 0 {
			says(t, got, "operator-", "retired")
		}
	}
	if both[0].Code != 0 && both[1].Code != 0 {
		t.Errorf("neither retired the lane:\n%s\n%s", both[0], both[1])
	}
	e.passes(stood + 20)
	audit.reaches(stood + 20)
	probe.Eventually(t, "the watermark passes the retired lane", func(ctx context.Context) error {
		if w := reads[watermark](p, 0, "watermark"); w.Position == nil || len(*w.Position) < len(stood.String()) || *w.Position == stood.String() {
			return fmt.Errorf("it is at %v", w)
		}
		return nil
	})
	said := p.runs(0, "status")
	says(t, said, "retired", "moved to a new cluster")
	t.Logf("%s", said)
	if err := p.refuses("search"); !strings.Contains(err.Error(), "retired") || !strings.Contains(err.Error(), "lane restore search") {
		t.Errorf("a sink of a retired lane is told %v", err)
	}

	t.Logf("%s", p.runs(0, "lane", "restore", "search", "--yes"))
	again := p.attaches("search")
	again.reaches(e.at())
	if first := again.all()[0]; first != stood+1 {
		t.Errorf("the restored sink goes on at %s, want %s", first, stood+1)
	}
	in(t, again.all())
	if errs := e.failures(); len(errs) > 0 {
		t.Errorf("the engine was disturbed: %v", errors.Join(errs...))
	}
}

type watermark struct{ Position *string }

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

// A lane is deleted only when it is retired and nobody publishes to it.
func TestDelete_of_a_retired_lane(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	search, audit := p.attaches("search"), p.attaches("audit")
	search.reaches(20)
	search.ends()
	says(t, p.runs(1, "lane", "delete", "search", "--yes"), "retire")
	p.runs(0, "lane", "retire", "search", "--why", "gone for good", "--yes")
	says(t, p.runs(1, "lane", "delete", "search", "--yes"), "search")
	e.ends()

	without := *p
	without.sinks = []string{"audit"}
	next := without.starts(e.at())
	deleted := p.runs(0, "lane", "delete", "search", "--yes")
	t.Logf("%s", deleted)
	next.passes(next.at() + 10)
	audit.reaches(next.at())
	if errs := next.failures(); len(errs) > 0 {
		t.Errorf("the engine was disturbed: %v", errors.Join(errs...))
	}
	probe.Eventually(t, "the lane is gone", func(ctx context.Context) error {
		got, err := p.Run(ctx, "status")
		if err == nil && strings.Contains(got.Out, "search") {
			err = errors.New(got.String())
		}
		return err
	})
}
