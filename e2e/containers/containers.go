// Package containers runs real Apache Kafka and PostgreSQL servers in
// containers for the end-to-end tests. Kafka and Postgres start one for a
// single test, Shared starts one broker for a whole test binary, whose TestMain
// is Main then.
//
// Nothing here skips: where no container engine answers, the tests fail and say
// what to do.
package containers

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-connections/nat"
	"github.com/testcontainers/testcontainers-go"
	tcexec "github.com/testcontainers/testcontainers-go/exec"
)

// startTimeout bounds every start of a server; it takes seconds.
const startTimeout = 2 * time.Minute

// The scripts travel in the test binary: it may run in any folder.
//
//go:embed engine.sh images.sh kafka postgres
var scripts embed.FS

// Main runs the tests of a package that uses Shared, and stops the shared
// broker after the last of them:
//
//	func TestMain(m *testing.M) { containers.Main(m) }
func Main(m *testing.M) {
	mainRuns = true
	code := m.Run()
	stopShared()
	os.Exit(code)
}

// answers makes sure that a container engine does.
var answers = sync.OnceValue(func() error {
	_, err := script("engine.sh", "status")
	return err
})

// environment tells testcontainers how to use the engine. That depends on where
// the images come from, so it is asked once there is one.
var environment = sync.OnceValue(func() error {
	out, err := script("engine.sh", "env")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if _, set := os.LookupEnv(name); !set {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	return nil
})

// image builds or finds the image that `images.sh args...` names.
func image(args ...string) (string, error) {
	if err := answers(); err != nil {
		return "", err
	}
	out, err := script("images.sh", args...)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(out), environment()
}

// script runs one of the embedded scripts and returns what it prints.
func script(name string, args ...string) (string, error) {
	dir, err := os.MkdirTemp("", "flusso-e2e-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.CopyFS(dir, scripts); err != nil {
		return "", err
	}
	cmd := exec.Command("bash", append([]string{filepath.Join(dir, name)}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// server is a container with one published port that stays the same.
type server struct {
	testcontainers.Container
	docker *testcontainers.DockerClient
	host   string
	port   string
	ready  func(context.Context) error
}

// run starts a container whose inner port is published at a fixed port of the
// host. Docker would pick another one at each restart, and a broker goes on
// advertising the first.
func run(ctx context.Context, inner nat.Port, start func(context.Context, testcontainers.ContainerCustomizer) (testcontainers.Container, error)) (*server, error) {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		c, err := start(ctx, testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
			hc.PortBindings = nat.PortMap{inner: {{HostPort: port}}}
		}))
		if err == nil {
			s := &server{Container: c, docker: docker, port: port}
			s.host, err = c.Host(ctx)
			if s.host == "localhost" {
				s.host = "127.0.0.1"
			}
			return s, err
		}
		// Another process may have been faster in taking the port.
		taken := strings.Contains(err.Error(), "port is already allocated") || strings.Contains(err.Error(), "address already in use")
		err = errors.Join(err, discard(docker, c))
		if !taken || attempt == 5 {
			return nil, err
		}
	}
}

// freePort is one below those that the kernel gives to outgoing connections:
// none of these may sit on it while the server is down.
func freePort() (string, error) {
	for range 100 {
		port := fmt.Sprint(20000 + rand.IntN(12000))
		l, err := net.Listen("tcp", ":"+port)
		if err == nil {
			return port, l.Close()
		}
	}
	return "", errors.New("no free port found")
}

func discard(docker *testcontainers.DockerClient, c testcontainers.Container) error {
	if c == nil || c.GetContainerID() == "" {
		return nil
	}
	return docker.ContainerRemove(context.Background(), c.GetContainerID(), container.RemoveOptions{Force: true, RemoveVolumes: true})
}

func (s *server) addr() string { return net.JoinHostPort(s.host, s.port) }

// Start starts the server again after Stop or Kill, with the data it had and at
// the same address, and waits until it serves.
func (s *server) Start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.docker.ContainerStart(ctx, s.GetContainerID(), container.StartOptions{}); err != nil {
		t.Fatalf("containers: start: %v", err)
	}
	if err := s.await(ctx); err != nil {
		t.Fatalf("containers: started again, but %v\n%s", err, s.tail())
	}
}

// await polls until the server serves.
func (s *server) await(ctx context.Context) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := s.ready(attempt)
		cancel()
		if err == nil {
			return nil
		}
		// One that has ended will not serve however long one waits.
		if state, err := s.State(ctx); err == nil && !state.Running {
			return fmt.Errorf("it has ended, exit code %d", state.ExitCode)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not serve: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Kill ends the server with SIGKILL, as a crash does, and returns when it is
// gone.
func (s *server) Kill(t testing.TB) {
	t.Helper()
	if err := s.docker.ContainerKill(t.Context(), s.GetContainerID(), "KILL"); err != nil {
		t.Fatalf("containers: kill: %v", err)
	}
	s.awaitExit(t)
}

func (s *server) awaitExit(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	exited, failed := s.docker.ContainerWait(ctx, s.GetContainerID(), container.WaitConditionNotRunning)
	select {
	case <-exited:
	case err := <-failed:
		t.Fatalf("containers: the server does not end: %v", err)
	}
}

// Pause freezes the server: it accepts connections, by way of the kernel, and
// answers none of them.
func (s *server) Pause(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for {
		err := s.docker.ContainerPause(ctx, s.GetContainerID())
		if err == nil {
			return
		}
		// On a busy machine the freezer gives up after a while: "unable to freeze".
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("containers: pause: %v", err)
		}
		if !strings.Contains(err.Error(), "unable to freeze") {
			t.Fatalf("containers: pause: %v", err)
		}
	}
}

// Unpause lets a paused server go on.
func (s *server) Unpause(t testing.TB) {
	t.Helper()
	if err := s.docker.ContainerUnpause(t.Context(), s.GetContainerID()); err != nil {
		t.Fatalf("containers: unpause: %v", err)
	}
}

// Exec runs a command in the container and returns what it prints; a command
// that fails fails the test.
func (s *server) Exec(t testing.TB, args ...string) string {
	t.Helper()
	code, out, err := s.Container.Exec(t.Context(), args, tcexec.Multiplexed())
	if err != nil {
		t.Fatalf("containers: exec %q: %v", args, err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(out); err != nil {
		t.Fatalf("containers: exec %q: %v", args, err)
	}
	if code != 0 {
		t.Fatalf("containers: exec %q: exit code %d\n%s", args, code, &text)
	}
	return text.String()
}

// Logs returns all that the server has printed since the container was made.
func (s *server) Logs(t testing.TB) string {
	t.Helper()
	text, err := s.logs()
	if err != nil {
		t.Fatalf("containers: logs: %v", err)
	}
	return text
}

func (s *server) logs() (string, error) {
	r, err := s.Container.Logs(context.Background())
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	_, err = text.ReadFrom(r)
	return text.String(), errors.Join(err, r.Close())
}

// tail is the end of the log, for the message of a failed test.
func (s *server) tail() string {
	text, err := s.logs()
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// cleanup removes the container at the end of a test, and shows the end of its
// log if the test has failed.
func (s *server) cleanup(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", s.tail())
		}
		if err := discard(s.docker, s.Container); err != nil {
			t.Errorf("containers: %v", err)
		}
	})
}
