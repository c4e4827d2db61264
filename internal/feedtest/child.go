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
	"os"
	"os/exec"
	"strings"
	"sync"
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
	Name    string // of the holder, and the prefix of its payloads
	Staging string

	Resume  bool   // otherwise it opens
	Appends int    // batches; negative: until it is killed or fenced
	Seal    bool   // behind them
	DieAt   string // a step of the seal
	Again   bool   // when fenced, take the lease again, until it is killed
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
	c, err := feeds.New(feeds.Config{
		Client: []kgo.Opt{kgo.SeedBrokers(s.Brokers...)}, Holder: s.Name, StagingDir: s.Staging,
		PackBytes: 200, TrimGrace: -1, SegmentAge: 5 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		err := s.session(ctx, c, round)
		if !s.Again || err == nil {
			return err
		}
		say("ended", err)
	}
}

func (s Spec) session(ctx context.Context, c *feeds.Client, round int) error {
	open := c.Open
	if s.Resume {
		open = c.Resume
	}
	x, err := open(ctx, s.Feed)
	if err != nil {
		return err
	}
	say("session", x.Stream(), x.Epoch())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for i := 0; s.Appends < 0 || i < s.Appends; i++ {
		payload := fmt.Sprintf("%s-%d-%d", s.Name, round, i)
		f, err := x.AppendAsync(ctx, feeds.Batch{Records: []feeds.Record{
			{Payload: []byte(payload), Key: fmt.Appendf(nil, "k%d", i%7)}, {Payload: []byte(payload + "b")},
		}})
		if err != nil {
			return err
		}
		waiting.Go(func() {
			switch at, err := f.Wait(ctx); {
			case err == nil:
				say("acked", at.Stream, at.First, x.Epoch(), payload)
			case errors.Is(err, flusso.ErrRejected):
				say("rejected", 0, 0, 0, payload)
			}
		})
		if s.Appends < 0 && i%20 == 19 { // not as fast as it can: the test is about the rest
			if _, err := f.Wait(ctx); err != nil {
				return err
			}
		}
	}
	waiting.Wait()
	if !s.Seal {
		say("done")
		return nil
	}
	say("sealing")
	commit, err := x.Seal(ctx, "by "+s.Name)
	if err != nil {
		return err
	}
	say("sealed", commit.Number)
	return nil
}

// Process is a writer in a process of its own.
type Process struct {
	Spec  Spec
	Lines chan []string // what it said, by words; closed when it has ended
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

// Killed reports, once its lines have ended, whether it was killed.
func (p *Process) Killed() bool {
	<-p.ended
	var exit *exec.ExitError
	return errors.As(p.err, &exit) && exit.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}
