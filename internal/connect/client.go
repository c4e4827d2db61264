package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kafkaerr"
)

// Client is a Kafka client that remembers what it tried, so that a command
// which got no answer can say which broker did not give it, and to what.
type Client struct {
	*kgo.Client

	options *Options
	opts    []kgo.Opt
	tried   *tried
}

// Opts returns what other clients of the same command need to reach the same
// brokers; Explain knows what they tried, too.
func (c *Client) Opts() []kgo.Opt { return slices.Clone(c.opts) }

// Dial returns a client after a broker answered it, or an [*Error] that says
// what was tried within ctx and what to do. A broker that may be starting is
// waited for, see [Options.Patience]. extra goes to the client after the
// options' own. The caller closes the client.
func (o *Options) Dial(ctx context.Context, extra ...kgo.Opt) (*Client, error) {
	opts, err := o.Opts()
	if err != nil {
		return nil, err
	}
	seen := newTried()
	// Closing would wait a second for a last push of client metrics, where
	// brokers take them and then hang: longer than an interrupt may take.
	opts = append(opts, kgo.WithHooks(seen), kgo.DisableClientMetrics())
	cl, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("set up the Kafka client: %w", err)
	}
	c := &Client{Client: cl, options: o, opts: opts, tried: seen}
	if err := c.reach(ctx); err != nil {
		cl.Close()
		return nil, err
	}
	return c, nil
}

// Fresh forgets what was tried so far, for a client that is kept and asks anew:
// what it says then is about what it asked since.
func (c *Client) Fresh() {
	c.tried.mu.Lock()
	defer c.tried.mu.Unlock()
	c.tried.start = time.Now()
	clear(c.tried.dialed)
	clear(c.tried.waiting)
}

// Error is a failure of the connection itself: what was tried, and what to do.
type Error struct {
	Tried  string
	Advice string
	Cause  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v: %s", e.Tried, e.Cause, e.Advice) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Explain adds to err what the client tried, where err is about the connection
// or about ctx's end; any other error, and nil, comes back as it is.
func (c *Client) Explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if done := (*Error)(nil); errors.As(err, &done) {
		return err
	}
	if bad := (*OptionError)(nil); errors.As(err, &bad) {
		return err
	}
	if at := c.tried.foreigner(); at != "" && foreign(err) {
		return &Error{Tried: "connect to " + at, Advice: c.foreignAdvice(err), Cause: err}
	}
	brokers := strings.Join(c.options.Brokers, ", ")
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return err
	case ctx.Err() != nil:
		advice := "check that " + brokers + " is a Kafka listener that this machine reaches"
		if c.secure() && !c.tried.connected() {
			advice += ", and by TLS (else leave out --tls)"
		}
		return &Error{Tried: c.tried.String(), Advice: advice + ", or allow more time with --timeout", Cause: err}
	}
	if advice := c.advice(err); advice != "" {
		return &Error{Tried: "connect to " + brokers, Advice: advice, Cause: plainly(err)}
	}
	return err
}

// advice says what to do about a connection that failed; empty for an error
// that is not about the connection.
func (c *Client) advice(err error) string {
	var (
		header    tls.RecordHeaderError
		eof       *kgo.ErrFirstReadEOF
		verifying *tls.CertificateVerificationError
		op        *net.OpError
		dns       *net.DNSError
	)
	broken := kafkaerr.Classify(err) == kafkaerr.Unreachable
	switch {
	case errors.As(err, &header):
		return notTLS
	case errors.As(err, &verifying):
		return "the broker's certificate is not trusted: give its authority with --tls-ca, and the host name that the certificate is for"
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert: crypto/tls does not export its type
		return "the broker refused the TLS handshake: check --tls-cert and --tls-key"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "the broker refused the credentials: check --sasl-user, the password or token, and --sasl-mechanism"
	case errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		return "the broker does not take --sasl-mechanism " + c.options.Mechanism + " on this port"
	case broken && c.tried.unanswered(kmsg.SASLAuthenticate):
		return "the broker closed the connection instead of taking the credentials: check --sasl-user, the password or token, and --sasl-mechanism"
	case errors.As(err, &eof), broken && !dialing(err):
		return c.closedAdvice()
	case errors.As(err, &dns):
		return "the name is not known: check --brokers"
	case broken:
		return "check --brokers, the network, and whether the broker runs: it may be starting"
	}
	return ""
}

// closedAdvice says what to do where the other side hung up, which has several
// causes.
func (c *Client) closedAdvice() string {
	const starting = "the broker may be starting, or be down behind a proxy that takes its connections, as Docker's does"
	if c.secure() && !c.tried.connected() {
		return "it was closed in the TLS handshake: " + starting + "; if it does not speak TLS on this port, leave out --tls, or use its TLS port"
	}
	advice := starting
	if c.tried.anySpoke() {
		advice = "the broker had answered until then, and may be going down"
	} else if !c.secure() {
		advice += "; if this is its TLS port, add --tls"
	}
	if c.options.Mechanism == "" {
		advice += "; if it wants SASL, add --sasl-mechanism"
	}
	return advice
}

// Texts of errors that kgo does not export: what was read as an answer's size
// is none.
const (
	badSize  = "invalid large response size"
	negative = "invalid negative response size"
	fromHTTP = "an HTTP response"
	alertTLS = "a tls alert record"
)

// foreign reports whether err says that the other side does not speak Kafka.
func foreign(err error) bool {
	return err != nil && (strings.Contains(err.Error(), badSize) || strings.Contains(err.Error(), negative))
}

func (c *Client) foreignAdvice(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, alertTLS) && !c.secure():
		return isTLS
	case strings.Contains(text, fromHTTP):
		return "an HTTP server answers there, it does not speak Kafka: check --brokers, the port above all"
	}
	return "what answers there does not speak Kafka: check --brokers, the port above all"
}

func (c *Client) secure() bool {
	o := c.options
	return o.TLS || o.TLSCA != "" || o.TLSCert != ""
}
