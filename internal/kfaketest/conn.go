package kfaketest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listener hands kfake connections that look at each frame.
type listener struct {
	net.Listener
	faults *faults
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{
		Conn: c, faults: l.faults, done: make(chan struct{}),
		pending: make(map[int32]pending), answered: make(chan struct{}, 1),
	}, nil
}

// conn is the broker's end of a connection. kfake reads it from one goroutine
// at a time and writes each response with one Write.
type conn struct {
	net.Conn
	faults *faults
	once   sync.Once
	done   chan struct{}

	buf []byte // what Read has still to hand out; reader's
	raw bool   // not Kafka (TLS): pass everything through; reader's

	mu       sync.Mutex
	pending  map[int32]pending // by correlation id: what to do with the response
	open     int               // requests that kfake has and did not answer
	answered chan struct{}     // to the reader: one was answered
}

type pending struct {
	fault *Injected
	resp  kmsg.Response // of the right version, to decode into
}

// Close closes the connection and ends what hangs on it.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// firstTLS is the first byte of a TLS handshake. A Kafka frame that began with
// it would be 369 MB long.
const firstTLS = 0x16

// Read hands out whole request frames, each after the faults have looked at it.
func (c *conn) Read(p []byte) (int, error) {
	for len(c.buf) == 0 {
		if c.raw {
			return c.Conn.Read(p)
		}
		frame, err := c.readFrame()
		if err != nil {
			return 0, err
		}
		pass := true
		if !c.raw {
			if pass, err = c.request(frame); err != nil {
				return 0, err
			}
		}
		if pass {
			c.buf = frame
		}
	}
	n := copy(p, c.buf)
	c.buf = c.buf[n:]
	return n, nil
}

func (c *conn) readFrame() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
		return nil, err
	}
	if size[0] == firstTLS {
		c.raw = true
		return size[:], nil
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(frame, size[:])
	_, err := io.ReadFull(c.Conn, frame[4:])
	return frame, err
}

// request reports whether the broker shall see the frame.
func (c *conn) request(frame []byte) (pass bool, err error) {
	r := kbin.Reader{Src: frame[4:]}
	key, version, corr := r.Int16(), r.Int16(), r.Int32()
	clientID := r.NullableString()
	req := kmsg.RequestForKey(key)
	if !r.Ok() || req == nil {
		return true, nil // kfake's to refuse
	}
	req.SetVersion(version)
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if req.ReadFrom(r.Src) != nil {
		return true, nil //nolint:nilerr // kfake's to refuse
	}
	id := ""
	if clientID != nil {
		id = *clientID
	}
	f := c.faults.find(kmsg.Key(key), id, req)
	if f == nil {
		c.pass(req, corr, pending{})
		return true, nil
	}
	resp := req.ResponseKind()
	resp.SetVersion(version)
	if f.fault.After || f.fault.Mode == Error && looksOnly(req) {
		c.pass(req, corr, pending{f, resp})
		return true, nil
	}
	if err := c.inTurn(); err != nil {
		return false, err
	}
	f.record()
	switch f.fault.Mode {
	case Hang:
		c.pass(req, corr, pending{})
		return true, c.hang(f)
	case Disconnect:
		_ = c.Close() // kfake sees the end of the connection
		return false, io.EOF
	default:
		refuse(req, resp, f.code)
		return false, c.answer(corr, resp)
	}
}

// pass notes that kfake will answer the request.
func (c *conn) pass(req kmsg.Request, corr int32, p pending) {
	if produce, ok := req.(*kmsg.ProduceRequest); ok && produce.Acks == 0 {
		return // not answered
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	if p.fault != nil {
		c.pending[corr] = p
	}
}

// inTurn waits until kfake has answered the requests before: a broker answers
// those of one connection in their order.
func (c *conn) inTurn() error {
	for {
		c.mu.Lock()
		open := c.open
		c.mu.Unlock()
		if open == 0 {
			return nil
		}
		select {
		case <-c.answered:
		case <-c.done:
			return net.ErrClosed
		case <-c.faults.closed:
			return net.ErrClosed
		}
	}
}

// hang waits until the fault is released, or the connection or cluster closed.
func (c *conn) hang(f *Injected) error {
	select {
	case <-f.release:
		return nil
	case <-c.done:
		return net.ErrClosed
	case <-c.faults.closed:
		return net.ErrClosed
	}
}

// Write passes on a response, unless a fault waits for it.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) < 8 || p[0] == firstTLS {
		return c.Conn.Write(p)
	}
	corr := int32(binary.BigEndian.Uint32(p[4:]))
	c.mu.Lock()
	at, found := c.pending[corr]
	delete(c.pending, corr)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.open--
		c.mu.Unlock()
		select {
		case c.answered <- struct{}{}:
		default:
		}
	}()
	if !found {
		return c.Conn.Write(p)
	}
	at.fault.record()
	switch at.fault.fault.Mode {
	case Hang:
		if err := c.hang(at.fault); err != nil {
			return 0, err
		}
		return c.Conn.Write(p)
	case Disconnect:
		_ = c.Close() // the client sees the end of the connection
		return 0, net.ErrClosed
	default:
		body := p[8:]
		if at.resp.IsFlexible() && at.resp.Key() != int16(kmsg.ApiVersions) {
			body = body[1:] // no header tags: kfake writes none
		}
		if err := at.resp.ReadFrom(body); err != nil {
			return 0, err
		}
		setCodes(at.resp, at.fault.code)
		if err := c.answer(corr, at.resp); err != nil {
			return 0, err
		}
		return len(p), nil
	}
}

// answer writes a response of our own.
func (c *conn) answer(corr int32, resp kmsg.Response) error {
	out := make([]byte, 8, 64)
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	binary.BigEndian.PutUint32(out[4:], uint32(corr))
	_, err := c.Conn.Write(out)
	return err
}
