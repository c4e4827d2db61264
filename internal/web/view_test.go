package web

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/internal/status"
)

func statusPosition(n int) status.Position { return status.Position(n) }

func pageOf(t *testing.T, r *status.Report) string {
	t.Helper()
	s := newServer(t, Config{})
	s.state.publish(r, nil, time.Now())
	snap, _ := s.state.get()
	body, _, err := s.render(snap)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestAxis_PlacesByDistance(t *testing.T) {
	r := newReport(100, 600, 990, 1000)
	a := newAxis(r)
	place := func(p uint64) float64 { return a.place(p) }
	if got := place(1000); got != 100-margin {
		t.Errorf("the newest at %v", got)
	}
	last := 0.0
	for _, p := range []uint64{1, 100, 600, 990, 999, 1000} {
		x := place(p)
		if x <= last || x < margin || x > 100-margin {
			t.Errorf("position %d at %v, after %v", p, x, last)
		}
		last = x
	}
	if a.Mark != percent(place(100)) {
		t.Errorf("watermark at %s", a.Mark)
	}
	for i, want := range []string{"span", "span", "span", "done"} {
		b := a.bar(r.Lanes[i])
		if b.Kind != want || b.From != percent(place(uint64(r.Lanes[i].Acked))) || b.To != percent(place(1000)) {
			t.Errorf("bar of %s: %+v", r.Lanes[i].Sink, b)
		}
	}
}

func TestAxis_ReachesTheFarthestDecade(t *testing.T) {
	for behind, want := range map[uint64]string{0: "−1k", 999: "−1k", 1001: "−10k", 5e6: "−10M", 1 << 62: "−10E"} {
		r := newReport(1000)
		r.Lanes[0].Tail = status.Position(1<<62 + 10)
		r.Lanes[0].Acked = status.Position(1<<62 + 10 - behind)
		r.Watermark.Position = r.Lanes[0].Acked
		if a := newAxis(r); a.Ticks[0].Label != want || len(a.Ticks) > 5 {
			t.Errorf("%d behind: ticks %+v, want %s first", behind, a.Ticks, want)
		}
	}
}

func TestBar_OfLanesWithoutAFloor(t *testing.T) {
	r := newReport(900, 900, 900)
	r.Lanes[0].Acked = 0
	r.Lanes[1].State, r.Lanes[1].Acked = "other-incarnation", 1<<60 // in positions of its own
	r.Lanes[2].Tail, r.Lanes[2].Acked = 0, 0
	a := newAxis(r)
	if a.Newest != "1,000" {
		t.Errorf("newest %s: another incarnation's position counts", a.Newest)
	}
	for i, want := range []string{"open", "open", "empty"} {
		if b := a.bar(r.Lanes[i]); b.Kind != want || b.Text == "" {
			t.Errorf("lane %d: %+v, want %s", i, b, want)
		}
	}
}

func TestPage_ShowsTheReport(t *testing.T) {
	r := newReport(100, 1000)
	r.Healthy = false
	r.Findings = []status.Finding{
		{Severity: status.Failure, Code: "gap", Sink: "sink-0", Text: "items are gone", Help: "flusso-kafka-admin lane accept sink-0 --dry-run"},
		{Severity: status.Note, Code: "odd", Text: "a <b>note</b>", Help: "Wait."},
	}
	r.Requests = []status.Request{{Offset: 7, Sink: "sink-1", Indexes: []string{"orders"}, Seconds: 90}}
	page := pageOf(t, r)
	at := 0
	for _, want := range []string{
		"1 failure", `id="watermark">100<`, "items are gone", `data-copy="flusso-kafka-admin lane accept sink-0 --dry-run"`,
		"a &lt;b&gt;note&lt;/b&gt;", "Wait.", `id="lane-sink-0"`, "900", `id="lane-sink-1"`, "caught-up", "orders", "1.5 min", "none attached",
	} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("no %q in what is left of the page:\n%s", want, page[at:])
		}
		at += i
	}
}

// The page keeps its own policy, whatever a report holds.
func TestPage_HoldsNothingInline(t *testing.T) {
	r := newReport(100, 1000)
	evil := `"><script>alert(1)</script><img src=x onerror=alert(1) style="x">`
	r.Lanes[0].Sink, r.Lanes[0].Error = evil, evil
	r.Findings = []status.Finding{{Severity: status.Failure, Code: evil, Sink: evil, Text: evil, Help: "flusso-kafka-admin " + evil}}
	r.Watermark.Holders = []string{evil}
	r.RequestsError, r.Writer.Error = evil, evil
	page := pageOf(t, r)
	for _, bad := range []string{`<script>`, `<img`, `style="`, `<style`, `href="javascript`, `http://`, `https://`} {
		if strings.Contains(strings.ToLower(page), bad) {
			t.Errorf("the page holds %s", bad)
		}
	}
	for _, tag := range regexp.MustCompile(`<script[^>]*>`).FindAllString(page, -1) {
		if tag != `<script src="page.js" defer>` {
			t.Errorf("a script %s", tag)
		}
	}
	if handlers := regexp.MustCompile(`<[^>"]*("[^"]*"[^>"]*)*\son[a-z]+=`).FindString(page); handlers != "" {
		t.Errorf("an inline handler: %s", handlers)
	}
}

// A page of many lanes stays small enough to be sent every few seconds.
func TestPage_OfTwoHundredLanes(t *testing.T) {
	acked := make([]status.Position, 200)
	for i := range acked {
		acked[i] = status.Position(1 + 5*i)
	}
	s := newServer(t, Config{})
	now := time.Now()
	for i := range maxSamples {
		s.state.publish(newReport(acked...), nil, now.Add(time.Duration(i)*2*time.Second))
	}
	snap, _ := s.state.get()
	page, zipped, err := s.render(snap)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(page, []byte(`<tr role="row" class="lane`)); n != 200 {
		t.Errorf("%d lanes", n)
	}
	if len(page) > 1<<20 {
		t.Errorf("a page of %d bytes, want at most a megabyte", len(page))
	}
	if len(zipped) > 100<<10 {
		t.Errorf("%d bytes when compressed, want at most 100 KiB", len(zipped))
	}
	if again, _, _ := s.render(snap); &again[0] != &page[0] {
		t.Error("the same report is rendered twice")
	}
	// Ids are what the script keeps nodes by.
	seen := make(map[string]bool)
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllSubmatch(page, -1) {
		if seen[string(m[1])] {
			t.Errorf("id %s twice", m[1])
		}
		seen[string(m[1])] = true
	}
}

// A rate is one of two reports in a row: none over what nobody saw.
func TestPage_Rates(t *testing.T) {
	s := newServer(t, Config{})
	now := time.Now()
	publish := func(batches uint64, after time.Duration, err error) string {
		t.Helper()
		r := newReport(900)
		r.At, r.Lanes[0].TopicID, r.Lanes[0].AckedTotals = now.Add(after), "one", &status.Totals{Batches: batches}
		s.state.publish(r, err, r.At)
		return ask(s, "GET", "/").Body.String()
	}
	const shown = "batches/s"
	if page := publish(10, 0, nil); strings.Contains(page, shown) {
		t.Error("the first report has a rate")
	}
	if page := publish(20, 2*time.Second, nil); !strings.Contains(page, "acks 5.0 "+shown) {
		t.Error("no rate of 5.0 between two reports")
	}
	publish(0, 4*time.Second, errDown)
	if page := publish(90, 6*time.Second, nil); strings.Contains(page, shown) {
		t.Error("a rate over a failure")
	}
}

func TestGroup(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", 1<<64 - 1: "18,446,744,073,709,551,615"} {
		if got := group(n); got != want {
			t.Errorf("group(%s) = %s", strconv.FormatUint(n, 10), got)
		}
	}
}

func TestIsCommand(t *testing.T) {
	for help, want := range map[string]bool{
		"flusso-kafka-admin status --pipeline shop": true, "kafka-transactions.sh abort": true, "kafka-configs --alter": true,
		"Start the sink.": false, "": false, "wait until it ends": false,
	} {
		if got := isCommand(help); got != want {
			t.Errorf("isCommand(%q) = %v", help, got)
		}
	}
}
