package lanes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/kafkatest"
	"github.com/flusso/flusso-kafka/kafka"
)

// The test binary is also the program of the processes that it starts.
const (
	childRole     = "FLUSSO_E2E_CHILD"
	childBroker   = "FLUSSO_E2E_CHILD_BROKER"
	childPipeline = "FLUSSO_E2E_CHILD_PIPELINE"
	childSinks    = "FLUSSO_E2E_CHILD_SINKS"
)

// event is a line that a child writes to its standard output.
type event struct {
	What     string          // "published", "received", "acked", "failed", "open"
	Position flusso.Position `json:",omitempty"`
	Error    string          `json:",omitempty"`
	Kinds    []string        `json:",omitempty"` // sentinels that the error is
}

func say(what string, at flusso.Position, err error) {
	e := event{What: what, Position: at}
	if err != nil {
		e.Error = err.Error()
		for name, target := range map[string]error{
			"fenced": flusso.ErrFenced, "lost": flusso.ErrLost, "rejected": flusso.ErrRejected,
			"unknown": flusso.ErrUnknownOutcome, "superseded": flusso.ErrSuperseded,
		} {
			if errors.Is(err, target) {
				e.Kinds = append(e.Kinds, name)
			}
		}
	}
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(append(text, '\n')) // one write: a kill cuts no line
}

func (e event) is(kind string) bool { return slices.Contains(e.Kinds, kind) }

// child is the program of a process. It ends when its standard input does.
func child(role string) int {
	ctx, stop := context.WithCancel(context.Background())
	commands := make(chan string)
	go func() {
		defer stop()
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			commands <- lines.Text()
		}
	}()
	s, err := kafka.Open(ctx, kafka.Config{
		Pipeline: os.Getenv(childPipeline), Sinks: strings.Split(os.Getenv(childSinks), ","), Incarnation: inc,
		Client: []kgo.Opt{kgo.SeedBrokers(os.Getenv(childBroker))}, CreateTopics: true, Standby: role == "standby",
	})
	if err != nil {
		say("failed", 0, err)
		return 1
	}
	if role == "writer" {
		write(ctx, s)
	} else {
		receive(ctx, s, commands)
	}
	closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.Close(closing)
	return 0
}

// write publishes to all lanes, pipelined, behind what they hold. When its
// session ends it asks for another as an engine does, and says what it got.
func write(ctx context.Context, s *kafka.Stream) {
	var at flusso.Position
	for ctx.Err() == nil {
		p, err := s.Commits(ctx)
		if err != nil {
			say("failed", at, err)
			if _, fenced := errors.AsType[*flusso.FencedError](err); fenced {
				<-ctx.Done()
			}
			continue
		}
		say("open", at, nil)
		var wait sync.WaitGroup
		futures := make(chan func(), 10_000)
		wait.Go(func() {
			for f := range futures {
				f()
			}
		})
		for err == nil && ctx.Err() == nil {
			at++
			c := flusso.Commit{}
			for _, sink := range s.Sinks() {
				c.Items = append(c.Items, flusso.Routed{Sink: sink, Item: live(at, fmt.Sprint(at), "b", "c")})
			}
			var f *flusso.Future
			if f, err = p.Submit(ctx, c); err != nil {
				say("failed", at, err)
				break
			}
			here := at
			futures <- func() {
				if _, err := f.Wait(ctx); err != nil {
					say("failed", here, err)
					return
				}
				say("published", here, nil)
			}
		}
		close(futures)
		wait.Wait()
	}
}

// receive attaches to the first lane and tells what comes. The command "ack"
// acks all that is outstanding.
func receive(ctx context.Context, s *kafka.Stream, commands <-chan string) {
	lane, err := s.Lane(s.Sinks()[0])
	if err != nil {
		say("failed", 0, err)
		return
	}
	c, err := lane.Consumer(ctx)
	if err != nil {
		say("failed", 0, err)
		return
	}
	say("open", 0, nil)
	var mu sync.Mutex
	var held []flusso.Delivery[flusso.LaneItem]
	go func() {
		for {
			d, err := c.Receive(ctx)
			if err != nil {
				say("failed", 0, err)
				return
			}
			mu.Lock()
			held = append(held, d)
			mu.Unlock()
			say("received", d.Item().(*flusso.Batch).Position, nil)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-commands:
		}
		mu.Lock()
		for _, d := range held {
			at := d.Item().(*flusso.Batch).Position
			if err := d.Ack(ctx); err != nil {
				say("refused", at, err)
			} else if err := c.Flush(ctx); err != nil {
				say("refused", at, err)
			} else {
				say("acked", at, nil)
			}
		}
		held = nil
		mu.Unlock()
	}
}

// proc is a child as its parent sees it.
type proc struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File

	mu     sync.Mutex
	events []event
}

// spawn starts a process of a role on a pipeline.
func spawn(t *testing.T, p *kafkatest.Pipeline, role string, sinks ...string) *proc {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childRole+"="+role, childBroker+"="+containers.Shared(t).Addr(),
		childPipeline+"="+p.Name().String(), childSinks+"="+strings.Join(sinks, ","))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	read, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = read
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	pr := &proc{t: t, cmd: cmd, in: in}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = event{What: lines.Text()}
			}
			pr.mu.Lock()
			pr.events = append(pr.events, e)
			pr.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait() // killed
	})
	return pr
}

// signal sends a signal, or fails the test.
func (p *proc) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *proc) command(text string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, text); err != nil {
		p.t.Fatal(err)
	}
}

// heard returns the events of a kind so far.
func (p *proc) heard(what string) []event {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []event
	for _, e := range p.events {
		if e.What == what {
			out = append(out, e)
		}
	}
	return out
}

// await waits for n events of a kind.
func (p *proc) await(what string, n int) []event {
	p.t.Helper()
	var out []event
	probe.Eventually(p.t, fmt.Sprintf("the process said %q %d times", what, n), func(context.Context) error {
		if out = p.heard(what); len(out) < n {
			p.mu.Lock()
			defer p.mu.Unlock()
			return fmt.Errorf("it said %+v", p.events[max(0, len(p.events)-5):])
		}
		return nil
	})
	return out
}
