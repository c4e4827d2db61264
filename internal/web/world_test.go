package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/internal/status"
)

// newReport is a report on lanes that hold items to 1000, acked to these positions.
func newReport(acked ...status.Position) *status.Report {
	r := &status.Report{
		Pipeline: "shop", At: time.Now().UTC(), Healthy: true,
		Findings: []status.Finding{}, Lanes: []status.Lane{}, Requests: []status.Request{},
		Watermark: status.Watermark{Holders: []string{}, Behind: "0", Floors: []status.Floor{}},
	}
	for i, a := range acked {
		waiting := uint64(1000 - a)
		age := float64(waiting) / 100
		l := status.Lane{
			Sink: fmt.Sprintf("sink-%d", i), State: status.Behind, Known: true, Acked: a, Tail: 1000,
			Batches: &waiting, Envelopes: &waiting, Bytes: &waiting, Changes: &waiting, Seconds: &age, Consumer: status.Attached,
		}
		if waiting == 0 {
			l.State = status.CaughtUp
		}
		r.Lanes = append(r.Lanes, l)
		if i == 0 || a < r.Watermark.Position {
			r.Watermark.Position, r.Watermark.Holders = a, []string{l.Sink}
		}
	}
	return r
}

// fake is a source whose answer a test sets.
type fake struct {
	mu     sync.Mutex
	report *status.Report
	err    error
	calls  int
}

func (f *fake) set(r *status.Report, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report, f.err = r, err
}

func (f *fake) Collect(context.Context) (*status.Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.report, f.err
}

var errDown = errors.New("no broker answers at kafka-1:9092")

func newServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Pipeline = "shop"
	if cfg.Source == nil {
		cfg.Source = &fake{err: errDown}
	}
	if cfg.Interval == 0 {
		cfg.Interval = 2 * time.Second
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pipes is a listener without a network: it works in a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9477} }

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- far
	return near
}

// stream is a client of /events.
type stream struct {
	t      *testing.T
	conn   net.Conn
	answer *http.Response
	lines  *bufio.Scanner
}

// follow asks for /events on a connection of its own.
func follow(t *testing.T, p *pipes, headers ...string) *stream {
	t.Helper()
	return followOn(t, p.dial(), "/events", headers...)
}

func followOn(t *testing.T, conn net.Conn, path string, headers ...string) *stream {
	t.Helper()
	s := &stream{t: t, conn: conn}
	text := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n"
	for _, h := range headers {
		text += h + "\r\n"
	}
	if _, err := io.WriteString(s.conn, text+"\r\n"); err != nil {
		t.Fatal(err)
	}
	var err error
	s.answer, err = http.ReadResponse(bufio.NewReader(s.conn), nil) //nolint:bodyclose // closed with the connection
	if err != nil {
		t.Fatal(err)
	}
	s.lines = bufio.NewScanner(s.answer.Body)
	s.lines.Buffer(nil, 1<<22)
	return s
}

// sent is one event, or a comment.
type sent struct{ event, id, data, comment, retry string }

func (s *stream) next() (sent, bool) {
	var e sent
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "event":
			e.event = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		case "retry":
			e.retry = value
		case "":
			if value != "" {
				e.comment = value
				continue
			}
			return e, true
		default:
			s.t.Errorf("a line that is none of an event: %q", s.lines.Text())
		}
	}
	return e, false
}

// must returns the next event or fails.
func (s *stream) must() sent {
	s.t.Helper()
	e, ok := s.next()
	if !ok {
		s.t.Fatalf("the stream ended: %v", s.lines.Err())
	}
	return e
}
