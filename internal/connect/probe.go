package connect

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// probeWithin bounds the question what a port speaks.
const probeWithin = 2 * time.Second

const (
	isTLS  = "this is a TLS port: add --tls"
	notTLS = "the broker does not speak TLS on this port: leave out --tls, or use its TLS port"
)

// misfit looks, where a connection was closed, whether the port speaks TLS and
// was asked in the clear, or the other way round: waiting does not change that.
// It sends no secret and no certificate. It returns nil where neither is so.
func (c *Client) misfit(ctx context.Context, err error) error {
	if dialing(err) {
		return nil
	}
	at := c.tried.lastAt()
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	conn, derr := c.dialPlain(ctx, at)
	if derr != nil {
		return nil // whatever it is, the next try meets it
	}
	defer func() { _ = conn.Close() }() // nothing was sent that matters
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	switch {
	case c.secure() && speaksKafka(conn):
		return &Error{Tried: "connect to " + at, Advice: notTLS, Cause: plainly(err)}
	case !c.secure() && speaksTLS(ctx, conn, at):
		return &Error{Tried: "connect to " + at, Advice: isTLS, Cause: plainly(err)}
	}
	return nil
}

// dialPlain connects as the client does, but for TLS.
func (c *Client) dialPlain(ctx context.Context, at string) (net.Conn, error) {
	if !c.secure() {
		if dial, ok := c.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error)); ok {
			return dial(ctx, "tcp", at)
		}
	}
	return new(net.Dialer).DialContext(ctx, "tcp", at)
}

// speaksTLS reports whether a handshake is answered, were it by a refusal.
func speaksTLS(ctx context.Context, conn net.Conn, at string) bool {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return false
	}
	err = tls.Client(conn, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
	var (
		op        *net.OpError
		verifying *tls.CertificateVerificationError
	)
	return err == nil || errors.As(err, &verifying) || errors.As(err, &op) && op.Op == "remote error"
}

// speaksKafka reports whether the versions of requests are told.
func speaksKafka(conn io.ReadWriter) bool {
	const id = 0x666c7573
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), id)); err != nil {
		return false
	}
	var head [8]byte // the answer's size, and its correlation id
	_, err := io.ReadFull(conn, head[:])
	return err == nil && binary.BigEndian.Uint32(head[4:]) == id
}

// plainly replaces kgo's guess.
func plainly(err error) error {
	if errors.As(err, new(*kgo.ErrFirstReadEOF)) {
		return closedError{err}
	}
	return err
}

// closedError says no more than is known, where kgo's text takes one of several
// causes for the likely one.
type closedError struct{ error }

func (closedError) Error() string { return "the connection was closed before an answer came" }

// Unwrap returns the cause.
func (e closedError) Unwrap() error { return e.error }
