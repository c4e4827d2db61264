package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

// moved is what a command says that moves a group.
type moved struct {
	PriorOffset, Offset   *int64
	PriorThrough, Through string
	PriorState, State     string
	Again                 struct{ Items uint64 }
	GivenUp               struct{ Items uint64 }
	Watermark             struct{ Prior, New string }
	Missing               *struct{ Above, UpTo string }
	Committed             bool
	Members               []string
}

// groupKind is what decides when a group's offsets expire.
func (p *pipeline) groupKind(sink string) string {
	p.t.Helper()
	adm := kadm.NewClient(probe.Client(p.t, p.addr))
	defer adm.Close()
	group := p.lane(sink).Group()
	listed, err := adm.ListGroups(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	described, err := adm.DescribeGroups(p.t.Context(), group)
	if err != nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf("type %s, protocol %s, state %s", listed[group].GroupType, described[group].ProtocolType, described[group].State)
}

// mark waits until the pipeline's watermark has passed a position.
func (p *pipeline) mark(at flusso.Position) {
	p.t.Helper()
	probe.Eventually(p.t, "the watermark has passed "+at.String(), func(context.Context) error {
		got := reads[struct {
			Position string
			Holders  []string
		}](p, 0, "watermark")
		var now flusso.Position
		if _, err := fmt.Sscan(got.Position, &now); err != nil || now < at {
			return fmt.Errorf("it is at %q, held by %v", got.Position, got.Holders)
		}
		return nil
	})
}

// refused returns what an attach to the lane of a sink is told.
func (p *pipeline) refused(sink string) error {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), probe.Wait)
	defer cancel()
	lane, err := p.stream(sink).Lane(sink)
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := lane.Consumer(ctx)
	if err == nil {
		_ = c.Close(ctx)
		p.t.Fatalf("the lane of %s was attached to", sink)
	}
	return err
}

// alone waits until a group has no members: one that was refused leaves.
func (p *pipeline) alone(sink string) {
	p.t.Helper()
	probe.Eventually(p.t, "the group of "+sink+" has no members", func(context.Context) error {
		if kind := p.groupKind(sink); !strings.HasSuffix(kind, "Empty") {
			return errors.New(kind)
		}
		return nil
	})
}

// A lane is retired and restored while the engine runs, and nothing is lost: its
// sink gets all that was published meanwhile. Then it is deleted, which is
// refused for as long as the engine publishes to it.
func TestC2_a_lane_is_retired_restored_and_deleted(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	audit, search := p.attaches("audit"), p.attaches("search")
	e.passes(10)
	search.reaches(10)
	if got := p.runs(1, "lane", "retire", "search", "--why", "moved away", "--yes"); got.Out != "" || !strings.Contains(got.Stderr, "has members") {
		t.Errorf("a lane that is consumed was retired:\n%s", got)
	}
	search.ends()
	first := search.all()
	p.alone("search")
	kind := p.groupKind("search")

	t.Logf("%s", p.runs(0, "lane", "retire", "search", "--why", "moved away", "--by", "ana@ops-1", "--yes"))
	if now := p.groupKind("search"); now != kind {
		t.Errorf("retiring made the group %s, it was %s", now, kind)
	}
	p.mark(first[len(first)-1] + 20)
	var retired *flusso.RetiredError
	if err := p.refused("search"); !errors.As(err, &retired) || retired.By != "ana@ops-1" || retired.Why != "moved away" {
		t.Errorf("attach to a retired lane: %v", err)
	}
	if got := p.runs(0, "watermark"); !strings.Contains(got.Out, "by ana@ops-1 at ") || !strings.Contains(got.Out, ": moved away") {
		t.Errorf("the watermark does not say who retired the lane:\n%s", got)
	}
	p.alone("search")
	probe.Eventually(t, "the pipeline is healthy without the lane", func(ctx context.Context) error {
		got, err := p.Run(ctx, "status")
		if err == nil && !strings.Contains(got.Out, "ana@ops-1") {
			err = errors.New("it does not say who retired the lane")
		}
		return errors.Join(err, got.Err())
	})

	restored := reads[moved](p, 0, "lane", "restore", "search", "--yes")
	if !restored.Committed || restored.PriorState != "retired" || restored.State != "acked" || restored.Missing != nil {
		t.Errorf("restored: %+v", restored)
	}
	search = p.attaches("search")
	at := e.at() + 10
	e.passes(at)
	search.reaches(at)
	p.mark(at)
	search.ends()
	all := append(slices.Clone(first), search.all()...)
	for i, pos := range all {
		if pos != flusso.Position(i+1) {
			t.Fatalf("the sink got %v: position %d is missing or came twice", all, i+1)
		}
	}

	// For good.
	p.alone("search")
	if got := p.runs(1, "lane", "delete", "search", "--yes"); !strings.Contains(got.Stderr, "is not retired") {
		t.Errorf("a lane that is not retired: %s", got)
	}
	p.runs(0, "lane", "retire", "search", "--why", "replaced", "--yes")
	e.passes(at + 20)
	if got := p.runs(1, "lane", "delete", "search", "--yes"); !strings.Contains(got.Stderr, "is still written to") {
		t.Errorf("a lane that the engine publishes to: %s", got)
	}
	e.ends()
	p.sinks = []string{"audit"}
	e = p.starts(e.at())
	t.Logf("%s", p.runs(0, "lane", "delete", "search", "--yes"))
	adm := kadm.NewClient(probe.Client(t, p.addr))
	defer adm.Close()
	probe.Eventually(t, "topic and group are gone", func(ctx context.Context) error {
		listed, err := adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		groups, err := adm.ListGroups(ctx)
		if err != nil {
			return err
		}
		if _, there := groups[p.lane("search").Group()]; there || listed.Has(p.lane("search").Topic()) {
			return errors.New("not yet")
		}
		return nil
	})
	if got := p.runs(1, "lane", "delete", "search", "--yes"); !strings.Contains(got.Stderr, `unknown sink "search"`) {
		t.Errorf("deleted twice: %s", got)
	}
	at = e.at() + 10
	e.passes(at)
	p.mark(at)
	last := p.settles(e, audit)
	if got := audit.all(); len(got) != int(last) {
		t.Errorf("audit got %d batches of %s", len(got), last)
	}
	if errs := e.failures(); len(errs) > 0 {
		t.Errorf("the engine was disturbed: %v", errs)
	}
}

// A lane is rewound while the engine runs, and exactly what was acked behind the
// place comes again.
func TestLane_rewind_while_the_engine_runs(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	p.attaches("audit")
	search := p.attaches("search")
	search.reaches(30)
	got := p.runs(1, "lane", "rewind", "search", "--to-position", "12", "--yes")
	if got.Out != "" || !strings.Contains(got.Stderr, "group "+p.lane("search").Group()+" has members") {
		t.Errorf("a lane that is consumed was rewound:\n%s", got)
	}
	search.ends()
	p.alone("search")
	acked, kind := search.all(), p.groupKind("search")

	dry := reads[moved](p, 0, "lane", "rewind", "search", "--to-position", "12", "--dry-run")
	if dry.Committed || dry.Again.Items != uint64(len(acked)-12) || dry.Through != "12" {
		t.Errorf("dry run: %+v, acked %d", dry, len(acked))
	}
	answer := p.runs(0, "lane", "rewind", "search", "--to-position", "12", "--yes")
	t.Logf("%s", answer)
	if now := p.groupKind("search"); now != kind {
		t.Errorf("rewinding made the group %s, it was %s", now, kind)
	}
	search = p.attaches("search")
	search.reaches(acked[len(acked)-1] + 5)
	search.ends()
	for i, pos := range search.all() {
		if pos != flusso.Position(13+i) {
			t.Fatalf("rewound to position 12, the sink got %v", search.all())
		}
	}
	p.alone("search")
	early := p.runs(0, "lane", "rewind", "search", "--to-earliest", "--yes")
	search = p.attaches("search")
	search.reaches(20)
	if first := search.all()[0]; first != 1 {
		t.Errorf("rewound to the earliest, the sink got position %s first:\n%s", first, early)
	}
	at := e.at()
	p.mark(at)
	if errs := e.failures(); len(errs) > 0 {
		t.Errorf("the engine was disturbed: %v", errs)
	}
}

// An engine ran without a retired sink for a while. That the lane does not hold
// what was published then is found, and the positions are said.
func TestLane_restore_names_what_the_lane_misses(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	p.attaches("audit")
	search := p.attaches("search")
	search.reaches(10)
	search.ends()
	p.alone("search")
	p.runs(0, "lane", "retire", "search", "--why", "away", "--yes")
	e.ends()
	left := e.at()
	p.sinks = []string{"audit"}
	e = p.starts(left)
	e.passes(left + 20)
	p.mark(left + 20)
	got := p.runs(1, "lane", "restore", "search", "--yes")
	if got.Out != "" || !strings.Contains(got.Stderr, "the positions above "+left.String()+" and up to") {
		t.Errorf("the lane misses what came after %s:\n%s", left, got)
	}
	if is := p.groupKind("search"); !strings.HasSuffix(is, "Empty") {
		t.Errorf("the group is %s", is)
	}
	restored := reads[moved](p, 0, "lane", "restore", "search", "--accept-missing", "--yes")
	if restored.Missing == nil || restored.Missing.Above != left.String() {
		t.Errorf("restored: %+v, want what it misses", restored)
	}
}

// Two operators move one group at the same moment, again and again: what the
// group has afterwards is what one of them said that he did, and whoever was
// overtaken is told.
func TestLane_two_operators_at_once(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit")
	e := p.starts(0)
	audit := p.attaches("audit")
	e.passes(20)
	p.settles(e, audit)
	p.alone("audit")
	overtaken := 0
	for round := range 6 {
		to := [2]string{"5", "12"}
		var done []string
		type result struct {
			answer probe.Answer
			err    error
		}
		ctx, cancel := context.WithTimeout(t.Context(), probe.Wait)
		var results [2]chan result
		for i := range to {
			results[i] = make(chan result, 1)
			go func() {
				got, err := p.Run(ctx, "lane", "rewind", "audit", "--to-position", to[i], "--yes")
				results[i] <- result{got, err}
			}()
		}
		for i := range to {
			r := <-results[i]
			if r.err != nil {
				t.Fatal(r.err)
			}
			switch {
			case r.answer.Code == 0:
				done = append(done, to[i])
			case strings.Contains(r.answer.Stderr, "moved by somebody else meanwhile"):
				overtaken++
			case strings.Contains(r.answer.Stderr, "is ahead of what was acked"):
				// The other one was there first, and this would go forward.
			default:
				t.Errorf("round %d: %s", round, r.answer)
			}
		}
		cancel()
		now := reads[moved](p, 0, "lane", "rewind", "audit", "--to-earliest", "--dry-run").PriorThrough
		if !slices.Contains(done, now) {
			t.Fatalf("round %d: the group is acked through %s, and the operators were told that %v were done", round, now, done)
		}
		p.runs(0, "lane", "accept", "audit", "--to", fmt.Sprint(offsetOfEnd(t, p)), "--yes")
	}
	t.Logf("%d of 12 moves were overtaken", overtaken)
}

func offsetOfEnd(t *testing.T, p *pipeline) int64 {
	t.Helper()
	adm := kadm.NewClient(probe.Client(t, p.addr))
	defer adm.Close()
	ends, err := adm.ListCommittedOffsets(t.Context(), p.lane("audit").Topic())
	if err != nil {
		t.Fatal(err)
	}
	o, _ := ends.Lookup(p.lane("audit").Topic(), 0)
	return o.Offset
}
