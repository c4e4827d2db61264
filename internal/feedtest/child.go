// Package feedtest lets processes write a feed and kills them: the same code
// runs on the embedded broker and on Apache Kafka.
//
// The two types to know are [Feed], a fresh feed with its checks, and
// [Process], a writer that can be killed. The TestMain of a package that uses
// them begins with [Main].
package feedtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/feeds"
)

const (
	roleOf = "FLUSSO_FEEDS_TEST_CHILD"
	dieAt  = "FLUSSO_FEEDS_TEST_DIE_AT" // read by package feeds
)

// Spec is what a process does.
type Spec struct {
	Brokers []string
	Feed    string
	Name    string // of the holder, and the prefix of its batches
	Staging string

	// Script is what it does, in words: open, resume, repair, discard:STREAM;
	// append:N, which waits for the last of N batches, async:N, which does
	// not, forever; wait; repeat:STREAM:BATCH, where it has that stream; seal,
	// seal:MS, which gives up after that time; close; idle, until it is lost.
	Script  string
	Records int    // of each batch; 0: by its name
	Packs   int64  // size of a pack; 1,000 bytes by default
	DieAt   string // a step of package feeds, or STEP:N for the Nth time
	Again   bool   // when it is fenced, resume, until it is killed
	Pause   int    // before that, at most; in milliseconds
	Model   bool   // what the others do to it is no error
}

// Main runs a process where this is one, and does not return then.
func Main() {
	loadMain()
	text := os.Getenv(roleOf)
	if text == "" {
		return
	}
	var s Spec
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.run()
	}
	if err != nil {
		say("error", err)
		os.Exit(1) //nolint:forbidigo // this is the main of a process
	}
	os.Exit(0) //nolint:forbidigo // the same
}

// say tells the test: a line is written with one call, and so whole or not at all.
func say(what string, args ...any) {
	//nolint:forbidigo // this is the main of a process
	_, _ = os.Stdout.WriteString(strings.ReplaceAll(strings.TrimSuffix(fmt.Sprintln(append([]any{what}, args...)...), "\n"), "\n", " ") + "\n")
}

func (s Spec) run() error {
	ctx := context.Background()
	if s.Packs == 0 {
		s.Packs = 1000
	}
	c, err := feeds.New(feeds.Config{
		Client: []kgo.Opt{kgo.SeedBrokers(s.Brokers...)}, Holder: s.Name, StagingDir: s.Staging,
		PackBytes: s.Packs, TrimGrace: -1, SegmentAge: 5 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	w := writer{Spec: s, client: c}
	for {
		err := w.play(ctx)
		w.waiting.Wait()
		switch {
		case err == nil:
			say("done")
			return nil
		case s.Again:
			say("ended", err)
			w.round++
			<-time.After(time.Duration(rand.IntN(1+s.Pause)) * time.Millisecond)
			w.Script = "resume forever"
		case s.Model && expected(err):
			say("ended", err)
			return nil
		default:
			return err
		}
	}
}

// expected: somebody else took the lease, or something was given up waiting
// for, or there is nothing to do.
func expected(err error) bool {
	for _, known := range []error{
		flusso.ErrFenced, flusso.ErrLost, flusso.ErrRejected, flusso.ErrUnknownOutcome, flusso.ErrClosed,
		feeds.ErrNoOpenStream, feeds.ErrSealed, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	var (
		many *feeds.StreamsError
		none *feeds.NoStreamError
	)
	return errors.As(err, &many) || errors.As(err, &none)
}

// Process is a writer in a process of its own.
type Process struct {
	Spec  Spec
	Lines chan []string // what it said, by words; closed when it has ended

	// Of its newest session, once it was heard of.
	Stream, Epoch uint64

	cmd   *exec.Cmd
	ended chan struct{}
	err   error
}

// Start starts a process, which is killed at the end of the test at the latest.
func (f *Feed) Start(t *testing.T, s Spec) *Process {
	t.Helper()
	s.Brokers, s.Feed, s.Staging = f.brokers, f.Name, t.TempDir()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{Spec: s, Lines: make(chan []string, 1<<16), ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), roleOf+"="+string(text), dieAt+"="+s.DieAt)
	p.cmd.Stderr = os.Stderr //nolint:forbidigo // a panic of the process belongs to the test's
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.Lines <- strings.Fields(lines.Text())
		}
		p.err = p.cmd.Wait()
		close(p.Lines)
	}()
	t.Cleanup(func() {
		p.Kill()
		for range p.Lines {
		}
	})
	return p
}

// Kill kills the process, as kill -9 does.
func (p *Process) Kill() { _ = p.cmd.Process.Signal(syscall.SIGKILL) }

// next is what the process says next; false: it has ended. Where it says nothing
// and does not end the test does.
func (p *Process) next(t *testing.T) ([]string, bool) {
	t.Helper()
	silent, stop := deadline(silence)
	defer stop()
	select {
	case line, ok := <-p.Lines:
		return line, ok
	case <-silent:
		p.dump()
		t.Fatalf("%s said nothing for %s and did not end: what it did is on standard error", p.Spec.Name, silence)
		return nil, false
	}
}

// dump ends the process, and lets it tell on standard error what each of its
// goroutines does.
func (p *Process) dump() {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	for range p.Lines {
	}
}

// Killed reports, once its lines have ended, whether it was killed.
func (p *Process) Killed() bool {
	<-p.ended
	var exit *exec.ExitError
	return errors.As(p.err, &exit) && exit.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}
