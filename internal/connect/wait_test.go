package connect_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/internal/connect"
	"github.com/flusso/flusso-kafka/internal/kfaketest"
)

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Ways in which a broker that is not up meets a client.
var (
	refuses = func() (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	closes = func() (net.Conn, error) {
		mine, its := net.Pipe()
		go func() {
			_, _ = its.Read(make([]byte, 4096)) // what was asked is not answered
			_ = its.Close()
		}()
		return mine, nil
	}
	gone = func() (net.Conn, error) {
		mine, its := net.Pipe()
		return mine, its.Close()
	}
	noName = func() (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "try again", Name: "kafka", IsTemporary: true}}
	}
)

// waiter is what a test in a bubble sees of waiting.
type waiter struct {
	*connect.Options
	dials atomic.Int32
	told  []string
}

// meets returns options of a client whose connections come about by how.
func meets(t *testing.T, how func(ctx context.Context, address string) (net.Conn, error)) *waiter {
	t.Helper()
	w := &waiter{Options: options(t, nil, "--brokers=kafka:9092")}
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		w.dials.Add(1)
		return how(ctx, address)
	}
	w.Extra = []kgo.Opt{kgo.Dialer(dial)}
	w.Waiting = func(text string) { w.told = append(w.told, text) }
	return w
}

func TestWaitsForABrokerThatStarts(t *testing.T) {
	for name, down := range map[string]func() (net.Conn, error){"refused": refuses, "closed": closes, "gone": gone, "name": noName} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := kfaketest.New(t)
				began := time.Now()
				virtual := c.Client(t).OptValue(kgo.Dialer).(dialFunc)
				w := meets(t, func(ctx context.Context, _ string) (net.Conn, error) {
					if time.Since(began) < 7*time.Second {
						return down()
					}
					return virtual(ctx, "tcp", c.Addrs()[0])
				})
				cl, err := w.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				cl.Close()
				if len(w.told) != 1 || !strings.HasPrefix(w.told[0], "waiting up to 8s for kafka:9092, which may be starting: ") {
					t.Errorf("told %q", w.told)
				}
			})
		})
	}
}

func TestGivesUpABrokerThatStaysDown(t *testing.T) {
	const starting = "the broker may be starting, or be down behind a proxy that takes its connections"
	for name, tt := range map[string]struct {
		down func() (net.Conn, error)
		says []string
	}{
		"refused": {refuses, []string{"connection refused", "check --brokers, the network, and whether the broker runs: it may be starting"}},
		"closed":  {closes, []string{"the connection was closed before an answer came: " + starting, "if this is its TLS port, add --tls", "if it wants SASL, add --sasl-mechanism"}},
		"gone":    {gone, []string{starting}},
		"name":    {noName, []string{"try again", "check --brokers"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, within := range []time.Duration{time.Minute, 2 * time.Second} {
					w := meets(t, func(context.Context, string) (net.Conn, error) { return tt.down() })
					began := time.Now()
					err := dial(t, w.Options, within)
					wants(t, "for good", err, append(tt.says, "connect to kafka:9092, tried for ")...)
					took, bound := time.Since(began), min(within, connect.DefaultPatience)
					if took > bound || took < bound/2 || w.dials.Load() < 5 {
						t.Errorf("gave up after %s and %d connections, of %s", took, w.dials.Load(), bound)
					}
					if more := strings.Contains(err.Error(), "allow more time with --timeout"); more != (within < connect.DefaultPatience) {
						t.Errorf("with a timeout of %s: %v", within, err)
					}
					if strings.Contains(err.Error(), "is TLS missing") {
						t.Errorf("it guesses: %v", err)
					}
				}
				w := meets(t, func(context.Context, string) (net.Conn, error) { return tt.down() })
				w.Patience = connect.Once
				err := dial(t, w.Options, time.Minute)
				wants(t, "once", err, tt.says...)
				// One may look what the port speaks.
				if strings.Contains(err.Error(), "tried for") || w.dials.Load() > 2 || len(w.told) > 0 {
					t.Errorf("tried %d times, told %q: %v", w.dials.Load(), w.told, err)
				}
			})
		})
	}
}

// What waiting does not change is said at once.
func TestDoesNotWait(t *testing.T) {
	for name, cause := range map[string]error{
		"no such host": &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "kafka", IsNotFound: true, IsTemporary: true}},
		"no port":      &net.OpError{Op: "dial", Net: "tcp", Err: &net.AddrError{Err: "invalid port", Addr: "99999"}},
	} {
		w := meets(t, func(context.Context, string) (net.Conn, error) { return nil, cause })
		err := dial(t, w.Options, time.Minute)
		if !errors.Is(err, cause) || w.dials.Load() > 2 || strings.Contains(err.Error(), "tried for") { // kgo tries a name once more
			t.Errorf("%s: %d connections: %v", name, w.dials.Load(), err)
		}
	}
}

// A try that the deadline cut before it asked says less than the one before; an
// interrupt is none of the brokers' doing.
func TestWaitingIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		w := meets(t, func(ctx context.Context, _ string) (net.Conn, error) {
			if first {
				first = false
				return refuses()
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		wants(t, "cut", dial(t, w.Options, 5*time.Second), "connection refused", "check --brokers")

		ctx, cancel := context.WithCancel(t.Context())
		w = meets(t, func(context.Context, string) (net.Conn, error) { return refuses() })
		time.AfterFunc(3*time.Second, cancel)
		if cl, err := w.Dial(ctx); err == nil {
			cl.Close()
			t.Error("connected to nothing")
		} else if err.Error() != context.Canceled.Error() {
			t.Errorf("interrupted: %v", err)
		}
	})
}

// On real sockets a closed connection may be a reset one.
func TestWaitsBehindAProxy(t *testing.T) {
	_, addr := cluster(t)
	s := kfaketest.NewStarting(t, addr, 4)
	if err := dial(t, options(t, nil, "--brokers="+s.Addr), time.Minute); err != nil || s.Closed() != 4 {
		t.Errorf("after %d connections: %v", s.Closed(), err)
	}
}

// A port that hangs up on what it does not speak is told from one that is not
// up, in both directions.
func TestTellsTLSFromAStart(t *testing.T) {
	_, cert, key := authority(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	_, clear := cluster(t)
	const hello = 0x16 // how TLS begins
	secureOnly := front(t, func(conn *peeked) {
		if conn.first() == hello {
			_ = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context())
		}
	})
	clearOnly := front(t, func(conn *peeked) {
		if conn.first() == hello {
			return
		}
		broker, err := net.Dial("tcp", clear)
		if err != nil {
			t.Error(err)
			return
		}
		asking := make(chan struct{})
		go func() {
			defer close(asking)
			_, _ = conn.r.WriteTo(broker)
			_ = broker.Close()
		}()
		defer func() { _ = conn.Close(); <-asking }()
		buf := make([]byte, 4096)
		if n, err := broker.Read(buf); err == nil {
			_, _ = conn.Write(buf[:n])
		}
	})
	for _, tt := range []struct {
		addr, says string
		args       []string
	}{
		{secureOnly, "this is a TLS port: add --tls", nil},
		{clearOnly, "the broker does not speak TLS on this port: leave out --tls", []string{"--tls"}},
	} {
		err := dial(t, options(t, nil, append(tt.args, "--brokers="+tt.addr)...), time.Minute)
		wants(t, "a port that hangs up", err, "connect to "+tt.addr+": ", tt.says)
		if err != nil && strings.Contains(err.Error(), "may be starting") {
			t.Errorf("it is known what it is: %v", err)
		}
	}
}

// peeked is a connection of which the first byte is known.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

func (p *peeked) first() byte {
	b, err := p.r.Peek(1)
	if err != nil {
		return 0
	}
	return b[0]
}

// front returns the address of a server that closes each connection after do.
func front(t *testing.T, do func(*peeked)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				do(&peeked{conn, bufio.NewReader(conn)})
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}
