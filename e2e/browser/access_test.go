package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// heard is a node as a screen reader gets it.
type heard struct {
	role, name, description string
	properties              map[string]string
	parent                  string
}

// listen returns the accessibility tree without what is ignored.
func listen(b *tab) []heard {
	b.t.Helper()
	tree, err := chromedp.Run(b.ctx, chromedp.Action[accessibility.GetFullAXTreeResult](
		func(ctx context.Context, target *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
			return cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		}))
	if err != nil {
		b.t.Fatal(err)
	}
	text := func(v *accessibility.Value) string {
		if v == nil {
			return ""
		}
		var s any
		if err := json.Unmarshal(v.Value, &s); err != nil || s == nil {
			return ""
		}
		return fmt.Sprint(s)
	}
	roles := make(map[accessibility.NodeID]string)
	var all []heard
	for _, n := range tree.Nodes {
		roles[n.NodeID] = text(n.Role)
		if n.Ignored {
			continue
		}
		h := heard{role: text(n.Role), name: text(n.Name), description: text(n.Description), properties: make(map[string]string), parent: roles[n.ParentID]}
		for _, p := range n.Properties {
			h.properties[string(p.Name)] = text(p.Value)
		}
		all = append(all, h)
	}
	return all
}

func find(all []heard, role, name string) *heard {
	i := slices.IndexFunc(all, func(h heard) bool { return h.role == role && strings.Contains(h.name, name) })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// stuck is a pipeline with every kind of thing on its page.
func stuck(t *testing.T) (*world, *served) {
	t.Helper()
	w := newWorld(t, "archive", "search")
	w.publish(5)
	w.ack(w.attach("search"), 4)
	archive := w.attach("archive")
	w.ack(archive, 1)
	closing(archive.Close)
	return w, w.serve()
}

const somethingFound = `document.querySelector(".finding .copy") !== null && document.getElementById("live").dataset.state === "live"`

func TestAccess_WhatAScreenReaderGets(t *testing.T) {
	_, s := stuck(t)
	for _, width := range []int64{1280, 400} {
		t.Run(fmt.Sprintf("%d px", width), func(t *testing.T) {
			b := open(t, s.url, width, 800)
			b.wait("something is found", somethingFound)
			all := listen(b)
			for _, want := range []struct{ role, name string }{
				{"banner", ""},
				{"main", ""},
				{"contentinfo", ""},
				{"heading", "Pipeline shop"},
				{"heading", "Health"},
				{"heading", "Watermark"},
				{"heading", "Findings"},
				{"heading", "Lanes"},
				{"heading", "Requests"},
				{"heading", "Writer"},
				{"region", "Lanes"},
				{"region", "Findings"},
				{"region", "Requests"},
				{"region", "Writer"},
				{"table", ""},
				{"columnheader", "batches waiting"},
				{"rowheader", "archive"},
				{"rowheader", "search"},
				{"image", "acked 100, tail 500: 400 positions wait"},
				{"image", "acked 400, tail 500: 100 positions wait"},
				{"image", "now 4, at most 4 over the last 10 minutes"},
				{"link", "Skip to the lanes"},
				{"link", "archive"},
				{"button", "Copy the command"},
				{"status", ""},
				{"list", ""},
				{"listitem", ""},
			} {
				if find(all, want.role, want.name) == nil {
					t.Errorf("there is no %s %q", want.role, want.name)
				}
			}
			if n := count(all, "row"); n != 3 {
				t.Errorf("%d rows, want the heading and two lanes", n)
			}
			if n := count(all, "cell"); n != 6 {
				t.Errorf("%d cells, want three for each lane", n)
			}
			live := 0
			for _, h := range all {
				switch h.role {
				case "image", "link", "button", "heading", "region", "rowheader", "columnheader":
					if strings.TrimSpace(h.name) == "" {
						t.Errorf("a %s without a name: %+v", h.role, h)
					}
				}
				if p := h.properties["live"]; p != "" && p != "off" && h.role == "status" {
					live++
					if p != "polite" {
						t.Errorf("a live region is %s", p)
					}
				}
			}
			if live != 1 {
				t.Errorf("%d live regions, want that of the findings alone", live)
			}
		})
	}
}

func count(all []heard, role string) (n int) {
	for _, h := range all {
		if h.role == role {
			n++
		}
	}
	return n
}

func TestAccess_EverythingIsReachedByKeyboard(t *testing.T) {
	_, s := stuck(t)
	b := open(t, s.url, 1280, 800)
	b.wait("something is found", somethingFound)
	var reached []string
	for range 30 {
		b.do(send(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Key: "Tab", Code: "Tab", WindowsVirtualKeyCode: 9}))
		at := evaluate[string](b, `document.activeElement === document.body ? "" : document.activeElement.innerText + "|" + getComputedStyle(document.activeElement).outlineStyle`)
		if at == "" {
			break
		}
		name, outline, _ := strings.Cut(at, "|")
		if outline == "none" {
			t.Errorf("%q has the focus and does not show it", name)
		}
		reached = append(reached, strings.TrimSpace(name))
	}
	for _, want := range []string{"Skip to the lanes", "archive", "Copy", "status.json", "metrics"} {
		if !slices.ContainsFunc(reached, func(r string) bool { return strings.HasPrefix(r, want) }) {
			t.Errorf("the keyboard does not reach %q: %v", want, reached)
		}
	}

	// What has the focus keeps it when the page is renewed.
	b.do(chromedp.Focus(chromedp.CSS(".finding .copy")))
	id := evaluate[string](b, `document.getElementById("main").dataset.id`)
	b.wait("there is a newer report", fmt.Sprintf(`document.getElementById("main").dataset.id !== %q`, id))
	if !evaluate[bool](b, `document.activeElement.matches(".finding .copy")`) {
		t.Error("the focus is lost with a newer report")
	}
	b.do(chromedp.KeyEvent(kb.Escape))
}

// contrasts returns each text whose contrast with what is behind it is below
// what WCAG 2 AA asks for.
const contrasts = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] === 255) return c;
    }
    return rgba("white");
  };
  const bad = [];
  let seen = 0;
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.nodeValue.trim());
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!own || box.width < 2 || style.visibility === "hidden" || e.closest(".unseen, .skip, [aria-hidden=true]:not(svg)")) continue;
    seen++;
    for (let p = e; p; p = p.parentElement) if (getComputedStyle(p).opacity < 1) bad.push(e.textContent.trim().slice(0, 40) + ": not opaque");
    const text = rgba(e instanceof SVGElement ? style.fill : style.color), ground = behind(e);
    const [a, b] = [light(text), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const large = size >= 24 || size >= 18.66 && Number(style.fontWeight) >= 700;
    if (ratio < (large ? 3 : 4.5)) bad.push(e.textContent.trim().slice(0, 40) + ": " + ratio.toFixed(2));
  }
  return seen < 20 ? ["only " + seen + " texts were seen"] : bad;
})()`

func TestAccess_ContrastInBothSchemes(t *testing.T) {
	_, s := stuck(t)
	grounds := make(map[string]bool)
	for _, scheme := range []string{"light", "dark"} {
		b := open(t, s.url, 1280, 800, "prefers-color-scheme", scheme)
		b.wait("something is found", somethingFound)
		if bad := evaluate[[]string](b, contrasts); len(bad) > 0 {
			t.Errorf("%s: too little contrast: %v", scheme, bad)
		}
		grounds[evaluate[string](b, `getComputedStyle(document.body).backgroundColor`)] = true
	}
	if len(grounds) != 2 {
		t.Errorf("both schemes have the ground %v", grounds)
	}
}

// Each state and severity is a word and a form, not a colour alone.
func TestAccess_NothingIsSaidByColourAlone(t *testing.T) {
	_, s := stuck(t)
	b := open(t, s.url, 1280, 800, "forced-colors", "active")
	b.wait("something is found", somethingFound)
	type said struct{ Word, Form string }
	for _, where := range []string{".lane .state", ".finding"} {
		all := evaluate[[]said](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => ({ word: e.innerText.replace(e.querySelector(".shape").textContent, "").trim(), form: e.querySelector(".shape").textContent }))`, where))
		if len(all) == 0 {
			t.Errorf("nothing at %s", where)
		}
		for _, e := range all {
			if e.Word == "" || e.Form == "" {
				t.Errorf("%s: %+v", where, e)
			}
		}
	}
	if kinds := evaluate[int](b, `new Set([...document.querySelectorAll(".lane .bar")].map((e) => e.getAttribute("class"))).size`); kinds != 1 {
		t.Errorf("%d kinds of bars for two lanes that are behind", kinds)
	}
}

func TestAccess_ReducedMotion(t *testing.T) {
	_, s := stuck(t)
	moving := `[...document.querySelectorAll("body *")].filter((e) => { const c = getComputedStyle(e); return c.animationName !== "none" || c.transitionDuration !== "0s"; }).length`
	for value, moves := range map[string]bool{"reduce": false, "no-preference": true} {
		b := open(t, s.url, 1280, 800, "prefers-reduced-motion", value)
		b.wait("something is found", somethingFound)
		if n := evaluate[int](b, moving); (n > 0) != moves {
			t.Errorf("prefers-reduced-motion: %s: %d elements move", value, n)
		}
	}
}
