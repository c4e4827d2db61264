package kfaketest

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Starting is the address of a cluster on TCP as it looks while it starts
// behind a proxy that takes its connections: the first of them are closed at
// once, then they go through.
type Starting struct {
	Addr   string
	closed atomic.Int32
}

// NewStarting closes so many connections at once and passes later ones on to
// the address to; a negative count closes every one.
func NewStarting(t testing.TB, to string, closes int) *Starting {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("kfaketest: listen: %v", err)
	}
	s := &Starting{Addr: l.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed by the end of the test
			}
			if closes < 0 || int(s.closed.Load()) < closes {
				s.closed.Add(1)
				_ = conn.Close()
				continue
			}
			running.Go(func() { pass(t, conn, to) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return s
}

// Closed returns how many connections were closed.
func (s *Starting) Closed() int { return int(s.closed.Load()) }

// pass copies both ways until either side closes.
func pass(t testing.TB, conn net.Conn, to string) {
	broker, err := net.Dial("tcp", to)
	if err != nil {
		t.Errorf("kfaketest: reach the broker: %v", errors.Join(err, conn.Close()))
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{broker, conn}, {conn, broker}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // its end is that of the connection
			_ = way[0].Close()
		})
	}
	both.Wait()
}
