package browser_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/flusso/flusso-kafka/e2e/probe"
)

var (
	shot    = flag.String("screenshot", "", "write the screenshot to this `file`")
	watched = flag.Duration("watched", 3*time.Second, "how `long` to watch the demo before it is taken")
)

// The picture in README is of this page: `make screenshot` takes it anew.
func TestScreenshot(t *testing.T) {
	log := filepath.Join(t.TempDir(), "demo")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() //nolint:errcheck // what was written is read meanwhile
	demo := exec.Command(binary(t), "demo", "--for", "10m", "--data", t.TempDir())
	demo.Stdout, demo.Stderr = out, out
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = demo.Wait()
	}()
	t.Cleanup(func() {
		_ = demo.Process.Signal(os.Interrupt)
		<-ended
	})
	var broker string
	probe.Eventually(t, "the demo names its broker", func(context.Context) error {
		text, err := os.ReadFile(log)
		if m := regexp.MustCompile(`--brokers (127\.0\.0\.1:\d+)`).FindSubmatch(text); m != nil {
			broker = string(m[1])
			return nil
		}
		return errors.Join(err, errors.New("it says "+string(text)))
	})
	s := start(t, "--pipeline", "demo", "--brokers", broker, "--interval", "1s")
	b := open(t, s.url, 1280, 720, "prefers-reduced-motion", "reduce")
	b.wait("both lanes are there", `document.querySelectorAll(".lane").length === 2`)
	b.live()
	// A moment at which the slow sink is behind, as it mostly is, and that lasts
	// until the picture is taken.
	const moment = `document.querySelector("#lane-archive .bar-span") !== null && document.querySelector(".health .big").textContent === "Healthy" &&
		document.querySelector("#lane-search .bar-open") === null ? document.getElementById("main").dataset.id : ""`
	var picture []byte
	began := time.Now()
	probe.Within(t, *watched+time.Minute, "there is something to see", func(ctx context.Context) (err error) {
		before := evaluate[string](b, moment)
		if time.Since(began) < *watched || before == "" {
			return errors.New("too early, or nothing waits")
		}
		if picture, err = chromedp.Run(b.ctx, chromedp.FullScreenshot(100)); err != nil {
			return err
		}
		if evaluate[string](b, moment) != before {
			return errors.New("it changed meanwhile")
		}
		return nil
	})
	decoded, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	if size := decoded.Bounds().Size(); size.X != 1280 || size.Y < 720 {
		t.Errorf("a picture of %v, want the whole page", size)
	}
	if len(picture) > 150<<10 {
		t.Errorf("a picture of %d bytes, want at most 150 KiB", len(picture))
	}
	if *shot != "" {
		if err := os.WriteFile(*shot, picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
