package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/flusso/flusso-kafka/e2e/probe"
)

// serves starts the server, which ends with the test, and returns its address.
func (p *pipeline) serves() string {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	cmd := p.Command(ctx, "serve", "--listen", "127.0.0.1:0", "--interval", "200ms", "--format", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
	})
	var listens struct{ URL string }
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&listens); err != nil {
		p.t.Fatalf("the server does not say where it listens: %v", err)
	}
	return strings.TrimSuffix(listens.URL, "/")
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return string(body), err
}

// What the server tells programs follows the engines: a sink that stops keeps
// its series and its row, and says so in both.
func TestServe_follows_the_engines(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	search, audit := p.attaches("search"), p.attaches("audit")
	url := p.serves()
	healthy := func(ctx context.Context, want bool) error {
		body, err := get(ctx, url+"/status.json")
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			return err
		}
		if r.Healthy != want || len(r.Lanes) != 2 || (r.finding("no-consumer", "search") == "") != want {
			return fmt.Errorf("it says %s", body)
		}
		return nil
	}
	series := func(ctx context.Context, lines ...string) error {
		body, err := get(ctx, url+"/metrics")
		if err != nil {
			return err
		}
		for _, line := range lines {
			if !strings.Contains("\n"+body, "\n"+line) {
				return fmt.Errorf("no line %q in\n%s", line, body)
			}
		}
		return nil
	}
	of := func(name, labels string) string {
		return fmt.Sprintf(`flusso_kafka_admin_%s{pipeline=%q%s} `, name, p.name, labels)
	}
	probe.Eventually(t, "all is well", func(ctx context.Context) error { return healthy(ctx, true) })
	probe.Eventually(t, "all is well in numbers", func(ctx context.Context) error {
		return series(ctx, of("up", "")+"1", of("lane_lag_batches", `,sink="search"`), of("lane_state", `,sink="search",state="gap"`)+"0")
	})
	search.ends()
	e.passes(e.at() + 10)
	audit.reaches(e.at())
	probe.Eventually(t, "the stopped sink is told", func(ctx context.Context) error { return healthy(ctx, false) })
	probe.Eventually(t, "the stopped sink is told in numbers", func(ctx context.Context) error {
		return series(ctx, of("up", "")+"1", of("lane_state", `,sink="search",state="behind"`)+"1", of("lane_state", `,sink="search",state="caught-up"`)+"0")
	})
	if _, err := get(t.Context(), url+"/readyz"); err != nil {
		t.Error(err)
	}
}

// A request is served by the engine that runs; what waits without one is taken
// back by one of two operators, and not served later.
func TestRequest_is_sent_served_and_cancelled(t *testing.T) {
	t.Parallel()
	p := fresh(t, "audit", "search")
	e := p.starts(0)
	p.runs(0, "request", "send", "search", "orders", "--yes")
	probe.Eventually(t, "the engine has served the request", func(context.Context) error {
		if got := e.answered(); len(got) != 1 || got[0] != "search" {
			return fmt.Errorf("it has served %v", got)
		}
		return nil
	})
	e.ends()

	p.runs(0, "request", "send", "audit", "orders", "customers", "--yes")
	says(t, p.runs(0, "request", "list"), "audit", "orders, customers")
	both := twice(p, func(int) []string { return []string{"request", "cancel", "--all", "--yes"} })
	if both[0].Code != 0 && both[1].Code != 0 {
		t.Errorf("neither of two operators cancelled:\n%s\n%s", both[0], both[1])
	}
	t.Logf("%s\n%s", both[0], both[1])
	says(t, p.runs(0, "request", "list"), "no request waits")
	next := p.starts(e.at())
	next.passes(next.at() + 5)
	if got := next.answered(); len(got) > 0 {
		t.Errorf("a cancelled request was served: %v", got)
	}
}

// Fencing ends the session of an engine that runs, which opens the next one by
// itself and publishes on, without a hole and without a repetition.
func TestFence_of_an_engine_that_goes_on(t *testing.T) {
	t.Parallel()
	p := fresh(t, "search")
	e := p.starts(0)
	search := p.attaches("search")
	search.reaches(10)
	says(t, p.runs(0, "writer", "describe"), "held by", p.name+".writer.0")
	t.Logf("%s", p.runs(0, "writer", "fence", "--yes"))
	at := e.at() + 20
	e.passes(at)
	search.reaches(at)
	in(t, search.all())
	if errs := e.failures(); len(errs) == 0 {
		t.Error("the engine was not told that it was fenced")
	} else {
		t.Logf("the engine was told: %v", errs[0])
	}
}
