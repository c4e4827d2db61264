// Package embedded is a Kafka broker inside this process that keeps its data
// in a directory: kfake, with what kfake leaves to its user. It is for trying,
// for tests and for development. Production is Apache Kafka.
//
// The type to know is [Broker]. It locks its directory against a second one,
// and after an unclean stop it settles the transactions that were open before
// it serves anyone.
//
// What it is not: data is in the hands of the operating system when a produce
// is acknowledged, and not yet on the disk, so it survives a killed process
// but not a lost machine. After a kill, log starts fall back to the start of
// what the disk holds, and a plain idempotent producer that repeats a batch
// across the restart may write it twice.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cleanFile says that the broker was closed in order and nothing has happened
// since. It is removed before anyone is served.
const cleanFile = "flusso-clean"

// metaFile is kfake's: it is there when the directory holds a cluster.
const metaFile = "meta.json"

// Broker is a running broker. It owns its directory until it is closed.
type Broker struct {
	dir    string
	lock   *dirLock
	kfake  *kfake.Cluster
	errors *errorLog
	addr   string
	log    *slog.Logger

	once sync.Once
	err  error
}

type config struct {
	port int
	log  *slog.Logger
}

// Option changes how a broker is opened.
type Option func(*config)

// Port has the broker listen on a fixed loopback port; 0, the default, takes a
// free one, another after each start.
func Port(port int) Option { return func(c *config) { c.port = port } }

// Logger is told of recoveries. The default is silent.
func Logger(l *slog.Logger) Option { return func(c *config) { c.log = l } }

// DirError says why a directory cannot be used.
type DirError struct {
	Dir   string
	Cause error
}

// Error names the directory and the reason.
func (e *DirError) Error() string {
	return fmt.Sprintf("embedded broker: data directory %s cannot be used: %v: give it a directory of its own that it can write to", e.Dir, e.Cause)
}

// Unwrap returns the cause.
func (e *DirError) Unwrap() error { return e.Cause }

// LockedError says that another broker owns the directory.
type LockedError struct {
	Dir string
	PID int // process of the owner; 0 when unknown
}

// Error names the directory and its owner.
func (e *LockedError) Error() string {
	return fmt.Sprintf("embedded broker: data directory %s is in use by process %d: stop it, connect to it, or use another directory", e.Dir, e.PID)
}

// Open starts the broker over dir, which is created when it is not there. A
// directory that another broker owns is a [*LockedError], one that cannot be
// used a [*DirError]. ctx bounds the opening, recovery included.
func Open(ctx context.Context, dir string, opts ...Option) (*Broker, error) {
	cfg := config{log: slog.New(slog.DiscardHandler)}
	for _, o := range opts {
		o(&cfg)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, &DirError{dir, err}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, &DirError{dir, err}
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	b := &Broker{dir: dir, lock: lock, errors: &errorLog{}, log: cfg.log}
	if err := b.start(ctx, cfg); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return b, nil
}

func (b *Broker) start(ctx context.Context, cfg config) error {
	dirty, err := b.dirty()
	if err != nil {
		return &DirError{b.dir, err}
	}
	if dirty {
		if err := recoverDir(ctx, b.dir, cfg.log); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(b.dir, cleanFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &DirError{b.dir, err}
	}
	kopts := append(kfakeOpts(b.dir, b.errors), kfake.Ports(cfg.port))
	if b.kfake, err = kfake.NewCluster(kopts...); err != nil {
		return &DirError{b.dir, err}
	}
	b.addr = b.kfake.ListenAddrs()[0]
	return nil
}

func kfakeOpts(dir string, log kfake.Logger) []kfake.Opt {
	return []kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(dir), kfake.WithLogger(log)}
}

// dirty reports whether the directory holds a cluster that was not closed.
func (b *Broker) dirty() (bool, error) {
	there, err := exists(filepath.Join(b.dir, metaFile))
	if err != nil || !there {
		return false, err
	}
	clean, err := exists(filepath.Join(b.dir, cleanFile))
	return !clean, err
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Addr returns the address the broker listens on: "127.0.0.1:41234".
func (b *Broker) Addr() string { return b.addr }

// Opts returns what a client needs to reach the broker. The caller owns the slice.
func (b *Broker) Opts() []kgo.Opt { return []kgo.Opt{kgo.SeedBrokers(b.addr)} }

// Close stops the broker, writes its state and releases the directory. Clients
// should be closed before. When the state could not be written it says so, and
// the next Open recovers. It may be called again.
func (b *Broker) Close() error {
	b.once.Do(func() {
		b.kfake.Close()
		if err := b.errors.first(); err != nil {
			b.err = &DirError{b.dir, err}
		} else if err := writeClean(b.dir); err != nil {
			b.err = &DirError{b.dir, err}
		}
		b.err = errors.Join(b.err, b.lock.release())
	})
	return b.err
}

func writeClean(dir string) error {
	f, err := os.Create(filepath.Join(dir, cleanFile))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// errorLog keeps the first error that kfake logs: it has no other way to say
// that it could not write.
type errorLog struct {
	mu  sync.Mutex
	err error
}

// Logf is kfake's.
func (l *errorLog) Logf(level kfake.LogLevel, format string, args ...any) {
	if level != kfake.LogLevelError {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = fmt.Errorf(format, args...)
	}
}

func (l *errorLog) first() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
