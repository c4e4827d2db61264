//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

// terminal is a process whose output is on a terminal, which is its
// controlling one. Its input is a pipe.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   *os.File // where its input is written
	side *os.File // our side of the terminal
	read chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

// onPty starts the program on a terminal of so many columns.
func onPty(t *testing.T, columns uint16, env []string, args ...string) *terminal {
	t.Helper()
	in, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() //nolint:errcheck // the process has its own
	c := &terminal{t: t, cmd: exec.Command("flusso-kafka-admin", args...), in: write, read: make(chan struct{})}
	c.cmd.Env, c.cmd.Stdin = append(env, "TERM=xterm"), in
	// Where this process ignores it, nohup-like, the one that it starts would, too.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	// Standard input is no terminal: standard output says which one controls.
	c.side, err = pty.StartWithAttrs(c.cmd, &pty.Winsize{Rows: 24, Cols: columns}, &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.read)
		_, _ = io.Copy(c, c.side) // it ends with the process
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		_ = c.in.Close()
		_ = c.side.Close()
		<-c.read
	})
	return c
}

// Write implements [io.Writer] for what the process shows.
func (c *terminal) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(b)
}

func (c *terminal) shown() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

func (c *terminal) types(text string) {
	c.t.Helper()
	if _, err := c.in.WriteString(text); err != nil {
		c.t.Fatal(err)
	}
}

// shows waits until what is shown matches.
func (c *terminal) shows(pattern string) {
	c.t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(c.t, func() bool { return re.MatchString(c.shown()) }, func() string { return "shown is " + c.shown() + ", want " + pattern })
}

// ends waits for the end of the process, and returns its exit code.
func (c *terminal) ends() int {
	c.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	select {
	case err := <-ended:
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			c.t.Fatal(err)
		}
	case <-time.After(time.Minute):
		c.t.Fatalf("it does not end; shown is %s", c.shown())
	}
	return c.cmd.ProcessState.ExitCode()
}

func eventually(t *testing.T, is func() bool, what func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(what())
		}
	}
}

// feedWorld is a broker with a feed, and an environment in which commands find
// it.
func feedWorld(t *testing.T) (env []string, do func(code int, args ...string) string) {
	t.Helper()
	c := kfaketest.NewTCP(t)
	env = append(os.Environ(), connect.EnvBrokers+"="+strings.Join(c.Addrs(), ","), "GORACE=atexit_sleep_ms=10", "FLUSSO_KAFKA_CONFIG=", "HOME="+t.TempDir(), "XDG_CONFIG_HOME=")
	do = func(code int, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "flusso-kafka-admin", args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	do(0, "feed", "create", "orders", "--bucket", t.TempDir(), "--yes")
	return env, do
}

// E18: on a terminal append shows how far it is, on one line that fits, and
// takes it away at the end. Ctrl-C leaves the stream or seals it.
func TestE18_AppendOnATerminal(t *testing.T) {
	for _, tt := range []struct {
		name, interrupt string
		code            int
		want            []string // shown at the end
		stream          string   // as the feed is described afterwards
	}{
		{"leave", "leave", 1, []string{"appended to stream 1, which is not sealed", "interrupted: durable in stream 1 of feed orders", "append orders --resume"}, "abandoned"},
		{"seal", "seal", 0, []string{"appended to stream 1, sealed as commit 1"}, "commits  1, of 1 stream"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env, do := feedWorld(t)
			const columns = 50
			c := onPty(t, columns, env, "append", "orders", "--from", "-", "--on-interrupt", tt.interrupt)
			c.types("one\ntwo\n")
			c.shows(`\r2 records, 6 B durable in stream 1, `)
			c.types(strings.Repeat("more\n", 1000))
			c.shows(`\r1002 records, `)
			for part := range strings.SplitSeq(c.shown(), "\r") {
				if text := ansi.Strip(part); ansi.StringWidth(text) >= columns || strings.Contains(text, "\n") {
					t.Errorf("progress is %q: it does not fit %d columns", text, columns)
				}
			}
			if _, err := c.side.WriteString("\x03"); err != nil { // Ctrl-C
				t.Fatal(err)
			}
			if code := c.ends(); code != tt.code {
				t.Errorf("exit code %d: %s", code, c.shown())
			}
			<-c.read
			progress, rest, cleared := strings.Cut(c.shown(), "\r"+ansi.EraseLineRight)
			if !cleared || strings.Contains(rest, "durable in stream 1, ") || strings.Contains(progress, "appended") {
				t.Errorf("the progress stays: %q", c.shown())
			}
			for _, want := range tt.want {
				if !strings.Contains(strings.Join(strings.Fields(rest), " "), want) {
					t.Errorf("shown is %s, want %q", rest, want)
				}
			}
			if got := do(0, "feed", "describe", "orders"); !strings.Contains(got, tt.stream) || !strings.Contains(got, "nobody") {
				t.Errorf("afterwards it is\n%s", got)
			}
		})
	}
}

// E18: what stops a pipe: its writer ends, its reader ends, the terminal goes
// away. What was read is durable, and nobody holds the feed any more.
func TestE18_AppendWhoseSurroundingsGoAway(t *testing.T) {
	t.Parallel()
	env, do := feedWorld(t)
	described := func(want ...string) {
		t.Helper()
		got := do(0, "feed", "describe", "orders")
		for _, text := range append(want, "nobody") {
			if !strings.Contains(got, text) {
				t.Errorf("it is\n%s, want %q", got, text)
			}
		}
	}
	// The terminal: the stream is left, as with Ctrl-C.
	c := onPty(t, 80, env, "append", "orders", "--from", "-")
	c.types("one\n")
	c.shows(`\r1 record, `)
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if code := c.ends(); code != exitFailed {
		t.Errorf("exit code %d without its terminal: %s", code, c.shown())
	}
	described("abandoned", "1    3 B")

	// The writer: its end is the end of the input, and the stream is sealed.
	c = onPty(t, 80, env, "append", "orders", "--from", "-", "--resume")
	c.types("two\n")
	c.shows(`\r1 record, `)
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	if code := c.ends(); code != exitFine {
		t.Errorf("exit code %d behind the end of its input: %s", code, c.shown())
	}
	described("commits  1, of 1 stream")

	// The reader of the answer: all was done before.
	out, closed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	defer closed.Close() //nolint:errcheck // nobody reads it
	cmd := exec.CommandContext(t.Context(), "flusso-kafka-admin", "append", "orders", "--record", "three")
	cmd.Env, cmd.Stdout = env, closed
	if err := cmd.Run(); err == nil {
		t.Error("nobody reads the answer, and that is fine")
	}
	described("commits  2, of 2 streams")
	if got := do(0, "read", "orders", "--output", "values"); got != "one\ntwo\nthree\n" {
		t.Errorf("the feed holds %q", got)
	}
}
