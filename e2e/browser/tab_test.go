package browser_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/flusso/flusso-kafka/e2e/probe"
)

// tab is a tab of its own: no other shares its cookies. At the end of the test
// the page must have thrown nothing, broken no policy, logged no warning, and
// asked no other origin.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp's handle is a context

	mu       sync.Mutex
	problems []string
	requests []string // their addresses
	expected *regexp.Regexp
}

func open(t *testing.T, at string, width, height int64, media ...string) *tab {
	t.Helper()
	b := blank(t, width, height, media...)
	b.goTo(at)
	return b
}

// blank is a tab that has opened nothing. media are pairs of feature and value.
func blank(t *testing.T, width, height int64, media ...string) *tab {
	t.Helper()
	b := &tab{t: t}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	t.Cleanup(cancel)
	b.ctx = ctx
	var features []*emulation.MediaFeature
	for i := 0; i < len(media); i += 2 {
		features = append(features, &emulation.MediaFeature{Name: media[i], Value: media[i+1]})
	}
	b.do(
		send(log.Enable, cdp.Empty{}),
		send(network.Enable, network.EnableParams{}),
		send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}),
		chromedp.EmulateViewport(width, height),
	)
	t.Cleanup(b.check)
	return b
}

// send is a protocol command as an action.
func send[P, R any](cmd cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, cmd, params)
		return err
	})
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.problems = append(b.problems, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, fmt.Sprintf("console.%s: %v", e.Type, e.Args))
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Text)
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

// expect lets problems pass that a test causes.
func (b *tab) expect(pattern string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = regexp.MustCompile(pattern)
}

func (b *tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		if b.expected == nil || !b.expected.MatchString(p) {
			b.t.Errorf("the browser says: %s", p)
		}
	}
	if len(b.requests) == 0 {
		b.t.Error("no request was seen at all")
	}
	for _, r := range b.requests {
		if u, err := url.Parse(r); err != nil || u.Hostname() != "127.0.0.1" {
			b.t.Errorf("the page asked %s", r)
		}
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) goTo(at string) {
	b.t.Helper()
	b.do(chromedp.Navigate(at), chromedp.WaitReady(chromedp.CSS("main")))
}

// evaluate returns what a script gives.
func evaluate[T any](b *tab, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// wait polls a script until it gives true.
func (b *tab) wait(what, script string) {
	b.t.Helper()
	probe.Within(b.t, 30*time.Second, what, func(context.Context) error {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](script))
		if err != nil {
			return err
		}
		if !ok {
			text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : "nothing yet"`))
			return errors.Join(errors.New("the page shows "+strings.Join(strings.Fields(text), " ")), err)
		}
		return nil
	})
}

// live waits until the page follows events.
func (b *tab) live() {
	b.t.Helper()
	b.wait("the page is live", `document.getElementById("live").dataset.state === "live"`)
}
