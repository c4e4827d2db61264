// Package pgtest starts a throw-away PostgreSQL server for the tests of a
// package: see [Main] and [Database].
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

var server struct {
	once sync.Once
	err  error
	dir  string
	url  string // without a database
	cmd  *exec.Cmd
	done chan error
}

var databases atomic.Int64

// Main runs the tests of a package and stops the server, if one was started.
// It returns the exit code.
func Main(m *testing.M) int {
	defer stop()
	return m.Run()
}

// Database creates an empty database on the server of this test binary, which
// the first call starts, and returns its connection string, for a superuser.
// Where PostgreSQL is not installed the test fails with the way out.
func Database(t testing.TB) string {
	t.Helper()
	server.once.Do(func() { server.err = start() })
	if server.err != nil {
		t.Fatalf("this test needs a PostgreSQL server: %v", server.err)
	}
	name := fmt.Sprintf("t%d", databases.Add(1))
	conn, err := pgx.Connect(t.Context(), server.url+"/postgres")
	if err != nil {
		t.Fatalf("connect to the test server: %v", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("create a test database: %v", err)
	}
	return server.url + "/" + name
}

// binaries finds the newest server that is installed.
func binaries() (string, error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	version := func(dir string) int {
		n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err != nil {
			return 0
		}
		return n
	}
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, "initdb")); err == nil {
			return d, nil
		}
	}
	return "", errors.New("initdb was found neither under /usr/lib/postgresql nor in PATH: " +
		"install the server, on Debian and Ubuntu with: apt-get install -y postgresql")
}

// start runs initdb and the server in a temporary directory, as the user
// postgres when we are root, whom the server refuses.
func start() error {
	bin, err := binaries()
	if err != nil {
		return err
	}
	if server.dir, err = os.MkdirTemp("", "flusso-pgtest-"); err != nil {
		return err
	}
	credential, err := owner()
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	data := filepath.Join(server.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = server.dir, credential
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	var log bytes.Buffer
	server.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port), "-k", server.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "wal_level=logical", "-c", "fsync=off", "-c", "max_wal_senders=40",
		"-c", "max_replication_slots=40", "-c", "max_connections=200", "-c", "shared_buffers=32MB", "-c", "logging_collector=off")
	server.cmd.Dir, server.cmd.SysProcAttr = server.dir, credential
	server.cmd.Stdout, server.cmd.Stderr = &log, &log
	if err := server.cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	server.done = make(chan error, 1)
	go func() { server.done <- server.cmd.Wait() }()
	server.url = fmt.Sprintf("postgres://postgres@127.0.0.1:%d", port)
	deadline := time.Now().Add(30 * time.Second)
	for {
		select {
		case err := <-server.done:
			server.done <- err
			return fmt.Errorf("postgres ended at once: %w\n%s", err, log.String())
		default:
		}
		conn, err := pgx.Connect(context.Background(), server.url+"/postgres")
		if err == nil {
			return conn.Close(context.Background())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("postgres did not accept connections: %w", err)
		}
	}
}

func owner() (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return &syscall.SysProcAttr{Setpgid: true}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("run as root, and the user postgres is missing: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(server.dir, uid, gid); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(strings.TrimSpace(text))
	return port, errors.Join(err, l.Close())
}

func stop() {
	if server.cmd != nil && server.cmd.Process != nil {
		_ = server.cmd.Process.Signal(syscall.SIGQUIT) // immediate: nothing here is worth a checkpoint
		<-server.done                                  //nolint:errcheck // that it was killed is known
	}
	if server.dir != "" {
		_ = os.RemoveAll(server.dir)
	}
}
