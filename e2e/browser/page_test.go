package browser_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/flusso/flusso-kafka/e2e/probe"
)

// drawn is where things are on the screen.
type drawn struct {
	Mark  string
	Lanes []struct {
		Sink              string
		Left, Right       float64 // of the track
		Floor, Tail, Line float64
		Span              bool
		Batches           string
	}
}

// look reads a page. The ends of a track are those of its rectangle, the floor
// is the middle of its stroke, or the tail where nothing waits.
const look = `(() => {
  const middle = (e) => { const r = e.getBoundingClientRect(); return (r.left + r.right) / 2; };
  return {
    mark: document.getElementById("watermark").textContent,
    lanes: [...document.querySelectorAll(".lane")].map((row) => {
      const track = row.querySelector(".track").getBoundingClientRect();
      const floor = row.querySelector(".floor"), tail = row.querySelector(".tail"), line = row.querySelector(".watermark");
      return {
        sink: row.querySelector(".sink").textContent, left: track.left, right: track.right,
        span: floor !== null, floor: middle(floor || tail), tail: middle(tail), line: line ? middle(line) : -1,
        batches: row.querySelector(".c-batches .value").textContent,
      };
    }),
  };
})()`

// matches compares what is drawn with what the JSON says, by a rule written
// anew: the place is the logarithm of the distance to the newest position, over
// that of the next power of ten, at least 1,000.
func matches(d drawn, a answer) error {
	number := func(s *string) float64 {
		if s == nil {
			return 0
		}
		n, _ := strconv.ParseFloat(*s, 64)
		return n
	}
	newest, oldest := 0.0, math.MaxFloat64
	for _, l := range a.Lanes {
		newest = max(newest, number(l.Tail))
		oldest = min(oldest, number(l.Acked))
	}
	reach := math.Pow(10, math.Max(3, math.Ceil(math.Log10(newest-oldest))))
	if got := strings.ReplaceAll(d.Mark, ",", ""); got != a.Watermark.Position {
		return fmt.Errorf("watermark %s, the JSON says %s", d.Mark, a.Watermark.Position)
	}
	if len(d.Lanes) != len(a.Lanes) {
		return fmt.Errorf("%d lanes, the JSON says %d", len(d.Lanes), len(a.Lanes))
	}
	for i, l := range a.Lanes {
		got := d.Lanes[i]
		place := func(position float64) float64 {
			share := math.Log(1+newest-position) / math.Log(1+reach)
			return got.Right - share*(got.Right-got.Left)
		}
		for _, c := range []struct {
			what      string
			got, want float64
		}{
			{"floor", got.Floor, place(number(l.Acked))},
			{"tail", got.Tail, place(number(l.Tail))},
			{"watermark", got.Line, place(number(&a.Watermark.Position))},
		} {
			if math.Abs(c.got-c.want) > 1.5 {
				return fmt.Errorf("%s: %s at %.1f, the JSON puts it at %.1f", l.Sink, c.what, c.got, c.want)
			}
		}
		if got.Sink != l.Sink || got.Batches != strconv.Itoa(*l.Batches) || got.Span != (*l.Batches > 0) {
			return fmt.Errorf("lane %+v, the JSON says %+v", got, l)
		}
	}
	return nil
}

// agrees waits until the page shows what the JSON says, bars that move included.
func agrees(b *tab, s *served) (last drawn) {
	b.t.Helper()
	probe.Eventually(b.t, "the page shows what the JSON says", func(ctx context.Context) error {
		a, err := s.status(ctx)
		if err != nil {
			return err
		}
		if last, err = chromedp.Run(b.ctx, chromedp.Evaluate[drawn](look)); err != nil {
			return err
		}
		return matches(last, a)
	})
	return last
}

func TestPage_DrawsWhatTheJSONSays_AndMovesWithIt(t *testing.T) {
	w := newWorld(t, "archive", "search")
	w.publish(30)
	archive, search := w.attach("archive"), w.attach("search")
	w.ack(archive, 3)
	w.ack(search, 30)
	s := w.serve()
	b := open(t, s.url, 1280, 800)
	before := agrees(b, s)
	b.live()
	if !before.Lanes[0].Span || before.Lanes[1].Span || before.Lanes[0].Floor != before.Lanes[0].Line {
		t.Errorf("archive is behind and holds the watermark, search has caught up: %+v", before)
	}

	// Live: the document stays, what is in it moves.
	evaluate[bool](b, `window.same = true`)
	evaluate[bool](b, `document.querySelectorAll(".watermark").forEach((e) => { e.kept = true; }), true`)
	w.ack(archive, 14) // not so far that the axis reaches less
	b.wait("the watermark has moved", `document.getElementById("watermark").textContent === "1,700"`)
	after := agrees(b, s)
	if after.Lanes[0].Floor <= before.Lanes[0].Floor || after.Lanes[1].Line <= before.Lanes[1].Line {
		t.Errorf("floor and line went from %+v to %+v", before, after)
	}
	w.publish(1)
	b.wait("search is behind by one", `document.querySelector("#lane-search .c-batches .value").textContent === "1"`)
	agrees(b, s)
	w.ack(archive, 14)
	w.ack(search, 1)
	b.wait("nothing waits", `document.querySelectorAll(".bar-done").length === 2`)
	if last := agrees(b, s); last.Mark != "3,100" {
		t.Errorf("watermark %s", last.Mark)
	}
	if !evaluate[bool](b, `window.same === true`) {
		t.Error("the page was loaded anew")
	}
	// A shape that became another would be seen to turn into it.
	if n := evaluate[int](b, `[...document.querySelectorAll(".watermark")].filter((e) => !e.kept).length`); n > 0 {
		t.Errorf("%d lines of the watermark were something else before", n)
	}
	if n := evaluate[int](b, `document.querySelectorAll("#lane-archive .curve .stroke").length`); n != 2 {
		t.Errorf("%d curves, want batches and seconds", n)
	}
}

func TestPage_ShowsFindings_WhenASinkStops(t *testing.T) {
	w := newWorld(t, "archive", "search")
	w.publish(5)
	archive, search := w.attach("archive"), w.attach("search")
	w.ack(archive, 2)
	w.ack(search, 5)
	s := w.serve()
	b := open(t, s.url, 1280, 800)
	b.live()
	b.wait("all is well", `document.querySelector(".health .big").textContent === "Healthy"`)

	closing(archive.Close)
	b.wait("a finding names the sink", `[...document.querySelectorAll(".finding")].some((f) => f.textContent.includes("archive"))`)
	a, err := s.status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a.Healthy || len(a.Findings) == 0 {
		t.Fatalf("the JSON says %+v", a)
	}
	// In the order of the JSON, each with what helps, by word and by form.
	texts := evaluate[[]string](b, `[...document.querySelectorAll(".finding")].map((f) => f.innerText)`)
	if len(texts) != len(a.Findings) {
		t.Fatalf("%d findings on the page, %d in the JSON", len(texts), len(a.Findings))
	}
	for i, f := range a.Findings {
		for _, want := range []string{f.Severity, f.Sink, f.Help} {
			if !strings.Contains(texts[i], want) {
				t.Errorf("finding %d shows %q, want %q in it", i, texts[i], want)
			}
		}
	}
	b.wait("it is read out", `document.getElementById("announce").textContent.includes("archive")`)
	if title := evaluate[string](b, `document.title`); strings.HasPrefix(title, "Healthy") {
		t.Errorf("title %q", title)
	}

	w.ack(w.attach("archive"), 3)
	b.wait("it is gone", `document.querySelectorAll(".finding").length === 0 && document.getElementById("announce").textContent === "All findings are gone."`)
}

func TestPage_ComesBack_WhenTheServerDoes(t *testing.T) {
	w := newWorld(t, "search")
	w.publish(4)
	in := w.attach("search")
	w.ack(in, 1)
	s := w.serve()
	b := open(t, s.url, 1280, 800)
	b.live()
	evaluate[bool](b, `window.same = true`)
	b.expect("net::ERR_|Failed to load resource")

	s.stop()
	b.wait("it says that it is lost", `document.getElementById("live").dataset.state === "lost" && document.getElementById("live-text").textContent.includes("lost")`)
	if !evaluate[bool](b, `document.querySelectorAll(".lane").length === 1`) {
		t.Error("what was known is gone")
	}
	w.ack(in, 3)
	again := w.serve("--listen", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/"))
	b.live()
	b.wait("it shows what happened meanwhile", `document.getElementById("watermark").textContent === "400"`)
	agrees(b, again)
	if !evaluate[bool](b, `window.same === true`) {
		t.Error("the page was loaded anew")
	}
}

// A cluster that answers no more is no news of now: the page says so.
func TestPage_SaysThatAReportIsStale(t *testing.T) {
	w := newWorld(t, "search")
	w.publish(4)
	w.ack(w.attach("search"), 4)
	s := w.serve("--timeout", "1s")
	b := open(t, s.url, 1280, 800)
	b.live()
	w.cluster.Kfake().Close()
	b.wait("it says that it is stale, and why", `document.querySelector("main.stale") !== null && document.getElementById("finding-stale").innerText.includes("Collecting a newer report failed")`)
	if state := evaluate[string](b, `document.querySelector(".health .big").textContent`); state != "Stale" {
		t.Errorf("health %q", state)
	}
	if bad := evaluate[[]string](b, contrasts); len(bad) > 0 {
		t.Errorf("too little contrast: %v", bad)
	}
	if _, err := s.status(t.Context()); err == nil {
		t.Error("status.json still answers with the report before")
	}
}

func TestPage_SignsIn(t *testing.T) {
	const token = "d5f2b9c0a1e84f67"
	w := newWorld(t, "search")
	w.publish(1)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := w.serve("--token-file", file)
	b := open(t, s.url, 1280, 800)
	b.expect("401")
	if at := evaluate[string](b, `location.pathname`); at != "/sign-in" {
		t.Fatalf("without a token it opens %s", at)
	}
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), "nonsense"+kb.Enter))
	b.wait("it is refused", `document.getElementById("refused") !== null`)
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), token+kb.Enter))
	b.wait("it is let in", `document.querySelectorAll(".lane").length === 1`)
	b.live()
	if seen := evaluate[string](b, `document.cookie`); seen != "" {
		t.Errorf("a script sees the cookie %q", seen)
	}
	b.mu.Lock()
	for _, r := range b.requests {
		if strings.Contains(r, token) {
			t.Errorf("the token is in an address: %s", r)
		}
	}
	b.mu.Unlock()
	b.do(chromedp.Click(chromedp.CSS("footer button")))
	b.wait("it is let out", `location.pathname === "/sign-in"`)
}

// Behind a proxy the page may lie below a path; docs/operating.md says so.
func TestPage_WorksBelowAPath(t *testing.T) {
	const token = "d5f2b9c0a1e84f67"
	w := newWorld(t, "search")
	w.publish(2)
	in := w.attach("search")
	w.ack(in, 1)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(w.serve("--token-file", file).url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.StripPrefix("/shop", proxy))
	t.Cleanup(server.Close)
	b := open(t, server.URL+"/shop/", 1280, 800)
	b.expect("net::ERR_")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), token+kb.Enter))
	b.wait("it is let in", `location.pathname === "/shop/" && document.querySelectorAll(".lane").length === 1`)
	b.live()
	w.ack(in, 1)
	b.wait("the watermark has moved", `document.getElementById("watermark").textContent === "200"`)
	b.do(chromedp.Navigate("about:blank")) // or its connection would keep the proxy from closing
}

func TestPage_WorksWithoutScripts(t *testing.T) {
	w := newWorld(t, "archive", "search")
	w.publish(3)
	w.ack(w.attach("archive"), 1)
	w.ack(w.attach("search"), 3)
	s := w.serve()
	probe.Eventually(t, "there is a report", func(ctx context.Context) error {
		_, err := s.status(ctx)
		return err
	})
	b := blank(t, 1280, 800)
	b.do(send(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	b.goTo(s.url)
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"archive", "behind", "search", "caught-up", "Healthy", "100", "reload"} {
		if !strings.Contains(text, want) {
			t.Errorf("without scripts the page lacks %q:\n%s", want, text)
		}
	}
}

// wide is how far the page reaches beyond its window.
const wide = `document.documentElement.scrollWidth - document.documentElement.clientWidth`

func TestPage_FitsEveryWindow(t *testing.T) {
	for _, lanes := range []int{1, 200} {
		sinks := make([]string, lanes)
		for i := range sinks {
			sinks[i] = fmt.Sprintf("a-sink-with-a-rather-long-name-that-somebody-chose-%03d", i)
		}
		w := newWorld(t, sinks...)
		w.publish(2)
		w.ack(w.attach(sinks[0]), 1)
		s := w.serve()
		for _, width := range []int64{320, 400, 768, 1280, 2560} {
			t.Run(fmt.Sprintf("%d lanes at %d px", lanes, width), func(t *testing.T) {
				b := open(t, s.url, width, 800)
				b.live()
				b.wait("all lanes are there", fmt.Sprintf(`document.querySelectorAll(".lane").length === %d`, lanes))
				if over := evaluate[int](b, wide); over > 0 {
					t.Errorf("the page scrolls sideways by %d px", over)
				}
				// Nothing is cut off by its own box either.
				if cut := evaluate[[]string](b, `[...document.querySelectorAll("main *")].filter((e) => !e.closest("svg, .unseen, thead") && getComputedStyle(e).overflowX !== "visible" && e.scrollWidth > e.clientWidth).map((e) => e.className)`); len(cut) > 0 {
					t.Errorf("cut off: %v", cut)
				}
			})
		}
	}
}

func TestPage_CopiesACommand(t *testing.T) {
	w := newWorld(t, "archive")
	w.publish(3)
	closing(w.attach("archive").Close)
	s := w.serve()
	b := open(t, s.url, 1280, 800)
	b.wait("a finding has a command", `document.querySelector(".finding .copy") !== null`)
	want := evaluate[string](b, `document.querySelector(".finding code").textContent`)
	evaluate[bool](b, `navigator.clipboard.writeText = async (text) => { window.copied = text; }, true`)
	// What the button says is noted when it says so: it does for two seconds.
	evaluate[bool](b, `window.said = "", new MutationObserver(() => {
		window.said += document.querySelector(".finding .copy")?.textContent + "\n";
	}).observe(document.body, {subtree: true, childList: true, characterData: true}), true`)
	b.do(chromedp.Click(chromedp.CSS(".finding .copy")))
	b.wait("it was copied", `window.copied !== undefined`)
	if got := evaluate[string](b, `window.copied`); got != want || got == "" {
		t.Errorf("copied %q, want %q", got, want)
	}
	b.wait("it says so", `window.said.includes("Copied")`)
}
