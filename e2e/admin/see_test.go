package admin_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
)

// tool runs one of Kafka's own in the broker's container.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	return containers.Shared(t).Exec(t, append([]string{name, "--bootstrap-server", containers.InnerAddr}, args...)...)
}

// column returns a column of what kafka-consumer-groups prints of a topic.
func column(t *testing.T, out, topic, name string) string {
	t.Helper()
	at := -1
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		for i, f := range fields {
			if at < 0 && f == name {
				at = i
			}
		}
		if at >= 0 && len(fields) > at && len(fields) > 1 && fields[1] == topic {
			return fields[at]
		}
	}
	t.Fatalf("no column %s of topic %s in:\n%s", name, topic, out)
	return ""
}

type lag struct {
	Lanes []struct {
		Sink      string
		Known     bool
		Acked     string
		Tail      string
		Batches   *uint64
		Envelopes *uint64
		Bytes     *uint64
		Changes   *uint64
		Seconds   *float64
	}
}

// A lane whose sink has acked everything has no lag here, and one or two
// batches for ever in Kafka's own tool: the markers of the last transactions own
// offsets. Here it is the same idle lane, seen by both (Case 45).
func TestCase45_the_lag_of_an_idle_lane(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	search, audit := p.attaches("search"), p.attaches("audit")
	e.passes(20)
	p.settles(e, search, audit)

	theirs := tool(t, "kafka-consumer-groups", "--describe", "--group", p.lane("search").Group())
	if got := column(t, theirs, p.lane("search").Topic(), "LAG"); got != "1" && got != "2" {
		t.Errorf("kafka-consumer-groups reports a lag of %s, want that of one or two markers:\n%s", got, theirs)
	}
	ours := p.runs(0, "lag")
	for _, l := range reads[lag](p, 0, "lag").Lanes {
		if !l.Known || *l.Batches != 0 || *l.Envelopes != 0 || *l.Bytes != 0 || *l.Changes != 0 || *l.Seconds != 0 || l.Acked != l.Tail {
			t.Errorf("the lag of %s is %+v, want 0", l.Sink, l)
		}
	}
	t.Logf("the same idle lane:\n$ kafka-consumer-groups.sh --describe --group %s\n%s\n%s", p.lane("search").Group(), strings.TrimSpace(theirs), ours)
}

type report struct {
	Healthy  bool
	Findings []struct{ Severity, Code, Sink, Text, Help string }
	Lanes    []struct {
		Sink, State, Consumer, Acked, Tail string
		Batches                            *uint64
	}
	Watermark struct {
		Position string
		Holders  []string
	}
}

func (r report) finding(code, sink string) string {
	for _, f := range r.Findings {
		if f.Code == code && f.Sink == sink {
			return f.Text
		}
	}
	return ""
}

// A pipeline in which everything runs is healthy; one whose sink is gone says
// which, and that it holds the watermark.
func TestStatus_of_a_healthy_and_of_a_stuck_pipeline(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	search, audit := p.attaches("search"), p.attaches("audit")
	e.passes(20)
	var healthy probe.Answer
	probe.Eventually(t, "the pipeline is healthy", func(ctx context.Context) (err error) {
		if healthy, err = p.Run(ctx, "status"); err != nil {
			return err
		}
		return healthy.Err()
	})
	t.Logf("healthy:\n%s", healthy)

	search.ends()
	stood := search.all()[len(search.all())-1]
	e.passes(stood + 20)
	audit.reaches(stood + 20)
	stuck := p.runs(1, "status")
	t.Logf("stuck:\n%s", stuck)
	got := reads[report](p, 1, "status")
	if got.Healthy || len(got.Watermark.Holders) != 1 || got.Watermark.Holders[0] != "search" || got.Watermark.Position != stood.String() {
		t.Errorf("got %+v, want a watermark at %s held by search", got, stood)
	}
	for _, l := range got.Lanes {
		want := map[string]string{"audit": "attached", "search": "detached"}[l.Sink]
		if l.Consumer != want || l.Sink == "search" && (l.State != "behind" || *l.Batches < 20 || l.Acked != stood.String()) {
			t.Errorf("lane %+v, want %s", l, want)
		}
	}
	if text := got.finding("no-consumer", "search"); !strings.Contains(text, p.lane("search").Group()) {
		t.Errorf("no finding names the group that nobody is in: %+v", got.Findings)
	}
}

// twice runs commands as two operators do at the same moment.
func twice(p *pipeline, args func(n int) []string) [2]probe.Answer {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), probe.Wait)
	defer cancel()
	var (
		both [2]probe.Answer
		errs [2]error
		wg   sync.WaitGroup
	)
	for n := range both {
		wg.Go(func() { both[n], errs[n] = p.Run(ctx, args(n+1)...) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		p.t.Fatal(err)
	}
	return both
}

// A broker that waits for TLS and one that does not are told apart soon.
func TestF4_TLS_to_a_port_in_the_clear(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit")
	got := p.runs(1, "status", "--tls", "--timeout", "8s")
	if !strings.Contains(got.Stderr, "leave out --tls") {
		t.Errorf("%s", got)
	}
	t.Logf("%s", got)
}
