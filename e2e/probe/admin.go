package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// built compiles flusso-kafka-admin once for a test binary, for all of them in
// one place: the linker has something to go by then.
var built = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs(filepath.Join("..", "..")) // tests run in the folder of their package
	if err != nil {
		return "", err
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(root)) // a hash takes everything
	bin := filepath.Join(os.TempDir(), fmt.Sprintf("flusso-e2e-%d", os.Getuid()), fmt.Sprintf("flusso-kafka-admin-%08x", h.Sum32()))
	cmd := exec.Command("go", "build", "-ldflags=-w", "-o", bin, "./cmd/flusso-kafka-admin")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build flusso-kafka-admin: %w\n%s", err, out)
	}
	return bin, nil
})

// Admin is flusso-kafka-admin as a person runs it: the binary, with an
// environment of its own. Its methods may be called concurrently.
type Admin struct {
	bin string
	env []string
}

// NewAdmin returns the command line with these variables, NAME=value, and none
// but what a process needs besides.
func NewAdmin(t testing.TB, env ...string) *Admin {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return &Admin{bin, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)}
}

// With returns the same command line with more variables.
func (a *Admin) With(env ...string) *Admin {
	return &Admin{a.bin, append(append([]string(nil), a.env...), env...)}
}

// Answer is what a command left.
type Answer struct {
	Args        []string
	Out, Stderr string
	Code        int
}

// String shows the answer as a terminal would.
func (a Answer) String() string {
	return fmt.Sprintf("$ flusso-kafka-admin %s\n%s%s(exit code %d)", strings.Join(a.Args, " "), a.Out, a.Stderr, a.Code)
}

// Err returns an error for an exit code other than 0.
func (a Answer) Err() error {
	if a.Code == 0 {
		return nil
	}
	return errors.New(a.String())
}

// Run runs one command to its end.
func (a *Admin) Run(ctx context.Context, args ...string) (Answer, error) {
	out := Answer{Args: args}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, a.bin, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = a.env, &stdout, &stderr
	err := cmd.Run()
	out.Out, out.Stderr = stdout.String(), stderr.String()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		out.Code = exit.ExitCode()
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("flusso-kafka-admin %s: %w\n%s%s", strings.Join(args, " "), err, out.Out, out.Stderr)
	}
	return out, nil
}

// Must runs a command and fails the test where it ends with another code.
func (a *Admin) Must(t testing.TB, code int, args ...string) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Wait)
	defer cancel()
	got, err := a.Run(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	if got.Code != code {
		t.Fatalf("want exit code %d\n%s", code, got)
	}
	return got
}

// Command returns a command that runs until the caller ends it, for the server.
func (a *Admin) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, a.bin, args...)
	cmd.Env = a.env
	return cmd
}
