// Package browser_test opens the page of flusso-kafka-admin serve in Chromium:
// the real binary, a broker in this process, a real browser.
package browser_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "flusso-e2e-bin-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "flusso-kafka-admin")
	cmd := exec.Command("go", "build", "-ldflags=-w", "-o", bin, "./cmd/flusso-kafka-admin")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build flusso-kafka-admin: %w\n%s", err, out)
	}
	return bin, nil
})

// binary builds the command once.
func binary(t *testing.T) string {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// browser is the one that all tests open tabs in, with a fresh profile.
var browser context.Context

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	name, err := chromium()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	profile, err := os.MkdirTemp("", "flusso-e2e-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(profile) }()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(name), chromedp.UserDataDir(profile), chromedp.DisableGPU, chromedp.WindowSize(1280, 800),
		chromedp.Flag("disable-quic", true), chromedp.Flag("no-first-run", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // root has none
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil { // starts it
		fmt.Fprintf(os.Stderr, "start %s: %v\n", name, err)
		return 1
	}
	browser = ctx //nolint:fatcontext // chromedp's handle of the browser is a context
	code := m.Run()
	if bin, err := built(); err == nil {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	return code
}

func chromium() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium: e2e/setup.sh installs it on Debian and Ubuntu; elsewhere put chromium or google-chrome into PATH")
}
