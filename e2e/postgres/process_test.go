package postgres_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is one of the example's engines. It runs until it is killed; one
// that ends by itself has failed.
type process struct {
	t    *testing.T
	name string
	bin  string
	args []string
	env  []string
	log  string // file with what all its runs have logged

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed when the run has ended
	killed bool          // on purpose
	kills  int
	ended  error // a run that ended by itself
}

func (p *process) start() {
	p.t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(p.bin, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.done, p.killed = cmd, done, false
	p.mu.Unlock()
	go func() {
		defer close(done)
		err := cmd.Wait()
		_ = log.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.killed {
			p.ended = fmt.Errorf("%s ended by itself: %w", p.name, err)
		}
	}()
}

// freeze stops the process for as long as d, so that work piles up.
func (p *process) freeze(d time.Duration) {
	p.t.Helper()
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	pause(p.t, d)
	_ = cmd.Process.Signal(syscall.SIGCONT)
}

// kill ends the process as kill -9 does and returns when it is gone.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.kills++
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	_ = cmd.Process.Kill() // it may have ended by itself: p.ended says so
	<-done
}

// alive returns why the process ended by itself, if it did.
func (p *process) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

func (p *process) logged() string {
	p.t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// match returns what the first group of a pattern matched in the log, each time.
func (p *process) match(pattern *regexp.Regexp) []string {
	p.t.Helper()
	var out []string
	for _, m := range pattern.FindAllStringSubmatch(p.logged(), -1) {
		out = append(out, m[1])
	}
	return out
}

func (p *process) sum(pattern *regexp.Regexp) int {
	p.t.Helper()
	total := 0
	for _, text := range p.match(pattern) {
		n, err := strconv.Atoi(text)
		if err != nil {
			p.t.Fatal(err)
		}
		total += n
	}
	return total
}

// newProcess returns a process that is gone at the end of the test, and shows
// the end of its log when that has failed.
func newProcess(t *testing.T, bin, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, bin: bin, args: args, env: env, log: filepath.Join(t.TempDir(), name+".log")}
	t.Cleanup(func() {
		if p.cmd != nil {
			p.kill()
		}
		if !t.Failed() {
			return
		}
		var shown []string
		for line := range strings.Lines(p.logged()) {
			if !strings.Contains(line, "level=DEBUG") {
				shown = append(shown, line)
			}
		}
		t.Logf("the end of the log of %s:\n%s", name, strings.Join(shown[max(0, len(shown)-40):], ""))
	})
	return p
}
